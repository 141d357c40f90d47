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
#include "call/group.h"

#include <stdlib.h>
#include <string.h>

#include "base/delay.h"
#include "base/hash.h"
#include "base/limits.h"
#include "call/collective.h"
#include "call/issue.h"
#include "core/entry.h"
#include "core/error.h"
#include "core/thread_error.h"
#include "inflight/drive.h"
#include "inflight/notify.h"
#include "inflight/queue.h"
#include "inflight/stream.h"

enum { CONTEXTS_LOCAL = 16 };

coll_status coll_group_begin(void)
{
	if (coll_notify_forbids(NULL, "group_begin"))
		return COLL_ERR_ARGUMENT;
	coll_group.depth++;
	return COLL_OK;
}

/* ---- Merged calls ---- */

static size_t bytes_of(const struct coll_request *r)
{
	return coll_collective_of(r)->call.count * coll_collective_of(r)->job.elem_bytes;
}

/* Copy the inputs of the parts side by side, and the output to each. */
static void pack(const struct coll_collective_request *whole, bool out)
{
	char *packed = whole->pack;

	for (const struct coll_request *p = whole->parts; p; p = p->next_noted) {
		const struct coll_call *call = &coll_collective_of(p)->call;
		const size_t bytes = bytes_of(p);

		if (bytes > 0)
			memcpy(out ? call->out : packed, out ? packed : call->in, bytes);
		packed += bytes;
	}
}

/* The position of the group in a stream. Only this thread adds to the stream. */
static uint64_t position_in(struct coll_stream *s)
{
	if (!s->group_position)
		s->group_position = s->last + 1;
	return s->group_position;
}

static coll_status start_part(struct coll_request *p)
{
	coll_inflight_unblock(&coll_collective_of(p)->whole->request);
	return COLL_OK;
}

static const struct coll_request_kind part_kind = {
        .name = "part", .start = start_part, .recycle = coll_collective_recycle, .fini = coll_collective_fini};

/* The first part in each stream has the place of the whole there. */
static void enter_merged(struct coll_request *r)
{
	struct coll_collective_request *whole = coll_collective_of(r);

	coll_collective_enter(r);
	for (struct coll_request *p = whole->parts; p; p = p->next_noted) {
		struct coll_stream *s = p->stream;

		if (!s || s->merged == whole)
			continue;
		s->merged = whole;
		coll_collective_of(p)->whole = whole;
		p->kind = &part_kind;
		p->state = COLL_REQUEST_QUEUED;
		p->blockers = 1;
		r->blockers++;
		coll_stream_append(s, p, position_in(s));
		coll_inflight_unblock(p);
	}
}

static coll_status run_merged(struct coll_collective_request *whole)
{
	pack(whole, false);
	return coll_collective_run(whole);
}

static coll_status start_merged(struct coll_request *r)
{
	return coll_collective_start(r, run_merged);
}

static void leave_merged(struct coll_request *r)
{
	const struct coll_collective_request *whole = coll_collective_of(r);

	if (r->status == COLL_OK)
		pack(whole, true);
	coll_collective_leave(r);
	for (struct coll_request *p = whole->parts; p; p = p->next_noted)
		if (coll_collective_of(p)->whole)
			coll_stream_pop(p->stream, p, r->status);
}

static void recycle_merged(struct coll_request *r)
{
	struct coll_request *p = coll_collective_of(r)->parts, *next;

	coll_collective_of(r)->parts = NULL;
	coll_collective_recycle(r);
	for (; p; p = next) {
		next = p->next_noted;
		p->next_noted = NULL;
		coll_collective_of(p)->whole = NULL;
		coll_collective_recycle(p);
	}
}

static const struct coll_request_kind merged_kind = {.name = "merged",
                                                     .enter = enter_merged,
                                                     .start = start_merged,
                                                     .poll = coll_drive_poll,
                                                     .limited = coll_collective_limited,
                                                     .leave = leave_merged,
                                                     .recycle = recycle_merged,
                                                     .fini = coll_collective_fini};

/* ---- Merging small calls ---- */

/* The limits are agreed facts, so they are constants. A call of up to COLL_FUSE_EACH_MAX is mostly
 * latency (2 ranks over shm: 4 KiB take 2 to 3 times as long as 8 bytes). A packed call, of up to
 * COLL_FUSE_TOTAL_MAX, stays below the size that is cut into tiles. */
