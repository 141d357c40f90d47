/*
 * One asynchronous operation: the part that all kinds have in common (kind.h), and what each kind adds.
 *
 * Requests are used again with all they have, by the thread of their communicator: a repeated call allocates nothing.
 */
#ifndef COLL_INFLIGHT_REQUEST_H
#define COLL_INFLIGHT_REQUEST_H

#include <assert.h>

#include "core/comm.h"
#include "inflight/kind.h"
#include "watch/watchdog.h"

enum coll_request_state { COLL_REQUEST_IDLE, COLL_REQUEST_QUEUED, COLL_REQUEST_RUNNING };

/* Whether it is what this rank is doing, for its peers. A receive that was posted in advance is not. */
enum coll_request_shown { COLL_SHOWN, COLL_SHOWN_AWAITED, COLL_NOT_SHOWN };

struct coll_request {
	struct coll_request *next; /* link of its one singly linked list: free, done, ready */
	struct coll_link all;      /* comm->inflight.all, in call order */
	struct coll_link running;  /* comm->inflight.running, in start order */
	struct coll_link item;     /* stream->items */
	struct coll_comm *comm;    /* NULL: an event */
	struct coll_stream *stream;
	uint64_t position; /* in the stream */
	const struct coll_request_kind *kind;
	enum coll_request_is is;       /* which struct it is the first member of */
	enum coll_request_state state; /* lock */
	unsigned blockers;             /* lock: number of events that must precede its start */
	bool held;                     /* a thread waits for it and takes it back; else it is recycled */
	atomic_bool awaited;           /* a thread is in that wait, which has no time limit */
	atomic_bool done;              /* release, after the status and all other results */
	uint8_t shown;                 /* lock: enum coll_request_shown */
	bool noted;                    /* in a group that has not ended */
	coll_status status;
	coll_status lost; /* lock: the communicator has failed, but something has not left its memory */

	/* Lock: the queues of the communicator that it is in, by their last request, and who is behind it. A collective
	 * is in one; whoever is behind it may start when it has started. A pair is in one for each half; whoever is
	 * behind it may start when it is complete. */
	struct coll_request **queue[2], *follower[2];

	struct coll_request *next_noted; /* the next call of its group, or part of its merged call */
	struct coll_device_call *device; /* devcall/device_call.h; NULL: it never had to do with one */

	/* State of the running request. */
	struct coll_record record;
	struct coll_wait wait;
	struct coll_wait_timer timer;
};
static_assert(sizeof(struct coll_request) <= 400, "the part that all kinds have is small");

/* A collective: 912 bytes. */
struct coll_collective_request {
	struct coll_request request;
	struct coll_call call;
	const struct coll_plan *plan; /* pinned; NULL: none */
	struct coll_job job;
	struct coll_reduction reduction;
	const struct coll_intra_op *intra; /* of the call; this run uses job.intra */
	uint32_t signature;                /* of the call; the frames use job.signature */
	char token[2];                     /* buffers of a barrier */
	size_t scratch_bytes;
	size_t *arrays; /* copies of the count arrays of the call */
	size_t arrays_cap;
	struct coll_slot *slot;
	const struct coll_collective_request
	        *named; /* the call that the record names instead: one that is being prepared */
	/* Merged calls. parts: the calls that it replaces, and their packed data; whole: of a part that has the place
	 * of the merged call in its stream. */
	struct coll_request *parts;
	struct coll_collective_request *whole;
	char *pack;
	size_t pack_cap;
};
static_assert(sizeof(struct coll_collective_request) <= 912, "a collective");

/* A message to a rank and one from a rank, by half. */
struct coll_pair_request {
	struct coll_request request;
	struct coll_pair pair;
	const struct coll_plan *plan[2]; /* pinned */
	struct coll_run *run[2];
	uint64_t sequence[2];
	const struct coll_run_stage *stage[2]; /* NULL: host memory */
};
static_assert(sizeof(struct coll_pair_request) <= 520, "a pair");

/* A tagged message. Each direction has a struct of its own in call/tag_kind.h. */
struct coll_tag_request {
	struct coll_request request;
	struct coll_pair pair;
	uint32_t seen_moves; /* of it, by the watchdog; lock */
	uint8_t message;     /* enum coll_record_message, and its tag, for the records */
	int tag;
	/* later: a send whose payload a stream of the device has to come to, or that is memory of the device. Then it
	 * is copied to `pack`, which leaves. */
	bool later;
	const void *payload;
	char *pack;
};
static_assert(sizeof(struct coll_tag_request) <= 480, "a tagged message");

/* A stream waits for a position of another one. */
struct coll_event_wait {
	struct coll_request request;
	uint64_t position;
	struct coll_event_wait *next;
	struct coll_failure *why; /* of request.status */
};
static_assert(sizeof(struct coll_event_wait) <= 416, "a wait for an event");

static inline struct coll_collective_request *coll_collective_of(const struct coll_request *r)
{
	assert(r->is == COLL_IS_COLLECTIVE);
	return COLL_ENTRY(r, struct coll_collective_request, request);
}
static inline struct coll_pair_request *coll_pair_of(const struct coll_request *r)
{
	assert(r->is == COLL_IS_PAIR);
	return COLL_ENTRY(r, struct coll_pair_request, request);
}
static inline struct coll_tag_request *coll_tag_of(const struct coll_request *r)
{
	assert(r->is == COLL_IS_TAG);
	return COLL_ENTRY(r, struct coll_tag_request, request);
}

/* A request of bytes bytes that begins with a coll_request: used before, or new and zero behind that. NULL: out of
 * memory. The communicator's thread. */
struct coll_request *coll_request_take(struct coll_comm *comm, const struct coll_request_kind *kind,
                                       enum coll_request_is is, size_t bytes);
/* Return it for reuse. */
void coll_request_give(struct coll_request *r);
void coll_request_init(struct coll_request *r, struct coll_comm *comm, const struct coll_request_kind *kind,
                       enum coll_request_is is);
void coll_request_fini(struct coll_request *r);

static inline void coll_request_recycle(struct coll_request *r)
{
	r->kind->recycle(r);
}

#endif
