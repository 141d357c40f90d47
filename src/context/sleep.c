/*
 * Sleeping on the descriptors of a context, by several threads at once.
 *
 * No wake-up is lost. A thread adds itself to the list first, then arms the transports, then checks
 * what it waits for, then sleeps. The check finds an event before it. An event after
 * arming writes wake_fd. If this thread is in poll it sees that, unless another thread read
 * it before; that thread writes the descriptor of every listed thread, and this one
 * is listed. Transports may take in data without an event: a thread that makes progress
 * for a channel while another one is armed writes wake_fd.
 *
 * coll_context_wake() looks at the count of the listed first. Listing and the look after
 * it, changing and the look at the count: sequentially consistent on both sides, so
 * either the sleeper sees the change or the waker sees the sleeper.
 *
 * A ring may find a thread that was awake anyway: a spurious wake-up, which costs one
 * look. Rings are not passed on, so they end.
 */
#include "context/sleep.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "context/context.h"

/* A yield that long, for each rank beside this one on the core, has let somebody compute, who will go on doing so for
 * some times as long: no yields meanwhile. */
enum { SLICE_NS = 2000000, SLICES = 2 };

/* A clock costs as much as a few looks; a yield is some looks long. */
enum { SPINS_PER_CLOCK = 64, YIELDS_PER_CLOCK = 4 };

/* What is late by a little is likely to come soon. */
enum { NAP_SHORT_MS = 5, NAP_LONG_MS = 50 };
static const uint64_t IDLE_LONG_NS = 100000000;

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
		close(me->fd);
		free(me);
	}
	pthread_mutex_destroy(&s->lock);
}

static struct coll_sleeper *sleeper_new(void)
{
	struct coll_sleeper *me = malloc(sizeof(*me));

	if (!me)
		return NULL;
	me->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (me->fd >= 0)
		return me;
	free(me);
	return NULL;
}

/* NULL: no memory, or no descriptor left. Then a wake-up can be lost, and the sleep is
 * as long as it is. */
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
	if (read(me->fd, &count, sizeof(count)) < 0) {
		/* Nobody has rung. */
	}
	me->next = s->spare;
	s->spare = me;
	pthread_mutex_unlock(&s->lock);
}

static void ring_others(struct coll_sleepers *s, const struct coll_sleeper *me)
{
	const uint64_t one = 1;

	pthread_mutex_lock(&s->lock);
	for (const struct coll_sleeper *o = s->asleep; o; o = o->next)
		if (o != me && write(o->fd, &one, sizeof(one)) < 0) {
			/* The counter is full: it is readable already. */
		}
	pthread_mutex_unlock(&s->lock);
}

/* A yield costs nothing among ranks that wait for one another, and a time slice for each
 * thread that computes: with three of those on a core eight yields have taken 100 ms, which
 * a wake-up does in one slice. */
bool coll_context_yield(struct coll_context *ctx)
{
	const uint64_t before = coll_clock_ns();
	uint64_t now;

	if (before < atomic_load_explicit(&ctx->contended_until_ns, memory_order_relaxed))
		return false;
	sched_yield();
	now = coll_clock_ns();
	if (now - before < (uint64_t)SLICE_NS * ctx->core_sharers)
		return true;
	atomic_store_explicit(&ctx->contended_until_ns, now + SLICES * (now - before), memory_order_relaxed);
	return false;
}

bool coll_context_pause(struct coll_context *ctx, bool spin, unsigned *looks, bool *tired)
{
	*tired = false;
	if (spin) {
		coll_cpu_relax();
		return ++*looks % SPINS_PER_CLOCK == 0;
	}
	*tired = !coll_context_yield(ctx);
	return ++*looks % YIELDS_PER_CLOCK == 0 || *tired;
}

bool coll_context_spun(const struct coll_context *ctx, uint64_t for_ns)
{
	return for_ns >= (uint64_t)ctx->settings.spin_us * 1000 * ctx->spin_scale;
}

int coll_context_nap_ms(uint64_t idle_ns)
{
	return idle_ns < IDLE_LONG_NS ? NAP_SHORT_MS : NAP_LONG_MS;
}

void coll_context_wake(struct coll_context *ctx)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load(&ctx->sleepers.count) > 0)
		ring_others(&ctx->sleepers, NULL);
}

void coll_context_sleep(struct coll_context *ctx, int ms, bool (*look)(void *arg), void *arg)
{
	struct pollfd p[3 + COLL_TRANSPORTS_MAX] = {{.fd = ctx->wake_fd, .events = POLLIN}};
	bool armed[COLL_TRANSPORTS_MAX] = {false};
	struct coll_sleeper *me = enlist(&ctx->sleepers);
	bool quiet = true;
	uint64_t count;

	p[1] = (struct pollfd){.fd = me ? me->fd : -1, .events = POLLIN};
	/* Without a service thread whoever waits does its work. */
	p[2] = (struct pollfd){.fd = ctx->control && !ctx->service_running ? coll_control_fd(ctx->control) : -1,
	                       .events = POLLIN};
	for (int i = 0; i < ctx->ntransports; i++) {
		struct coll_opened_transport *w = &ctx->transports[i];

		p[3 + i].fd = -1;
		if (!w->active || !quiet)
			continue;
		/* Armed only when it says OK: to disarm what is not armed would leave the
		 * peers' bells ringing for ever. */
		quiet = armed[i] = w->table.arm(w->inst) == COLL_OK;
		p[3 + i] = (struct pollfd){.fd = w->table.poll_fd(w->inst), .events = POLLIN};
	}
	if (quiet && !look(arg) && poll(p, (nfds_t)(3 + ctx->ntransports), ms) > 0 && (p[0].revents & POLLIN) &&
	    read(ctx->wake_fd, &count, sizeof(count)) > 0)
		ring_others(&ctx->sleepers, me);
	for (int i = 0; i < ctx->ntransports; i++)
		if (armed[i])
			ctx->transports[i].table.disarm(ctx->transports[i].inst);
	delist(&ctx->sleepers, me);
}
