/*
 * The two phases on the circulant graph, see circulant.h.
 */
#include "algos/circulant.h"

#include <stdlib.h>
#include <string.h>

#include "algos/ranks.h"

static void send(const struct coll_ring *r, struct coll_builder *b, int distance, uint8_t buf, int first, int len)
{
	const struct coll_ring_run run = coll_ring_run(r, first, len);

	for (uint32_t i = 0; i < run.pieces; i++) {
		coll_build_run_within(b, run.len[i], run.span);
		coll_build_send(b, coll_ring_peer(r, distance), (struct coll_at){buf, run.chunk[i]});
	}
}

static void receive(const struct coll_ring *r, struct coll_builder *b, int distance, int first, int len)
{
	const struct coll_ring_run run = coll_ring_run(r, first, len);

	for (uint32_t i = 0; i < run.pieces; i++) {
		coll_build_run_within(b, run.len[i], run.span);
		coll_build_recv(b, coll_ring_peer(r, distance), coll_out(run.chunk[i]));
	}
}

/* What arrives of the blocks of a run, one entry for each member's: the contributions that they hold, ... */
struct arriving {
	uint32_t *block_at; /* ... from where a block that began so far from its owner is now, ... */
	uint32_t *incoming;
	struct coll_plan_weight *weights; /* ... and what the builder is told: of chunks, not of members */
};

static coll_status arriving_init(struct arriving *a, int n)
{
	const size_t count = (size_t)n;

	*a = (struct arriving){calloc(count, sizeof(*a->block_at)), calloc(count, sizeof(*a->incoming)),
	                       calloc(count, sizeof(*a->weights))};
	for (uint32_t i = 0; a->block_at && i < count; i++)
		a->block_at[i] = i;
	return a->block_at && a->incoming && a->weights ? COLL_OK : COLL_ERR_MEMORY;
}

static void arriving_fini(struct arriving *a)
{
	free(a->block_at);
	free(a->incoming);
	free(a->weights);
}

/* A round of the circulant graph: blocks [skip, prev) of the member `skip` back arrive as blocks from 0 on. Block j
 * that began as block b of a member holds what that member had, which is b - j back from where the block is: member j -
 * b. */
static void arriving_round(struct arriving *a, const struct coll_ring *r, int skip, int prev)
{
	memset(a->incoming, 0, (size_t)(prev - skip) * sizeof(*a->incoming));
	for (int began = 0; began < r->count; began++) {
		const int at = (int)a->block_at[began] - skip;

		if (at < 0)
			continue;
		a->incoming[at] += coll_ring_held(r, at - began);
		a->block_at[began] = (uint32_t)at;
	}
}

static void receive_reduce(const struct coll_ring *r, struct coll_builder *b, int distance, int first, int len,
                           uint8_t from, uint8_t to, struct arriving *a, bool final)
{
	const struct coll_ring_run run = coll_ring_run(r, first, len);
	uint32_t member = 0;

	for (uint32_t i = 0; i < run.pieces; i++) {
		uint32_t n = 0;

		/* No member's chunks lie in two pieces. */
		for (uint32_t end = 0; end < run.len[i]; member++) {
			const struct coll_ring_run one = coll_ring_run(r, first + (int)member, 1);

			end += one.pieces ? one.len[0] : 0;
			a->weights[n++] = (struct coll_plan_weight){.end = end, .incoming = a->incoming[member]};
		}
		coll_build_run_within(b, run.len[i], run.span);
		coll_build_recv_reduce_uneven(b, coll_ring_peer(r, distance), (struct coll_at){from, run.chunk[i]},
		                              (struct coll_at){to, run.chunk[i]}, COLL_INCOMING_LEFT, a->weights,
		                              final);
	}
}

static void copy(const struct coll_ring *r, struct coll_builder *b, int position, uint8_t to)
{
	const struct coll_ring_run run = coll_ring_run(r, position, 1);

	for (uint32_t i = 0; i < run.pieces; i++) {
		coll_build_run_within(b, run.len[i], run.span);
		coll_build_copy(b, coll_in(run.chunk[i]), (struct coll_at){to, run.chunk[i]}, false);
	}
}

