/*
 * Time and pauses. The clock is monotonic nanoseconds.
 */
#ifndef COLL_BASE_CLOCK_H
#define COLL_BASE_CLOCK_H

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

#endif
