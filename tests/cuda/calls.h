/*
 * Long calls of a test: collectives of floats whose elements are known, on any rank of a communicator.
 */
#ifndef TESTS_CUDA_CALLS_H
#define TESTS_CUDA_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"

enum { RANKS_MAX = 8 };

/* A rank in the communicator of a call. */
struct seat {
	coll_comm *comm;
	int rank, size;
};

enum what {
	ALL_REDUCE,
	REDUCE,
	BROADCAST,
	ALL_GATHER,
	REDUCE_SCATTER,
	ALL_TO_ALL,
	GATHER,
	SCATTER,
	SCAN,
	ALL_GATHERV,
	REDUCE_SCATTERV,
	WHATS
};
static const char *const names[] = {"all_reduce", "reduce",  "broadcast", "all_gather",  "reduce_scatter", "all_to_all",
                                    "gather",     "scatter", "scan",      "all_gatherv", "reduce_scatterv"};

/* A call, the same on all ranks. */
struct call {
	enum what what;
	int root;
	size_t count; /* of a block, or the vector; v-variants: lengths[] */
	size_t lengths[RANKS_MAX];
	uint64_t seed;
};

/* Element i of the input of a rank. Sums of them in another order have other bits. */
static float element(const struct call *c, int rank, size_t i)
{
	return (float)((c->seed + i * 7 + (uint64_t)rank * 13) % 1021) * 0.37F + (float)rank * 0.11F;
}

static float folded(const struct call *c, int last, size_t i)
{
	float sum = element(c, 0, i);

	for (int r = 1; r <= last; r++)
		sum += element(c, r, i);
	return sum;
}

static size_t before(const struct call *c, int rank)
{
	size_t at = 0;

	for (int i = 0; i < rank; i++)
		at += c->lengths[i];
	return at;
}

static void extents(const struct call *c, const struct seat *r, size_t *in, size_t *out)
{
	const size_t n = c->count, s = (size_t)r->size;
	const bool root = r->rank == c->root;

	*in = *out = n;
	switch (c->what) {
	case REDUCE: *out = root ? n : 0; break;
	case BROADCAST: *in = root ? n : 0; break;
	case ALL_GATHER: *out = n * s; break;
	case REDUCE_SCATTER: *in = n * s; break;
	case ALL_TO_ALL: *in = *out = n * s; break;
	case GATHER: *out = root ? n * s : 0; break;
	case SCATTER: *in = root ? n * s : 0; break;
	case ALL_GATHERV: *in = c->lengths[r->rank], *out = before(c, r->size); break;
	case REDUCE_SCATTERV: *in = before(c, r->size), *out = c->lengths[r->rank]; break;
	default: break;
	}
}

/* Element i of the output. */
static float wanted(const struct call *c, const struct seat *r, size_t i)
{
	const size_t n = c->count, me = (size_t)r->rank;
	int from = 0;

	switch (c->what) {
	case ALL_REDUCE:
	case REDUCE: return folded(c, r->size - 1, i);
	case SCAN: return folded(c, r->rank, i);
	case BROADCAST: return element(c, c->root, i);
	case REDUCE_SCATTER: return folded(c, r->size - 1, me * n + i);
	case REDUCE_SCATTERV: return folded(c, r->size - 1, before(c, r->rank) + i);
	case ALL_TO_ALL: return element(c, (int)(i / n), me * n + i % n);
	case SCATTER: return element(c, c->root, me * n + i);
	case ALL_GATHERV:
		while (i >= c->lengths[from])
			i -= c->lengths[from++];
		return element(c, from, i);
	default: return element(c, (int)(i / n), i % n);
	}
}

static coll_status call_run(const struct call *c, const struct seat *r, const void *in, void *out, coll_stream *s)
{
	switch (c->what) {
	case ALL_REDUCE: return coll_all_reduce(in, out, c->count, COLL_F32, COLL_SUM, r->comm, s);
	case REDUCE: return coll_reduce(in, out, c->count, COLL_F32, COLL_SUM, c->root, r->comm, s);
	case BROADCAST: return coll_broadcast(in, out, c->count, COLL_F32, c->root, r->comm, s);
	case ALL_GATHER: return coll_all_gather(in, out, c->count, COLL_F32, r->comm, s);
	case REDUCE_SCATTER: return coll_reduce_scatter(in, out, c->count, COLL_F32, COLL_SUM, r->comm, s);
	case ALL_TO_ALL: return coll_all_to_all(in, out, c->count, COLL_F32, r->comm, s);
	case GATHER: return coll_gather(in, out, c->count, COLL_F32, c->root, r->comm, s);
	case SCATTER: return coll_scatter(in, out, c->count, COLL_F32, c->root, r->comm, s);
	case SCAN: return coll_scan(in, out, c->count, COLL_F32, COLL_SUM, r->comm, s);
	case ALL_GATHERV: return coll_all_gatherv(in, out, c->lengths, NULL, COLL_F32, r->comm, s);
	default: return coll_reduce_scatterv(in, out, c->lengths, NULL, COLL_F32, COLL_SUM, r->comm, s);
	}
}

/* Where the output of a call in place lies in front of the input, in elements; false: no such call. */
static bool in_place_at(const struct call *c, const struct seat *r, size_t *in_at, size_t *out_at)
{
	const size_t own = (size_t)r->rank * c->count;

	*in_at = *out_at = 0;
	switch (c->what) {
	case ALL_REDUCE:
	case SCAN:
	case ALL_TO_ALL: return true;
	case BROADCAST:
	case REDUCE: return r->rank == c->root;
	case ALL_GATHER: *in_at = own; return true;
	case ALL_GATHERV: *in_at = before(c, r->rank); return true;
	case REDUCE_SCATTER: *out_at = own; return true;
	case REDUCE_SCATTERV: *out_at = before(c, r->rank); return true;
	default: return false;
	}
}

#endif
