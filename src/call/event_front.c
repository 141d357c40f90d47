/*
 * Events: a point in a stream, stored as a position. Recording stores the position of the last
 * request in the stream. A wait for the event ends when the stream is complete up to that position.
 * Later recordings do not change that.
 */
#include <stdlib.h>

#include "core/entry.h"
#include "core/error.h"
#include "core/thread_error.h"
#include "device/device.h"
#include "inflight/async.h"
#include "inflight/drive.h"
#include "inflight/event.h"
#include "inflight/notify.h"
#include "inflight/queue.h"
#include "inflight/request.h"
#include "inflight/stream.h"

coll_status coll_event_create(coll_event **out, coll_comm *comm)
{
	struct coll_event *e;

	if (coll_entry_no_comm(comm, "event_create"))
		return COLL_ERR_ARGUMENT;
	if (!out)
		return coll_comm_refuse(comm, "event_create", COLL_ERR_ARGUMENT, "event is NULL");
	e = calloc(1, sizeof(*e));
	if (!e)
		return coll_comm_refuse(comm, "event_create", COLL_ERR_MEMORY, "out of memory");
	e->ctx = comm->ctx;
	coll_list_init(&e->link);
	coll_list_init(&e->notices);
	coll_context_retain(e->ctx);
	*out = e;
	return COLL_OK;
}

coll_status coll_event_destroy(coll_event **event)
{
	struct coll_event *e = event ? *event : NULL;
	struct coll_notice *notices;
	struct coll_context *ctx;

	if (!e)
		return COLL_OK;
	ctx = e->ctx;
	if (!coll_fork_owns(ctx->mark)) {
		*event = NULL;
		coll_context_forget(ctx);
		free(e);
		return COLL_OK;
	}
	if (coll_notify_forbids(ctx, "event_destroy"))
		return COLL_ERR_ARGUMENT;
	*event = NULL;
	coll_async_lock(ctx);
	coll_list_remove(&e->link);
	coll_failure_drop(&e->why);
	notices = coll_notify_take(e);
	pthread_mutex_unlock(&ctx->async->lock);
	free(e);
	coll_notify_run(notices);
	coll_context_release(&ctx);
	return COLL_OK;
}

static bool forbidden(const coll_event *e, const char *kind)
{
	return coll_entry_forbids(e ? e->ctx : NULL, "event", kind);
}

static coll_status invalid(const char *kind, const char *why)
{
	return coll_thread_error_say(kind, COLL_ERR_ARGUMENT, why);
}

static const char *other_stream(const coll_stream *s)
{
	return s ? "the stream belongs to another job" : "stream is NULL";
}

coll_status coll_event_record(coll_event *e, coll_stream *s)
{
	if (forbidden(e, "event_record"))
		return COLL_ERR_ARGUMENT;
	if (!s || e->ctx != s->ctx)
		return invalid("event_record", other_stream(s));
	coll_async_lock(e->ctx);
	coll_list_remove(&e->link);
	coll_failure_drop(&e->why);
	coll_list_append(&s->events, &e->link);
	e->stream = s;
	e->position = s->last;
	e->reached_ns = 0;
	coll_event_stamp(s);
	pthread_mutex_unlock(&e->ctx->async->lock);
	return COLL_OK;
}

/* What the program gets to read. The lock is held. */
static coll_status told(const struct coll_event *e, const char *kind)
{
	const coll_status st = coll_event_state(e);

	if (st == COLL_OK || st == COLL_AGAIN)
		return st;
	return coll_thread_error_of(e->stream ? e->stream->why : e->why, st, kind);
}

static coll_status look(struct coll_event *e, const char *kind)
{
	coll_status st;

	coll_async_lock(e->ctx);
	st = told(e, kind);
	pthread_mutex_unlock(&e->ctx->async->lock);
	return st;
}

/* If the lock is taken, its holder may be about to reach the event. The caller asks again. */
static bool reached(void *arg)
{
	struct coll_event *e = arg;
	bool yes;

	if (pthread_mutex_trylock(&e->ctx->async->lock) != 0)
		return false;
	yes = coll_event_state(e) != COLL_AGAIN;
	pthread_mutex_unlock(&e->ctx->async->lock);
	return yes;
}

/* Whether it is recorded in a stream of the device, and which one (handle: NULL, or where). */
static bool device_stream(struct coll_event *e, void **handle)
{
	bool device;

	coll_async_lock(e->ctx);
	device = e->stream && e->stream->device;
	if (handle)
		*handle = device ? e->stream->handle : NULL;
	pthread_mutex_unlock(&e->ctx->async->lock);
	return device;
}

struct question {
	const struct coll_event *event;
	coll_status status;
	bool device; /* it is recorded in a stream of the device */
};

/* The lock is held. */
static bool answer(void *arg)
{
	struct question *q = arg;

	q->status = told(q->event, "event_query");
	q->device = q->event->stream && q->event->stream->device;
	return q->status != COLL_AGAIN;
}

coll_status coll_event_query(coll_event *e)
{
	struct question q = {.event = e};

	if (forbidden(e, "event_query"))
		return COLL_ERR_ARGUMENT;
	coll_drive_ask(e->ctx, answer, &q);
	if (q.status == COLL_AGAIN && q.device) {
		e->ctx->async->devices->look(e->ctx, true);
		q.status = look(e, "event_query");
	}
	return q.status;
}

