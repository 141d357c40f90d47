/*
 * The interrupt hook of the program: coll_config.interrupt, which ends a wait of the thread that
 * called, as a pressed Ctrl-C does.
 *
 * Waits of a communicator ask the hook of their context (inflight/loop.h). The waits of a creation
 * have no context yet: they ask the hook that the creating thread has entered here.
 */
#ifndef COLL_BASE_INTERRUPT_H
#define COLL_BASE_INTERRUPT_H

#include <stdbool.h>
#include <stdint.h>

struct coll_interrupt {
	int (*fn)(void *arg); /* NULL: none */
	void *arg;
};

/* When it was asked, by one wait; zero before the first time. */
struct coll_interrupt_watch {
	uint64_t asked_ns;
	bool signalled; /* ask it now: a signal came */
	bool said;      /* it has ended the wait, and is not asked any more */
};

/* Ask the hook if its time has come. True: it has just ended the wait. */
bool coll_interrupt_ask(const struct coll_interrupt *hook, struct coll_interrupt_watch *w, uint64_t now_ns);

/* ---- Creation ---- */

/* This thread begins a creation. */
void coll_interrupt_enter(const struct coll_interrupt *hook);
/* And ends it. */
void coll_interrupt_leave(void);

/* ms, or the time until the hook must be asked. */
int coll_interrupt_limit_ms(int ms);

/* The same of a point in time. */
uint64_t coll_interrupt_turn_ns(uint64_t until_ns);

/* Ask the hook if its time has come; signalled: a signal came. True: it has ended the creation, now
 * or before. */
bool coll_interrupt_here(bool signalled);

/* ns, or a short time if the hook has ended the creation: to tell the others. */
uint64_t coll_interrupt_farewell_ns(uint64_t ns);

#endif
