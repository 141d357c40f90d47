/*
 * Which instructions this processor has, as far as kernels are chosen by them. The processor is asked, not the
 * compiler's run-time library: that of some compilers (zig's) answers no to every __builtin_cpu_supports().
 */
#ifndef COLL_BASE_CPU_H
#define COLL_BASE_CPU_H

#include <stdbool.h>

/* A register wider than 16 bytes counts only if the system saves it when threads change. */
enum coll_cpu_feature {
	COLL_CPU_SSE42 = 1 << 0,
	COLL_CPU_PCLMUL = 1 << 1,
	COLL_CPU_F16C = 1 << 2,
	COLL_CPU_AVX2 = 1 << 3,
	COLL_CPU_BMI2 = 1 << 4,
	COLL_CPU_AVX512F = 1 << 5,
	COLL_CPU_AVX512BW = 1 << 6,
	COLL_CPU_AVX512DQ = 1 << 7,
	COLL_CPU_AVX512VL = 1 << 8,
	COLL_CPU_VPCLMULQDQ = 1 << 9,
};

/* Whether all of these features are there: a mask of enum coll_cpu_feature. False on other processors than x86-64. */
bool coll_cpu_has(unsigned features);

#endif
