/*
 * What of a communicator is in flight; see async.h for what the members mean together
 * and who may touch them.
 */
#ifndef COLL_PROGRESS_INFLIGHT_H
#define COLL_PROGRESS_INFLIGHT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"

struct coll_run;
struct coll_request;
struct coll_operation;

enum { COLL_IN_FLIGHT_MAX = 4 };

/* In a circle with its list's head; alone it points to itself. */
struct coll_link {
	struct coll_link *prev, *next;
};

struct coll_async;
struct coll_comm;
struct coll_inflight;

void coll_inflight_init(struct coll_inflight *f);
void coll_inflight_fini(struct coll_comm *comm);

/* Into the order of its communicator: adds blockers, takes its sequence number. */
void coll_inflight_enter(struct coll_request *r);

/* One that runs already, started inline. */
void coll_inflight_adopt(struct coll_request *r);
void coll_inflight_unblock(struct coll_request *r); /* one thing less blocks it */

/* Start all that nothing blocks any more. */
void coll_inflight_launch(struct coll_async *a);
void coll_inflight_complete(struct coll_request *r, coll_status status);

/* The communicator has failed: end all its requests. */
void coll_inflight_lost(struct coll_comm *comm);

/* What this rank says it is doing: the oldest that runs, else what has just ended. */
void coll_inflight_publish(struct coll_comm *comm, struct coll_request *ended);

static inline void coll_list_init(struct coll_link *l)
{
	l->prev = l->next = l;
}
static inline bool coll_list_empty(const struct coll_link *l)
{
	return l->next == l;
}
static inline void coll_list_append(struct coll_link *list, struct coll_link *l)
{
	l->prev = list->prev;
	l->next = list;
	list->prev->next = l;
	list->prev = l;
}
static inline void coll_list_remove(struct coll_link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	coll_list_init(l);
}
#define COLL_ENTRY(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

/* Run and scratch of a collective in flight. */
struct coll_slot {
	struct coll_run *run;
	char *scratch;
	size_t scratch_bytes;
	bool busy;
};

struct coll_inflight {
	/* The async lock. */
	struct coll_link link;          /* in the context's list while pending > 0 */
	struct coll_link all, running;  /* requests, in the order of calls, of starting */
	unsigned pending;               /* requests handed in and not complete */
	unsigned started;               /* collectives that run */
	uint64_t begun;                 /* number of the collective started last */
	struct coll_request *tail;      /* the collective handed in last, while it has not started */
	struct coll_request *last;      /* the collective started last, while it runs */
	struct coll_request *stalled;   /* waits for one that runs to end */
	struct coll_request **pairs[2]; /* by half and rank: handed in last, not complete */
	struct coll_request *faulty;    /* its run has failed: inquired into, nothing else runs */
	struct coll_run *faulty_run;
	coll_status fault;
	struct coll_request *done; /* complete, to be recycled */
	struct coll_slot slots[COLL_IN_FLIGHT_MAX];

	/* The communicator's thread. */
	struct coll_request *spare;
	struct coll_link operations; /* persistent ones */
	/* Started inline, not waited for yet; and the thread that did, which may also take it
	 * from here while it waits for something else: see persistent.c. */
	_Atomic(struct coll_operation *) current;
	_Atomic(const void *) starter;
};

#endif