static bool small(const struct coll_request *r)
{
	const struct coll_call *call;

	if (r->is != COLL_IS_COLLECTIVE || !r->kind->merges || r->comm->facts.devices)
		return false;
	call = &coll_collective_of(r)->call;
	return call->kind == COLL_KIND_ALL_REDUCE && call->op < COLL_OP_COUNT && bytes_of(r) > 0 &&
	       bytes_of(r) <= COLL_FUSE_EACH_MAX;
}

static bool alike(const struct coll_request *a, const struct coll_request *b)
{
	return b->comm == a->comm && small(b) && coll_collective_of(b)->call.type == coll_collective_of(a)->call.type &&
	       coll_collective_of(b)->call.op == coll_collective_of(a)->call.op;
}

/* Remove the calls that merge with `first` from the list behind it. They are linked in order by
 * next_noted; `first` keeps its place. Returns the number of elements in all. */
static size_t gather(struct coll_request *first, struct coll_request **parts)
{
	const size_t elem_bytes = coll_collective_of(first)->job.elem_bytes;
	size_t count = coll_collective_of(first)->call.count;
	struct coll_request **tail = parts, **at = &first->next_noted;

	while (*at) {
		struct coll_request *r = *at;

		if (!alike(first, r) || count * elem_bytes + bytes_of(r) > COLL_FUSE_TOTAL_MAX) {
			at = &r->next_noted;
			continue;
		}
		count += coll_collective_of(r)->call.count;
		*at = r->next_noted;
		r->next_noted = NULL;
		*tail = r;
		tail = &r->next_noted;
	}
	return count;
}

/* *merged: the request that replaces `first` and `parts`, in the place of `first`. On an error the
 * calls are not issued one by one, because other ranks may have merged them. The error is that of
 * the group. */
static coll_status merge(struct coll_request *first, struct coll_request *parts, size_t count,
                         struct coll_request **merged)
{
	const struct coll_call *one = &coll_collective_of(first)->call;
	const struct coll_call call = {.kind = COLL_KIND_ALL_REDUCE, .count = count, .type = one->type, .op = one->op};
	struct coll_collective_request *c;
	coll_status st = coll_collective_make(first->comm, &call, &c);
	uint64_t h;

	if (st != COLL_OK)
		return st;
	if (coll_collective_need_pack(c, count * c->job.elem_bytes) != COLL_OK) {
		coll_request_recycle(&c->request);
		return coll_comm_refuse(first->comm, "group", COLL_ERR_MEMORY, "no memory to pack small calls");
	}
	c->request.kind = &merged_kind;
	c->request.stream = NULL;
	c->call.in = c->call.out = c->pack;
	c->job.in.base = c->job.out.base = c->pack;
	c->request.next_noted = first->next_noted;
	first->next_noted = parts;
	c->parts = first;
	h = c->signature;
	for (const struct coll_request *p = c->parts; p; p = p->next_noted) {
		h = coll_mix64(h ^ coll_collective_of(p)->call.count);
		c->request.held |= !p->stream; /* this thread waits for it */
	}
	c->signature = (uint32_t)(h ^ h >> 32);
	*merged = &c->request;
	return COLL_OK;
}

