/*
 * Streams and events. A stream is a place in the hardware queue that it was assigned; an event is
 * the operation that was the last one of a stream at the record. The default streams are made,
 * and assigned a queue, when they are first used.
 */
#include "tests/softcuda/soft.h"

#include <stdlib.h>

static CUevent events;

struct own_default { /* the stream 0x2 of this thread, by context */
	CUcontext ctx;
	CUstream stream;
};
static __thread struct own_default own_default;

/* ---- streams ---- */

CUstream soft_stream_new(CUcontext ctx, unsigned flags)
{
	CUstream s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->ctx = ctx;
	s->flags = flags;
	s->id = ++soft.ids;
	s->queue = soft_deal(ctx->device);
	s->next = ctx->streams;
	ctx->streams = s;
	return s;
}

void soft_streams_end(CUcontext ctx)
{
	for (CUstream s = ctx->streams; s; s = s->next)
		s->dead = true;
}

/* Streams that are destroyed and empty leave the list. Their memory is kept: handles may be used again. */
static void prune(CUcontext ctx)
{
	static CUstream gone;

	for (CUstream *p = &ctx->streams; *p;) {
		CUstream s = *p;

		if (s->dead && (!s->last || s->last->done)) {
			*p = s->next;
			soft_op_unref(s->last);
			s->last = NULL;
			s->next = gone;
			gone = s;
		} else {
			p = &s->next;
		}
	}
}

