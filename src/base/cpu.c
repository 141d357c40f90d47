/*
 * The features of this processor: see cpu.h. Intel SDM volume 2, CPUID leaves 1 and 7; volume 1, 13.3 and 14.3 for what
 * the system must save.
 */
#include "base/cpu.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* Bits of XCR0. */
enum { XMM_YMM = 0x06, OPMASK_ZMM = 0xe0 };

enum { ASKED = 1u << 31 };

static unsigned when(unsigned register_value, int bit, enum coll_cpu_feature feature)
{
	return register_value >> bit & 1 ? (unsigned)feature : 0;
}

static unsigned saved_registers(void)
{
	unsigned low, high;

	__asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return low;
}

static unsigned ask(void)
{
	unsigned a, b = 0, c1 = 0, c7 = 0, d, saved, found;

	if (!__get_cpuid(1, &a, &b, &c1, &d))
		return 0;
	if (!__get_cpuid_count(7, 0, &a, &b, &c7, &d))
		b = c7 = 0;
	found = when(c1, 20, COLL_CPU_SSE42) | when(c1, 1, COLL_CPU_PCLMUL) | when(b, 8, COLL_CPU_BMI2);
	saved = c1 >> 27 & 1 ? saved_registers() : 0; /* OSXSAVE: there is such a register */
	if ((saved & XMM_YMM) != XMM_YMM)
		return found;
	found |= when(c1, 29, COLL_CPU_F16C) | when(b, 5, COLL_CPU_AVX2) | when(c7, 10, COLL_CPU_VPCLMULQDQ);
	if ((saved & OPMASK_ZMM) != OPMASK_ZMM)
		return found;
	return found | when(b, 16, COLL_CPU_AVX512F) | when(b, 30, COLL_CPU_AVX512BW) | when(b, 17, COLL_CPU_AVX512DQ) |
	       when(b, 31, COLL_CPU_AVX512VL);
}

/* One word without others that belong to it: relaxed order is enough, and threads that ask at the same time find the
 * same. */
static atomic_uint known;

bool coll_cpu_has(unsigned features)
{
	unsigned now = atomic_load_explicit(&known, memory_order_relaxed);

	if (now == 0) {
		now = ask() | ASKED;
		atomic_store_explicit(&known, now, memory_order_relaxed);
	}
	return (now & features) == features;
}

#else

bool coll_cpu_has(unsigned features)
{
	return features == 0;
}

#endif
