/*
 * The one place that knows BLAS: matrix product, and its start-up check.
 */
#ifndef GPT_BLAS_H
#define GPT_BLAS_H

#include "gpt/kernels.h"

void gpt_blas_gemm(const struct gpt_gemm *g);

/*
 * Call first thing in main, before any thread exists. OpenBLAS picks its
 * kernels when it is loaded and takes some processors for much older ones: a
 * third of the speed, or less. If that happened, run this program again from
 * the start with OPENBLAS_CORETYPE set; a value set by the user is respected.
 * Also one thread per process, unless OPENBLAS_NUM_THREADS or OMP_NUM_THREADS
 * says otherwise: ranks share the cores already.
 */
void gpt_blas_start(char **argv);

/* The core type to ask for instead of the one OpenBLAS chose; NULL: it did well. */
const char *gpt_blas_mend(const char *chosen, bool has_avx2, bool has_avx512);

/* What OpenBLAS runs as ("SkylakeX"). */
const char *gpt_blas_core(void);

#endif
