/*
 * Time and pauses. The clock is monotonic nanoseconds.
 */
#ifndef COLL_BASE_CLOCK_H
#define COLL_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t coll_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The same clock as of the last tick of the kernel, a few milliseconds ago: never a system call. */
static inline uint64_t coll_clock_coarse_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Tell the core that this is a spin loop. */
static inline void coll_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#endif
}

/*
 * Time as its thread has lived it, from a first look on: what passes between two looks counts for
 * a quarter of the wait limit at the most. A process that was stopped, a machine that stood still or has
 * many times more threads than cores has not given those who are going to speak the time to.
 */
struct coll_lived {
	uint64_t looked_ns; /* 0: not begun */
	uint64_t ns;
};

/* Whether so much time has been lived. */
static inline bool coll_lived_for(struct coll_lived *l, uint64_t now_ns, uint64_t patience_ns)
{
	const uint64_t passed = l->looked_ns && now_ns > l->looked_ns ? now_ns - l->looked_ns : 0;

	l->ns += passed < patience_ns / 4 ? passed : patience_ns / 4;
	l->looked_ns = now_ns;
	return l->ns >= patience_ns;
}

#endif
