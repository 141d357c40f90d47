/*
 * Yields of ranks that share cores, timed by ticks: a call that ends soon reads no clock.
 */
#ifndef COLL_CONTEXT_YIELD_H
#define COLL_CONTEXT_YIELD_H

#include <stdbool.h>
#include <stdint.h>

struct coll_context;

/* The yields of one wait. */
struct coll_yields {
	uint64_t began, last; /* ticks: before the first, and behind the last one */
	bool took_long;       /* one of them did */
};

/* What a yield was good for. */
enum coll_yielded {
	COLL_YIELDED,        /* others had the core for a moment */
	COLL_YIELDED_LONG,   /* for a millisecond or so: this wait counts, since y->began */
	COLL_YIELDED_IN_VAIN /* a thread computes there, and will go on: sleep */
};

void coll_yields_begin(const struct coll_context *ctx, struct coll_yields *y);
/* Yield the core. The clock is read, into *now_ns, only behind a yield that took long. */
enum coll_yielded coll_yields_go_on(struct coll_context *ctx, struct coll_yields *y, uint64_t *now_ns);

/* The same by the clock, from before_ns on. False: yielding does not help now. */
bool coll_yield_by_clock(struct coll_context *ctx, uint64_t before_ns);

/* Ticks in nanoseconds, by what the clock says now. 0: nothing is known yet. */
uint64_t coll_context_ticks_ns(const struct coll_context *ctx, uint64_t ticks, uint64_t now_ns);

#endif