/* The blocks [skip, prev) are sent: raw from `in` while none of them has been added to (raw blocks are those
 * from `touched` on). Only the last may be raw among summed ones (n odd): it joins them. */
static uint8_t outgoing(const struct coll_ring *r, struct coll_builder *b, uint8_t acc, int skip, int prev, int touched)
{
	if (skip >= touched)
		return COLL_BUF_IN;
	if (prev > touched) {
		assert(prev == touched + 1);
		copy(r, b, touched, acc);
	}
	return acc;
}

/* In a lane of its own: while the first receive waits. In place it may have to wait until
 * the peer has taken our first block, which it can before it waits for anything. */
static void copy_own(const struct coll_levels *v, struct coll_builder *b)
{
	const uint32_t own = coll_levels_position(v, coll_levels_own_chunk(v, v->shape->rank));

	coll_build_lane(b, 1);
	coll_build_run(b, 1, 0, 0, false);
	coll_build_copy(b, coll_in(own), coll_out(own), false);
	coll_build_lane(b, 0);
}

/* All with all: member d on gets what it owns; this rank sums up what it owns itself. */
static void reduce_scatter_direct(struct coll_levels *v, struct coll_builder *b, uint32_t nrings, uint8_t acc,
                                  struct arriving *a, bool final, bool raw)
{
	const int n = v->rings[0].count;

	for (int d = 1; d < n; d++)
		for (uint32_t k = 0; k < nrings; k++)
			send(&v->rings[k], b, d, raw ? COLL_BUF_IN : acc, d, 1);
	for (int d = 1; d < n; d++)
		for (uint32_t k = 0; k < nrings; k++) {
			const bool last = d == n - 1 && final;

			a->incoming[0] = coll_ring_held(&v->rings[k], -d);
			receive_reduce(&v->rings[k], b, -d, 0, 1, raw && d == 1 ? COLL_BUF_IN : acc,
			               last ? COLL_BUF_OUT : acc, a, last);
		}
}

static void all_gather_direct(struct coll_levels *v, struct coll_builder *b, uint32_t nrings)
{
	const int n = v->rings[0].count;

	for (int d = 1; d < n; d++)
		for (uint32_t k = 0; k < nrings; k++)
			send(&v->rings[k], b, -d, COLL_BUF_OUT, 0, 1);
	for (int d = 1; d < n; d++)
		for (uint32_t k = 0; k < nrings; k++)
			receive(&v->rings[k], b, d, d, 1);
}

static bool goes_round(const struct coll_levels *v)
{
	return coll_levels_round(v->shape->layout, v->rings[0].stage, coll_plan_kind_is_block(v->shape->kind));
}

/* The blocks of others travel forward from neighbour to neighbour, each summed on its way to its owner, which is last:
 * block -1 first. */
static void reduce_scatter_round(struct coll_levels *v, struct coll_builder *b, uint32_t nrings, uint8_t acc,
                                 struct arriving *a, bool final, bool raw)
{
	const uint8_t own = raw ? COLL_BUF_IN : acc;
	const int n = v->rings[0].count;

	for (int i = n - 1; i > 0; i--) {
		const bool last = i == 1 && final;

		for (uint32_t k = 0; k < nrings; k++)
			send(&v->rings[k], b, 1, i == n - 1 ? own : acc, i, 1);
		a->incoming[0] += coll_ring_held(&v->rings[0], i - n);
		for (uint32_t k = 0; k < nrings; k++)
			receive_reduce(&v->rings[k], b, -1, i - 1, 1, own, last ? COLL_BUF_OUT : acc, a, last);
	}
}

/* And back: a neighbour's blocks come in the order of distance. */
static void all_gather_round(struct coll_levels *v, struct coll_builder *b, uint32_t nrings, bool own_in)
{
	const int n = v->rings[0].count;

	for (int i = 1; i < n; i++) {
		for (uint32_t k = 0; k < nrings; k++)
			send(&v->rings[k], b, -1, i == 1 && own_in ? COLL_BUF_IN : COLL_BUF_OUT, i - 1, 1);
		for (uint32_t k = 0; k < nrings; k++)
			receive(&v->rings[k], b, 1, i, 1);
		if (i == 1 && own_in)
			copy_own(v, b);
	}
}

