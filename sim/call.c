/*
 * See call.h. Inputs are a pure function of (seed, rank, index), so the check makes
 * them again instead of keeping copies. Floats get small whole numbers: their sums
 * are exact in every type, whatever the order. Averages of narrow floats: every other element is the same on all ranks,
 * any finite value, and must come out; the others may be rounded at each step. COLL_OP_USER is composition of
 * x -> a x + b modulo 2^32, packed in 64 bits: associative, not commutative.
 */
#include "sim/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "reduce/element.h"

enum { GUARD_BYTES = 64, GUARD = 0x5a };

/* ---- Sizes ------------------------------------------------------------ */

static size_t sum(const size_t *counts, int n)
{
	size_t s = 0;

	for (int i = 0; i < n; i++)
		s += counts[i];
	return s;
}

/* Elements that rank s sends to rank d in an all_to_all. */
static size_t pair_count(const struct sim_call *c, int s, int d)
{
	return c->counts ? c->counts[s * c->size + d] : c->count;
}

static size_t block_count(const struct sim_call *c, int b)
{
	return c->counts ? c->counts[b] : c->count;
}

static size_t block_at(const struct sim_call *c, int b)
{
	return c->counts ? sum(c->counts, b) : (size_t)b * c->count;
}

static size_t in_elems(const struct sim_call *c, int rank)
{
	switch (c->kind) {
	case COLL_KIND_BROADCAST: return rank == c->root ? c->count : 0;
	case COLL_KIND_ALL_GATHER:
	case COLL_KIND_GATHER: return block_count(c, rank);
	case COLL_KIND_REDUCE_SCATTER: return block_at(c, c->size);
	case COLL_KIND_SCATTER: return rank == c->root ? block_at(c, c->size) : 0;
	case COLL_KIND_ALL_TO_ALL:
		return c->counts ? sum(c->counts + rank * c->size, c->size) : c->count * (size_t)c->size;
	default: return c->count;
	}
}

/* Where what rank s sends to rank d lies in out of d. */
static size_t column_at(const struct sim_call *c, int s, int d)
{
	size_t at = 0;

	for (int i = 0; i < s; i++)
		at += pair_count(c, i, d);
	return at;
}

static size_t out_elems(const struct sim_call *c, int rank)
{
	switch (c->kind) {
	case COLL_KIND_REDUCE: return rank == c->root ? c->count : 0;
	case COLL_KIND_EXCLUSIVE_SCAN: return rank > 0 ? c->count : 0;
	case COLL_KIND_ALL_GATHER: return block_at(c, c->size);
	case COLL_KIND_GATHER: return rank == c->root ? block_at(c, c->size) : 0;
	case COLL_KIND_REDUCE_SCATTER:
	case COLL_KIND_SCATTER: return block_count(c, rank);
	case COLL_KIND_ALL_TO_ALL: return column_at(c, c->size, rank);
	default: return c->count;
	}
}

/* ---- Inputs ----------------------------------------------------------- */

/* v < 8; of 8-bit floats, which count to 8 and 16 at most, v < 2. */
static void put_small(char *p, coll_dtype type, unsigned v)
{
	const float f = (float)v;
	const double d = v;
	uint32_t bits;
	uint16_t half;

	memcpy(&bits, &f, 4);
	switch (type) {
	case COLL_F32: memcpy(p, &f, 4); return;
	case COLL_F64: memcpy(p, &d, 8); return;
	case COLL_F8E4M3: *p = v % 2 ? 0x38 : 0; return;
	case COLL_F8E5M2: *p = v % 2 ? 0x3c : 0; return;
	case COLL_BF16: half = (uint16_t)(bits >> 16); break;
	default: half = v ? (uint16_t)(((bits >> 23) - 127 + 15) << 10 | (bits >> 13 & 0x3ff)) : 0; break;
	}
	memcpy(p, &half, 2);
}

static bool is_mean(const struct sim_call *c)
{
	return c->op == COLL_AVG && (c->type == COLL_F16 || c->type == COLL_BF16 || c->type > COLL_F64);
}

