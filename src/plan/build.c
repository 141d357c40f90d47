/*
 * The builder of build.h: checks what a generator says, keeps the current lane
 * and run, and hands whole steps to a draft, which orders them.
 */
#include "plan/build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/draft.h"

struct coll_builder {
	const struct coll_shape *shape;
	struct coll_draft draft;
	uint32_t lane;
	uint32_t run;
	uint32_t group;
	uint32_t stride;
	uint32_t span; /* of a contiguous run that wraps; 0: all chunks */
	bool wrap;
	uint32_t *order; /* NULL: blocks are at their own positions */
};

static void fail(struct coll_builder *b, coll_status status)
{
	if (!b->draft.status)
		b->draft.status = status;
}

void coll_build_chunks(struct coll_builder *b, uint32_t chunks)
{
	bool block = coll_plan_kind_is_block(b->shape->kind);

	if (b->draft.chunks || chunks == 0 || (block && chunks != (uint32_t)b->shape->size))
		fail(b, COLL_ERR_INTERNAL);
	b->draft.chunks = chunks;
}

void coll_build_lane(struct coll_builder *b, uint32_t lane)
{
	if (lane >= COLL_LANES_MAX)
		fail(b, COLL_ERR_INTERNAL);
	else
		b->lane = lane;
}

void coll_build_run(struct coll_builder *b, uint32_t run, uint32_t group, uint32_t stride, bool wrap)
{
	if (run == 0 || group >= COLL_NO_SPLICE || (group && stride < group && group < run))
		fail(b, COLL_ERR_INTERNAL);
	/* One form for each run: what is contiguous says so. */
	if (group >= run || group == stride)
		group = 0;
	b->run = run;
	b->group = group;
	b->stride = group ? stride : 0;
	b->span = 0;
	b->wrap = wrap;
}

void coll_build_run_within(struct coll_builder *b, uint32_t run, uint32_t span)
{
	coll_build_run(b, run, 0, 0, true);
	if (span == 0 || run > span || b->draft.chunks % span)
		fail(b, COLL_ERR_INTERNAL);
	else if (span < b->draft.chunks)
		b->span = span;
}

void coll_build_order(struct coll_builder *b, const uint32_t *block_at)
{
	const size_t bytes = b->draft.chunks * sizeof(*block_at);

	if (!coll_plan_kind_is_block(b->shape->kind) || bytes == 0 || b->order) {
		fail(b, COLL_ERR_INTERNAL);
		return;
	}
	b->order = malloc(bytes);
	if (!b->order) {
		fail(b, COLL_ERR_MEMORY);
		return;
	}
	memcpy(b->order, block_at, bytes);
	b->draft.block_at = b->order;
}

/* One past the last chunk of the current run from first, before any wrap. */
static uint64_t run_end(const struct coll_builder *b, uint32_t first)
{
	uint64_t last = b->run - 1;

	if (b->group)
		last = (uint64_t)(last / b->group) * b->stride + last % b->group;
	return first + last + 1;
}

/* Check a place, bring its first chunk into range; *wraps when the run leaves it. */
static uint32_t settle(struct coll_builder *b, struct coll_at at, bool *wraps)
{
	uint32_t chunks = b->draft.chunks, first = at.chunk;

	if (chunks == 0 || at.buf >= COLL_BUF_SCRATCH + COLL_SCRATCH_MAX || b->run > chunks) {
		fail(b, COLL_ERR_INTERNAL);
		return 0;
	}
	if (b->wrap)
		first %= chunks;
	if (b->span ? first % b->span + b->run > b->span : run_end(b, first) > chunks) {
		*wraps = true;
		if (!b->wrap)
			fail(b, COLL_ERR_INTERNAL);
	}
	return first;
}

static void check_peer(struct coll_builder *b, int peer)
{
	if (peer < 0 || peer >= b->shape->size || peer == b->shape->rank)
		fail(b, COLL_ERR_INTERNAL);
}

/* A step of the current lane and run; src or dst may be NULL. */
static struct coll_step make(struct coll_builder *b, enum coll_step_op op, const struct coll_at *src,
                             const struct coll_at *dst)
{
	struct coll_step s = {.op = (uint8_t)op, .lane = (uint8_t)b->lane, .run = b->run};
	bool wraps = false;

	s.group = (uint16_t)b->group;
	s.stride = b->stride;
	if (src) {
		s.src = src->buf;
		s.src_chunk = settle(b, *src, &wraps);
		if (src->buf == COLL_BUF_IN && coll_plan_kind_reduces(b->shape->kind))
			s.flags |= COLL_STEP_PRE;
	}
	if (dst) {
		s.dst = dst->buf;
		s.dst_chunk = settle(b, *dst, &wraps);
		if (dst->buf == COLL_BUF_IN)
			fail(b, COLL_ERR_INTERNAL); /* in is never written */
	}
	if (wraps) {
		s.flags |= COLL_STEP_WRAP;
		if (b->span)
			s.stride = b->span;
	}
	return s;
}

