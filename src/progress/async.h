/*
 * Asynchronous operations: what is in flight in a context, and which thread may touch it.
 *
 * A request is one operation that does not run inline. It belongs to a stream, to a group or to a
 * persistent operation, or it is a blocking call made while others are pending. A request waits
 * until no earlier request blocks it. Then it starts, drivers poll it, and it completes. What
 * blocks it:
 *
 *   in its stream         Everything at earlier positions must be complete. Calls of one
 *                         group on one stream share a position.
 *   in its communicator   The collective before it must have started. Collectives overlap lane
 *                         by lane (coll_run_follow), at most COLL_IN_FLIGHT_MAX at once.
 *   between two ranks     The message before it, per peer and direction, must be complete.
 *
 * All three refer to earlier calls, so the requests of one rank never wait in a circle. Only the
 * second one binds ranks to each other.
 *
 * One lock per context, the async lock, guards all queued requests, the streams and the events. Of
 * every communicator with pending requests it guards all that a driver needs: runs, fabrics, box,
 * record, alarm_seen and the failure. A member marked "lock" below is guarded by it. Drivers do all
 * their work under it. They are the progress thread, waiting threads (by trylock) and
 * coll_progress().
 *
 * A thread that finds COLL_ATTENTION_PENDING clear (acquire) has exclusive use of its communicator.
 * Only that thread sets the bit. The driver that completes the last request clears it (release)
 * under the lock. Plans, the memo, the free list of requests and the sequence numbers always belong
 * to the communicator's thread. Drivers do not read them.
 */
#ifndef COLL_PROGRESS_ASYNC_H
#define COLL_PROGRESS_ASYNC_H

#include "core/comm.h"
#include "mapped/call.h"
#include "watch/watchdog.h"

/* ---- Requests ---- */

enum coll_request_kind { COLL_REQUEST_COLLECTIVE, COLL_REQUEST_PAIR, COLL_REQUEST_EVENT, COLL_REQUEST_TAG };
enum coll_request_state { COLL_REQUEST_IDLE, COLL_REQUEST_QUEUED, COLL_REQUEST_RUNNING };

struct coll_request {
	struct coll_request *next; /* link of its one singly linked list: free, done, ready or group */
	struct coll_link all;      /* comm->inflight.all, in call order */
	struct coll_link running;  /* comm->inflight.running, in start order */
	struct coll_link item;     /* stream->items */
	struct coll_comm *comm;    /* NULL: an event */
	struct coll_stream *stream;
	uint64_t position; /* in the stream */
	enum coll_request_kind kind;
	enum coll_request_state state; /* lock */
	unsigned blockers;             /* lock: number of events that must precede its start */
	bool held;                     /* a thread waits for it and takes it back; else it is recycled */
	atomic_bool awaited;           /* a thread is in that wait, which has no time limit */
	atomic_bool done;              /* release, after the status and all other results */
	coll_status status;

	/* Collectives: [0] is the next one of the communicator. It may start when this one has
	 * started. Pairs: by half, the next one with the same peer. It may start when this one is
	 * complete. */
	struct coll_request *follower[2];

	/* The operation to run. */
	struct coll_call call;
	const struct coll_plan *plan; /* pinned; NULL: none */
	struct coll_job job;
	struct coll_reduction reduction;
	uint32_t signature;                /* of the call; the frames use job.signature */
	const struct coll_intra_op *intra; /* of the call; this run uses job.intra */
	size_t scratch_bytes;
	size_t *arrays; /* copies of the count arrays of the call */
	size_t arrays_cap;
	char token[2]; /* buffers of a barrier */
	struct coll_slot *slot;
	struct coll_operation *operation; /* its persistent operation, or NULL */

	/* Pairs, by half. */
	struct coll_pair pair;
	const struct coll_plan *pair_plan[2]; /* pinned */
	struct coll_run *pair_run[2];
	uint64_t pair_sequence[2];

