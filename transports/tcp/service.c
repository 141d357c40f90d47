/*
 * The service thread's work: events of service_epoll and the timer. Watches
 * links for their end (no event per frame), other hosts for their silence, and
 * sends what a call left behind when it returned. Everything runs under
 * service_lock and is bounded.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "tcp.h"

static struct tcp_link *link_at(struct tcp_inst *in, uint32_t i)
{
	struct tcp_link *l;

	pthread_mutex_lock(&in->lock);
	l = i < in->link_count ? in->links[i] : NULL;
	pthread_mutex_unlock(&in->lock);
	return l;
}

static void pursue_all(struct tcp_inst *in)
{
	struct tcp_link *l;

	if (atomic_load(&in->connecting) == 0)
		return;
	for (uint32_t i = 0; (l = link_at(in, i)) != NULL; i++)
		coll_tcp_dial_pursue(l, coll_clock_ns());
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
	pthread_mutex_unlock(&l->lock);
}

/*
 * Whether the other host still acknowledges. An idle link sends a NOP, so that
 * there is something to acknowledge; the peer's kernel does that even if the
 * process is stopped or busy, so this asks for the host and the way to it only.
 */
static void check_host(struct tcp_link *l, uint64_t now)
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
	} else if (waited_ms >= TCP_UNANSWERED_MS) {
		coll_tcp_link_fail(l, COLL_ERR_PEER_SILENT, "host unreachable: no acknowledgement for %u ms",
		                   waited_ms);
	}
	l->moved_at_tick = l->moved;
}

static void check_hosts(struct tcp_inst *in, uint64_t now, bool busy)
{
	struct tcp_link *l;

	/* Other reasons may make the timer tick faster. */
	if (now - in->liveness_ns < TCP_TICK_REMOTE_MS * UINT64_C(1000000) / 2)
		return;
	in->liveness_ns = now;
	in->remote_count = 0;
	for (uint32_t i = 0; (l = link_at(in, i)) != NULL; i++) {
		pthread_mutex_lock(&l->lock);
		if (l->state == LINK_UP && !l->near) {
			in->remote_count++;
			check_host(l, now);
			if (!busy)
				coll_tcp_rx(l, 1 << 20);
			coll_tcp_link_work(l);
		}
		pthread_mutex_unlock(&l->lock);
	}
}

/*
 * Bytes that a call left in the queue when it returned go out from here, unless
 * calls are running. The flag is taken down before the queues are looked at:
 * whoever queues afterwards raises it, and sets the timer, again.
 */
static void flush_idle(struct tcp_inst *in, bool busy)
{
	bool left = false;
	struct tcp_link *l;

	if (!atomic_exchange(&in->flush_timer, false))
		return;
	for (uint32_t i = 0; (l = link_at(in, i)) != NULL; i++) {
		pthread_mutex_lock(&l->lock);
		if (l->state == LINK_UP && l->queue_count > 0) {
			if (!busy)
				coll_tcp_tx_flush(l);
			left |= l->queue_count > 0;
			coll_tcp_link_work(l);
		}
		pthread_mutex_unlock(&l->lock);
	}
	if (left)
		atomic_store(&in->flush_timer, true);
}

/* ---- the timer ------------------------------------------------------------------------ */

static void set_timer(struct tcp_inst *in, uint32_t ms)
{
	const struct itimerspec t = {.it_interval.tv_nsec = ms * 1000000L, .it_value.tv_nsec = ms * 1000000L};

	timerfd_settime(in->timer_fd, 0, &t, NULL);
}

void coll_tcp_service_flush_soon(struct tcp_inst *in)
{
	if (!atomic_exchange(&in->flush_timer, true))
		set_timer(in, TCP_TICK_FLUSH_MS);
}

static uint32_t wanted_tick(struct tcp_inst *in, bool flush)
{
	if (flush)
		return TCP_TICK_FLUSH_MS;
	if (atomic_load(&in->connecting) > 0)
		return TCP_RETRY_MS;
	if (in->pending_count > 0 || in->accept_off)
		return TCP_TICK_PENDING_MS;
	return in->remote_count > 0 ? TCP_TICK_REMOTE_MS : 0;
}

static void adjust_timer(struct tcp_inst *in)
{
	bool flush;

	do {
		flush = atomic_load(&in->flush_timer);
		const uint32_t ms = wanted_tick(in, flush);

		if (ms != in->tick_ms || flush)
			set_timer(in, ms);
		in->tick_ms = flush ? TCP_TICK_FLUSH_MS : ms;
	} while (flush != atomic_load(&in->flush_timer));
}

static void tick(struct tcp_inst *in)
{
	const uint64_t now = coll_clock_ns();
	const uint64_t calls = atomic_load_explicit(&in->progress_calls, memory_order_relaxed);
	const bool busy = calls != in->progress_at_tick;
	uint64_t times;

	if (read(in->timer_fd, &times, sizeof(times)) < 0)
		return;
	in->progress_at_tick = calls;
	for (int i = 0; i < TCP_PENDING_MAX && in->pending_count > 0; i++)
		if (in->pending[i].fd >= 0 && now >= in->pending[i].deadline_ns)
			coll_tcp_door_turn_away(in, &in->pending[i]);
	if (in->accept_off)
		in->accept_off =
		        !coll_tcp_watch_fd(in, in->listen_fd, EPOLLIN, tcp_tag(TAG_LISTEN, 0, 0), EPOLL_CTL_MOD);
	flush_idle(in, busy);
	check_hosts(in, now, busy);
}

/* ---- service --------------------------------------------------------------------------- */

static void dispatch(struct tcp_inst *in, uint64_t tag)
{
	const uint32_t index = (uint32_t)tag;
	uint64_t times;

	switch (tag >> 60) {
	case TAG_LISTEN: coll_tcp_door_accept(in); break;
	case TAG_KICK:
		if (read(in->kick_fd, &times, sizeof(times)) < 0)
			break;
		break;
	case TAG_TIMER: tick(in); break;
	case TAG_PENDING:
		if (index < TCP_PENDING_MAX && in->pending[index].fd >= 0 &&
		    tcp_tag(TAG_PENDING, in->pending[index].generation, index) == tag)
			coll_tcp_door_hear(in, &in->pending[index]);
		break;
	case TAG_ATTEMPT: coll_tcp_dial_event(in, tag); break;
	case TAG_LINK: link_event(in, tag); break;
	default: break;
	}
}

/* service_lock held. */
static bool serve(struct tcp_inst *in)
{
	struct epoll_event ev[TCP_EVENTS];
	const int n = epoll_wait(in->service_epoll, ev, TCP_EVENTS, 0);

	for (int i = 0; i < n; i++)
		dispatch(in, ev[i].data.u64);
	pursue_all(in);
	coll_tcp_link_compact(in);
	adjust_timer(in);
	return n > 0;
}

void coll_tcp_service(void *inst)
{
	struct tcp_inst *in = inst;

	pthread_mutex_lock(&in->service_lock);
	serve(in);
	pthread_mutex_unlock(&in->service_lock);
	coll_tcp_link_notify(in);
}

bool coll_tcp_service_try(struct tcp_inst *in)
{
	bool any;

	if (pthread_mutex_trylock(&in->service_lock) != 0)
		return false;
	any = serve(in);
	pthread_mutex_unlock(&in->service_lock);
	return any;
}
