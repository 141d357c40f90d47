/*
 * The library's clock in seconds, for tests: the system's, or a simulator's.
 */
#ifndef COLL_TESTS_SECONDS_H
#define COLL_TESTS_SECONDS_H

#include "base/clock.h"

static inline double now_s(void)
{
	return (double)coll_clock_ns() * 1e-9;
}

#endif
