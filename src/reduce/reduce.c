/*
 * Choice of the kernel for a (type, operation, ISA level). Owns the list of
 * levels; the kernels are in the files of the levels. No state: the level comes
 * from the features of the processor.
 */
#include "reduce/reduce.h"
#include "reduce/user.h"

#include <assert.h>

#include "base/cpu.h"
#include "reduce/internal.h"
#include "reduce/pair.h"

typedef const coll_reduce_fn (*table_ptr)[COLL_DTYPE_COUNT];

static const table_ptr tables[COLL_ISA_COUNT] = {
        [COLL_ISA_SCALAR] = coll_reduce_scalar,
#if defined(__x86_64__)
        [COLL_ISA_AVX2] = coll_reduce_avx2,
        [COLL_ISA_AVX512] = coll_reduce_avx512,
#endif
};

static const char *const isa_names[COLL_ISA_COUNT] = {"scalar", "avx2", "avx512"};

enum coll_isa coll_reduce_best_isa(void)
{
	const unsigned avx2 = COLL_CPU_AVX2 | COLL_CPU_BMI2 | COLL_CPU_F16C;

	if (coll_cpu_has(avx2 | COLL_CPU_AVX512F | COLL_CPU_AVX512BW | COLL_CPU_AVX512DQ | COLL_CPU_AVX512VL))
		return COLL_ISA_AVX512;
	if (coll_cpu_has(avx2))
		return COLL_ISA_AVX2;
	return COLL_ISA_SCALAR;
}

const char *coll_reduce_isa_name(enum coll_isa isa)
{
	return (unsigned)isa < COLL_ISA_COUNT ? isa_names[isa] : NULL;
}

/* The kernel of the highest level not above isa that has one; NULL: undefined. */
static coll_reduce_fn find(coll_dtype type, coll_op op, enum coll_isa isa)
{
	const coll_op row = op == COLL_OP_PREMUL_SUM ? (coll_op)COLL_REDUCE_PREMUL : op;

	if (op == COLL_OP_USER)
		return coll_dtype_size(type) > 0 ? coll_reduce_user : NULL;
	if ((unsigned)type >= COLL_DTYPE_COUNT)
		return coll_reduce_pair_find(type, op);
	if (op != COLL_OP_PREMUL_SUM && op >= COLL_OP_COUNT)
		return NULL;
	for (int level = isa; level >= 0; level--)
		if (tables[level] && tables[level][row][type])
			return tables[level][row][type];
	return NULL;
}

typedef const coll_reduce_spread_fn (*spread_ptr)[COLL_DTYPE_COUNT];

static const spread_ptr spreads[COLL_ISA_COUNT] = {
#if defined(__x86_64__)
        [COLL_ISA_AVX2] = coll_reduce_avx2_spread,
        [COLL_ISA_AVX512] = coll_reduce_avx512_spread,
#endif
};

bool coll_reduce_supports(coll_dtype type, coll_op op)
{
	return find(type, op, COLL_ISA_SCALAR) != NULL;
}

static bool is_narrow(coll_dtype type)
{
	return type == COLL_F16 || type == COLL_BF16 || type == COLL_F8E4M3 || type == COLL_F8E5M2;
}

coll_status coll_reduce_bind(struct coll_reduction *r, coll_dtype type, coll_op op, int nranks, enum coll_isa isa)
{
	coll_reduce_fn run;

	assert((unsigned)isa < COLL_ISA_COUNT);
	assert(nranks >= 1);
	run = find(type, op, isa);
	if (!run)
		return COLL_ERR_ARGUMENT;
	*r = (struct coll_reduction){
	        .run = run,
	        .type = type,
	        .op = op,
	        .isa = isa,
	        .elem_bytes = coll_dtype_size(type),
	        .spread = spreads[isa] && op < COLL_OP_COUNT && (unsigned)type < COLL_DTYPE_COUNT
	                          ? spreads[isa][op][type]
	                          : NULL,
	        .divisor = (uint64_t)nranks,
	        .mean = op == COLL_AVG && is_narrow(type),
	        .scale = 1,
	};
	return COLL_OK;
}

void coll_reduce_weighted(const struct coll_reduction *r, void *dst, const void *const *src, int nsrc,
                          const uint32_t *weight, size_t count)
{
	struct coll_reduction mean = *r;
	float share[COLL_REDUCE_WEIGHTS_MAX], all = 0;

	assert(r->mean);
	assert(nsrc <= COLL_REDUCE_WEIGHTS_MAX);
	for (int s = 0; s < nsrc; s++)
		all += (float)weight[s];
	for (int s = 0; s < nsrc; s++)
		share[s] = (float)weight[s] / all;
	mean.share = share;
	coll_reduce_run(&mean, dst, src, nsrc, -1, true, count);
}
