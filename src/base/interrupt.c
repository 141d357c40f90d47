/*
 * The interrupt hook: see interrupt.h.
 */
#include "base/interrupt.h"

#include "base/clock.h"
#include "base/delay.h"

bool coll_interrupt_ask(const struct coll_interrupt *hook, struct coll_interrupt_watch *w, uint64_t now_ns)
{
	if (!hook->fn || w->said)
		return false;
	if (!w->asked_ns)
		w->asked_ns = now_ns;
	if (now_ns - w->asked_ns < COLL_DELAY_NS(INTERRUPT) && !w->signalled)
		return false;
	w->asked_ns = now_ns;
	w->signalled = false;
	w->said = hook->fn(hook->arg) != 0;
	return w->said;
}

/* ---- Creation ---- */

/* fn is NULL outside a creation. */
static _Thread_local struct coll_interrupt entered;
static _Thread_local struct coll_interrupt_watch watch;

void coll_interrupt_enter(const struct coll_interrupt *hook)
{
	entered = *hook;
	watch = (struct coll_interrupt_watch){0};
}

void coll_interrupt_leave(void)
{
	entered = (struct coll_interrupt){0};
	watch = (struct coll_interrupt_watch){0};
}

int coll_interrupt_limit_ms(int ms)
{
	return entered.fn && (ms < 0 || ms > COLL_DELAY_INTERRUPT_MS) ? COLL_DELAY_INTERRUPT_MS : ms;
}

uint64_t coll_interrupt_turn_ns(uint64_t until_ns)
{
	const uint64_t turn_ns = coll_clock_ns() + COLL_DELAY_NS(INTERRUPT);

	return entered.fn && turn_ns < until_ns ? turn_ns : until_ns;
}

bool coll_interrupt_here(bool signalled)
{
	watch.signalled |= signalled;
	coll_interrupt_ask(&entered, &watch, coll_clock_ns());
	return watch.said;
}

uint64_t coll_interrupt_farewell_ns(uint64_t ns)
{
	return watch.said && ns > COLL_DELAY_NS(INTERRUPT) ? COLL_DELAY_NS(INTERRUPT) : ns;
}
