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
#ifndef COLL_INFLIGHT_ASYNC_H
#define COLL_INFLIGHT_ASYNC_H

#include "base/fork.h"
#include "core/comm.h"
#include "inflight/noted.h"

struct coll_request;
struct coll_event_wait;

/* ---- Streams and events ---- */

struct coll_stream {
	struct coll_context *ctx;
	/* A stream of the device orders its requests itself: they may all start. */
	bool device;
	void *handle;                    /* of the driver */
	uint16_t number;                 /* its number in the flight recorder */
	struct coll_link items;          /* lock: incomplete requests, by position */
	uint64_t last;                   /* lock: the last position given out */
	uint64_t released;               /* lock: the stream lets requests up to here start */
	_Atomic uint64_t through;        /* complete up to here; written under the lock */
	coll_status status;              /* lock: the first error, sticky */
	uint64_t failed_at;              /* lock: the position of that error */
	struct coll_failure *why;        /* lock: that error, NULL: only its status */
	struct coll_event_wait *waiters; /* lock: events of other streams */
	struct coll_link events;         /* lock: events last recorded on this stream */
	struct coll_link notices;        /* lock: what waits for positions, in their order; see notify.h */
	/* These two belong to the stream's thread: the position of the group that is being
	 * submitted (0: none), and the last merged request that has a place here. */
	uint64_t group_position;
	const struct coll_collective_request *merged;
};

struct coll_event {
	struct coll_context *ctx;
	struct coll_link link;      /* stream->events */
	struct coll_stream *stream; /* lock; NULL: never recorded, or the stream was destroyed */
	uint64_t position;          /* lock */
	coll_status status;         /* lock: status after the stream was destroyed */
	struct coll_failure *why;   /* lock: as the stream's, after it was destroyed */
	uint64_t reached_ns;        /* lock; 0: not reached */
	struct coll_link notices;   /* lock: of any recording, not due yet */
};

/* ---- What has a part of its own in drivers ---- */

/* Requests that are submitted together and have to do with devices, by communicator: the first of each communicator.
 * What links them is the devices' own. */
struct coll_batch {
	struct coll_request *chains;
	bool captured; /* a stream is being captured */
	bool outside;  /* a request is in no capture, or in another one than the first of its communicator */
};

/* What handles memory and streams of devices. The members up to `poll` are called by the thread that makes the calls,
 * the others under the async lock, but for the last two. */
struct coll_device_driver {
	/* Find out whether a bound request has to do with a device, and add it to the batch if it has. Refuses what
	 * cannot be. */
	coll_status (*add)(struct coll_batch *b, struct coll_request *r, const struct coll_stream *stream);
	/* Before their submission. Those of a capture are not submitted: they belong to the graph then, or are refused.
	 */
	coll_status (*assign)(const struct coll_batch *b);
	/* After it: put their work into their streams. An error of the device fails the communicator. */
	void (*enqueue)(const struct coll_batch *b);
	/* Whether memory that a call has been given is the device's, and is needed at all. */
	bool (*is_memory)(struct coll_comm *comm, const void *ptr, size_t len_bytes);
	/* Copy between host memory and that of the device, and wait for the end. One thread at a time has the copier.
	 */
	void (*take_copier)(struct coll_context *ctx);
	void (*give_copier)(struct coll_context *ctx);
	coll_status (*fetch)(struct coll_context *ctx, void *host, const void *device, size_t len_bytes);
	coll_status (*bring)(struct coll_context *ctx, void *device, const void *host, size_t len_bytes);
	/* The driver has reported an error: the communicator fails by it. Returns the error. */
	coll_status (*give_up)(struct coll_comm *comm, coll_status st);

	/* Look at what no request says: launches of graphs, streams of a communicator that has failed. */
	bool (*poll)(struct coll_comm *comm);
	/* The communicator has failed: its streams go on, and write nothing. */
	void (*release)(struct coll_comm *comm);
	/* Whether the device has done all work of the communicator, or never will. */
	bool (*has_left)(const struct coll_comm *comm);

	/* Ask the driver of the device. If it reports an error, the communicators that have calls there end by it. From
	 * a query, which a program may repeat without end: now and then only. */
	void (*look)(struct coll_context *ctx, bool query);
	/* The context ends. */
	void (*close)(struct coll_context *ctx);
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
	const struct coll_device_driver *devices; /* NULL: the rank has no device */
	unsigned passes;                          /* lock */
	atomic_uint lock_waiters;                 /* number of threads that wait for the lock; drivers yield to them */
	atomic_bool inlined;                      /* operations were started inline since the last sweep */
	uint16_t streams;                         /* lock: streams created so far */
	/* Communicators on which tagged messages may arrive, by inflight.tagged, whether anything is pending or not. */
	bool (*poll_tags)(struct coll_comm *comm); /* under the lock; NULL: nobody has used tags */
	struct coll_link tagged;                   /* lock */
	atomic_bool any_tagged;                    /* written under the lock */
	atomic_uint wakes_seen;                    /* of ctx->wakes; written under the lock */
	struct coll_copier *copier;                /* of its device; see copier.h */
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
	       atomic_load_explicit(&a->wakes_seen, memory_order_relaxed) ==
	               atomic_load_explicit(&ctx->wakes, memory_order_relaxed);
}

/* ---- The state of a communicator ---- */

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
	       !atomic_load_explicit(&comm->attention, memory_order_acquire) && !comm->failed &&
	       coll_fork_owns(comm->mark);
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