coll_status coll_event_wait(coll_event *e, int timeout_ms)
{
	coll_status st;

	if (forbidden(e, "event_wait"))
		return COLL_ERR_ARGUMENT;
	st = coll_async_await_one(e->ctx, NULL, device_stream(e, NULL), reached, e, timeout_ms);
	/* The time may be over because another thread held the lock whenever this one asked. */
	return st == COLL_OK || st == COLL_AGAIN ? look(e, "event_wait") : st;
}

coll_status coll_event_time(coll_event *e, double *seconds)
{
	uint64_t reached_ns;
	bool recorded;

	if (forbidden(e, "event_time"))
		return COLL_ERR_ARGUMENT;
	if (!seconds)
		return invalid("event_time", "seconds is NULL");
	coll_async_lock(e->ctx);
	reached_ns = e->reached_ns;
	recorded = reached_ns || e->stream;
	pthread_mutex_unlock(&e->ctx->async->lock);
	if (!reached_ns)
		return recorded ? COLL_AGAIN : invalid("event_time", "the event was never recorded");
	*seconds = (double)reached_ns * 1e-9;
	return COLL_OK;
}

/* ---- In a stream ---- */

static coll_status start(struct coll_request *r)
{
	coll_inflight_complete(r, r->status);
	return COLL_OK;
}

static const struct coll_request_kind event_kind = {.name = "event", .start = start};

static struct coll_event_wait *take(struct coll_async *a)
{
	struct coll_request *r = a->spare_events;
	struct coll_event_wait *w;

	if (r) {
		a->spare_events = r->next;
		return COLL_ENTRY(r, struct coll_event_wait, request);
	}
	w = calloc(1, sizeof(*w));
	if (w)
		coll_request_init(&w->request, NULL, &event_kind, COLL_IS_EVENT);
	return w;
}

/* Make s wait until e is reached. The lock is held. */
static coll_status append(struct coll_stream *s, const struct coll_event *e)
{
	struct coll_async *a = s->ctx->async;
	struct coll_event_wait *w = take(a);
	struct coll_request *r = &w->request;

	if (!w)
		return COLL_ERR_MEMORY;
	r->state = COLL_REQUEST_QUEUED;
	r->stream = s;
	r->status = COLL_OK;
	r->blockers = 1;
	if (coll_event_state(e) == COLL_AGAIN) {
		w->position = e->position;
		w->next = e->stream->waiters;
		e->stream->waiters = w;
		r->blockers++;
	} else {
		r->status = coll_event_state(e);
		w->why = coll_failure_share(e->stream ? e->stream->why : e->why);
	}
	atomic_fetch_add(&a->pending, 1);
	coll_stream_append(s, r, 0);
	coll_inflight_unblock(r);
	coll_inflight_launch(a);
	return COLL_OK;
}

/* Both in one capture, or none in any: the driver would end the capture, or make the other stream part of it. */
static coll_status order(struct coll_device *d, void *earlier, void *later, bool *captured)
{
	struct coll_device_capture a = {0}, b;
	const char *why;
	coll_status st = d->table->stream_check(d, earlier, &a, &why);

	if (st == COLL_OK)
		st = d->table->stream_check(d, later, &b, &why);
	if (st == COLL_OK && a.id != b.id)
		st = COLL_ERR_UNSUPPORTED;
	*captured = a.id != 0;
	return st == COLL_OK ? d->table->order(d, earlier, later) : st;
}

coll_status coll_stream_wait_event(coll_stream *s, coll_event *e)
{
	static const char kind[] = "stream_wait_event";
	bool ordered, captured = false;
	coll_status st = COLL_OK;
	void *earlier;

	if (forbidden(e, kind))
		return COLL_ERR_ARGUMENT;
	if (!s || s->ctx != e->ctx)
		return invalid(kind, other_stream(s));
	/* A stream of the device waits until another one has done all it holds now. Without the lock: the driver may
	 * keep this thread until the progress thread has moved earlier calls. */
	ordered = s->device && device_stream(e, &earlier);
	if (ordered)
		st = order(s->ctx->device, earlier, s->handle, &captured);
	/* Calls in a graph are none of the stream's. */
	if (st != COLL_OK || captured)
		return st == COLL_OK ? st : coll_thread_error_say(kind, st, "the device cannot order the streams");
	coll_async_lock(s->ctx);
	/* An event of the same stream needs no wait: new requests are behind it anyway. A stream of the device cannot
	 * wait for the host. Where the driver waits, the error of the event is what is left to wait for. */
	if (s->device && !ordered && coll_event_state(e) == COLL_AGAIN)
		st = COLL_ERR_UNSUPPORTED;
	else if (e->stream != s && coll_event_state(e) != COLL_OK)
		st = append(s, e);
	coll_async_unlock(s->ctx);
	return st == COLL_OK ? st : coll_thread_error_say(kind, st, NULL);
}

/* ---- Functions of the program ---- */

coll_status coll_event_notify(coll_event *e, void (*fn)(void *arg, coll_status status), void *arg)
{
	struct coll_notice *n;
	bool added;

	if (forbidden(e, "event_notify"))
		return COLL_ERR_ARGUMENT;
	if (!fn)
		return invalid("event_notify", "fn is NULL");
	n = coll_notify_make(fn, arg);
	if (!n)
		return coll_thread_error_say("event_notify", COLL_ERR_MEMORY, NULL);
	coll_async_lock(e->ctx);
	added = coll_notify_add(n, e, coll_event_state(e));
	coll_async_unlock(e->ctx);
	if (!added)
		coll_notify_run(n);
	return COLL_OK;
}