	/* Staged calls (stage.h), else staged is false. By half of a pair; collectives use the first. */
	bool staged;
	bool in_graph;                      /* it was captured: a graph owns it, or (an operation) a copy of it */
	struct coll_device_capture capture; /* of its stream */
	struct coll_captured *captured;     /* of a graph: runs at its launches, see capture_launch.c */
	bool enqueued;                      /* lock: its work is in the stream, or is just being put there */
	bool direct; /* a collective that goes direct (mapped/call.h), and is staged to everything else */
	struct coll_mapped_call direct_call;
	struct coll_intra_state ahead; /* lock: what it has done before it was started */
	struct coll_run_stage stage[2];
	size_t stage_tiles;                /* of the longer half */
	uint32_t stage_last;               /* `done` has this value when the device has ended the call */
	void *device_stream, *user_stream; /* its work goes there; and was asked to go there */
	/* The other staged requests of its communicator that are submitted with it. The first of them has the
	 * others: the first of another communicator, the last, and their number. */
	struct coll_request *next_staged, *next_chain, *chain_last;
	int chain_calls;
	/* Of its lane (stage_order.h): the request behind it, and the tiles before it. */
	struct coll_request *next_in_lane;
	size_t lane_tiles;
	bool reached;        /* lock: its stream has come to its first tile */
	uint64_t waiting_ns; /* lock: it has waited for its stream since then; 0: it does not */
	/* Of a staged call that has no run, the host copies the tiles itself: `from` to `to`, or to and from the slots.
	 * The payload of a tagged message, or a message of this rank to itself. */
	struct coll_stage_local {
		const char *from; /* NULL: the call has runs */
		char *to;
		size_t len_bytes;
		size_t tiles; /* lock: copied so far */
	} local;
	coll_status lost;       /* lock: the communicator has failed; the device has not left it yet */
	uint64_t lost_until_ns; /* lock: and is waited for until then */

	/* Tagged messages: the send or receive, see call/tag.c. Freed with the request. detour: its payload goes
	 * through `pack`, since it is memory of the device, or a stream of the device says when it may be read. */
	void *tag;
	bool detour;
	uint32_t seen_moves; /* of it, by the watchdog; lock */
	uint8_t message;     /* enum coll_record_message, and its tag, for the records */
	int message_tag;

	const struct coll_request *shown; /* while preparing: the call that the record names */

	/* State of the running request. */
	struct coll_record record;
	struct coll_wait wait;
	struct coll_wait_timer timer;

	/* Merged calls. parts: the calls that this request replaces; pack: their packed data, or that of a detour.
	 * next_part also links the calls of a group. whole: set in a part that holds the place of
	 * the merged request in its stream. */
	struct coll_request *parts, *next_part, *whole;
	char *pack;
	size_t pack_cap;

	/* Events: the position that it waits for. */
	struct coll_stream *source;
	uint64_t source_position;
	struct coll_request *next_waiter;
};

/* ---- Streams and events ---- */

struct coll_stream {
	struct coll_context *ctx;
	/* A stream of the device orders its requests itself: they may all start. */
	bool device;
	void *handle;                 /* of the driver */
	uint16_t number;              /* its number in the flight recorder */
	struct coll_link items;       /* lock: incomplete requests, by position */
	uint64_t last;                /* lock: the last position given out */
	uint64_t released;            /* lock: the stream lets requests up to here start */
	_Atomic uint64_t through;     /* complete up to here; written under the lock */
	coll_status status;           /* lock: the first error, sticky */
	uint64_t failed_at;           /* lock: the position of that error */
	struct coll_request *waiters; /* lock: events of other streams */
	struct coll_link events;      /* lock: events last recorded on this stream */
	struct coll_link notices;     /* lock: what waits for positions, in their order; see notify.h */
	/* These two belong to the stream's thread: the position of the group that is being
	 * submitted (0: none), and the last merged request that has a place here. */
	uint64_t group_position;
	const struct coll_request *merged;
};

struct coll_event {
	struct coll_context *ctx;
	struct coll_link link;      /* stream->events */
	struct coll_stream *stream; /* lock; NULL: never recorded, or the stream was destroyed */
	uint64_t position;          /* lock */
	coll_status status;         /* lock: status after the stream was destroyed */
	uint64_t reached_ns;        /* lock; 0: not reached */
	struct coll_link notices;   /* lock: of any recording, not due yet */
};

/* ---- Tagged messages ---- */

/* What moves them: src/match/ does the work, and call/tag.c is between it and the drivers. The
 * members are called under the async lock, except as they say. */
struct coll_tag_driver {
	/* Look once; ends requests that are done. True: something moved. */
	bool (*poll)(struct coll_comm *comm);
	/* Nothing blocks the request any more. May end it. */
	void (*start)(struct coll_request *r);
	/* Whether deadlines count for a request that runs now; fills what it waits for. */
	bool (*limited)(struct coll_request *r);
	/* The communicator's thread is about to wait until the request ends, and posts no receive meanwhile. Not under
	 * the lock. May end it. */
	void (*about_to_wait)(struct coll_request *r);
};

/* ---- State of a context ---- */

