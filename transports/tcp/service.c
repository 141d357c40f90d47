/*
 * The service thread's work: events of service_epoll and the timer. Watches
 * links for their end (no event per frame), other hosts for their silence, and
 * sends what a call left behind when it returned. Everything runs under
 * service.lock and is bounded.
 */
#include "transports/tcp/service.h"
#include "transports/common/reach.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "tcp.h"
#include "transports/tcp/accept.h"
#include "transports/tcp/connect.h"
#include "transports/tcp/link.h"
#include "transports/tcp/rails.h"
#include "transports/tcp/rx.h"
#include "transports/tcp/tx.h"

static void pursue_all(struct tcp_inst *in)
{
	struct tcp_link *l;

	if (atomic_load(&in->connecting) == 0)
		return;
	for (uint32_t i = 0; (l = tcp_link_at(in, i)) != NULL; i++)
		coll_tcp_connect_retry(l, coll_clock_ns());
}

/* ---- links that are up -------------------------------------------------------------- */

/* The stream ends or broke: read what is left, then the end itself. */
static void link_event(struct tcp_inst *in, uint64_t tag)
{
	struct tcp_link *l = coll_tcp_link_lock(in, tag);

	if (l == NULL)
		return;
	while (l->state == LINK_UP && coll_tcp_rx(l, 1 << 20) > 0)
		;
	coll_tcp_link_work(l);
	pthread_mutex_unlock(&l->base.lock);
}

/* TCP waits longer and longer between its tries, so that a link may be silent when the network is back. */
static bool out_of_reach(const struct tcp_link *l, uint64_t now, uint64_t heard_ns)
{
	const uint64_t limit_ns = l->inst->unreachable_ns;

	return coll_reach_is_over(l->unanswered_ns + limit_ns, limit_ns, heard_ns, now);
}

/* No lock of a link is held. */
static uint64_t heard_elsewhere(const struct tcp_link *l, uint64_t now)
{
	const struct tcp_inst *in = l->inst;

	if (l->unanswered_ns == 0)
		return 0;
	return coll_reach_heard_ns(&in->env, &l->base.peer, l->unanswered_ns + in->unreachable_ns, in->unreachable_ns,
	                           now);
}

/*
 * Whether the other host still acknowledges. An idle link sends a NOP, so that
 * there is something to acknowledge; the peer's kernel does that even if the
 * process is stopped or busy, so this asks for the host and the way to it only.
 */
