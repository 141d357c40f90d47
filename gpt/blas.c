#include "gpt/blas.h"
#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Declared here: not every cblas.h of OpenBLAS has it. */
extern char *openblas_get_corename(void);
extern void openblas_set_num_threads(int num_threads);

void gpt_blas_gemm(const struct gpt_gemm *g)
{
	const CBLAS_TRANSPOSE ta = g->ta ? CblasTrans : CblasNoTrans, tb = g->tb ? CblasTrans : CblasNoTrans;

#ifdef GPT_DOUBLE
	cblas_dgemm(CblasRowMajor, ta, tb, g->m, g->n, g->k, g->alpha, g->a, g->lda, g->b, g->ldb, g->beta, g->c,
	            g->ldc);
#else
	cblas_sgemm(CblasRowMajor, ta, tb, g->m, g->n, g->k, g->alpha, g->a, g->lda, g->b, g->ldb, g->beta, g->c,
	            g->ldc);
#endif
}

const char *gpt_blas_core(void)
{
	return openblas_get_corename();
}

/* Names of the x86 kernels that use 256-bit fused multiply-add, or better. */
static bool is_fast(const char *core)
{
	static const char *const fast[] = {"Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids", "Excavator"};

	for (size_t i = 0; i < sizeof(fast) / sizeof(*fast); i++)
		if (!strcasecmp(core, fast[i]))
			return true;
	return false;
}

const char *gpt_blas_mend(const char *chosen, bool has_avx2, bool has_avx512)
{
	if (!has_avx2 || is_fast(chosen))
		return NULL;
	return has_avx512 ? "SkylakeX" : "Haswell";
}

static const char *mend_here(void)
{
#if defined(__x86_64__)
	const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
	                    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");

	return gpt_blas_mend(openblas_get_corename(), avx2, avx512);
#else
	return NULL;
#endif
}

void gpt_blas_start(char **argv)
{
	const char *better;

	if (!getenv("OPENBLAS_NUM_THREADS") && !getenv("OMP_NUM_THREADS")) {
		openblas_set_num_threads(1);
		setenv("OPENBLAS_NUM_THREADS", "1", 1); /* for the second start below */
	}
	better = getenv("OPENBLAS_CORETYPE") ? NULL : mend_here();
	if (!better)
		return;
	/* With the variable set the second start does not come here again. If
	 * the program cannot be run again, slow is still right. */
	setenv("OPENBLAS_CORETYPE", better, 1);
	execv("/proc/self/exe", argv);
}
