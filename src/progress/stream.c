/*
 * Streams: host queues of a context. A stream orders its own requests and nothing else. The
 * requests at its first incomplete position may start; those behind may not. A stream keeps its
 * first error. Requests behind an error still run, because other ranks expect them.
 */
#include "progress/stream.h"

#include <stdlib.h>

#include "core/error.h"
#include "device/device.h"
#include "progress/async.h"
#include "progress/drive.h"
#include "progress/event.h"
#include "progress/group.h"
#include "progress/inflight.h"
#include "progress/notify.h"
#include "progress/stage.h"

/* ---- Order (the lock is held) ---- */

void coll_stream_append(struct coll_stream *s, struct coll_request *r, uint64_t position)
{
	if (position == 0)
		position = s->last + 1;
	if (position > s->last)
		s->last = position;
	/* The request belongs to a group whose first calls are already complete. */
	if (atomic_load_explicit(&s->through, memory_order_relaxed) >= position)
		atomic_store_explicit(&s->through, position - 1, memory_order_release);
	r->position = position;
	if (coll_list_empty(&s->items))
		s->released = position;
	coll_list_append(&s->items, &r->item);
	if (position > s->released && !s->device)
		r->blockers++;
}

/* The first position has changed: its requests may start. */
static void release(struct coll_stream *s)
{
	for (struct coll_link *l = s->items.next; l != &s->items; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, item);

		if (r->position != s->released)
			return;
		coll_inflight_unblock(r);
	}
}

static void release_waiters(struct coll_stream *s, uint64_t through)
{
	struct coll_request **at = &s->waiters;

	while (*at) {
		struct coll_request *r = *at;

		if (r->source_position > through) {
			at = &r->next_waiter;
			continue;
		}
		*at = r->next_waiter;
		r->source = NULL;
		if (coll_stream_failure(s, r->source_position) != COLL_OK)
			r->status = s->status;
		coll_inflight_unblock(r);
	}
}

void coll_stream_pop(struct coll_stream *s, struct coll_request *r, coll_status status)
{
	uint64_t through;

	coll_list_remove(&r->item);
	/* An earlier call may fail after a later one of another communicator. */
	if (status != COLL_OK && (s->status == COLL_OK || r->position < s->failed_at)) {
		s->status = status;
		s->failed_at = r->position;
	}
	if (coll_list_empty(&s->items)) {
		through = s->last;
	} else {
		const uint64_t first = COLL_ENTRY(s->items.next, struct coll_request, item)->position;

		through = first - 1;
		if (first > s->released && !s->device) {
			s->released = first;
			release(s);
		}
	}
	release_waiters(s, through);
	atomic_store_explicit(&s->through, through, memory_order_release);
	coll_event_stamp(s);
	coll_notify_reach(s, through);
}

/* ---- Interface ---- */

static coll_status make(coll_stream **out, coll_comm *comm, const char *kind)
{
	struct coll_stream *s;

	if (!out)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "stream is NULL");
	s = calloc(1, sizeof(*s));
	if (!s)
		return coll_comm_refuse(comm, kind, COLL_ERR_MEMORY, "out of memory");
	s->ctx = comm->ctx;
	coll_list_init(&s->items);
	coll_list_init(&s->events);
	coll_list_init(&s->notices);
	coll_async_lock(s->ctx);
	s->number = ++s->ctx->async->streams;
	if (s->number == 0) /* 0 means no stream */
		s->number = ++s->ctx->async->streams;
	pthread_mutex_unlock(&s->ctx->async->lock);
	coll_context_retain(s->ctx);
	coll_async_thread(s->ctx);
	*out = s;
	return COLL_OK;
}

coll_status coll_stream_create(coll_stream **out, coll_comm *comm)
{
	return comm ? make(out, comm, "stream_create") : COLL_ERR_ARGUMENT;
}

coll_status coll_stream_wrap_cuda(coll_stream **out, coll_comm *comm, void *cuda_stream)
{
	static const char kind[] = "stream_wrap_cuda";
	struct coll_device_capture capture;
	const char *why = "";
	struct coll_device *d;
	coll_status st;

	if (!comm)
		return COLL_ERR_ARGUMENT;
	d = comm->ctx->device;
	if (!d)
		return coll_comm_refuse(comm, kind, COLL_ERR_UNSUPPORTED,
		                        "[COLL-1214] this rank has no device: see coll_config.device");
	st = d->table->stream_check(d, cuda_stream, &capture, &why);
	if (st == COLL_ERR_ARGUMENT || st == COLL_ERR_SYSTEM)
		return coll_comm_refuse(comm, kind, st, "[COLL-1215] the stream cannot be used: %s", why);
	st = make(out, comm, kind);
	if (st != COLL_OK)
		return st;
	(*out)->device = true;
	(*out)->handle = cuda_stream;
	return COLL_OK;
}

int coll_stream_is_captured(const coll_stream *s)
{
	struct coll_device_capture capture = {0};
	struct coll_device *d = s && s->device ? s->ctx->device : NULL;
	const char *why;

	return d && d->table->stream_check(d, s->handle, &capture, &why) == COLL_OK && capture.id != 0;
}

static bool complete(void *arg)
{
	const struct coll_stream *s = arg;

	return atomic_load_explicit(&s->through, memory_order_acquire) == s->last;
}

static coll_status status_of(struct coll_stream *s)
{
	coll_status st;

	coll_async_lock(s->ctx);
	st = s->status;
	pthread_mutex_unlock(&s->ctx->async->lock);
	return st;
}

coll_status coll_stream_query(coll_stream *s)
{
	if (!s)
		return COLL_ERR_ARGUMENT;
	if (!complete(s))
		coll_drive_ask(s->ctx, complete, s);
	if (s->device && !complete(s))
		coll_stage_look_sometimes(s->ctx);
	return complete(s) ? status_of(s) : COLL_AGAIN;
}

coll_status coll_stream_wait(coll_stream *s, int timeout_ms)
{
	coll_status st;

	if (!s)
		return COLL_ERR_ARGUMENT;
	st = s->device ? coll_stage_await(s->ctx, NULL, complete, s, timeout_ms)
	               : coll_async_await(&s->ctx, 1, complete, s, timeout_ms);
	return st == COLL_OK ? status_of(s) : st;
}

coll_status coll_stream_destroy(coll_stream **stream)
{
	struct coll_stream *s = stream ? *stream : NULL;
	struct coll_context *ctx;
	coll_status st;

	if (!s)
		return COLL_OK;
	if (coll_notify_forbids(s->ctx, "stream_destroy") || coll_group_has(NULL, s))
		return COLL_ERR_ARGUMENT;
	st = coll_stream_wait(s, -1);
	*stream = NULL;
	ctx = s->ctx;
	coll_async_lock(ctx);
	coll_event_detach(s);
	pthread_mutex_unlock(&ctx->async->lock);
	free(s);
	coll_context_release(&ctx);
	return st;
}