static void append(struct coll_builder *b, const struct coll_step *s, int recv_from, int send_to)
{
	if (!b->draft.status)
		coll_draft_append(&b->draft, s, recv_from, send_to, NULL);
}

void coll_build_send(struct coll_builder *b, int peer, struct coll_at src)
{
	struct coll_step s = make(b, COLL_STEP_SEND, &src, NULL);

	check_peer(b, peer);
	append(b, &s, -1, peer);
}

void coll_build_recv(struct coll_builder *b, int peer, struct coll_at dst)
{
	struct coll_step s = make(b, COLL_STEP_RECV, NULL, &dst);

	check_peer(b, peer);
	append(b, &s, peer, -1);
}

void coll_build_recv_reduce_uneven(struct coll_builder *b, int peer, struct coll_at src, struct coll_at dst,
                                   enum coll_side side, const struct coll_plan_weight *incoming, bool final)
{
	struct coll_step s = make(b, COLL_STEP_RECV_REDUCE, &src, &dst);

	check_peer(b, peer);
	if (side == COLL_INCOMING_LEFT)
		s.flags |= COLL_STEP_INCOMING_LEFT;
	if (final)
		s.flags |= COLL_STEP_POST;
	if (!b->draft.status)
		coll_draft_append(&b->draft, &s, peer, -1, incoming);
}

void coll_build_recv_reduce(struct coll_builder *b, int peer, struct coll_at src, struct coll_at dst,
                            enum coll_side side, uint32_t incoming, bool final)
{
	const struct coll_plan_weight all = {.end = b->run, .incoming = incoming};

	coll_build_recv_reduce_uneven(b, peer, src, dst, side, &all, final);
}

void coll_build_copy(struct coll_builder *b, struct coll_at src, struct coll_at dst, bool final)
{
	struct coll_step s = make(b, COLL_STEP_COPY, &src, &dst);

	if (s.src == s.dst && s.src_chunk == s.dst_chunk && !final)
		return;
	if (final)
		s.flags |= COLL_STEP_POST;
	append(b, &s, -1, -1);
}

void coll_build_send_aside(struct coll_builder *b, int peer, uint32_t c, uint32_t k)
{
	const struct coll_at in = coll_in(c), aside = coll_scratch(k, c);
	struct coll_step copy = make(b, COLL_STEP_COPY, &in, &aside), send = make(b, COLL_STEP_SEND, &aside, NULL);

	check_peer(b, peer);
	copy.flags |= COLL_STEP_ASIDE;
	send.flags |= COLL_STEP_ASIDE;
	append(b, &copy, -1, -1);
	append(b, &send, -1, peer);
}

void coll_build_reduce(struct coll_builder *b, uint32_t first_scratch, uint32_t ninputs, int splice, uint32_t chunk,
                       struct coll_at dst, bool final)
{
	struct coll_at src = coll_scratch(first_scratch, chunk);
	struct coll_step s;

	if (ninputs == 0 || first_scratch + ninputs > COLL_SCRATCH_MAX || splice > (int)ninputs || b->group) {
		fail(b, COLL_ERR_INTERNAL);
		return;
	}
	s = make(b, COLL_STEP_REDUCE, &src, &dst);
	s.stride = ninputs;
	s.group = splice < 0 ? COLL_NO_SPLICE : (uint16_t)splice;
	if (splice >= 0 && coll_plan_kind_reduces(b->shape->kind))
		s.flags |= COLL_STEP_PRE;
	if (final)
		s.flags |= COLL_STEP_POST;
	append(b, &s, -1, -1);
}

coll_status coll_build_status(const struct coll_builder *b)
{
	return b->draft.status;
}

coll_status coll_build_plan(const struct coll_shape *shape, const char *algo, coll_algo_fn generate,
                            struct coll_plan **plan)
{
	struct coll_plan head = {.kind = shape->kind, .rank = shape->rank, .size = shape->size, .root = shape->root};
	struct coll_builder b = {.shape = shape, .run = 1};
	coll_status status;

	assert(shape->size >= 1);
	assert(shape->rank >= 0 && shape->rank < shape->size);
	assert(shape->root >= 0 && shape->root < shape->size);
	snprintf(head.algo, sizeof(head.algo), "%s", algo);
	status = generate(shape, &b);
	if (!status && b.draft.chunks == 0)
		status = COLL_ERR_INTERNAL;
	if (!status)
		status = coll_draft_finish(&b.draft, &head, plan);
	coll_draft_fini(&b.draft);
	free(b.order);
	return status;
}
