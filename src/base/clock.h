/*
 * Time and pauses. The clock is monotonic nanoseconds: the system's, or a simulator's.
 */
#ifndef COLL_BASE_CLOCK_H
#define COLL_BASE_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/*
 * A clock in place of the system's, for simulators and for tests that drive time by hand. now_ns
 * is called by any thread and never goes back. It holds for the whole process: what waits in
 * poll() still waits by the system's clock, and the recorder's stamps (ticks.h) are the
 * processor's.
 */
struct coll_clock_source {
	uint64_t (*now_ns)(void *arg);
	void *arg;
};
extern _Atomic(const struct coll_clock_source *) coll_clock_source;

/* source lives until another one takes its place; NULL: the system's clock again. */
void coll_clock_take(const struct coll_clock_source *source);

static inline uint64_t coll_clock_of(clockid_t clock)
{
	/* Acquire: the source is filled before it is taken. */
	const struct coll_clock_source *source = atomic_load_explicit(&coll_clock_source, memory_order_acquire);
	struct timespec t;

	if (__builtin_expect(source != 0, 0))
		return source->now_ns(source->arg);
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t coll_clock_ns(void)
{
	return coll_clock_of(CLOCK_MONOTONIC);
}

/* The same clock as of the last tick of the kernel, a few milliseconds ago: never a system call. */
static inline uint64_t coll_clock_coarse_ns(void)
{
	return coll_clock_of(CLOCK_MONOTONIC_COARSE);
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
 * Uptime of a thread, from a first look on: what passes between two looks counts for
 * a quarter of the wait limit at the most. A process that was stopped, a machine that stood still or has
 * many times more threads than cores has not given those who are going to speak the time to.
 */
struct coll_uptime {
	uint64_t looked_ns; /* 0: not begun */
	uint64_t ns;
};

/* Whether the uptime is so long. */
static inline bool coll_uptime_reaches(struct coll_uptime *l, uint64_t now_ns, uint64_t patience_ns)
{
	const uint64_t passed = l->looked_ns && now_ns > l->looked_ns ? now_ns - l->looked_ns : 0;

	l->ns += passed < patience_ns / 4 ? passed : patience_ns / 4;
	l->looked_ns = now_ns;
	return l->ns >= patience_ns;
}

#endif