static coll_status fuse(struct coll_request **list)
{
	for (struct coll_request **at = list; *at; at = &(*at)->next_noted) {
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
			struct coll_request *next = parts->next_noted;

			parts->next_noted = (*at)->next_noted;
			(*at)->next_noted = parts;
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

	for (struct coll_request *r = b->first; r; r = r->next_noted)
		coll_request_attend(r, COLL_WAIT_LOOKS);
	while (b->first && atomic_load_explicit(&b->first->done, memory_order_acquire))
		b->first = b->first->next_noted;
	return !b->first;
}

static void add_context(struct batch *b, struct coll_context *ctx)
{
	for (int i = 0; i < b->nctxs; i++)
		if (b->ctxs[i] == ctx)
			return;
	b->ctxs[b->nctxs++] = ctx;
}

static void begin_in(struct coll_stream *s)
{
	if (s) {
		s->group_position = 0;
		s->merged = NULL;
	}
}

static void begin_in_parts(const struct coll_request *r)
{
	if (r->kind == &merged_kind)
		for (struct coll_request *p = coll_collective_of(r)->parts; p; p = p->next_noted)
			begin_in(p->stream);
}

static coll_status submit(struct coll_request *r)
{
	struct coll_stream *s = r->stream;

	return coll_request_submit(r, s, s ? position_in(s) : 0);
}

/* Whether the end of the group waits for r. That of an operation in a stream is waited for by who started it. */
static bool waited_for(const struct coll_request *r)
{
	return r->held && !r->stream;
}

/* Take back the requests that this thread holds. Streams keep theirs. status: for requests that
 * were not submitted. OK: all were submitted, or are in a graph. */
static void give_up(struct coll_request *list, coll_status status)
{
	while (list) {
		struct coll_request *next = list->next_noted;

		list->next_noted = NULL;
		list->status = status ? status : list->status;
		coll_request_recycle(list);
		list = next;
	}
}

/* Wait for all. With device memory the driver is asked now and then: nothing else would end the wait if it failed. */
static void await(const struct coll_request *list, struct batch *b)
{
	bool asks = false;

	for (const struct coll_request *r = list; r; r = r->next_noted)
		asks |= r->kind->asks;
	while (list && coll_async_await(b->ctxs, b->nctxs, NULL, all_done, b, asks ? COLL_DELAY_DEVICE_LOOK_MS : -1) ==
	                       COLL_AGAIN)
		for (const struct coll_request *r = list; r; r = r->next_noted)
			if (r->kind->asks)
				r->comm->ctx->async->devices->look(r->comm->ctx, false);
}

static coll_status run(struct coll_request *list, struct batch *b)
{
	struct coll_request **at = &list;
	struct coll_batch batch = {NULL};
	coll_status st = COLL_OK, result = COLL_OK;

	for (struct coll_request *r = list; r && st == COLL_OK; r = r->next_noted)
		st = coll_batch_add(&batch, r, r->stream);
	if (st == COLL_OK)
		st = coll_batch_assign(&batch);
	/* What a graph has stays there. */
	if (st != COLL_OK || batch.captured) {
		give_up(list, st);
		return st;
	}
	for (struct coll_request *r = list; r; r = r->next_noted) {
		begin_in(r->stream);
		begin_in_parts(r);
	}
	while (*at) {
		struct coll_request *r = *at, *next = r->next_noted;
		const bool stays = waited_for(r);

		if (!stays)
			r->next_noted = NULL;
		st = submit(r);
		if (st == COLL_OK && stays) {
			add_context(b, r->comm->ctx);
			at = &r->next_noted;
			continue;
		}
		/* The stream owns this request now. It may be done and in use again. */
		*at = next;
		if (st != COLL_OK) {
			result = result ? result : coll_comm_keep(r->comm, st);
			r->next_noted = NULL;
			coll_request_recycle(r);
		}
	}
	coll_batch_enqueue(&batch);
	b->first = list;
	for (struct coll_request *r = list; r; r = r->next_noted)
		coll_request_attend(r, COLL_WAIT_BEGINS);
	for (struct coll_request *r = list; r; r = r->next_noted)
		atomic_store_explicit(&r->awaited, true, memory_order_relaxed);
	await(list, b);
	for (struct coll_request *r = list; r; r = r->next_noted) {
		coll_request_attend(r, COLL_WAIT_ENDS);
		atomic_store_explicit(&r->awaited, false, memory_order_relaxed);
		if (result == COLL_OK && r->status != COLL_OK)
			result = coll_comm_keep(r->comm, r->status);
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
	for (struct coll_request *r = list; r; r = r->next_noted)
		memset(r->comm->seen, 0, sizeof(r->comm->seen));
	give_up(list, COLL_ERR_ABORTED);
}

coll_status coll_group_end(void)
{
	struct batch b = {.ctxs = b.local};
	struct coll_request *list = coll_group.first;
	const int calls = coll_group.calls;
	coll_status st;

	if (coll_notify_forbids(NULL, "group_end"))
		return COLL_ERR_ARGUMENT;
	if (coll_group.depth == 0)
		return coll_thread_error_say("group_end", COLL_ERR_ARGUMENT, "no group is open");
	if (--coll_group.depth > 0)
		return COLL_OK;
	coll_group.first = coll_group.last = NULL;
	coll_group.calls = 0;
	/* Begun by the parent: what it noted stays its own. */
	if (list && coll_entry_forbids(list->comm->ctx, "group", "group_end"))
		return COLL_ERR_ARGUMENT;
	if (calls > CONTEXTS_LOCAL && !(b.ctxs = malloc((size_t)calls * sizeof(struct coll_context *)))) {
		give_up(list, COLL_ERR_MEMORY);
		return coll_thread_error_say("group_end", COLL_ERR_MEMORY, NULL);
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
