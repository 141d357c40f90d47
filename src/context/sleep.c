/*
 * Sleeping on the descriptors of a context, by several threads at once.
 *
 * No wake-up is lost. A thread first enters the list of sleepers. Then it arms the transports,
 * looks at what it waits for, and sleeps. The look finds any event before it. An event after the
 * arming writes wake_fd, so poll() returns. If another thread reads wake_fd first, that thread
 * writes the descriptors of all listed threads, this one included. Transports also cover data that
 * they take in without an event: a thread that makes progress for a channel while another is armed
 * writes wake_fd.
 *
 * coll_context_wake() reads the number of listed threads first. A sleeper enters the list and then
 * looks. A waker makes its change and then reads the number. Both orders are sequentially
 * consistent, so either the sleeper sees the change or the waker sees the sleeper.
 *
 * A wake-up may reach a thread that is already awake. Such a spurious wake-up costs one look.
 * Threads do not pass on a wake-up of their own descriptor, so wake-ups end.
 */
#include "context/sleep.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "context/context.h"
#include "context/crowd.h"
#include "context/yield.h"
#include "net/net.h"

/* A clock read costs as much as a few looks. A yield takes as long as several looks. */
enum { SPINS_PER_CLOCK = 64, YIELDS_PER_CLOCK = 4, SPINS_IN_CROWD = 4, SPINS_AMONG_MANY = 32 };

struct coll_sleeper {
	struct coll_sleeper *next;
	int fd;
};

void coll_sleepers_init(struct coll_sleepers *s)
{
	pthread_mutex_init(&s->lock, NULL);
	s->asleep = s->spare = NULL;
}

void coll_sleepers_fini(struct coll_sleepers *s)
{
	while (s->spare) {
		struct coll_sleeper *me = s->spare;

		s->spare = me->next;
		coll_net->close(me->fd);
		free(me);
	}
	pthread_mutex_destroy(&s->lock);
}

static struct coll_sleeper *sleeper_new(void)
{
	struct coll_sleeper *me = malloc(sizeof(*me));

	if (!me)
		return NULL;
	me->fd = coll_net->eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (me->fd >= 0)
		return me;
	free(me);
	return NULL;
}

/* NULL: no memory or no descriptor is left. Then a wake-up can be lost, and the sleep lasts its
 * full time. */
static struct coll_sleeper *enlist(struct coll_sleepers *s)
{
	struct coll_sleeper *me;

	pthread_mutex_lock(&s->lock);
	me = s->spare;
	if (me)
		s->spare = me->next;
	else
		me = sleeper_new();
	if (me) {
		me->next = s->asleep;
		s->asleep = me;
		atomic_fetch_add(&s->count, 1);
		atomic_thread_fence(memory_order_seq_cst);
	}
	pthread_mutex_unlock(&s->lock);
	return me;
}

static void delist(struct coll_sleepers *s, struct coll_sleeper *me)
{
	struct coll_sleeper **at = &s->asleep;
	uint64_t count;

	if (!me)
		return;
	pthread_mutex_lock(&s->lock);
	while (*at != me)
		at = &(*at)->next;
	*at = me->next;
	atomic_fetch_sub(&s->count, 1);
	if (coll_net->read(me->fd, &count, sizeof(count)) < 0) {
		/* No thread has written it. */
	}
	me->next = s->spare;
	s->spare = me;
	pthread_mutex_unlock(&s->lock);
}

static void wake_others(struct coll_sleepers *s, const struct coll_sleeper *me)
{
	const uint64_t one = 1;

	pthread_mutex_lock(&s->lock);
	for (const struct coll_sleeper *o = s->asleep; o; o = o->next)
		if (o != me && coll_net->write(o->fd, &one, sizeof(one)) < 0) {
			/* The counter is full, so the descriptor is readable already. */
		}
	pthread_mutex_unlock(&s->lock);
}

bool coll_context_yield(struct coll_context *ctx)
{
	const uint64_t before = coll_clock_ns();

	if (atomic_load_explicit(&ctx->crowd.now, memory_order_relaxed) && !coll_crowd_is_over(ctx, before))
		return false;
	return coll_yield_by_clock(ctx, before);
}

