/*
 * One round of serving: events, what the transport does after them, the timer.
 *
 * Invariant: while the flag soon is set the timer ticks every REACTOR_SOON, or the thread that
 * set it, or a round, is about to set the timer so. The flag is cleared before tick()
 * reads the work that is left. A thread that leaves work holds the lock of that work, and sets the
 * flag before it releases the lock. If it had the lock before tick(), tick() sees the work. If
 * after, the thread sees that the flag is clear, sets it and sets the timer again.
 */
#include "transports/common/reactor.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"

enum { EVENTS = 32 };

#define TAG_TIMER (UINT64_MAX - 1)
#define TAG_KICK  UINT64_MAX

void coll_eventfd_raise(int fd)
{
	const uint64_t one = 1;

	if (fd >= 0 && write(fd, &one, sizeof(one)) < 0)
		return; /* only when the counter is full: then it is readable already */
}

/* ---- life ---------------------------------------------------------------------- */

void coll_reactor_init(struct coll_reactor *r, const struct coll_reactor_table *table, void *inst)
{
	*r = (struct coll_reactor){.table = table, .inst = inst, .epoll_fd = -1, .timer_fd = -1, .kick_fd = -1};
	pthread_mutex_init(&r->lock, NULL);
}

bool coll_reactor_watch(struct coll_reactor *r, int fd, uint32_t events, uint64_t tag, int how)
{
	struct epoll_event e = {.events = events, .data.u64 = tag};

	if (epoll_ctl(r->epoll_fd, how, fd, &e) == 0)
		return true;
	coll_errno_keep("epoll_ctl");
	return false;
}

bool coll_reactor_open(struct coll_reactor *r)
{
	r->epoll_fd = COLL_FD(epoll_create1(EPOLL_CLOEXEC));
	r->timer_fd = COLL_FD(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
	r->kick_fd = COLL_FD(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
	return r->epoll_fd >= 0 && r->timer_fd >= 0 && r->kick_fd >= 0 &&
	       coll_reactor_watch(r, r->timer_fd, EPOLLIN, TAG_TIMER, EPOLL_CTL_ADD) &&
	       coll_reactor_watch(r, r->kick_fd, EPOLLIN, TAG_KICK, EPOLL_CTL_ADD);
}

static void close_fd(int fd)
{
	if (fd >= 0)
		coll_fd_close(fd);
}

void coll_reactor_fini(struct coll_reactor *r)
{
	close_fd(r->epoll_fd);
	close_fd(r->timer_fd);
	close_fd(r->kick_fd);
	pthread_mutex_destroy(&r->lock);
}

/* ---- the timer ------------------------------------------------------------------- */

static void set_timer(struct coll_reactor *r, uint32_t ms)
{
	const struct itimerspec t = {.it_interval.tv_nsec = ms * 1000000L, .it_value.tv_nsec = ms * 1000000L};

	timerfd_settime(r->timer_fd, 0, &t, NULL);
}

void coll_reactor_soon(struct coll_reactor *r)
{
	if (!atomic_load_explicit(&r->soon, memory_order_relaxed) && !atomic_exchange(&r->soon, true))
		set_timer(r, COLL_DELAY_REACTOR_SOON_MS);
}

static void adjust_timer(struct coll_reactor *r)
{
	bool soon;

	do {
		soon = atomic_load(&r->soon);
		const uint32_t ms = soon ? COLL_DELAY_REACTOR_SOON_MS : r->table->interval_ms(r->inst);

		/* Set once: begun again in each round, it would never end among events that come more often. */
		if (ms != r->tick_ms)
			set_timer(r, ms);
		r->tick_ms = ms;
	} while (soon != atomic_load(&r->soon));
}

/* ---- serving ---------------------------------------------------------------------- */

void coll_reactor_kick(struct coll_reactor *r)
{
	coll_eventfd_raise(r->kick_fd);
}

static bool take(int fd)
{
	uint64_t count;

	return read(fd, &count, sizeof(count)) > 0;
}

static void tick(struct coll_reactor *r)
{
	if (!take(r->timer_fd))
		return;
	/* The timer's setting is unknown here: a thread that sets soon sets the timer without the lock, even after the
	 * flag was cleared. */
	r->tick_ms = UINT32_MAX;
	if (r->table->tick(r->inst, atomic_exchange(&r->soon, false)))
		atomic_store(&r->soon, true); /* the timer is adjusted at the end of the round */
}

static bool serve(struct coll_reactor *r)
{
	struct epoll_event ev[EVENTS];
	const int n = epoll_wait(r->epoll_fd, ev, EVENTS, 0);

	for (int i = 0; i < n; i++) {
		switch (ev[i].data.u64) {
		case TAG_TIMER: tick(r); break;
		case TAG_KICK: take(r->kick_fd); break;
		default: r->table->event(r->inst, ev[i].data.u64); break;
		}
	}
	r->table->after(r->inst);
	adjust_timer(r);
	return n > 0;
}

void coll_reactor_serve(struct coll_reactor *r)
{
	pthread_mutex_lock(&r->lock);
	serve(r);
	pthread_mutex_unlock(&r->lock);
}

bool coll_reactor_try(struct coll_reactor *r)
{
	bool any;

	if (pthread_mutex_trylock(&r->lock) != 0)
		return false;
	any = serve(r);
	pthread_mutex_unlock(&r->lock);
	return any;
}