static void check_host(struct tcp_link *l, uint64_t now, uint64_t heard_ns)
{
	struct coll_tcp_head nop = {.type = COLL_TCP_NOP};
	const uint32_t waited_ms = (uint32_t)((now - l->unanswered_ns) / 1000000);
	struct tcp_info info;
	socklen_t len = sizeof(info);

	memset(&info, 0, sizeof(info));
	if (getsockopt(l->fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
		return;
	if (info.tcpi_unacked == 0 && info.tcpi_probes == 0) {
		l->unanswered_ns = 0;
		if (l->moved == l->moved_at_tick && l->queue_count == 0) {
			coll_tcp_tx_control(l, &nop);
			l->unanswered_ns = now;
		}
	} else if (l->unanswered_ns == 0 || info.tcpi_last_ack_recv < waited_ms) {
		l->unanswered_ns = now;
	} else if (!l->several && out_of_reach(l, now, heard_ns)) {
		coll_tcp_link_fail(l, COLL_ERR_PEER_SILENT, "host unreachable: no acknowledgement for %u ms",
		                   waited_ms);
	}
	l->moved_at_tick = l->moved;
	/* Of several, rails.c judges by the others. */
	l->unreached = l->unanswered_ns != 0 && out_of_reach(l, now, heard_ns);
	l->silent = l->unanswered_ns != 0 && now >= l->unanswered_ns + COLL_DELAY_NS(TCP_RAIL_SILENT);
	if (l->silent && l->several)
		coll_link_rails_notice(&l->inst->links);
}

static void check_hosts(struct tcp_inst *in, uint64_t now, bool busy)
{
	struct tcp_link *l;

	/* Other reasons may make the timer tick faster. */
	if (now - in->liveness_ns < COLL_DELAY_NS(TCP_TICK_REMOTE) / 2)
		return;
	in->liveness_ns = now;
	in->remote_count = 0;
	for (uint32_t i = 0; (l = tcp_link_at(in, i)) != NULL; i++) {
		const uint64_t heard_ns = heard_elsewhere(l, now);

		pthread_mutex_lock(&l->base.lock);
		if (l->state == LINK_UP && !l->near) {
			in->remote_count++;
			check_host(l, now, heard_ns);
			if (!busy)
				coll_tcp_rx(l, 1 << 20);
			coll_tcp_link_work(l);
		}
		pthread_mutex_unlock(&l->base.lock);
	}
}

/* Bytes that a call left in the queue when it returned go out from here, unless
 * calls are running; true if some are left. */
static bool flush_idle(struct tcp_inst *in, bool busy)
{
	bool left = false;
	struct tcp_link *l;

	for (uint32_t i = 0; (l = tcp_link_at(in, i)) != NULL; i++) {
		pthread_mutex_lock(&l->base.lock);
		if (l->state == LINK_UP && (l->queue_count > 0 || l->asked)) {
			if (!busy)
				coll_tcp_tx_asked(l);
			if (!busy)
				coll_tcp_tx_flush(l);
			left |= l->queue_count > 0 || l->asked;
			coll_tcp_link_work(l);
		}
		pthread_mutex_unlock(&l->base.lock);
	}
	return left;
}

/* Nobody reads the sockets any more: their ends are to be told of again. */
static void hear_all(struct tcp_inst *in)
{
	struct tcp_link *l;

	for (uint32_t i = 0; (l = tcp_link_at(in, i)) != NULL; i++) {
		pthread_mutex_lock(&l->base.lock);
		if (l->state == LINK_UP)
			coll_tcp_link_hear(l);
		pthread_mutex_unlock(&l->base.lock);
	}
}

/* ---- what the reactor calls ----------------------------------------------------------- */

static uint32_t interval_ms(void *inst)
{
	const struct tcp_inst *in = inst;

	if (atomic_load(&in->connecting) > 0)
		return COLL_DELAY_TCP_AGAIN_MS;
	if (in->pending_count > 0 || in->accept_off)
		return COLL_DELAY_TCP_TICK_PENDING_MS;
	if (atomic_load(&in->deaf) > 0)
		return COLL_DELAY_TCP_TICK_DEAF_MS;
	return in->remote_count > 0 ? COLL_DELAY_TCP_TICK_REMOTE_MS : 0;
}

static bool tick(void *inst, bool soon)
{
	struct tcp_inst *in = inst;
	const uint64_t now = coll_clock_ns();
	const uint64_t calls = atomic_load_explicit(&in->progress_calls, memory_order_relaxed);
	const bool busy = calls != in->progress_at_tick;
	bool left;

	in->progress_at_tick = calls;
	for (int i = 0; i < TCP_PENDING_MAX && in->pending_count > 0; i++)
		if (in->pending[i].fd >= 0 && now >= in->pending[i].deadline_ns)
			coll_tcp_accept_refuse(in, &in->pending[i]);
	if (in->accept_off)
		in->accept_off = !coll_tcp_accept_watch(in, EPOLLIN, EPOLL_CTL_MOD);
	left = soon && flush_idle(in, busy);
	check_hosts(in, now, busy);
	if (!busy && atomic_load(&in->deaf) > 0)
		hear_all(in);
	return left;
}

static void event(void *inst, uint64_t tag)
{
	struct tcp_inst *in = inst;
	const uint32_t index = (uint32_t)tag;

	switch (tag >> 60) {
	case TAG_LISTEN: coll_tcp_accept_new(in, index); break;
	case TAG_PENDING:
		if (index < TCP_PENDING_MAX && in->pending[index].fd >= 0 &&
		    tcp_tag(TAG_PENDING, in->pending[index].generation, index) == tag)
			coll_tcp_accept_read(in, &in->pending[index]);
		break;
	case TAG_ATTEMPT: coll_tcp_connect_event(in, tag); break;
	case TAG_LINK: link_event(in, tag); break;
	default: break;
	}
}

static void after(void *inst)
{
	pursue_all(inst);
	coll_tcp_link_compact(inst);
}

const struct coll_reactor_table coll_tcp_service_table = {event, tick, after, interval_ms};

void coll_tcp_service(void *inst)
{
	struct tcp_inst *in = inst;

	coll_reactor_serve(&in->service);
	coll_tcp_rails_tear(in);
	coll_link_table_notify(&in->links, &in->env, "tcp");
}
