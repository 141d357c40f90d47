/*
 * Sleeping threads of a context. They share the descriptors on which events arrive
 * (wake_fd, the transports' poll_fd), and one event makes a descriptor readable once,
 * for whichever thread it is. So each sleeper also has a descriptor of its own, and the
 * thread that takes a wake-up from wake_fd wakes all others by theirs.
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
	atomic_uint count;                   /* of asleep */
};

void coll_sleepers_init(struct coll_sleepers *s);
void coll_sleepers_fini(struct coll_sleepers *s); /* nobody sleeps */

/* Sleep for at most ms, or until something happened to this context; any thread, several
 * at once. look is called once, when every event from then on wakes: it looks again at all
 * the caller waits for and says whether to stay awake. */
void coll_context_sleep(struct coll_context *ctx, int ms, bool (*look)(void *arg), void *arg);

/* Something has changed that sleepers may wait for, by this process's own doing (what comes
 * from outside wakes by itself). Not a system call when nobody sleeps. */
void coll_context_wake(struct coll_context *ctx);

/* Give the core away for a moment, where ranks share cores. False: that is not the way to
 * wait now, sleep. */
bool coll_context_yield(struct coll_context *ctx);

/* Between two looks that found nothing: spin once, where spin says that nobody else wants the
 * core, else yield. False: look again. True: time to look at the clock, and at all that is
 * not looked at every time; *tired: yields are not the way to wait now. */
bool coll_context_pause(struct coll_context *ctx, bool spin, unsigned *looks, bool *tired);

/* Whether a wait in which nothing has moved for so long has looked about enough, and sleeps. */
bool coll_context_spun(const struct coll_context *ctx, uint64_t for_ns);
/* How long to sleep at once when nothing has moved for idle_ns. */
int coll_context_nap_ms(uint64_t idle_ns);

#endif
