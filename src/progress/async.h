/*
 * Asynchronous operations: what is in flight in a context, and who may touch it.
 *
 * A request is one operation handed in and not waited for inline: of a stream, of a
 * group, persistent, or a blocking call made while others are pending. It waits until
 * nothing that comes before it is in the way, starts, is polled by the driving thread, and
 * completes. What comes before it:
 *
 *   in its stream         everything at earlier positions must be complete; calls of one
 *                         group on one stream share a position
 *   in its communicator   the collective before it must have started: they overlap lane by
 *                         lane behind each other (coll_run_follow), at most
 *                         COLL_IN_FLIGHT_MAX at once
 *   between a pair        the message before it, per peer and direction, must be complete
 *
 * All of these point to earlier calls, so requests of one rank never wait in
 * a cycle; and only the second one makes ranks depend on each other.
 *
 * One lock per context, the async lock, guards all requests that are handed in, the
 * streams and events, and of every communicator with pending requests all that a driver
 * needs: runs, fabrics, box, record, alarm_seen, the failure. Drivers (the progress thread;
 * threads that wait, by trylock; coll_progress) do all their work under it. A thread
 * that finds COLL_ATTENTION_PENDING clear (acquire) in its communicator is alone with it:
 * the thread that completes the last request clears the bit (release), under the lock; only
 * the communicator's thread sets it. Plans, memo, the free list of requests and sequence numbers
 * belong to the communicator's thread at any time; drivers read neither.
 */
#ifndef COLL_PROGRESS_ASYNC_H
#define COLL_PROGRESS_ASYNC_H

#include "core/comm.h"
#include "watch/watchdog.h"

/* ---- Requests ---- */

enum coll_request_kind { COLL_REQUEST_COLLECTIVE, COLL_REQUEST_PAIR, COLL_REQUEST_EVENT };
enum coll_request_state { COLL_REQUEST_IDLE, COLL_REQUEST_QUEUED, COLL_REQUEST_RUNNING };

struct coll_request {
	struct coll_request *next; /* of the one singly linked list it is in: free, done, ready, group */
	struct coll_link all;      /* comm->flight.all, in the order of the calls */
	struct coll_link running;  /* comm->flight.running, in the order of starting */
	struct coll_link item;     /* stream->items */
	struct coll_comm *comm;    /* NULL: an event */
	struct coll_stream *stream;
	uint64_t position; /* in the stream */
	enum coll_request_kind kind;
	enum coll_request_state state; /* lock */
	unsigned blockers;             /* lock: what must happen before it starts */
	bool held;                     /* somebody waits for it and takes it back; else it is recycled */
	atomic_bool awaited;           /* and is in that wait, which has no limit */
	atomic_bool done;              /* release, after status and everything else */
	coll_status status;

	/* Collectives: the next of the communicator, which may start when this one has.
	 * Pairs: by half, the next to the same peer, when this one is complete. */
	struct coll_request *follower[2];

	/* What to run. */
	struct coll_call call;
	const struct coll_plan *plan; /* pinned; NULL: none */
	struct coll_job job;
	struct coll_reduction reduction;
	uint32_t signature;                /* of the call; job.signature is of its frames */
	const struct coll_intra_op *intra; /* of the call; job.hand is of this time */
	size_t scratch_bytes;
	size_t *arrays; /* copies of the call's */
	size_t arrays_cap;
	char token[2]; /* a barrier's buffers */
	struct coll_slot *slot;
	struct coll_operation *operation; /* whose it is, or NULL */

	/* Pairs, by half. */
	struct coll_pair pair;
	const struct coll_plan *pair_plan[2]; /* pinned */
	struct coll_run *pair_run[2];
	uint64_t pair_sequence[2];

	const struct coll_request *shown; /* preparing: the call that the record names */

	/* While it runs. */
	struct coll_record record;
	struct coll_wait wait;
	struct coll_wait_timer timer;

	/* Of several calls in one: those it stands for, and their packed data. next_part is the
	 * link of a group's calls too. whole: of a part that holds the place of all of them in its
	 * stream. */
	struct coll_request *parts, *next_part, *whole;
	char *pack;
	size_t pack_cap;

	/* Events: what it waits for. */
	struct coll_stream *source;
	uint64_t source_position;
	struct coll_request *next_waiter;
};

/* ---- Streams and events ---- */