static float widened(coll_dtype type, const char *p)
{
	uint16_t half;

	memcpy(&half, p, coll_dtype_size(type));
	switch (type) {
	case COLL_F16: return f16_to_f32(half);
	case COLL_BF16: return bf16_to_f32(half);
	case COLL_F8E4M3: return f8e4m3_to_f32((uint8_t)*p);
	default: return f8e5m2_to_f32((uint8_t)*p);
	}
}

static void put_finite(char *p, coll_dtype type, uint64_t v)
{
	for (; memcpy(p, &v, coll_dtype_size(type)), !__builtin_isfinite(widened(type, p)); v = coll_mix64(v))
		;
}

/* Rounded in each of at most size steps; far from what wrong weights give of 11 bits. */
static bool is_near(const struct sim_call *c, const char *a, const char *b)
{
	const float bits = c->type == COLL_F16 ? 0x1p-11f : c->type == COLL_BF16 ? 0x1p-8f : 0.125f;
	const float apart = widened(c->type, a) - widened(c->type, b);

	return (apart < 0 ? -apart : apart) <= 7 * bits * (float)c->size;
}

static void fill(const struct sim_call *c, int rank, char *p, size_t elems)
{
	const size_t elem_bytes = coll_dtype_size(c->type);

	for (size_t i = 0; i < elems; i++) {
		const uint64_t v = coll_mix64(c->seed ^ coll_mix64((uint64_t)rank << 40 | i));

		if (is_mean(c) && i % 2 == 0)
			put_finite(p + i * elem_bytes, c->type, coll_mix64(c->seed ^ i));
		else if (c->type >= COLL_F16)
			put_small(p + i * elem_bytes, c->type, (unsigned)(v % 8));
		else
			memcpy(p + i * elem_bytes, &v, elem_bytes);
	}
}

static bool in_place(const struct sim_call *c, int rank)
{
	const bool root = rank == c->root;

	if (!(c->in_place >> (rank % 64) & 1) || (c->kind == COLL_KIND_ALL_TO_ALL && c->counts))
		return false;
	return root || (c->kind != COLL_KIND_REDUCE && c->kind != COLL_KIND_BROADCAST && c->kind != COLL_KIND_GATHER &&
	                c->kind != COLL_KIND_SCATTER);
}

/* Lay out one rank's buffers: guard, in, guard, out, guard; in place the larger
 * one holds both. */
static void place(const struct sim_call *c, int rank, struct sim_buffers *b)
{
	const size_t elem_bytes = coll_dtype_size(c->type);
	const size_t block = block_at(c, rank) * elem_bytes;

	b->in = b->raw + GUARD_BYTES;
	b->out = b->in + b->in_bytes + GUARD_BYTES;
	if (!in_place(c, rank))
		return;
	b->out = b->in;
	if (c->kind == COLL_KIND_ALL_GATHER || c->kind == COLL_KIND_GATHER)
		b->in = b->out + block;
	if (c->kind == COLL_KIND_REDUCE_SCATTER || c->kind == COLL_KIND_SCATTER)
		b->out = b->in + block;
}

coll_status sim_call_buffers(const struct sim_call *c, struct sim_buffers *bufs)
{
	const size_t elem_bytes = coll_dtype_size(c->type);

	for (int r = 0; r < c->size; r++) {
		struct sim_buffers *b = &bufs[r];

		b->in_bytes = in_elems(c, r) * elem_bytes;
		b->out_bytes = out_elems(c, r) * elem_bytes;
		b->raw_bytes = b->in_bytes + b->out_bytes + (size_t)3 * GUARD_BYTES;
		b->raw = malloc(b->raw_bytes);
		if (!b->raw) {
			while (r-- > 0)
				free(bufs[r].raw);
			return COLL_ERR_MEMORY;
		}
		memset(b->raw, GUARD, b->raw_bytes);
		place(c, r, b);
		fill(c, r, b->in, in_elems(c, r));
	}
	return COLL_OK;
}

void sim_call_free(const struct sim_call *c, struct sim_buffers *bufs)
{
	for (int r = 0; r < c->size; r++)
		free(bufs[r].raw);
}

/* ---- Jobs ------------------------------------------------------------- */

