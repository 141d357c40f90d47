/*
 * The members of a communicator that have died while it lives on: collectives have ended, messages and groups among the
 * living go on. The list only grows. It is written as the communicator's `failed` is, and read by any thread that uses
 * or drives the communicator.
 */
#ifndef COLL_CORE_DEAD_H
#define COLL_CORE_DEAD_H

#include "core/comm.h"

struct coll_dead_members {
	atomic_int count;             /* release, after the rank */
	atomic_bool reported;         /* an operation has ended with a death: destroy need not say it */
	bool refused;                 /* the last failure was that of one call: coll_last_error() describes it */
	struct coll_error_box box;    /* of comm->lost */
	struct coll_kept_error ended; /* what ended the communicator behind that */
	int rank[];                   /* in the order in which this rank learned of them */
};

static inline struct coll_dead_members *coll_comm_dead(const struct coll_comm *comm)
{
	return atomic_load_explicit(&comm->dead, memory_order_acquire);
}

static inline bool coll_comm_is_dead(const struct coll_comm *comm, int rank)
{
	const struct coll_dead_members *d = coll_comm_dead(comm);
	const int n = d ? atomic_load_explicit(&d->count, memory_order_acquire) : 0;

	for (int i = 0; i < n; i++)
		if (d->rank[i] == rank)
			return true;
	return false;
}

/* An operation ends because a member has died. */
static inline void coll_comm_death_reported(const struct coll_comm *comm)
{
	if (coll_comm_dead(comm))
		atomic_store_explicit(&coll_comm_dead(comm)->reported, true, memory_order_relaxed);
}

/* Why collectives, or the whole communicator, have ended; NULL: they have not. */
static inline const coll_error *coll_comm_ended_error(const struct coll_comm *comm)
{
	if (!comm->failed)
		return NULL;
	return comm->ended && coll_comm_dead(comm) ? &coll_comm_dead(comm)->ended.error : &comm->lost.error;
}

/* Append to the list. False: no memory. */
bool coll_comm_note_dead(struct coll_comm *comm, int rank);

#endif