struct coll_stream {
	struct coll_context *ctx;
	uint16_t number;              /* for the flight recorder */
	struct coll_link items;       /* lock: requests not complete, by position */
	uint64_t last;                /* lock: position given last */
	uint64_t released;            /* lock: requests up to here may start, as far as the stream goes */
	_Atomic uint64_t through;     /* complete up to here; written under the lock */
	coll_status status;           /* lock: the first error, sticky */
	uint64_t failed_at;           /* lock: its position */
	struct coll_request *waiters; /* lock: events of other streams */
	struct coll_link events;      /* lock: recorded here last */
	/* Its thread's: of the calls of the group being handed in, or 0; and the last of several
	 * calls in one that has a place here. */
	uint64_t group_position;
	const struct coll_request *merged;
};

struct coll_event {
	struct coll_context *ctx;
	struct coll_link link;      /* stream->events */
	struct coll_stream *stream; /* lock; NULL: never recorded, or the stream is gone */
	uint64_t position;          /* lock */
	coll_status status;         /* lock: of a stream that is gone */
	uint64_t reached_ns;        /* lock; 0: not yet */
};

/* ---- What is in flight in a context ---- */

struct coll_async {
	pthread_mutex_t lock;
	struct coll_link comms;                   /* lock: with pending requests, by flight.link */
	atomic_uint pending;                      /* requests handed in and not complete; written under the lock */
	struct coll_request *ready, **ready_tail; /* lock: nothing blocks them any more */
	struct coll_request *spare_events;        /* lock */
	unsigned passes;                          /* lock */
	atomic_uint wanting;                      /* threads that wait for the lock: drivers let them in */
	atomic_bool inlined;                      /* operations were started inline since the last sweep */
	uint16_t streams;                         /* lock: made so far */
	bool completed;                           /* lock: since the last look: sleepers want to know */

	/* The progress thread. */
	atomic_uint drivers; /* threads in coll_async_await(): the progress thread keeps away */
	pthread_cond_t work; /* with the lock: something to do */
	pthread_t thread;
	atomic_bool running; /* written under the lock */
	bool stopping;       /* lock */
};

/* Whether something is in flight that only calls of this process move: whoever waits has to. Relaxed: what this thread
 * has handed in it sees, and for other threads' requests the next look will do. */
static inline bool coll_async_needs_callers(const struct coll_async *a)
{
	return atomic_load_explicit(&a->pending, memory_order_relaxed) > 0 &&
	       !atomic_load_explicit(&a->running, memory_order_relaxed);
}

/* ---- async.c: life of the above, progress thread ---- */
coll_status coll_async_open(struct coll_context *ctx, struct coll_error_box *err);
/* No communicator is left. */
void coll_async_close(struct coll_context *ctx);
/* Start the progress thread where the settings want one. */
void coll_async_thread(struct coll_context *ctx);

/* ---- group.c ---- */

/* The group of a thread: how deep it is in, and the calls noted. While an operation is
 * prepared its call is not noted but bound to capture. */
struct coll_group {
	int depth;
	int calls;
	struct coll_request *first, *last;
	struct coll_request *capture;
};
extern _Thread_local struct coll_group coll_group __attribute__((tls_model("initial-exec")));

/* Whether a blocking call must not run inline: something is pending, or was started
 * inline, or this is a group. */
static inline bool coll_comm_busy(const struct coll_comm *comm)
{
	/* current first, acquire: who took it away has set PENDING before. */
	return coll_group.depth > 0 || atomic_load_explicit(&comm->inflight.current, memory_order_acquire) ||
	       atomic_load_explicit(&comm->attention, memory_order_acquire) & COLL_ATTENTION_PENDING;
}

/* Not busy, well, and nothing was told: a blocking call can begin at once. */
static inline bool coll_comm_is_idle(const struct coll_comm *comm)
{
	return coll_group.depth == 0 && !atomic_load_explicit(&comm->inflight.current, memory_order_acquire) &&
	       !atomic_load_explicit(&comm->attention, memory_order_acquire) && !comm->failed;
}

/* The call like one before, if its shortest way is open: all that was checked then holds now, but
 * for the buffers, which are looked at. NULL: it is to be looked at closely. */
static inline struct coll_fastpath *coll_fastpath_find(struct coll_comm *comm, enum coll_kind kind, const void *in,
                                                       const void *out, size_t count, coll_dtype type, coll_op op,
                                                       int root, const struct coll_stream *stream)
{
	const uintptr_t apart = (uintptr_t)out - (uintptr_t)in;
	struct coll_fastpath *q;

	if (!comm || stream)
		return NULL;
	q = &comm->fastpath[coll_fastpath_place(kind, root)];
	if (q->key != coll_fastpath_key(kind, type, op) || q->count != count || q->root != root || !in || !out ||
	    (apart != q->alias && apart - q->gap > q->room) || !coll_comm_is_idle(comm))
		return NULL;
	return q;
}

#endif
