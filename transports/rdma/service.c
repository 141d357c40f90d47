/*
 * The service thread's work: connections, urgent notes, what calls left behind, and
 * whether idle peers are still there. Everything runs under service_lock and is bounded.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "transports/rdma/rdma.h"

static void pursue_all(struct rdma_inst *in)
{
	struct rdma_link *l;

	if (atomic_load(&in->connecting) == 0)
		return;
	for (uint32_t i = 0; (l = coll_rdma_link_at(in, i)); i++) {
		pthread_mutex_lock(&l->lock);
		coll_rdma_cm_pursue(l, coll_clock_ns());
		coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->lock);
	}
}

/* An event disarms its queue. Armed again first and polled then, nothing is missed. */
int coll_rdma_service_completions(struct rdma_inst *in)
{
	struct ibv_cq *cq;
	void *context;
	int happened = 0;

	while (in->v.ibv_get_cq_event(in->completions, &cq, &context) == 0) {
		struct rdma_link *l = context;

		in->v.ibv_ack_cq_events(cq, 1);
		pthread_mutex_lock(&l->lock);
		if (l->cq == cq) {
			ibv_req_notify_cq(cq, 1);
			happened += coll_rdma_rx_poll(l);
		}
		coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->lock);
	}
	return happened;
}

/* What calls left behind when they returned. The flag is taken down before the queues
 * are looked at: whoever queues afterwards raises it, and sets the timer, again. */
static void flush_idle(struct rdma_inst *in)
{
	struct rdma_link *l;

	if (!atomic_exchange(&in->flush_timer, false) && atomic_load(&in->lingering) == 0)
		return;
	for (uint32_t i = 0; (l = coll_rdma_link_at(in, i)); i++) {
		pthread_mutex_lock(&l->lock);
		if (l->state == LINK_UP && (l->queue_count > 0 || l->due > 0 || l->lingering)) {
			coll_rdma_tx_credits(l);
			coll_rdma_tx_push(l);
			coll_rdma_rx_poll(l);
		}
		coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->lock);
	}
}

/* A link on which nothing has completed since the last look writes nothing, visibly:
 * the device of a peer that is there acknowledges it, one that is not ends the link. */
static void ask_for_life(struct rdma_inst *in, uint64_t now)
{
	struct rdma_link *l;

	if (now - in->liveness_ns < RDMA_TICK_MS * UINT64_C(1000000) / 2)
		return;
	in->liveness_ns = now;
	for (uint32_t i = 0; (l = coll_rdma_link_at(in, i)); i++) {
		pthread_mutex_lock(&l->lock);
		if (l->state == LINK_UP) {
			coll_rdma_rx_poll(l);
			if (l->moved == l->moved_at_tick)
				coll_rdma_tx_ping(l);
			l->moved_at_tick = l->moved;
		}
		coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->lock);
	}
}

/* ---- the timer ------------------------------------------------------------------- */

static void set_timer(struct rdma_inst *in, uint32_t ms)
{
	const struct itimerspec t = {.it_interval.tv_nsec = ms * 1000000L, .it_value.tv_nsec = ms * 1000000L};

	timerfd_settime(in->timer_fd, 0, &t, NULL);
}

void coll_rdma_service_flush_soon(struct rdma_inst *in)
{
	if (!atomic_load_explicit(&in->flush_timer, memory_order_relaxed) && !atomic_exchange(&in->flush_timer, true))
		set_timer(in, RDMA_TICK_FLUSH_MS);
}

static uint32_t wanted_tick(struct rdma_inst *in, bool flush)
{
	if (flush || atomic_load(&in->lingering) > 0)
		return RDMA_TICK_FLUSH_MS;
	if (atomic_load(&in->connecting) > 0 || in->corpses)
		return RDMA_RETRY_MS;
	return atomic_load(&in->up) > 0 ? RDMA_TICK_MS : 0;
}

static void adjust_timer(struct rdma_inst *in)
{
	bool flush;

	do {
		flush = atomic_load(&in->flush_timer);
		const uint32_t ms = wanted_tick(in, flush);

		if (ms != in->tick_ms || flush)
			set_timer(in, ms);
		in->tick_ms = flush ? RDMA_TICK_FLUSH_MS : ms;
	} while (flush != atomic_load(&in->flush_timer));
}

static bool empty(int fd)
{
	uint64_t count;

	return read(fd, &count, sizeof(count)) < 0;
}

/* ---- service ---------------------------------------------------------------------- */

/* service_lock held. */
static bool serve(struct rdma_inst *in)
{
	struct epoll_event ev[8];
	const int n = epoll_wait(in->service_epoll, ev, 8, 0);

	for (int i = 0; i < n; i++) {
		if (ev[i].data.fd == in->kick_fd) {
			empty(in->kick_fd);
		} else if (ev[i].data.fd == in->timer_fd) {
			if (empty(in->timer_fd))
				continue;
			flush_idle(in);
			ask_for_life(in, coll_clock_ns());
		} else if (ev[i].data.fd == in->cm->fd) {
			coll_rdma_cm_events(in);
		} else {
			coll_rdma_service_completions(in);
		}
	}
	pursue_all(in);
	coll_rdma_link_compact(in);
	coll_rdma_cm_corpses(in, false);
	adjust_timer(in);
	return n > 0;
}

void coll_rdma_service(void *inst)
{
	struct rdma_inst *in = inst;

	pthread_mutex_lock(&in->service_lock);
	serve(in);
	pthread_mutex_unlock(&in->service_lock);
	coll_rdma_link_notify(in);
}

bool coll_rdma_service_try(struct rdma_inst *in)
{
	bool any;

	if (pthread_mutex_trylock(&in->service_lock) != 0)
		return false;
	any = serve(in);
	pthread_mutex_unlock(&in->service_lock);
	return any;
}
