/*
 * The exact wire: sums of 64-bit integers, which no order, grouping or number of ranks changes.
 *
 * A gradient g becomes (int64_t)(g * 2^50) when it is ready, is added to this rank's sum, and its place in the arena
 * becomes zero: the next micro-step computes from there. Buckets travel as the sums; the result is scaled back once.
 *
 * A sum is right as long as it stays below 2^13. So every block of 4096 elements of the arena has a bound beside it,
 * the sum over all passes and parameters of the largest |g|, in units of 2^-20, which travels with the block. Where the
 * sum of bounds reaches 2^13, or something was not a number, the whole block becomes NaN on all ranks. Buckets and
 * slices end between blocks, so none of this depends on how the arena was cut.
 */
#include "ddp/exact.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/base.h"
#include "ddp/ddp_inner.h"
#include "ddp/layout.h"

/* Powers of two. */
enum { SCALE_BITS = 50, LIMIT_BITS = 13, UNIT_BITS = 20 };
#define SCALE      ((double)((int64_t)1 << SCALE_BITS))
#define LIMIT      ((double)(1 << LIMIT_BITS)) /* of |g|, and of the sum of a block's bounds */
#define BOUND_UNIT ((double)(1 << UNIT_BITS))
#define SPENT      ((int64_t)1 << 40) /* the bound of what cannot be added; 2^22 of them still fit */
#define BLOCK      DDP_EXACT_BLOCK
#define STRIDE     (BLOCK + 1) /* the bound comes behind its block */

static_assert(LIMIT_BITS + SCALE_BITS == 63, "a sum below the limit fits an int64_t");
static_assert(LIMIT_BITS + UNIT_BITS < 40, "what is spent is above the limit");

static size_t blocks_of(size_t count)
{
	return (count + BLOCK - 1) / BLOCK;
}

/* How many numbers travel for count elements that begin with a block. */
static size_t words_of(size_t count)
{
	return count + blocks_of(count);
}

/* ---- Into integers ---------------------------------------------------------------- */

/* The largest |x| of n; above the limit if one is not a number. */
static double largest_f32(const float *x, size_t n)
{
	uint32_t most = 0;
	float f;

	/* Without their signs floats are ordered as integers are, and NaN comes last. */
	for (size_t i = 0; i < n; i++) {
		uint32_t u;

		memcpy(&u, &x[i], sizeof(u));
		u &= 0x7fffffff;
		most = u > most ? u : most;
	}
	memcpy(&f, &most, sizeof(f));
	return most > 0x7f800000 ? HUGE_VAL : (double)f;
}

static double largest_f64(const double *x, size_t n)
{
	uint64_t most = 0;
	double f;

	for (size_t i = 0; i < n; i++) {
		uint64_t u;

		memcpy(&u, &x[i], sizeof(u));
		u &= INT64_MAX;
		most = u > most ? u : most;
	}
	memcpy(&f, &most, sizeof(f));
	return most > 0x7ff0000000000000u ? HUGE_VAL : f;
}

/* Sums wrap around and come back: only the last one must fit. */
static int64_t plus(int64_t a, int64_t b)
{
	return (int64_t)((uint64_t)a + (uint64_t)b);
}

/* n elements that lie in one block. */
static void add_piece(const coll_ddp *d, int64_t *sums, int64_t *bound, void *grads, size_t n)
{
	const bool wide = d->config.type == COLL_F64;
	const double most = wide ? largest_f64(grads, n) : largest_f32(grads, n);

	if (!(most < LIMIT)) {
		*bound = plus(*bound, SPENT);
	} else if (most > 0) {
		*bound += (int64_t)(most * BOUND_UNIT) + 1;
		if (wide)
			for (size_t i = 0; i < n; i++)
				sums[i] = plus(sums[i], (int64_t)(((double *)grads)[i] * SCALE));
		else
			for (size_t i = 0; i < n; i++)
				sums[i] = plus(sums[i], (int64_t)((double)((float *)grads)[i] * SCALE));
	}
	memset(grads, 0, n * d->esize);
}

