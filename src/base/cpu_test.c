/*
 * What the processor says beside the compiler's own answer, where that has one: gcc's and clang's run-time libraries
 * ask the processor, too.
 */
#include "base/cpu.h"

#include "tests/plain.h"

#if defined(__x86_64__)

#define SAME(name, feature)                                                                              \
	CHECK(coll_cpu_has(feature) == !!__builtin_cpu_supports(name), "%s: %d, the compiler: %d", name, \
	      (int)coll_cpu_has(feature), !!__builtin_cpu_supports(name))

TEST(cpu, as_the_compiler_says)
{
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("sse2"))
		SKIP("this compiler answers no to all");
	SAME("sse4.2", COLL_CPU_SSE42);
	SAME("pclmul", COLL_CPU_PCLMUL);
	SAME("avx2", COLL_CPU_AVX2);
	SAME("bmi2", COLL_CPU_BMI2);
	SAME("avx512f", COLL_CPU_AVX512F);
	SAME("avx512bw", COLL_CPU_AVX512BW);
	SAME("avx512dq", COLL_CPU_AVX512DQ);
	SAME("avx512vl", COLL_CPU_AVX512VL);
	SAME("vpclmulqdq", COLL_CPU_VPCLMULQDQ);
	CHECK(!coll_cpu_has(COLL_CPU_AVX2) || coll_cpu_has(COLL_CPU_F16C), "no processor has AVX2 without F16C");
}

#endif

TEST(cpu, all_of_a_mask)
{
	CHECK(coll_cpu_has(0));
	for (unsigned a = 1; a <= COLL_CPU_VPCLMULQDQ; a <<= 1)
		for (unsigned b = 1; b <= COLL_CPU_VPCLMULQDQ; b <<= 1)
			CHECK(coll_cpu_has(a | b) == (coll_cpu_has(a) && coll_cpu_has(b)), "features %#x and %#x", a,
			      b);
	CHECK(!coll_cpu_has(COLL_CPU_VPCLMULQDQ << 1), "a feature that has no name");
}
