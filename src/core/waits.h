/*
 * What waiting costs a communicator: how long its calls stood still, for which rank, and how long they took in all.
 *
 * A wait that ends in its first polls is not seen here: the clock is read only by waits that read it anyway, once more
 * when they go on or end. A look adds the time since the look before. If nothing has moved meanwhile, it is time waited
 * for the rank that was missing at the look before. One writer at a time: the thread in the call, or whoever drives the
 * requests of the communicator; readers are any threads, so all numbers are atomic. Sums are of this rank alone: who
 * holds the job up is found by watch/slow.h.
 */
#ifndef COLL_CORE_WAITS_H
#define COLL_CORE_WAITS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/delay.h"

struct coll_waits_of {
	_Atomic uint64_t waited_ns;
	_Atomic uint64_t last; /* calls in which it was the last that this rank waited for */
};

enum { COLL_WAITS_SAMPLES = 5 };

struct coll_waits {
	_Atomic uint64_t waited_ns;  /* nothing moved */
	_Atomic uint64_t in_call_ns; /* from the first look of a wait to the end of its call */
	_Atomic uint64_t waits;      /* calls that were looked at */
	_Atomic uint64_t seen_ns;    /* last look in a call that goes on; 0: none */
	_Atomic int rank;            /* missing at that look; -1: nobody, or not known */
	_Atomic int last;            /* waited for last in this call; -1: nobody */
	/* The two sums at the last looks of watch/slow.c, its own. */
	struct coll_waits_sample {
		uint64_t waited_ns, in_call_ns;
	} at[COLL_WAITS_SAMPLES];
	struct coll_waits_of of[]; /* by rank */
};

static inline void coll_waits_raise(_Atomic uint64_t *sum, uint64_t by)
{
	atomic_store_explicit(sum, atomic_load_explicit(sum, memory_order_relaxed) + by, memory_order_relaxed);
}

/* stood: nothing has moved since the last look. Of requests nobody may have looked for a while, since the program
 * computed: a look counts for no longer than a sleep of a wait. */
static inline void coll_waits_add(struct coll_waits *s, uint64_t now, bool stood)
{
	const uint64_t seen = atomic_load_explicit(&s->seen_ns, memory_order_relaxed),
	               most = 2 * COLL_DELAY_NS(NAP_LONG);
	const uint64_t ns = !seen || now < seen ? 0 : now - seen < most ? now - seen : most;
	const int rank = atomic_load_explicit(&s->rank, memory_order_relaxed);

	coll_waits_raise(&s->in_call_ns, ns);
	if (stood)
		coll_waits_raise(&s->waited_ns, ns);
	if (stood && rank >= 0) {
		coll_waits_raise(&s->of[rank].waited_ns, ns);
		atomic_store_explicit(&s->last, rank, memory_order_relaxed);
	}
	atomic_store_explicit(&s->seen_ns, now, memory_order_relaxed);
}

/* A wait has read the clock and found that nothing moves; rank: who is missing. first: it had not looked before. */
static inline void coll_waits_look(struct coll_waits *s, bool first, bool stood, uint64_t now, int rank)
{
	if (!s)
		return;
	if (first) {
		atomic_store_explicit(&s->last, -1, memory_order_relaxed);
		atomic_store_explicit(&s->seen_ns, now, memory_order_relaxed);
	} else {
		coll_waits_add(s, now, stood);
	}
	atomic_store_explicit(&s->rank, rank, memory_order_relaxed);
}

/* After such a look something has moved. */
static inline void coll_waits_moved(struct coll_waits *s)
{
	if (!s)
		return;
	coll_waits_add(s, coll_clock_ns(), true);
	atomic_store_explicit(&s->rank, -1, memory_order_relaxed);
}

/* A call that was looked at has ended. */
static inline void coll_waits_end(struct coll_waits *s, bool stood)
{
	int last;

	if (!s)
		return;
	coll_waits_add(s, coll_clock_ns(), stood);
	last = atomic_load_explicit(&s->last, memory_order_relaxed);
	if (last >= 0)
		coll_waits_raise(&s->of[last].last, 1);
	coll_waits_raise(&s->waits, 1);
	atomic_store_explicit(&s->last, -1, memory_order_relaxed);
	atomic_store_explicit(&s->seen_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&s->rank, -1, memory_order_relaxed);
}

#endif