static void take_from(coll_ddp *d, struct bucket *b, size_t from, size_t to)
{
	int64_t *words = b->scratch;

	while (from < to) {
		const size_t place = from - b->first, block = place / BLOCK, end = b->first + (block + 1) * BLOCK;
		const size_t n = (to < end ? to : end) - from, rest = b->count - block * BLOCK;
		int64_t *sums = words + block * STRIDE;

		add_piece(d, sums + place % BLOCK, sums + (rest < BLOCK ? rest : BLOCK), ddp_at(d, from), n);
		from += n;
	}
}

static void take(coll_ddp *d, const struct param *p)
{
	const size_t end = p->offset + p->count;

	for (int i = 0; i < d->bucket_count; i++) {
		struct bucket *b = &d->buckets[i];
		const size_t last = b->first + b->count;

		if (last > p->offset && b->first < end)
			take_from(d, b, b->first > p->offset ? b->first : p->offset, last < end ? last : end);
	}
}

/* ---- The bucket -------------------------------------------------------------------- */

static coll_status prepare(coll_ddp *d, struct bucket *b)
{
	assert(b->first % BLOCK == 0);
	b->scratch = calloc(words_of(b->count), sizeof(int64_t));
	return b->scratch ? COLL_OK : ddp_fail(d, COLL_ERR_MEMORY, "no memory for bucket of %zu", b->count);
}

static void release(struct bucket *b)
{
	free(b->scratch);
	b->scratch = NULL;
}

static int one_phase(const coll_ddp *d)
{
	return 1;
}

static coll_status start(coll_ddp *d, struct bucket *b, int phase, coll_comm *comm, coll_stream *stream)
{
	const size_t words = words_of(b->count), mine = words_of(b->slice_first - b->first);
	const double sent = (double)(words * sizeof(int64_t)) * (d->size - 1) / d->size;
	int64_t *w = b->scratch;

	ddp_count(d, words * sizeof(int64_t), d->config.zero ? sent : 2 * sent);
	if (!d->config.zero)
		return coll_all_reduce(w, w, words, COLL_I64, COLL_SUM, comm, stream);
	for (int r = 0; r < d->size; r++) {
		size_t first, count;

		ddp_slice(d, b->first, b->count, r, &first, &count);
		d->slice_counts[r] = words_of(count);
	}
	return coll_reduce_scatterv(w, w + mine, d->slice_counts, NULL, COLL_I64, COLL_SUM, comm, stream);
}

/* ---- Back ---------------------------------------------------------------------------- */

static void put_back(const coll_ddp *d, const int64_t *sums, size_t first, size_t n, bool good)
{
	const double by = good ? 1 / SCALE : (double)NAN;

	if (d->config.type == COLL_F64) {
		double *g = (double *)d->grads + first;

		for (size_t i = 0; i < n; i++)
			g[i] = (double)sums[i] * by;
	} else {
		float *g = (float *)d->grads + first;

		for (size_t i = 0; i < n; i++)
			g[i] = (float)((double)sums[i] * by);
	}
}

static void finish(coll_ddp *d, struct bucket *b)
{
	const int64_t *w = (int64_t *)b->scratch + words_of(b->slice_first - b->first);

	for (size_t done = 0; done < b->slice_count; done += BLOCK, w += STRIDE) {
		const size_t rest = b->slice_count - done, n = rest < BLOCK ? rest : BLOCK;

		put_back(d, w, b->slice_first + done, n, w[n] < (int64_t)(LIMIT * BOUND_UNIT));
	}
	memset(b->scratch, 0, words_of(b->count) * sizeof(int64_t));
}

const struct wire ddp_wire_exact = {.name = "exact",
                                    .prepare = prepare,
                                    .release = release,
                                    .phases = one_phase,
                                    .take = take,
                                    .start = start,
                                    .finish = finish};
