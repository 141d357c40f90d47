/*
 * Reductions on host memory: type x operation, two or n inputs.
 *
 * scalar.c is the oracle; every ISA level overwrites entries of the same table
 * and is bit-equal to it (-0, denormals and infinities included; NaN payloads
 * excepted). The level is chosen once per process image from the CPU, or forced
 * (tests, COLL_ISA). Integers wrap. f16, bf16, f8e4m3 and f8e5m2 accumulate
 * in f32 over all inputs of one call and round once (nearest even); a premultiplied
 * input is rounded by itself, before it is added. AVG of these types is the mean of the
 * inputs of one call: each is multiplied by its share in f32, the products are added. AVG of
 * other types divides by the divisor after the last input (integers truncate toward zero).
 *
 * Why means: a sum of narrow floats that is rounded before it is divided overflows where the average does not, and
 * scaled by 1/n first the smallest vanish. The mean of equal inputs is that input: shares and products add up
 * to 1 within n 2^-23, which is less than a quarter of a unit in the last place for up to 1024 inputs.
 */
#ifndef COLL_REDUCE_REDUCE_H
#define COLL_REDUCE_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"

enum coll_isa { COLL_ISA_SCALAR, COLL_ISA_AVX2, COLL_ISA_AVX512, COLL_ISA_COUNT };

/* Best level of this CPU, and its name ("avx512"). */
enum coll_isa coll_reduce_best_isa(void);
const char *coll_reduce_isa_name(enum coll_isa isa);

struct coll_reduction;
typedef void (*coll_reduce_fn)(const struct coll_reduction *r, void *dst, const void *const *src, int nsrc, int raw,
                               bool last, size_t count);

/* See coll_reduce_spread(): whole vectors of at most 64 bytes, bytes a multiple of 64. */
typedef void (*coll_reduce_spread_fn)(const struct coll_reduction *r, char *const *dst, int ndst,
                                      const char *const *src, int nsrc, bool stream, size_t bytes);

/* One operation bound to a type: made once per call, no allocation. */
struct coll_reduction {
	coll_reduce_fn run;           /* see coll_reduce_run() */
	coll_reduce_spread_fn spread; /* NULL: none of its own */
	coll_dtype type;
	coll_op op; /* COLL_SUM.. or COLL_OP_USER / COLL_OP_PREMUL_SUM */
	enum coll_isa isa;
	bool mean; /* AVG of f16, bf16, 8-bit floats */
	size_t elem_bytes;
	uint64_t divisor;   /* other AVG: number of ranks */
	const float *share; /* mean: of each input, they add up to 1; NULL: equal ones */
	double scale;       /* premultiplied sum */
	coll_user_fn user_fn;
	void *user_arg;
};

/* Internal operation codes beside the public constants. */
enum { COLL_OP_PREMUL_SUM = 32, COLL_OP_USER = 33 };

/* Whether op is defined on type (bit operations on floats are not). */
bool coll_reduce_supports(coll_dtype type, coll_op op);

/* Fill r. nranks is AVG's divisor. COLL_ERR_ARGUMENT when not supported. */
coll_status coll_reduce_bind(struct coll_reduction *r, coll_dtype type, coll_op op, int nranks, enum coll_isa isa);

/*
 * dst[i] = src[0][i] op src[1][i] op ... (left to right), count elements, any
 * alignment. nsrc >= 1; nsrc == 1 copies (with scaling). dst may equal any src
 * exactly; no other overlap. raw: index of the input that is still a rank's own
 * unscaled contribution and gets the premultiplication (-1: none; only matters
 * for premultiplied sums); pass -2 to scale every input. last: the result is
 * complete, apply AVG's division (no part of a mean). One pass over memory.
 */
static inline void coll_reduce_run(const struct coll_reduction *r, void *dst, const void *const *src, int nsrc, int raw,
                                   bool last, size_t count)
{
	r->run(r, dst, src, nsrc, raw, last, count);
}

/* A mean of inputs of which input s holds weight[s] ranks' contributions. */
enum { COLL_REDUCE_WEIGHTS_MAX = 64 };
void coll_reduce_weighted(const struct coll_reduction *r, void *dst, const void *const *src, int nsrc,
                          const uint32_t *weight, size_t count);

#endif
