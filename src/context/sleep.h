/*
 * Sleeping threads of a context.
 *
 * All sleepers share the descriptors of events (wake_fd and the poll_fd of each transport). One
 * event makes a descriptor readable once, for any sleeper. So each sleeper also has a descriptor of
 * its own. A thread that reads a wake-up from wake_fd writes the descriptors of all others.
 */
#ifndef COLL_CONTEXT_SLEEP_H
#define COLL_CONTEXT_SLEEP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct coll_context;
struct coll_sleeper;

struct coll_sleepers {
	pthread_mutex_t lock;
	struct coll_sleeper *asleep, *spare; /* lock */
	atomic_uint count;                   /* length of the asleep list */
};

void coll_sleepers_init(struct coll_sleepers *s);
void coll_sleepers_fini(struct coll_sleepers *s); /* no thread sleeps */

/* Sleep for at most ms, or until an event of this context. Several threads may sleep at once. look
 * is called once, after the thread is armed, so every later event wakes it. look checks all that
 * the caller waits for and returns true to stay awake. Returns whether a signal ended the sleep. */
bool coll_context_sleep(struct coll_context *ctx, int ms, bool (*look)(void *arg), void *arg);

/* Wake the sleepers after a change by this process that they may wait for. Events from outside wake
 * them by themselves. Makes no system call if no thread sleeps. */
void coll_context_wake(struct coll_context *ctx);

/* Yield the core, if ranks share cores. False: yielding does not help now, so sleep. */
bool coll_context_yield(struct coll_context *ctx);

/* Pause between two looks that found nothing. spin: no other thread needs the core, so spin once;
 * else yield. False: look again. True: it is time to read the clock and to check what is not
 * checked at every look. *must_sleep: yielding does not help now. */
bool coll_context_pause(struct coll_context *ctx, bool spin, unsigned *looks, bool *must_sleep);

/* Whether a wait in which nothing has moved for that long should sleep. */
bool coll_context_spun(const struct coll_context *ctx, uint64_t for_ns);
/* The length of one sleep when nothing has moved for idle_ns. */
int coll_context_nap_ms(uint64_t idle_ns);

#endif
