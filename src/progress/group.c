/*
 * Groups: calls of one thread, noted between begin and end and submitted together, so that they
 * progress together. The calls of a group are independent of each other. On one stream they share a
 * position.
 *
 * Small all_reduces that differ only in buffers and lengths are merged into one. The merge depends
 * only on the calls of the group and on their order, which are equal on all ranks. If they are not,
 * the merged calls differ in length or signature, and that is reported like any mismatch. The merge
 * does not depend on streams, because each rank chooses its streams alone. A merged call of several
 * streams has one part in each stream and waits for all of them.
 */
#include "progress/group.h"

#include <stdlib.h>
#include <string.h>

#include "base/delay.h"
#include "base/hash.h"
#include "base/limits.h"
#include "core/error.h"
#include "progress/async.h"
#include "progress/drive.h"
#include "progress/inflight.h"
#include "progress/notify.h"
#include "progress/persistent.h"
#include "progress/request.h"
#include "progress/stage.h"
#include "progress/stage_chain.h"
#include "progress/stream.h"

enum { CONTEXTS_LOCAL = 16 };

_Thread_local struct coll_group coll_group __attribute__((tls_model("initial-exec")));

void coll_group_add(struct coll_request *r, struct coll_stream *stream)
{
	r->stream = stream;
	r->held = r->operation || !stream;
	r->next_part = NULL;
	if (coll_group.last)
		coll_group.last->next_part = r;
	else
		coll_group.first = r;
	coll_group.last = r;
	coll_group.calls++;
}

bool coll_group_has(const struct coll_comm *comm, const struct coll_stream *stream)
{
	for (const struct coll_request *r = coll_group.first; r; r = r->next_part)
		if ((comm && r->comm == comm) || (stream && r->stream == stream))
			return true;
	return false;
}

coll_status coll_group_begin(void)
{
	if (coll_notify_forbids(NULL, "group_begin"))
		return COLL_ERR_ARGUMENT;
	coll_group.depth++;
	return COLL_OK;
}

/* ---- Merging small calls ---- */

static size_t bytes_of(const struct coll_request *r)
{
	return r->call.count * r->job.elem_bytes;
}

/* The limits are agreed facts, so they are constants. A call of up to COLL_FUSE_EACH_MAX is mostly
 * latency (2 ranks over shm: 4 KiB take 2 to 3 times as long as 8 bytes). A packed call, of up to
 * COLL_FUSE_TOTAL_MAX, stays below the size that is cut into tiles. */
static bool small(const struct coll_request *r)
{
	return r->kind == COLL_REQUEST_COLLECTIVE && !r->operation && !r->comm->facts.devices &&
	       r->call.kind == COLL_KIND_ALL_REDUCE && r->call.op < COLL_OP_COUNT && bytes_of(r) > 0 &&
	       bytes_of(r) <= COLL_FUSE_EACH_MAX;
}

static bool alike(const struct coll_request *a, const struct coll_request *b)
{
	return b->comm == a->comm && small(b) && b->call.type == a->call.type && b->call.op == a->call.op;
}

/* Remove the calls that merge with `first` from the list behind it. They are linked in order by
 * next_part; `first` keeps its place. Returns the number of elements in all. */
static size_t gather(struct coll_request *first, struct coll_request **parts)
{
	size_t count = first->call.count;
	struct coll_request **tail = parts, **at = &first->next_part;

	while (*at) {
		struct coll_request *r = *at;

		if (!alike(first, r) || (count + r->call.count) * first->job.elem_bytes > COLL_FUSE_TOTAL_MAX) {
			at = &r->next_part;
			continue;
		}
		count += r->call.count;
		*at = r->next_part;
		r->next_part = NULL;
		*tail = r;
		tail = &r->next_part;
	}
	return count;
}

/* *merged: the request that replaces `first` and `parts`, in the place of `first`. On an error the
 * calls are not issued one by one, because other ranks may have merged them. The error is that of
 * the group. */
static coll_status merge(struct coll_request *first, struct coll_request *parts, size_t count,
                         struct coll_request **merged)
{
	const struct coll_call call = {
	        .kind = COLL_KIND_ALL_REDUCE, .count = count, .type = first->call.type, .op = first->call.op};
	struct coll_request *r;
	coll_status st = coll_request_call(first->comm, &call, &r);
	uint64_t h;

