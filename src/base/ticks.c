/*
 * Ticks in nanoseconds: see ticks.h.
 */
#include "base/ticks.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool coll_ticks_counter(void)
{
#if defined(__x86_64__)
	unsigned a, b, c, d = 0;

	/* Intel SDM, CPUID leaf 80000007H: EDX bit 8 is "Invariant TSC". */
	return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1);
#elif defined(__aarch64__)
	return true; /* the generic timer runs at one rate on all cores */
#else
	return false;
#endif
}

static uint64_t real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The tightest of a few tries: a thread may be put aside between two clocks. */
void coll_moment_take(struct coll_moment *m, bool counter)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 5; i++) {
		const uint64_t before = coll_clock_ns(), ticks = coll_ticks(counter), real = real_ns();
		const uint64_t after = coll_clock_ns();

		if (after - before >= best)
			continue;
		best = after - before;
		*m = (struct coll_moment){.ticks = ticks, .mono_ns = before + best / 2, .real_ns = real};
	}
}

uint64_t coll_ticks_real_ns(const struct coll_moment *first, const struct coll_moment *last, uint64_t ticks)
{
	const int64_t ago = (int64_t)(last->ticks - ticks);
	const uint64_t span = last->ticks - first->ticks;
	const double rate = span > 0 ? (double)(last->mono_ns - first->mono_ns) / (double)span : 1;

	return last->real_ns - (uint64_t)(int64_t)((double)ago * rate);
}
