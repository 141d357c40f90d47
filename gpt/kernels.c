/*
 * Which table of kernels this processor gets.
 */
#include "gpt/kernels.h"
#include <string.h>

extern const struct gpt_kernels gpt_kernels_base;
#ifdef GPT_X86_LEVELS
extern const struct gpt_kernels gpt_kernels_avx2;
extern const struct gpt_kernels gpt_kernels_avx512;

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
	return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
	       __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}
#endif

const struct gpt_kernels *gpt_kernels_by_name(const char *name)
{
#ifdef GPT_X86_LEVELS
	if (!strcmp(name, "avx512"))
		return has_avx512() ? &gpt_kernels_avx512 : NULL;
	if (!strcmp(name, "avx2"))
		return has_avx2() ? &gpt_kernels_avx2 : NULL;
#endif
	if (!strcmp(name, "base"))
		return &gpt_kernels_base;
	return strcmp(name, "scalar") ? NULL : &gpt_kernels_scalar;
}

const struct gpt_kernels *gpt_kernels_best(void)
{
	const struct gpt_kernels *k = gpt_kernels_by_name("avx512");

	k = k ? k : gpt_kernels_by_name("avx2");
	return k ? k : &gpt_kernels_base;
}