/* One stage. raw: nothing has been added to yet. */
static void reduce_scatter(struct coll_levels *v, struct coll_builder *b, uint32_t nrings, uint8_t acc,
                           struct arriving *a, bool final, bool raw)
{
	const int n = v->rings[0].count;
	int touched = raw ? 0 : n;

	for (int prev = n, skip; prev > 1; prev = skip) {
		skip = (prev + 1) / 2;

		const int len = prev - skip;
		const uint8_t from = touched == 0 ? COLL_BUF_IN : acc;
		const bool last = skip == 1 && final;

		for (uint32_t i = 0; i < nrings; i++) {
			const struct coll_ring *r = &v->rings[i];

			send(r, b, skip, outgoing(r, b, acc, skip, prev, touched), skip, len);
		}
		arriving_round(a, &v->rings[0], skip, prev);
		for (uint32_t i = 0; i < nrings; i++)
			receive_reduce(&v->rings[i], b, -skip, 0, len, from, last ? COLL_BUF_OUT : acc, a, last);
		touched = len > touched ? len : touched;
	}
}

coll_status coll_circulant_reduce_scatter(struct coll_levels *v, struct coll_builder *b, uint8_t acc, bool final,
                                          bool *raw)
{
	bool untouched = true;

	for (uint32_t stage = v->stages; stage-- > v->outer;) {
		uint32_t nrings;
		coll_status status = coll_levels_rings(v, stage, &nrings);
		struct arriving a;

		if (status)
			return status;
		if (nrings == 0)
			break; /* what this rank had is with others */
		status = arriving_init(&a, v->rings[0].count);
		if (status == COLL_OK)
			(coll_levels_direct(v, stage) ? reduce_scatter_direct
			 : goes_round(v)
			         ? reduce_scatter_round
			         : reduce_scatter)(v, b, nrings, acc, &a, final && stage == v->outer, untouched);
		arriving_fini(&a);
		if (status)
			return status;
		untouched = untouched && v->rings[0].count == 1;
	}
	if (raw)
		*raw = untouched;
	return COLL_OK;
}

/* One stage. own_in: the first round sends from `in`. */
static void all_gather(struct coll_levels *v, struct coll_builder *b, uint32_t nrings, bool own_in, int root)
{
	const int rank = v->shape->rank;
	int skips[33];
	int rounds = 0;

	for (skips[0] = v->rings[0].count; skips[rounds] > 1; rounds++)
		skips[rounds + 1] = (skips[rounds] + 1) / 2;
	for (int i = rounds; i > 0; i--) {
		const int skip = skips[i], len = skips[i - 1] - skip;
		const bool in = rank == root || (own_in && i == rounds);

		for (uint32_t k = 0; k < nrings; k++)
			if (coll_ring_peer(&v->rings[k], -skip) != root)
				send(&v->rings[k], b, -skip, in ? COLL_BUF_IN : COLL_BUF_OUT, 0, len);
		for (uint32_t k = 0; k < nrings && rank != root; k++)
			receive(&v->rings[k], b, skip, skip, len);
		if (own_in && i == rounds)
			copy_own(v, b);
	}
}

coll_status coll_circulant_all_gather(struct coll_levels *v, struct coll_builder *b, bool own_in, int root)
{
	for (uint32_t stage = v->outer; stage < v->stages; stage++) {
		uint32_t nrings;
		coll_status status = coll_levels_rings(v, stage, &nrings);

		if (status)
			return status;
		if (nrings > 0 && coll_levels_direct(v, stage))
			all_gather_direct(v, b, nrings);
		else if (nrings > 0 && goes_round(v))
			all_gather_round(v, b, nrings, own_in && stage == v->outer);
		else if (nrings > 0)
			all_gather(v, b, nrings, own_in && stage == v->outer, root);
	}
	return COLL_OK;
}
