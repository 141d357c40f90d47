/*
 * Private to src/match/: the state of a communicator's tagged messages. The lock of
 * comm->tagged is held wherever this is used.
 */
#ifndef COLL_MATCH_STATE_H
#define COLL_MATCH_STATE_H

#include "core/dead.h"
#include "engine/run.h"
#include "match/envelope.h"
#include "match/tags.h"

enum { COLL_TAG_LANE_BULK, COLL_TAG_LANE_ENVELOPES };
enum { COLL_TAG_SEND, COLL_TAG_RECEIVE }; /* halves */

struct coll_tag_peer {
	int rank;
	bool open;       /* the envelope channels exist */
	bool granted;    /* a frame could be sent to it */
	coll_status end; /* not OK: how its link ended; it is not polled any more */
	bool dead;       /* the rank has died, and all that needs it has ended */
	uint64_t woke_ns;
	struct coll_endpoint *out, *in;
	uint64_t sent, taken;            /* envelope frames */
	uint32_t credit;                 /* cells that it has for messages from here */
	uint32_t owed;                   /* cells here that it does not have back yet */
	uint64_t offered_last, got_last; /* ids of offers, to it and from it */
	struct coll_link queue;          /* sends that wait for room, in order */
	struct coll_link offered;        /* sends */
	struct coll_link answers;        /* receives whose answers are to be sent, in order */
	/* By half. */
	struct coll_link bulk[2];      /* in the order of the PULLs */
	struct coll_tag_op *moving[2]; /* the first of them, while its run runs */
	bool running[2];
	struct coll_run *run[2];
	const struct coll_plan *plan[2];
	uint64_t bulk_last[2]; /* number of the last transfer begun */
	uint32_t moves[2];     /* signs that it receives, or sends: cells and answers, messages, bytes */
};

struct coll_tags {
	struct coll_matcher matcher;
	struct coll_tag_peer *peers; /* by rank */
	int *opened;                 /* ranks whose channels are open */
	int nopened;
	size_t eager_max;
	uint32_t signature; /* of envelope frames */
	struct coll_plan_cache *plans;
	struct coll_link done;
	struct coll_link probes; /* those that wait for a message */
	struct coll_tags_fault fault;
	int ends; /* links that ended, of ranks that may live */
	/* Members that have died: those that were seen here, and those that a receive from any source has reported. */
	int dead, dead_told;
};

static inline struct coll_tag_op *coll_tag_first(const struct coll_link *list)
{
	return coll_list_empty(list) ? NULL : COLL_ENTRY(list->next, struct coll_tag_op, link);
}

static inline void coll_tag_move(struct coll_tag_op *op, enum coll_tag_state state, struct coll_link *list)
{
	coll_list_remove(&op->link);
	op->state = state;
	op->events++;
	if (list)
		coll_list_append(list, &op->link);
}

/* It needs a rank that has died. */
static inline void coll_tag_finish_dead(struct coll_comm *comm, struct coll_tag_op *op, int rank)
{
	coll_comm_death_reported(comm);
	op->dead = coll_comm_process(comm, rank);
	op->source = op->receives ? rank : -1;
	op->status = COLL_ERR_PEER_DEAD;
	coll_tag_move(op, COLL_TAG_DONE, &comm->tagged.tags->done);
}

static inline void coll_tag_finish(struct coll_tags *t, struct coll_tag_op *op, coll_status status)
{
	op->status = status;
	coll_tag_move(op, COLL_TAG_DONE, &t->done);
}

static inline size_t coll_tag_bytes(const struct coll_tag_op *op)
{
	return op->count * coll_dtype_size(op->type);
}

#endif
