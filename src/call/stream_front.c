/*
 * Streams as the program has them: made, asked, waited for. Their order: stream.c.
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
#include "inflight/thread.h"

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
	return coll_entry_no_comm(comm, "stream_create") ? COLL_ERR_ARGUMENT : make(out, comm, "stream_create");
}

coll_status coll_stream_wrap_cuda(coll_stream **out, coll_comm *comm, void *cuda_stream)
{
	static const char kind[] = "stream_wrap_cuda";
	struct coll_device_capture capture;
	const char *why = "";
	struct coll_device *d;
	coll_status st;

	if (coll_entry_no_comm(comm, kind))
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
	struct coll_device *d = s && s->device && coll_fork_owns(s->ctx->mark) ? s->ctx->device : NULL;
	const char *why;

	return d && d->table->stream_check(d, s->handle, &capture, &why) == COLL_OK && capture.id != 0;
}

static bool complete(void *arg)
{
	const struct coll_stream *s = arg;

	return atomic_load_explicit(&s->through, memory_order_acquire) == s->last;
}

static coll_status status_of(struct coll_stream *s, const char *kind)
{
	coll_status st;

	coll_async_lock(s->ctx);
	st = s->status == COLL_OK ? COLL_OK : coll_thread_error_of(s->why, s->status, kind);
	pthread_mutex_unlock(&s->ctx->async->lock);
	return st;
}

static bool forbidden(const coll_stream *s, const char *kind)
{
	return coll_entry_forbids(s ? s->ctx : NULL, "stream", kind);
}

coll_status coll_stream_query(coll_stream *s)
{
	if (forbidden(s, "stream_query"))
		return COLL_ERR_ARGUMENT;
	if (!complete(s))
		coll_drive_ask(s->ctx, complete, s);
	if (s->device && !complete(s))
		s->ctx->async->devices->look(s->ctx, true);
	return complete(s) ? status_of(s, "stream_query") : COLL_AGAIN;
}

coll_status coll_stream_wait(coll_stream *s, int timeout_ms)
{
	coll_status st;

	if (forbidden(s, "stream_wait"))
		return COLL_ERR_ARGUMENT;
	st = coll_async_await_one(s->ctx, NULL, s->device, complete, s, timeout_ms);
	return st == COLL_OK ? status_of(s, "stream_wait") : st;
}

coll_status coll_stream_destroy(coll_stream **stream)
{
	struct coll_stream *s = stream ? *stream : NULL;
	struct coll_context *ctx;
	coll_status st;

	if (!s)
		return COLL_OK;
	if (!coll_fork_owns(s->ctx->mark)) {
		*stream = NULL;
		coll_context_forget(s->ctx);
		free(s);
		return COLL_OK;
	}
	if (coll_notify_forbids(s->ctx, "stream_destroy"))
		return COLL_ERR_ARGUMENT;
	if (coll_noted_has(NULL, s))
		return coll_thread_error_say("stream_destroy", COLL_ERR_ARGUMENT, "a group still has calls on it");
	st = coll_stream_wait(s, -1);
	*stream = NULL;
	ctx = s->ctx;
	coll_async_lock(ctx);
	coll_event_detach(s);
	coll_failure_drop(&s->why);
	pthread_mutex_unlock(&ctx->async->lock);
	free(s);
	coll_context_release(&ctx);
	return st;
}