/* In a crowd the others may be on cores at this moment, so there is a short look before a sleep; longer where there are
 * more ranks than cores, who would wake each other often. */
bool coll_context_pause(struct coll_context *ctx, bool spin, unsigned *looks, bool *must_sleep)
{
	const bool crowded = atomic_load_explicit(&ctx->crowd.now, memory_order_relaxed);
	const unsigned spins = ctx->dedicated_cores ? SPINS_IN_CROWD : SPINS_AMONG_MANY;

	*must_sleep = false;
	if (spin || (crowded && (*looks + 1) % spins != 0)) {
		coll_cpu_relax();
		return ++*looks % SPINS_PER_CLOCK == 0;
	}
	/* A crowd that is over shows by the next looks, not by a yield, which would cost a time slice if it is not. */
	*must_sleep =
	        !(crowded && ctx->dedicated_cores ? coll_crowd_is_over(ctx, coll_clock_ns()) : coll_context_yield(ctx));
	return ++*looks % YIELDS_PER_CLOCK == 0 || *must_sleep;
}

bool coll_context_spun(const struct coll_context *ctx, uint64_t for_ns)
{
	return for_ns >= (uint64_t)ctx->settings.spin_us * 1000 * ctx->spin_scale;
}

int coll_context_nap_ms(uint64_t idle_ns)
{
	/* An event that is only a little late is likely to come soon. */
	return idle_ns < COLL_DELAY_NS(NAP_LONG_AFTER) ? COLL_DELAY_NAP_SHORT_MS : COLL_DELAY_NAP_LONG_MS;
}

void coll_context_wake(struct coll_context *ctx)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(&ctx->sleepers.count) > 0)
		wake_others(&ctx->sleepers, NULL);
}

bool coll_context_sleep(struct coll_context *ctx, int ms, bool (*look)(void *arg), void *arg)
{
	struct pollfd p[3 + COLL_TRANSPORTS] = {{.fd = ctx->wake_fd, .events = POLLIN}};
	bool armed[COLL_TRANSPORTS] = {false};
	struct coll_sleeper *me = enlist(&ctx->sleepers);
	bool quiet = true, signalled = false;
	uint64_t count;

	p[1] = (struct pollfd){.fd = me ? me->fd : -1, .events = POLLIN};
	/* Without a service thread, waiting threads do its work. */
	p[2] = (struct pollfd){.fd = ctx->control && !ctx->service_running ? coll_control_fd(ctx->control) : -1,
	                       .events = POLLIN};
	for (int i = 0; i < ctx->ntransports; i++) {
		struct coll_opened_transport *w = &ctx->transports[i];

		p[3 + i].fd = -1;
		if (!w->active || !quiet)
			continue;
		/* Disarm only a transport whose arm() returned OK. An extra disarm would make the
		 * peers send wake-ups for ever. */
		quiet = armed[i] = w->table.arm(w->inst) == COLL_OK;
		p[3 + i] = (struct pollfd){.fd = w->table.poll_fd(w->inst), .events = POLLIN};
	}
	if (quiet && !look(arg)) {
		int ready;

		atomic_fetch_add_explicit(&ctx->sleeps, 1, memory_order_relaxed);
		ready = coll_net->poll(p, (nfds_t)(3 + ctx->ntransports), ms);

		signalled = ready < 0 && errno == EINTR;
		/* A lower limit of descriptors refuses it: the caller looks again soon. */
		if (ready < 0 && !signalled)
			coll_net->sleep(&(struct timespec){.tv_nsec = COLL_DELAY_NS(SERVICE_BLIND)}, NULL);
		if (ready > 0 && (p[0].revents & POLLIN) && coll_net->read(ctx->wake_fd, &count, sizeof(count)) > 0)
			wake_others(&ctx->sleepers, me);
	}
	for (int i = 0; i < ctx->ntransports; i++)
		if (armed[i])
			ctx->transports[i].table.disarm(ctx->transports[i].inst);
	delist(&ctx->sleepers, me);
	return signalled;
}
