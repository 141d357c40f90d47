/*
 * A clock that stands still until a test moves it: the source of base/clock.h from the first reset on.
 */
#ifndef COLL_FAKES_FAKE_CLOCK_H
#define COLL_FAKES_FAKE_CLOCK_H

#include <stdint.h>

extern struct fake_clock {
	uint64_t now_ns;
	uint64_t step_ns; /* added at each read */
} fake_clock;

/* One second after the start of time: 0 means "never" to many. */
void fake_clock_reset(void);
void fake_clock_add_ms(uint64_t ms);

#endif