static void compose(void *arg, const void *left, void *inout, size_t count, coll_dtype type)
{
	const uint64_t *l = left;
	uint64_t *io = inout;

	for (size_t i = 0; i < count; i++) {
		const uint32_t la = (uint32_t)(l[i] >> 32), lb = (uint32_t)l[i];
		const uint32_t ra = (uint32_t)(io[i] >> 32), rb = (uint32_t)io[i];

		io[i] = (uint64_t)(la * ra) << 32 | (uint32_t)(ra * lb + rb);
	}
}

coll_status sim_call_reduction(const struct sim_call *c, struct coll_reduction *r)
{
	coll_status status = coll_reduce_bind(r, c->type, c->op, c->size, COLL_ISA_SCALAR);

	r->scale = 2;
	r->user_fn = c->op == COLL_OP_USER ? compose : NULL;
	return status;
}

void sim_call_bind(const struct sim_call *c, int rank, const struct sim_buffers *b, const struct coll_reduction *r,
                   struct coll_job *job)
{
	const bool gathers = c->kind == COLL_KIND_ALL_GATHER || c->kind == COLL_KIND_GATHER;
	const bool scatters = c->kind == COLL_KIND_REDUCE_SCATTER || c->kind == COLL_KIND_SCATTER;

	job->elem_bytes = coll_dtype_size(c->type);
	job->reduction = coll_plan_kind_reduces(c->kind) ? r : NULL;
	job->in = (struct coll_extent){.base = b->in_bytes ? b->in : NULL, .single = gathers, .count = c->count};
	job->out = (struct coll_extent){.base = b->out_bytes ? b->out : NULL, .single = scatters, .count = c->count};
	if (!c->counts)
		return;
	/* Only the root of a gatherv or scatterv knows all counts; all others know
	 * their own. Ragged all_to_all: transposed counts follow the matrix. */
	job->in.counts = job->out.counts = c->counts;
	if (c->kind == COLL_KIND_ALL_TO_ALL) {
		job->in.counts = c->counts + rank * c->size;
		job->out.counts = c->counts + c->size * c->size + rank * c->size;
	}
	if ((c->kind == COLL_KIND_GATHER || c->kind == COLL_KIND_SCATTER) && rank != c->root) {
		job->in.counts = job->out.counts = NULL;
		job->in.count = job->out.count = block_count(c, rank);
	}
}

/* ---- The result ------------------------------------------------------- */

/* Reduction over ranks 0 .. last of elements [at, at + len) of the inputs. */
static void reduce_into(const struct sim_call *c, char *const *ins, int last, size_t at, size_t len, char *out)
{
	const size_t elem_bytes = coll_dtype_size(c->type);
	struct coll_reduction r;
	const void *operands[64];

	if (len == 0 || sim_call_reduction(c, &r) != COLL_OK)
		return;
	for (int i = 0; i <= last; i++)
		operands[i] = ins[i] + at * elem_bytes;
	coll_reduce_run(&r, out, operands, last + 1, -2, true, len);
}

static void expect(const struct sim_call *c, char *const *ins, int rank, char *out)
{
	const size_t elem_bytes = coll_dtype_size(c->type);
	const int n = c->size;

	switch (c->kind) {
	case COLL_KIND_ALL_REDUCE:
	case COLL_KIND_REDUCE: reduce_into(c, ins, n - 1, 0, out_elems(c, rank), out); break;
	case COLL_KIND_REDUCE_SCATTER: reduce_into(c, ins, n - 1, block_at(c, rank), block_count(c, rank), out); break;
	case COLL_KIND_SCAN: reduce_into(c, ins, rank, 0, c->count, out); break;
	case COLL_KIND_EXCLUSIVE_SCAN: reduce_into(c, ins, rank - 1, 0, out_elems(c, rank), out); break;
	case COLL_KIND_BROADCAST: memcpy(out, ins[c->root], c->count * elem_bytes); break;
	case COLL_KIND_SCATTER:
		memcpy(out, ins[c->root] + block_at(c, rank) * elem_bytes, block_count(c, rank) * elem_bytes);
		break;
	case COLL_KIND_GATHER:
	case COLL_KIND_ALL_GATHER:
		for (int s = 0; s < n && out_elems(c, rank); s++)
			memcpy(out + block_at(c, s) * elem_bytes, ins[s], block_count(c, s) * elem_bytes);
		break;
	case COLL_KIND_ALL_TO_ALL:
		for (int s = 0; s < n; s++) {
			size_t from = c->counts ? sum(c->counts + s * n, rank) : (size_t)rank * c->count;

			memcpy(out + column_at(c, s, rank) * elem_bytes, ins[s] + from * elem_bytes,
			       pair_count(c, s, rank) * elem_bytes);
		}
		break;
	default: break;
	}
}