CUresult soft_stream(CUcontext ctx, CUstream handle, CUstream *out)
{
	if (handle == CU_STREAM_PER_THREAD) {
		if (own_default.ctx != ctx) {
			own_default.ctx = ctx;
			own_default.stream = soft_stream_new(ctx, CU_STREAM_DEFAULT);
		}
		*out = own_default.stream;
		return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (!handle || handle == CU_STREAM_LEGACY) {
		if (!ctx->legacy) {
			ctx->legacy = soft_stream_new(ctx, CU_STREAM_DEFAULT);
			if (!ctx->legacy)
				return CUDA_ERROR_OUT_OF_MEMORY;
			ctx->legacy->legacy = true;
		}
		*out = ctx->legacy;
		return CUDA_SUCCESS;
	}
	for (CUcontext c = soft.contexts; c; c = c->next) {
		for (CUstream s = c->streams; s; s = s->next) {
			if (s == handle && !s->dead && !s->internal) {
				*out = s;
				return c->error && !soft_planted(RULE_sticky) ? c->error : CUDA_SUCCESS;
			}
		}
	}
	return CUDA_ERROR_INVALID_HANDLE;
}

#define STREAM(handle, s)                                          \
	do {                                                       \
		CUresult found = soft_stream(ctx, (handle), &(s)); \
		if (found)                                         \
			return soft_leave(found);                  \
	} while (0)

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority)
{
	CUcontext ctx;

	ENTER_CTX(cuStreamCreateWithPriority, ctx);
	if (!out || flags > CU_STREAM_NON_BLOCKING)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (!soft_planted(RULE_stream_create))
		soft_drain(ctx, true, "cuStreamCreate");
	prune(ctx);
	*out = soft_stream_new(ctx, flags);
	if (!*out)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	(*out)->priority = priority;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuStreamCreate(CUstream *out, unsigned flags)
{
	CUcontext ctx;

	ENTER_CTX(cuStreamCreate, ctx);
	if (!out || flags > CU_STREAM_NON_BLOCKING)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (!soft_planted(RULE_stream_create))
		soft_drain(ctx, true, "cuStreamCreate");
	prune(ctx);
	*out = soft_stream_new(ctx, flags);
	return soft_leave(*out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult cuStreamDestroy_v2(CUstream handle)
{
	CUcontext ctx;
	CUstream s;

	ENTER_CTX(cuStreamDestroy, ctx);
	if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	STREAM(handle, s);
	if (s->capture)
		soft_capture_stream_gone(s);
	s->dead = true;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCtx(CUstream handle, CUcontext *out)
{
	CUcontext ctx;
	CUstream s;

	ENTER_CTX(cuStreamGetCtx, ctx);
	STREAM(handle, s);
	if (!out)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*out = s->ctx;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetFlags(CUstream handle, unsigned *flags)
{
	CUcontext ctx;
	CUstream s;

	ENTER_CTX(cuStreamGetFlags, ctx);
	STREAM(handle, s);
	if (!flags)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*flags = s->flags;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetId(CUstream handle, unsigned long long *id)
{
	CUcontext ctx;
	CUstream s;

	ENTER_CTX(cuStreamGetId, ctx);
	STREAM(handle, s);
	if (!id)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*id = s->id;
	return soft_leave(CUDA_SUCCESS);
}

/* Whether all work of a stream is done; of the legacy one, also that of all blocking streams. */
static struct soft_op *unfinished(CUstream s)
{
	if (s->last && !s->last->done)
		return s->last;
	for (CUstream other = s->legacy ? s->ctx->streams : NULL; other; other = other->next)
		if (!(other->flags & CU_STREAM_NON_BLOCKING) && other->last && !other->last->done)
			return other->last;
	return NULL;
}

CUresult cuStreamQuery(CUstream handle)
{
	CUcontext ctx;
	CUstream s;

	ENTER_CTX(cuStreamQuery, ctx);
	STREAM(handle, s);
	if (s->capture && !soft_planted(RULE_capture_query))
		return soft_leave(soft_capture_wrong(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
	if (s->legacy) {
		CUresult result = soft_capture_implicit(s->ctx);

		if (result)
			return soft_leave(result);
	}
	return soft_leave(unfinished(s) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

CUresult cuStreamSynchronize(CUstream handle)
{
	struct soft_op *op;
	CUcontext ctx;
	CUstream s;

	ENTER_CTX(cuStreamSynchronize, ctx);
	STREAM(handle, s);
	if (s->capture && !soft_planted(RULE_capture_query))
		return soft_leave(soft_capture_wrong(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
	if (s->legacy) {
		CUresult result = soft_capture_implicit(s->ctx);

		if (result)
			return soft_leave(result);
	}
	while ((op = unfinished(s))) {
		soft_op_ref(op);
		soft_wait(op, "cuStreamSynchronize");
		soft_op_unref(op);
		if (!s->legacy)
			break;
	}
	return soft_leave(s->ctx->error);
}

CUresult cuLaunchHostFunc(CUstream handle, CUhostFn fn, void *arg)
{
	struct soft_work work = {.kind = OP_HOST, .host = {fn, arg}};
	CUcontext ctx;
	CUstream s;

	ENTER_CTX(cuLaunchHostFunc, ctx);
	STREAM(handle, s);
	if (!fn)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	return soft_leave(soft_enqueue(s, &work, NULL));
}

/* ---- events ---- */

static bool is_event(CUevent e)
{
	for (CUevent other = events; other; other = other->next)
		if (other == e)
			return !e->dead;
	return false;
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	CUcontext ctx;
	CUevent e;

	ENTER_CTX(cuEventCreate, ctx);
	if (!out || flags > 7 || ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	for (e = events; e && !(e->dead && !e->op && !e->capture); e = e->next)
		;
	if (!e) {
		e = calloc(1, sizeof(*e));
		if (!e)
			return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
		e->next = events;
		events = e;
	}
	e->ctx = ctx;
	e->flags = flags;
	e->dead = false;
	*out = e;
	return soft_leave(CUDA_SUCCESS);
}

static void event_clear(CUevent e)
{
	soft_op_unref(e->op);
	e->op = NULL;
	free(e->tips);
	e->tips = NULL;
	e->tips_count = 0;
	e->capture = NULL;
}

void soft_event_set(CUevent e, struct soft_op *op)
{
	if (e->dead)
		return;
	event_clear(e);
	e->op = soft_op_ref(op);
}

CUresult cuEventDestroy_v2(CUevent e)
{
	CUcontext ctx;

	ENTER_CTX(cuEventDestroy, ctx);
	if (!is_event(e))
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	event_clear(e);
	e->dead = true;
	return soft_leave(CUDA_SUCCESS);
}

/* A node of the graph that is being captured. */
static CUresult external(CUstream s, CUevent e, bool records)
{
	struct soft_work work = {.kind = OP_EVENT, .ctx = s->ctx, .event = {e, records}};

	if (e->capture)
		return soft_capture_wrong(s->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	return soft_capture_add(s, &work);
}

static CUresult record(CUcontext ctx, CUevent e, CUstream handle, unsigned flags)
{
	struct soft_work work = {.kind = OP_NOP};
	struct soft_op *op = NULL;
	CUresult result;
	CUstream s;

	STREAM(handle, s);
	if (!is_event(e) || (e->ctx != s->ctx && !soft_planted(RULE_mixed_contexts)))
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL || (flags && !s->capture))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (flags)
		return soft_leave(external(s, e, true));
	if (s->capture) {
		event_clear(e);
		return soft_leave(soft_capture_record(s, e));
	}
	result = soft_enqueue(s, &work, &op);
	if (!result && !soft_planted(RULE_events)) {
		event_clear(e);
		e->op = op;
		op = NULL;
	}
	soft_op_unref(op);
	return soft_leave(result);
}

CUresult cuEventRecord(CUevent e, CUstream stream)
{
	CUcontext ctx;

	ENTER_CTX(cuEventRecord, ctx);
	return record(ctx, e, stream, CU_EVENT_RECORD_DEFAULT);
}

CUresult cuEventRecordWithFlags(CUevent e, CUstream stream, unsigned flags)
{
	CUcontext ctx;

	ENTER_CTX(cuEventRecordWithFlags, ctx);
	return record(ctx, e, stream, flags);
}

CUresult cuEventQuery(CUevent e)
{
	CUcontext ctx;
	CUresult result;

	ENTER_CTX(cuEventQuery, ctx);
	if (!is_event(e))
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	if (e->capture && !soft_planted(RULE_capture_event))
		return soft_leave(soft_capture_wrong(e->capture, CUDA_ERROR_CAPTURED_EVENT));
	result = soft_capture_unsafe();
	if (result)
		return soft_leave(result);
	if (e->ctx->error && !soft_planted(RULE_sticky))
		return soft_leave(e->ctx->error);
	return soft_leave(e->op && !e->op->done ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

CUresult cuEventSynchronize(CUevent e)
{
	struct soft_op *op;
	CUcontext ctx;

	ENTER_CTX(cuEventSynchronize, ctx);
	if (!is_event(e))
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	if (e->capture)
		return soft_leave(soft_capture_wrong(e->capture, CUDA_ERROR_CAPTURED_EVENT));
	if (e->op) {
		op = soft_op_ref(e->op);
		soft_wait(op, "cuEventSynchronize");
		soft_op_unref(op);
	}
	return soft_leave(e->ctx->error);
}

CUresult cuStreamWaitEvent(CUstream handle, CUevent e, unsigned flags)
{
	struct soft_work work = {.kind = OP_NOP};
	CUcontext ctx;
	CUresult result;
	CUstream s;

	ENTER_CTX(cuStreamWaitEvent, ctx);
	STREAM(handle, s);
	if (!is_event(e))
		return soft_leave(CUDA_ERROR_INVALID_HANDLE);
	if (flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL || (flags && !s->capture))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (flags)
		return soft_leave(external(s, e, false));
	if (s->capture || e->capture)
		return soft_leave(soft_capture_wait(s, e));
	if (s->legacy) {
		result = soft_capture_implicit(s->ctx);
		if (result)
			return soft_leave(result);
	}
	work.ctx = s->ctx;
	if (e->op && !soft_planted(RULE_wait_event))
		soft_push(s, &work, &e->op, 1);
	return soft_leave(CUDA_SUCCESS);
}
