/*
 * Ticks: the cheapest clock that is the same on all cores, for time stamps on paths
 * where 20 ns matter. A tick has no unit of its own: it is turned into nanoseconds of
 * CLOCK_MONOTONIC and of the calendar when the stamps are read, from the values of
 * both clocks at two moments.
 *
 * The time stamp counter of x86 is used where the processor calls it invariant (same
 * rate in all states and on all cores), the generic timer on Arm, clock_gettime()
 * elsewhere. Reads are not ordered with the memory accesses around them: a stamp may be
 * off by as much as the processor runs ahead, some tens of nanoseconds.
 */
#ifndef COLL_BASE_TICKS_H
#define COLL_BASE_TICKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* Which clock coll_ticks() reads: asked once, then passed. */
bool coll_ticks_counter(void);

static inline uint64_t coll_ticks(bool counter)
{
#if defined(__x86_64__)
	if (__builtin_expect(counter, true))
		return __rdtsc();
#elif defined(__aarch64__)
	uint64_t t;

	if (__builtin_expect(counter, true)) {
		__asm__ volatile("mrs %0, cntvct_el0" : "=r"(t));
		return t;
	}
#endif
	return coll_clock_ns();
}

/* What the clocks said at one moment. */
struct coll_moment {
	uint64_t ticks;
	uint64_t mono_ns; /* CLOCK_MONOTONIC */
	uint64_t real_ns; /* since 1970 */
};

void coll_moment_take(struct coll_moment *m, bool counter);

/* Calendar time of a stamp, in nanoseconds, by two moments some time apart. */
uint64_t coll_ticks_real_ns(const struct coll_moment *first, const struct coll_moment *last, uint64_t ticks);

#endif
