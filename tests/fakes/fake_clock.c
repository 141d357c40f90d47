/*
 * The clock of tests: see fake_clock.h.
 */
#include "tests/fakes/fake_clock.h"

#include <stddef.h>

#include "base/clock.h"

struct fake_clock fake_clock;

static uint64_t now_ns(void *arg)
{
	const uint64_t now = fake_clock.now_ns;

	fake_clock.now_ns += fake_clock.step_ns;
	return now;
}

void fake_clock_reset(void)
{
	static const struct coll_clock_source source = {.now_ns = now_ns};

	fake_clock = (struct fake_clock){.now_ns = 1000000000u};
	coll_clock_take(&source);
}

void fake_clock_add_ms(uint64_t ms)
{
	fake_clock.now_ns += ms * 1000000u;
}