struct coll_async {
	pthread_mutex_t lock;
	struct coll_link comms;                   /* lock: communicators with pending requests, by inflight.link */
	atomic_uint pending;                      /* incomplete requests; written under the lock */
	atomic_uint kept;                         /* of pending: communicators with graphs */
	atomic_uint staged;                       /* those of them that wait for a device, which wakes nobody up */
	_Atomic uint64_t asked_ns;                /* when a query last asked the driver */
	struct coll_request *ready, **ready_tail; /* lock: unblocked requests */
	struct coll_request *spare_events;        /* lock */
	unsigned passes;                          /* lock */
	atomic_uint lock_waiters;                 /* number of threads that wait for the lock; drivers yield to them */
	atomic_bool inlined;                      /* operations were started inline since the last sweep */
	uint16_t streams;                         /* lock: streams created so far */
	/* Communicators on which tagged messages may arrive, by inflight.tagged, whether anything is pending or not. */
	const struct coll_tag_driver *tags;  /* NULL: nobody has used tags */
	struct coll_link tagged;             /* lock */
	atomic_bool any_tagged;              /* written under the lock */
	atomic_uint knocks_seen;             /* of ctx->knocks; written under the lock */
	struct coll_copier *copier;          /* NULL: the rank has no device; see copier.h */
	bool completed;                      /* lock: a request completed since the last look; sleepers must wake */
	struct coll_notice *due, **due_tail; /* lock: to run when the lock is released */

	/* The progress thread. */
	atomic_uint drivers; /* threads in coll_async_await(); the progress thread stands aside */
	atomic_uint away;    /* those of them that the driver of the device may keep until the host has copied */
	atomic_uint waits;   /* number of such waits so far */
	pthread_t thread;
	int timer_fd;          /* the thread sleeps on it while it is not needed */
	bool called;           /* lock: the timer is set, or the thread is awake */
	bool took_over;        /* lock: when it woke up last, it was needed: who calls computes meanwhile */
	unsigned waits_before; /* lock: waits when the timer was set */
	atomic_bool running;   /* written under the lock */
	bool stopping;         /* lock */
};

/* Whether something in flight moves only when threads of this process call in. If so, every waiting
 * thread must drive it. Relaxed: a thread sees its own requests. For requests of other threads it
 * suffices if a later look sees them. */
static inline bool coll_async_needs_callers(const struct coll_async *a)
{
	return atomic_load_explicit(&a->pending, memory_order_relaxed) > 0 &&
	       !atomic_load_explicit(&a->running, memory_order_relaxed);
}

/* Whether a driver would find something to look at. Relaxed: as above. */
static inline bool coll_async_is_idle(const struct coll_context *ctx)
{
	const struct coll_async *a = ctx->async;

	return atomic_load_explicit(&a->pending, memory_order_relaxed) == 0 &&
	       !atomic_load_explicit(&a->any_tagged, memory_order_relaxed) &&
	       atomic_load_explicit(&a->knocks_seen, memory_order_relaxed) ==
	               atomic_load_explicit(&ctx->knocks, memory_order_relaxed);
}

/* ---- async.c: open, close, progress thread ---- */
coll_status coll_async_open(struct coll_context *ctx, struct coll_error_box *err);
/* No communicator is left. */
void coll_async_close(struct coll_context *ctx);
/* Start the progress thread if the settings ask for one. */
void coll_async_thread(struct coll_context *ctx);

/* The progress thread is to take over unless a thread waits and drives soon. The lock is held. */
void coll_async_call(struct coll_context *ctx);

/* ---- group.c ---- */

/* The group of a thread: its nesting depth and the calls noted in it. While a function of
 * coll_event_notify() runs the depth is negative, so no call takes a fast path: see notify.h. */
struct coll_group {
	int depth;
	int calls;
	struct coll_request *first, *last;
};
extern _Thread_local struct coll_group coll_group __attribute__((tls_model("initial-exec")));

/* Whether a blocking call must not run inline: something is pending or was started inline, or the
 * call is in a group. */
static inline bool coll_comm_busy(const struct coll_comm *comm)
{
	/* Load current first (acquire): the thread that took it away set PENDING before. */
	return coll_group.depth > 0 || atomic_load_explicit(&comm->inflight.current, memory_order_acquire) ||
	       atomic_load_explicit(&comm->attention, memory_order_acquire) & COLL_ATTENTION_PENDING;
}

/* Not busy, not failed, and no unread gossip note: a blocking call can begin at once. */
static inline bool coll_comm_is_idle(const struct coll_comm *comm)
{
	return coll_group.depth == 0 && !atomic_load_explicit(&comm->inflight.current, memory_order_acquire) &&
	       !atomic_load_explicit(&comm->attention, memory_order_acquire) && !comm->failed;
}

/* Find the fast path of a call that repeats an earlier one. The checks of the earlier call still
 * hold, except for the buffers, which are checked here. NULL: the call needs the full checks. */
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
