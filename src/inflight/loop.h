/*
 * The wait loop: look, pause between looks that found nothing, and after a while sleep on
 * descriptors.
 *
 * It serves blocking calls, waits for streams and requests, the progress thread and the end of
 * communicators. They differ in what a look is. The functions are inline so that the look of each
 * user is inlined into the loop.
 */
#ifndef COLL_INFLIGHT_LOOP_H
#define COLL_INFLIGHT_LOOP_H

#include <time.h>

#include "base/clock.h"
#include "base/delay.h"
#include "context/context.h"
#include "context/crowd.h"
#include "inflight/async.h"
#include "inflight/inlined.h"
#include "net/net.h"

struct coll_wait_loop {
	struct coll_context **ctxs; /* their events end a sleep */
	int n;
	/* Look once. OK: the wait is over. AGAIN: it goes on, and *moved says whether anything
	 * happened. An error ends the wait. last: this is the last look before a sleep, and the
	 * sleeper is armed. Such a look must not leave a lock to other threads. It may ignore what
	 * ends waits only by time. */
	coll_status (*look)(void *arg, bool last, bool *moved);
	/* NULL, or called when nothing has moved for a while. Returns OK, or an error that ends the
	 * wait. */
	coll_status (*inspect)(void *arg, uint64_t now_ns);
	/* NULL: the program's hook is not asked. Else called when the hook has ended the wait: makes
	 * the looks end it soon. */
	void (*interrupt)(void *arg);
	void *arg;
	uint64_t until_ns;   /* then the wait ends with AGAIN; 0: no limit */
	int nap_ms;          /* length of a sleep; 0: depends on the idle time */
	bool starts_nothing; /* the thread starts no operations itself: it has none to hand over */
	bool no_spin;        /* sleep after the first look that finds nothing */
	/* State of the loop. */
	unsigned polls;
	int turn;
	unsigned moves;
	uint64_t since_ns; /* nothing has moved since; 0: unknown */
	struct coll_interrupt_watch watch;
};

enum { MOVES_PER_CLOCK = 16 };

/* The hooks of all contexts, which may differ, have one time, and the first that says stop ends the wait. No lock is
 * held. */
static inline void coll_wait_loop_ask(struct coll_wait_loop *l, uint64_t now_ns)
{
	const struct coll_interrupt_watch before = l->watch;

	for (int i = 0; i < l->n && !l->watch.said; i++) {
		struct coll_interrupt_watch w = before;

		if (!l->ctxs[i]->interrupt.fn)
			continue;
		if (coll_interrupt_ask(&l->ctxs[i]->interrupt, &w, now_ns))
			l->interrupt(l->arg);
		l->watch = w;
	}
}

static bool coll_wait_loop_last_look(void *arg)
{
	struct coll_wait_loop *l = arg;
	bool moved = false;

	return l->look(l->arg, true, &moved) != COLL_AGAIN || moved; /* the next look finds it again */
}

/* With several contexts, sleep on each in turn for a short time: an event of one context does not
 * wake a sleeper of another. */
static inline void coll_wait_loop_sleep(struct coll_wait_loop *l, uint64_t now_ns)
{
	const uint64_t ms_ns = 1000000;
	int ms = l->nap_ms ? l->nap_ms : coll_context_nap_ms(now_ns - l->since_ns);

	for (int i = 0; i < l->n; i++)
		if (atomic_load_explicit(&l->ctxs[i]->async->staged, memory_order_relaxed) > 0) {
			const bool lately = now_ns - l->since_ns < COLL_DELAY_NS(NAP_LONG_AFTER);
			const long ns = (long)COLL_DELAY_NS(DEVICE_NAPS);

			coll_net->sleep(&(struct timespec){.tv_nsec = lately ? ns / 20 : ns}, NULL);
			return;
		}
	if (l->n > 1)
		ms = COLL_DELAY_SLEEP_TURN_MS;
	if (l->until_ns && l->until_ns - now_ns < (uint64_t)ms * ms_ns)
		ms = (int)((l->until_ns - now_ns) / ms_ns) + 1;
	if (coll_context_sleep(l->ctxs[l->turn++ % l->n], ms, coll_wait_loop_last_look, l))
		l->watch.signalled = true;
}

static inline coll_status coll_wait_loop_idle(struct coll_wait_loop *l)
{
	struct coll_context *ctx = l->ctxs[0];
	bool must_sleep = l->no_spin;
	coll_status st = COLL_OK;
	uint64_t now;

	if (!must_sleep && !coll_context_pause(ctx, coll_context_spins(ctx) && l->n == 1, &l->polls, &must_sleep))
		return COLL_OK;
	for (int i = 0; !l->starts_nothing && i < l->n; i++)
		coll_inlined_sweep(l->ctxs[i]);
	now = coll_clock_ns();
	if (l->until_ns && now >= l->until_ns)
		return COLL_AGAIN;
	if (!l->since_ns)
		l->since_ns = now;
	if (l->interrupt)
		coll_wait_loop_ask(l, now);
	if (l->inspect)
		st = l->inspect(l->arg, now);
	must_sleep |= coll_crowd_look(ctx, now, l->no_spin ? UINT64_MAX : now - l->since_ns);
	if (st == COLL_OK && (must_sleep || coll_context_spun(ctx, now - l->since_ns)))
		coll_wait_loop_sleep(l, now);
	return st;
}

/* OK: a look ended the wait. AGAIN: the time limit. Else the error of a look or an inspection. */
static inline __attribute__((always_inline)) coll_status coll_wait_loop_run(struct coll_wait_loop *l)
{
	for (;;) {
		bool moved = false;
		coll_status st = l->look(l->arg, false, &moved);

		if (st != COLL_AGAIN)
			return st;
		if (moved) {
			l->polls = 0;
			l->since_ns = 0;
			if (l->interrupt && ++l->moves % MOVES_PER_CLOCK == 0)
				coll_wait_loop_ask(l, coll_clock_ns());
			/* Constant movement must not extend a wait beyond its limit. */
			if (l->until_ns && coll_clock_ns() >= l->until_ns)
				return COLL_AGAIN;
			continue;
		}
		st = coll_wait_loop_idle(l);
		if (st != COLL_OK)
			return st;
	}
}

#endif
