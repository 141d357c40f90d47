/*
 * Reductions on host memory: type x operation, two or n inputs.
 *
 * scalar.c is the oracle; every ISA level overwrites entries of the same table
 * and is bit-equal to it (-0, denormals and infinities included; NaN payloads
 * excepted). The level is chosen once per process image from the CPU, or forced
 * (tests, COLL_ISA). Integers wrap. f16, bf16, f8e4m3 and f8e5m2 accumulate
 * in f32 over all inputs of one call and round once (nearest even); a premultiplied
 * input is rounded by itself, before it is added. AVG divides by the divisor
 * after the last input (integers truncate toward zero), before that rounding.
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
	size_t elem_bytes;
	uint64_t divisor;   /* AVG: number of ranks */
	double scale;       /* premultiplied sum */
	const void *kernel; /* for run */
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
 * complete, apply AVG's division. One pass over memory.
 */
static inline void coll_reduce_run(const struct coll_reduction *r, void *dst, const void *const *src, int nsrc, int raw,
                                   bool last, size_t count)
{
	r->run(r, dst, src, nsrc, raw, last, count);
}

#endif