	if (st != COLL_OK)
		return st;
	if (coll_request_need_pack(r, count * first->job.elem_bytes) != COLL_OK) {
		coll_request_recycle(r);
		return coll_comm_refuse(first->comm, "group", COLL_ERR_MEMORY, "no memory to pack small calls");
	}
	r->stream = NULL;
	r->call.in = r->call.out = r->pack;
	r->job.in.base = r->job.out.base = r->pack;
	r->next_part = first->next_part;
	first->next_part = parts;
	r->parts = first;
	h = r->signature;
	r->held = false;
	for (const struct coll_request *p = r->parts; p; p = p->next_part) {
		h = coll_mix64(h ^ p->call.count);
		r->held |= !p->stream; /* this thread waits for it */
	}
	r->signature = (uint32_t)(h ^ h >> 32);
	*merged = r;
	return COLL_OK;
}

static coll_status fuse(struct coll_request **list)
{
	for (struct coll_request **at = list; *at; at = &(*at)->next_part) {
		struct coll_request *parts = NULL;
		coll_status st;
		size_t count;

		if (!small(*at))
			continue;
		count = gather(*at, &parts);
		st = parts ? merge(*at, parts, count, at) : COLL_OK;
		if (st == COLL_OK)
			continue;
		while (parts) { /* put the parts back into the list, which give_up() takes */
			struct coll_request *next = parts->next_part;

			parts->next_part = (*at)->next_part;
			(*at)->next_part = parts;
			parts = next;
		}
		return st;
	}
	return COLL_OK;
}

/* ---- Submitting and waiting ---- */

struct batch {
	struct coll_request *first; /* the first request not seen done */
	struct coll_context *local[CONTEXTS_LOCAL], **ctxs;
	int nctxs;
};

static bool all_done(void *arg)
{
	struct batch *b = arg;

	for (struct coll_request *r = b->first; r; r = r->next_part)
		coll_stage_pace(r->comm);
	while (b->first && atomic_load_explicit(&b->first->done, memory_order_acquire))
		b->first = b->first->next_part;
	return !b->first;
}

static void add_context(struct batch *b, struct coll_context *ctx)
{
	for (int i = 0; i < b->nctxs; i++)
		if (b->ctxs[i] == ctx)
			return;
	b->ctxs[b->nctxs++] = ctx;
}

/* The position of the group in a stream. Only this thread adds to the stream. */
static uint64_t position_in(struct coll_stream *s)
{
	if (!s->group_position)
		s->group_position = s->last + 1;
	return s->group_position;
}

void coll_group_join(struct coll_request *whole)
{
	for (struct coll_request *p = whole->parts; p; p = p->next_part) {
		struct coll_stream *s = p->stream;

		if (!s || s->merged == whole)
			continue;
		s->merged = whole;
		p->whole = whole;
		p->blockers = 1;
		whole->blockers++;
		coll_stream_append(s, p, position_in(s));
		coll_inflight_unblock(p);
	}
}

static void begin_in(struct coll_stream *s)
{
	if (s) {
		s->group_position = 0;
		s->merged = NULL;
	}
}

static coll_status submit(struct coll_request *r)
{
	struct coll_stream *s = r->stream;

	if (r->operation)
		coll_operation_leaves_group(r);
	return coll_request_submit(r, s, s ? position_in(s) : 0);
}

/* Whether the end of the group waits for r. */
static bool waited_for(const struct coll_request *r)
{
	return r->parts ? r->held : !r->stream;
}

/* Take back the requests that this thread holds. Streams keep theirs. status: for requests that
 * were not submitted. OK: all were submitted. */
static void give_up(struct coll_request *list, coll_status status)
{
	while (list) {
		struct coll_request *next = list->next_part;

		list->next_part = NULL;
		list->status = status ? status : list->status;
		coll_request_recycle(list);
		list = next;
	}
}

