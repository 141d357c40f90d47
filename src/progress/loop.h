/*
 * The one wait loop: look, pause between looks that found nothing, and after a while sleep on descriptors. Used by
 * blocking calls, waits for streams and requests, the progress thread and the end of communicators; they differ in what
 * a look is.
 *
 * Inline, so that each user's look is inlined into it.
 */
#ifndef COLL_PROGRESS_LOOP_H
#define COLL_PROGRESS_LOOP_H

#include "base/clock.h"
#include "base/delay.h"
#include "context/context.h"
#include "progress/persistent.h"

struct coll_wait_loop {
	struct coll_context **ctxs; /* whose events end a sleep */
	int n;
	/* One look. OK: the wait is over; AGAIN, with *moved: whether anything happened; an error ends the wait. last:
	 * the look before a sleep, after the sleeper was armed, so that no lock may be left to others; it may be left
	 * out of account what only ends waits by time. */
	coll_status (*look)(void *arg, bool last, bool *moved);
	/* NULL, or: nothing has moved for a while. OK, or an error that ends the wait. */
	coll_status (*inspect)(void *arg, uint64_t now_ns);
	void *arg;
	uint64_t until_ns; /* the wait ends with AGAIN; 0: no limit */
	int nap_ms;        /* of a sleep; 0: by how long nothing has moved */
	bool no_spin;      /* sleep at the first look that finds nothing */
	/* The loop's own. */
	unsigned polls;
	int turn;
	uint64_t since_ns; /* nothing has moved since; 0: not known */
};

static bool coll_wait_loop_last_look(void *arg)
{
	struct coll_wait_loop *l = arg;
	bool moved = false;

	return l->look(l->arg, true, &moved) != COLL_AGAIN || moved; /* met again by the next look */
}

/* Of several contexts each in its turn, for a short time: what wakes one does not wake another. */
static inline void coll_wait_loop_sleep(struct coll_wait_loop *l, uint64_t now_ns)
{
	const uint64_t ms_ns = 1000000;
	int ms = l->nap_ms ? l->nap_ms : coll_context_nap_ms(now_ns - l->since_ns);

	if (l->n > 1)
		ms = COLL_DELAY_SLEEP_TURN_MS;
	if (l->until_ns && l->until_ns - now_ns < (uint64_t)ms * ms_ns)
		ms = (int)((l->until_ns - now_ns) / ms_ns) + 1;
	coll_context_sleep(l->ctxs[l->turn++ % l->n], ms, coll_wait_loop_last_look, l);
}

static inline coll_status coll_wait_loop_idle(struct coll_wait_loop *l)
{
	struct coll_context *ctx = l->ctxs[0];
	bool must_sleep = l->no_spin;
	coll_status st = COLL_OK;
	uint64_t now;

	if (!must_sleep && !coll_context_pause(ctx, ctx->dedicated_cores && l->n == 1, &l->polls, &must_sleep))
		return COLL_OK;
	for (int i = 0; i < l->n; i++)
		coll_operations_sweep(l->ctxs[i]);
	now = coll_clock_ns();
	if (l->until_ns && now >= l->until_ns)
		return COLL_AGAIN;
	if (!l->since_ns)
		l->since_ns = now;
	if (l->inspect)
		st = l->inspect(l->arg, now);
	if (st == COLL_OK && (must_sleep || coll_context_spun(ctx, now - l->since_ns)))
		coll_wait_loop_sleep(l, now);
	return st;
}

/* OK: the look said so; AGAIN: the time limit; else the error of a look or an inspection. */
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
			/* What moves all the time must not outlast a limit. */
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