static bool guarded(const char *from, const char *to)
{
	while (from < to)
		if (*from++ != GUARD)
			return false;
	return true;
}

static int check_rank(const struct sim_call *c, char *const *ins, int rank, const struct sim_buffers *b, char *why,
                      size_t why_bytes)
{
	const bool shared = in_place(c, rank);
	const size_t elem_bytes = coll_dtype_size(c->type);
	const size_t into = c->kind == COLL_KIND_REDUCE_SCATTER ? block_at(c, rank) : 0;
	const char *begin = b->raw + GUARD_BYTES, *end;
	char *want = malloc(b->out_bytes + 1);
	int wrong = 0;

	if (!want)
		return snprintf(why, why_bytes, "out of memory"), 1;
	expect(c, ins, rank, want);
	for (size_t i = 0; i < b->out_bytes && !wrong && c->kind != COLL_KIND_BARRIER; i++) {
		const size_t element = i / elem_bytes, first = element * elem_bytes;

		if (want[i] == b->out[i] ||
		    (is_mean(c) && (element + into) % 2 && is_near(c, &want[first], &b->out[first])))
			continue;
		snprintf(why, why_bytes, "rank %d: byte %zu of %zu is %02x, not %02x", rank, i, b->out_bytes,
		         (unsigned char)b->out[i], (unsigned char)want[i]);
		wrong = 1;
	}
	free(want);
	if (wrong)
		return wrong;
	end = shared ? begin + (b->in_bytes > b->out_bytes ? b->in_bytes : b->out_bytes) : begin + b->in_bytes;
	wrong = !guarded(b->raw, begin) || !guarded(end, end + GUARD_BYTES);
	wrong = wrong || !guarded(shared ? end : b->out + b->out_bytes, b->raw + b->raw_bytes);
	if (wrong)
		snprintf(why, why_bytes, "rank %d: written outside of its buffers", rank);
	else if (!shared && b->in_bytes && memcmp(ins[rank], b->in, b->in_bytes) != 0)
		wrong = snprintf(why, why_bytes, "rank %d: its input was changed", rank) > 0;
	return wrong;
}

static void free_inputs(const struct sim_call *c, char **ins)
{
	for (int r = 0; ins && r < c->size; r++)
		free(ins[r]);
	free(ins);
}

/* The inputs of all ranks once more; NULL: out of memory. */
static char **make_inputs(const struct sim_call *c)
{
	char **ins = calloc((size_t)c->size, sizeof(*ins));

	for (int r = 0; ins && r < c->size; r++) {
		ins[r] = malloc(in_elems(c, r) * coll_dtype_size(c->type) + 1);
		if (!ins[r]) {
			free_inputs(c, ins);
			return NULL;
		}
		fill(c, r, ins[r], in_elems(c, r));
	}
	return ins;
}

static int check_ranks(const struct sim_call *c, int first, int last, const struct sim_buffers *bufs, char *why,
                       size_t why_bytes)
{
	char **ins = make_inputs(c);
	int wrong = !ins;

	if (wrong)
		snprintf(why, why_bytes, "out of memory");
	for (int r = first; r <= last && !wrong; r++)
		wrong = check_rank(c, ins, r, &bufs[r - first], why, why_bytes);
	free_inputs(c, ins);
	return wrong;
}

int sim_call_check(const struct sim_call *c, const struct sim_buffers *bufs, char *why, size_t why_bytes)
{
	return check_ranks(c, 0, c->size - 1, bufs, why, why_bytes);
}

int sim_call_check_rank(const struct sim_call *c, int rank, const struct sim_buffers *b, char *why, size_t why_bytes)
{
	return check_ranks(c, rank, rank, b, why, why_bytes);
}