/* Wait for all. With device memory the driver is asked now and then: nothing else would end the wait if it failed. */
static void await(const struct coll_request *list, struct batch *b)
{
	bool staged = false;

	for (const struct coll_request *r = list; r; r = r->next_part)
		staged |= r->staged;
	while (list &&
	       coll_async_await(b->ctxs, b->nctxs, all_done, b, staged ? COLL_DELAY_DEVICE_LOOK_MS : -1) == COLL_AGAIN)
		for (const struct coll_request *r = list; r; r = r->next_part)
			if (r->staged)
				coll_stage_look(r->comm->ctx);
}

/* They were to be captured. Those of operations are free again, and so is what the graph has not got. */
static void leave_to_graph(struct coll_request *list, coll_status status)
{
	while (list) {
		struct coll_request *next = list->next_part;

		list->next_part = NULL;
		list->status = status;
		if (list->operation || !list->in_graph)
			coll_request_recycle(list);
		list = next;
	}
}

static coll_status run(struct coll_request *list, struct batch *b)
{
	struct coll_request **at = &list;
	struct coll_stage_batch staged = {NULL};
	coll_status st = COLL_OK, result = COLL_OK;

	for (struct coll_request *r = list; r && st == COLL_OK; r = r->next_part)
		st = coll_stage_add(&staged, r, r->stream);
	if (st == COLL_OK)
		st = coll_stage_deal(&staged);
	if (staged.captured) {
		leave_to_graph(list, st);
		return st;
	}
	if (st != COLL_OK) {
		give_up(list, st);
		return st;
	}
	for (struct coll_request *r = list; r; r = r->next_part) {
		begin_in(r->stream);
		for (struct coll_request *p = r->parts; p; p = p->next_part)
			begin_in(p->stream);
	}
	while (*at) {
		struct coll_request *r = *at, *next = r->next_part;
		const bool stays = waited_for(r);

		if (!stays)
			r->next_part = NULL;
		st = submit(r);
		if (st == COLL_OK && stays) {
			add_context(b, r->comm->ctx);
			at = &r->next_part;
			continue;
		}
		/* The stream owns this request now. It may be done and in use again. */
		*at = next;
		if (st != COLL_OK) {
			r->next_part = NULL;
			coll_request_recycle(r);
		}
		result = result ? result : st;
	}
	coll_stage_enqueue(&staged);
	b->first = list;
	for (struct coll_request *r = list; r; r = r->next_part)
		if (r->kind == COLL_REQUEST_TAG)
			r->comm->ctx->async->tags->about_to_wait(r);
	for (struct coll_request *r = list; r; r = r->next_part)
		atomic_store_explicit(&r->awaited, true, memory_order_relaxed);
	await(list, b);
	for (struct coll_request *r = list; r; r = r->next_part) {
		coll_stage_end_pace(r->comm);
		atomic_store_explicit(&r->awaited, false, memory_order_relaxed);
		result = result ? result : r->status;
	}
	give_up(list, COLL_OK);
	return result;
}

void coll_group_cancel(void)
{
	struct coll_request *list = coll_group.first;

	coll_group.depth = coll_group.calls = 0;
	coll_group.first = coll_group.last = NULL;
	/* A later call may pass the same address for other memory. */
	for (struct coll_request *r = list; r; r = r->next_part)
		memset(r->comm->seen, 0, sizeof(r->comm->seen));
	give_up(list, COLL_ERR_ABORTED);
}

coll_status coll_group_end(void)
{
	struct batch b = {.ctxs = b.local};
	struct coll_request *list = coll_group.first;
	const int calls = coll_group.calls;
	coll_status st;

	if (coll_group.depth <= 0)
		return COLL_ERR_ARGUMENT;
	if (--coll_group.depth > 0)
		return COLL_OK;
	coll_group.first = coll_group.last = NULL;
	coll_group.calls = 0;
	if (calls > CONTEXTS_LOCAL && !(b.ctxs = malloc((size_t)calls * sizeof(struct coll_context *)))) {
		give_up(list, COLL_ERR_MEMORY);
		return COLL_ERR_MEMORY;
	}
	st = fuse(&list);
	if (st == COLL_OK)
		st = run(list, &b);
	else
		give_up(list, st);
	if (b.ctxs != b.local)
		free(b.ctxs);
	return st;
}
