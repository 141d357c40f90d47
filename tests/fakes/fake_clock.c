/*
 * The clock of tests: see fake_clock.h.
 */
#include "tests/fakes/fake_clock.h"

#include <time.h>

struct fake_clock fake_clock;

int __wrap_clock_gettime(clockid_t id, struct timespec *t);

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	t->tv_sec = (time_t)(fake_clock.now_ns / 1000000000u);
	t->tv_nsec = (long)(fake_clock.now_ns % 1000000000u);
	fake_clock.now_ns += fake_clock.step_ns;
	return 0;
}

void fake_clock_reset(void)
{
	fake_clock = (struct fake_clock){.now_ns = 1000000000u};
}

void fake_clock_add_ms(uint64_t ms)
{
	fake_clock.now_ns += ms * 1000000u;
}
