/*
 * The tcp transport: a socket per pair of processes, or several, IPv4 and IPv6. This file
 * has the table, the life of an instance, progress and sleeping; tcp.h and
 * docs/design/tcp.md describe the rest.
 */
#include "tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/config.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "base/link_rates.h"
#include "base/log.h"
#include "transport/transport.h"
#include "transports/tcp/accept.h"
#include "transports/tcp/address.h"
#include "transports/tcp/channel.h"
#include "transports/tcp/check.h"
#include "transports/tcp/counts.h"
#include "transports/tcp/link.h"
#include "transports/tcp/pairs.h"
#include "transports/tcp/rails.h"
#include "transports/tcp/rx.h"
#include "transports/tcp/service.h"
#include "transports/tcp/tx.h"

enum { RX_BUDGET = 1 << 20, BACKLOG = 4096 };

/* ---- open -------------------------------------------------------------- */

/* "first-last"; the empty text is 0-0, any port. */
static bool parse_range(const char *text, unsigned *first, unsigned *last)
{
	char end;

	*first = *last = 0;
	if (text[0] == '\0')
		return true;
	return sscanf(text, "%u-%u%c", first, last, &end) == 2 && *first > 0 && *first <= *last && *last <= 65535;
}

/* Of sockets that will be accepted. What the system refuses is as if it had not been asked for. */
static void inherit_control(struct tcp_inst *in)
{
	const int fd = in->listeners.fd[0];
	socklen_t len = sizeof(in->system_control) - 1;

	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, in->system_control, &len) != 0)
		in->system_control[0] = '\0';
	if (!coll_tcp_link_control(in, fd, TCP_PATH_UNKNOWN) && in->congestion[0] != '\0') {
		tcp_log(in, COLL_LOG_WARN, "[COLL-6102] tcp: COLL_TCP_CONGESTION=%s: %s: continuing without it",
		        in->congestion, coll_errno_text(errno).text);
		in->congestion[0] = '\0';
	}
	for (int i = 0; i < in->listeners.count; i++)
		coll_tcp_link_control(in, in->listeners.fd[i], TCP_PATH_UNKNOWN);
}

/* Accepted sockets inherit them. */
static void set_buffers(void *arg, int fd)
{
	coll_tcp_link_prepare(arg, fd);
}

/* At what is announced, where that was chosen or will be confined; else one socket takes every address. */
static coll_status open_listeners(struct tcp_inst *in)
{
	const char *range = in->env.setting(in->env.ctx, "COLL_PORT_RANGE");
	const bool named = in->env.setting(in->env.ctx, "COLL_INTERFACE")[0];
	const bool chosen = named || in->env.one_host || in->env.sole;
	/* Processes of one host start at different places of the range. */
	struct coll_listen_how how = {
	        .start = (unsigned)getpid(), .backlog = BACKLOG, .prepare = set_buffers, .arg = in};
	struct coll_ips ips;

	if (!parse_range(range, &how.first, &how.last)) {
		tcp_log(in, COLL_LOG_ERROR, "[COLL-6105] tcp: COLL_PORT_RANGE=%s is not first-last", range);
		return COLL_ERR_CONFIG;
	}
	coll_tcp_address_ips(&in->address, &ips);
	if (chosen)
		how.at = &ips;
	if (named && ips.count > COLL_LISTENERS_MAX)
		tcp_log(in, COLL_LOG_WARN, "[COLL-6110] tcp: more than %d addresses: ranks listen at all of this host",
		        COLL_LISTENERS_MAX);
	if (!coll_listeners_open(&in->listeners, &how)) {
		coll_errno_keep("listen");
		tcp_log(in, COLL_LOG_ERROR, "[COLL-6104] tcp: no port to listen on%s%s: %s",
		        range[0] ? " in COLL_PORT_RANGE=" : "", range, coll_errno_text(errno).text);
		return COLL_ERR_SYSTEM;
	}
	inherit_control(in);
	return coll_tcp_address_listens(&in->address, in->listeners.port, in->listeners.ip6);
}

/* Other hosts may have an interface that this one lacks. */
static void read_rates(const struct tcp_inst *in, struct coll_tcp_allowed *allowed)
{
	char why[160];
	/* Checked when the communicator was made. */
	const int rates =
	        coll_link_rates_parse(in->env.setting(in->env.ctx, "COLL_LINK_RATES"), allowed->rate, why, sizeof(why));

	allowed->rates = rates > 0 ? rates : 0;
	for (int i = 0; i < rates; i++)
		if (if_nametoindex(allowed->rate[i].name) == 0)
			tcp_log(in, COLL_LOG_INFO, "tcp: COLL_LINK_RATES: this host has no interface %s",
			        allowed->rate[i].name);
}

static coll_status find_address(struct tcp_inst *in)
{
	struct coll_tcp_allowed allowed = {
	        .interfaces = in->env.setting(in->env.ctx, "COLL_INTERFACE"), .ip6 = true, .env = &in->env};
	char why[160] = "";
	coll_status status;

	allowed.loopback = in->env.one_host && !allowed.interfaces[0];
	read_rates(in, &allowed);
	in->address.id = in->env.self;
	status = coll_tcp_address_local(&in->address, &allowed, why, sizeof(why));
	if (status != COLL_OK)
		tcp_log(in, COLL_LOG_ERROR, "[COLL-6109] tcp: %s", why);
	return status;
}

static coll_status open_descriptors(struct tcp_inst *in)
{
	in->data_epoll = COLL_FD(epoll_create1(EPOLL_CLOEXEC));
	in->reserve_fd = COLL_FD(open("/dev/null", O_RDONLY | O_CLOEXEC));
	if (in->data_epoll < 0 || in->reserve_fd < 0 || !coll_reactor_open(&in->service) ||
	    !coll_tcp_accept_watch(in, EPOLLIN, EPOLL_CTL_ADD)) {
		tcp_log(in, COLL_LOG_ERROR, "[COLL-6106] tcp: cannot open an instance: %s",
		        coll_errno_text(errno).text);
		return COLL_ERR_SYSTEM;
	}
	return COLL_OK;
}

static void read_settings(struct tcp_inst *in)
{
	const char *sockets = in->env.setting(in->env.ctx, "COLL_TCP_SOCKETS");
	const char *buffer = in->env.setting(in->env.ctx, "COLL_TCP_BUFFER");
	size_t bytes = 0;
	const int timeout_ms = atoi(in->env.setting(in->env.ctx, "COLL_TIMEOUT_MS"));
	const int unreachable_ms = atoi(in->env.setting(in->env.ctx, "COLL_UNREACHABLE_MS"));

	in->timeout_ns = (timeout_ms > 0 ? (uint64_t)timeout_ms : 30000) * 1000000;
	in->unreachable_ns = (uint64_t)unreachable_ms * 1000000;
	if (unreachable_ms <= 0 || in->unreachable_ns > in->timeout_ns)
		in->unreachable_ns = in->timeout_ns;
	snprintf(in->congestion, sizeof(in->congestion), "%s", in->env.setting(in->env.ctx, "COLL_TCP_CONGESTION"));
	/* Looked at when the communicator was made. */
	coll_tcp_rails_parse(sockets, &in->sockets);
	if (coll_size_parse(buffer, &bytes) && bytes <= INT_MAX / 2)
		in->buffer_bytes = (int)bytes;
}

static void tcp_fini(void *inst);

static coll_status tcp_open(const struct coll_transport_env *env, void **inst)
{
	struct tcp_inst *in = calloc(1, sizeof(*in));
	coll_status status;

	if (in == NULL)
		return COLL_ERR_MEMORY;
	in->env = *env;
	in->data_epoll = in->reserve_fd = -1;
	coll_reactor_init(&in->service, &coll_tcp_service_table, in);
	coll_link_table_init(&in->links, sizeof(struct tcp_link), coll_tcp_link_begin, in);
	in->pending = calloc(TCP_PENDING_MAX, sizeof(*in->pending));
	status = in->pending != NULL ? COLL_OK : COLL_ERR_MEMORY;
	for (int i = 0; in->pending != NULL && i < TCP_PENDING_MAX; i++)
		in->pending[i].fd = -1;
	if (status == COLL_OK && !coll_random(in->nonces.key, sizeof(in->nonces.key))) {
		coll_errno_keep("getrandom");
		status = COLL_ERR_SYSTEM;
	}
	if (status == COLL_OK) {
		read_settings(in);
		coll_tcp_check_open(in);
		status = find_address(in);
	}
	if (status == COLL_OK)
		status = open_listeners(in);
	if (status == COLL_OK)
		status = open_descriptors(in);
	if (status != COLL_OK) {
		tcp_fini(in);
		return status;
	}
	*inst = in;
	return COLL_OK;
}

/* ---- close, fini --------------------------------------------------------- */

static void tcp_close(void *inst)
{
	struct tcp_inst *in = inst;

	coll_tcp_rails_settle(in);
	atomic_store(&in->closed, true);
	coll_reactor_kick(&in->service);
	coll_tcp_wake(in);
}

/* The handshakes of links that were closed while they connect. */
static void serve_all(void *inst)
{
	coll_reactor_try(&((struct tcp_inst *)inst)->service);
}

/* Whether a closed link still owes the peer bytes. */
static bool owes(struct coll_peer_link *base)
{
	struct tcp_link *l = (struct tcp_link *)base;
	int unsent = 0;
	bool more;

	pthread_mutex_lock(&l->base.lock);
	coll_tcp_tx_flush(l);
	coll_tcp_rx(l, RX_BUDGET);
	more = l->state == LINK_CONNECTING && l->base.lingering;
	more |= l->state == LINK_UP && (l->queue_count > 0 || (ioctl(l->fd, SIOCOUTQ, &unsent) == 0 && unsent > 0));
	pthread_mutex_unlock(&l->base.lock);
	return more;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		coll_fd_close(fd);
}

static void tcp_fini(void *inst)
{
	struct tcp_inst *in = inst;

	if (in == NULL)
		return;
	atomic_store(&in->closed, true);
	/* A peer that lives takes what was posted before the end. */
	coll_link_table_flush(&in->links, serve_all, owes, COLL_DELAY_TCP_FINI_MS);
	for (uint32_t i = 0; i < in->links.count; i++) {
		struct tcp_link *l = (struct tcp_link *)in->links.at[i];

		close_fd(l->attempt.fd);
		coll_tcp_link_free(l);
	}
	for (int i = 0; in->pending != NULL && i < TCP_PENDING_MAX; i++)
		close_fd(in->pending[i].fd);
	coll_listeners_close(&in->listeners);
	close_fd(in->data_epoll);
	close_fd(in->reserve_fd);
	coll_reactor_fini(&in->service);
	coll_link_table_fini(&in->links);
	free(in->pending);
	free(in->up);
	free(in);
}

/* Those that are here come over loopback first. */
static void tcp_confine(void *inst)
{
	struct tcp_inst *in = inst;

	pthread_mutex_lock(&in->service.lock);
	coll_listeners_keep_loopback(&in->listeners);
	in->accept_off = !coll_tcp_accept_watch(in, EPOLLIN, EPOLL_CTL_MOD); /* then the service tries again */
	pthread_mutex_unlock(&in->service.lock);
}

/* ---- facts ------------------------------------------------------------------ */

/* Loopback on a machine of 2026, for an all-reduce of 64 KiB to 1 MiB: a bare
 * exchange of S bytes takes 11 us and S / 8.5 GB/s there, one of 8 bytes 5 us. All ranks must return the
 * same values. */
static void tcp_caps(void *inst, struct coll_transport_caps *caps)
{
	*caps = (struct coll_transport_caps){
	        .latency_ns = 8000,
	        .overhead_ns = 1500,
	        .bytes_per_ns = 6,
	        .depth = 4,
	        .slot_bytes_max = 1 << 20,
	        .post_ref = true,
	        .recv_into = true,
	        .cross_host = true,
	        .streamed = true,
	        .slot_bytes_best = TCP_SLOT_BYTES,
	        .streams = ((const struct tcp_inst *)inst)->sockets,
	};
}

static coll_status tcp_address(void *inst, void *buf, size_t cap, size_t *len_bytes)
{
	struct tcp_inst *in = inst;
	const coll_status status = coll_tcp_address_encode(&in->address, buf, cap, len_bytes);

	/* What does not fit is not announced, and both ends of a link choose rails by what is. */
	if (status == COLL_OK && in->address.count > ((const unsigned char *)buf)[3])
		coll_tcp_address_reduce(&in->address, buf, *len_bytes);
	return status;
}

static bool tcp_reachable(void *inst, const void *address, size_t len_bytes, char *why, size_t why_bytes)
{
	struct tcp_inst *in = inst;
	struct coll_tcp_address peer;

	if (!coll_tcp_address_decode(&peer, address, len_bytes)) {
		snprintf(why, why_bytes, "the peer has no tcp address");
		return false;
	}
	coll_tcp_address_apart(&in->env, &in->address, &peer);
	return coll_tcp_address_reachable(&in->address, &peer, why, why_bytes);
}

static void tcp_path(void *inst, const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                     struct coll_transport_path *path)
{
	const struct tcp_inst *in = inst;
	struct coll_tcp_address x, y;
	struct coll_tcp_route route;

	const uint32_t round_trip_us = path->round_trip_us;

	*path = (struct coll_transport_path){.rails = 1};
	if (!coll_tcp_address_decode(&x, a, a_bytes) || !coll_tcp_address_decode(&y, b, b_bytes))
		return;
	coll_tcp_address_names(&x, &in->address);
	coll_tcp_address_apart(&in->env, &x, &y);
	coll_tcp_route_find(&x, &y, in->sockets, round_trip_us, &route);
	coll_tcp_route_path(&route, path);
}

/* ---- progress ------------------------------------------------------------------ */

/* Everything one link has to do; l->lock held, which is released. */
static int advance(struct tcp_link *l, bool readable)
{
	int happened = coll_tcp_tx_credits(l);

	if (l->queue_count > 0)
		happened += coll_tcp_tx_flush(l);
	if (readable)
		happened += coll_tcp_rx(l, RX_BUDGET);
	coll_tcp_tx_asked(l);
	coll_tcp_link_work(l);
	pthread_mutex_unlock(&l->base.lock);
	return happened;
}

static struct tcp_link *up_at(struct tcp_inst *in, uint32_t i)
{
	struct tcp_link *l;

	pthread_mutex_lock(&in->links.lock);
	l = i < in->up_count ? in->up[i] : NULL;
	pthread_mutex_unlock(&in->links.lock);
	return l;
}

/* No thread has slept for some reads: the socket can leave epoll. */
static void unwatch_unheard(struct tcp_link *l)
{
	if (l->state != LINK_UP || !l->watched || ++l->unheard < TCP_UNHEARD_MAX)
		return;
	l->unheard = 0;
	coll_tcp_link_unwatch(l);
}

/* With one or two links a read that finds nothing is cheaper than asking epoll. */
static int progress_few(struct tcp_inst *in)
{
	int happened = 0;

	for (uint32_t i = 0; i < TCP_DIRECT_LINKS; i++) {
		struct tcp_link *l = atomic_load_explicit(&in->direct[i], memory_order_acquire);

		if (l == NULL || pthread_mutex_trylock(&l->base.lock) != 0)
			continue;
		unwatch_unheard(l);
		happened += advance(l, true);
	}
	return happened;
}

/* Links that were few until now, or whose events a sleeper needs. */
static void watch_all(struct tcp_inst *in)
{
	struct tcp_link *l;

	if (atomic_load(&in->unwatched) == 0)
		return;
	for (uint32_t i = 0; (l = up_at(in, i)) != NULL; i++) {
		pthread_mutex_lock(&l->base.lock);
		if (l->state == LINK_UP)
			coll_tcp_link_watch(l);
		pthread_mutex_unlock(&l->base.lock);
	}
}

static int progress_many(struct tcp_inst *in)
{
	struct epoll_event ev[TCP_EVENTS];
	struct tcp_link *l;
	int happened = 0;

	watch_all(in);
	if (atomic_load_explicit(&in->working, memory_order_relaxed) > 0)
		for (uint32_t i = 0; (l = up_at(in, i)) != NULL; i++)
			if (pthread_mutex_trylock(&l->base.lock) == 0)
				happened += advance(l, false);
	const int n = epoll_wait(in->data_epoll, ev, TCP_EVENTS, 0);

	for (int i = 0; i < n; i++) {
		l = coll_tcp_link_lock(in, ev[i].data.u64);
		if (l != NULL)
			happened += advance(l, true);
	}
	return happened;
}

static int tcp_progress(void *inst)
{
	struct tcp_inst *in = inst;
	int happened;

	/* Only records that a thread was here: one of two simultaneous increments may get lost. */
	atomic_store_explicit(&in->progress_calls, atomic_load_explicit(&in->progress_calls, memory_order_relaxed) + 1,
	                      memory_order_relaxed);
	if (atomic_load_explicit(&in->up_count, memory_order_relaxed) > TCP_DIRECT_LINKS)
		happened = progress_many(in);
	else
		happened = progress_few(in);
	/* Connections are made here too, so that no service thread is needed for it. */
	if (atomic_load_explicit(&in->connecting, memory_order_relaxed) > 0)
		happened += coll_reactor_try(&in->service);
	if (atomic_load_explicit(&in->links.notices, memory_order_relaxed) > 0) {
		coll_tcp_rails_tear(in);
		coll_link_table_notify(&in->links, &in->env, "tcp");
	}
	return happened;
}

/* ---- sleeping -------------------------------------------------------------------- */

/* What would otherwise wait for the next progress goes out now, or has the data epoll
 * wake us when the socket takes bytes again. */
static void send_leftovers(struct tcp_inst *in)
{
	struct tcp_link *l;

	if (atomic_load(&in->working) == 0)
		return;
	for (uint32_t i = 0; (l = up_at(in, i)) != NULL; i++) {
		pthread_mutex_lock(&l->base.lock);
		coll_tcp_tx_credits(l);
		if (l->state == LINK_UP && l->queue_count > 0 && !l->want_out)
			coll_tcp_tx_want(l, true);
		coll_tcp_link_work(l);
		pthread_mutex_unlock(&l->base.lock);
	}
}

static void tcp_disarm(void *inst)
{
	atomic_fetch_sub(&((struct tcp_inst *)inst)->armed, 1);
}

/* With many links epoll is asked by those that are awake, too, and does not tell of less than the mark. */
static void settle_few(struct tcp_inst *in)
{
	const bool many = atomic_load_explicit(&in->up_count, memory_order_relaxed) > TCP_DIRECT_LINKS;
	struct tcp_link *l;

	for (uint32_t i = 0; i < TCP_DIRECT_LINKS && (l = up_at(in, i)) != NULL; i++) {
		if (pthread_mutex_trylock(&l->base.lock) != 0)
			continue;
		coll_tcp_rx_settle(l, many ? TCP_WAKE_MANY : TCP_WAKE_BYTES);
		pthread_mutex_unlock(&l->base.lock);
	}
}

static coll_status tcp_arm(void *inst)
{
	struct tcp_inst *in = inst;
	struct epoll_event ev;

	/* Armed before anything is looked at, here or by the caller: what comes from
	 * here on wakes. */
	atomic_fetch_add(&in->armed, 1);
	watch_all(in);
	send_leftovers(in);
	settle_few(in);
	if (atomic_load(&in->closed) || epoll_wait(in->data_epoll, &ev, 1, 0) > 0) {
		tcp_disarm(in);
		return COLL_AGAIN;
	}
	return COLL_OK;
}

static int tcp_poll_fd(void *inst)
{
	return ((struct tcp_inst *)inst)->data_epoll;
}

static int tcp_service_fd(void *inst)
{
	return ((struct tcp_inst *)inst)->service.epoll_fd;
}

const struct coll_transport coll_transport_tcp = {
        .size = sizeof(struct coll_transport),
        .name = "tcp",
        .ports = true,
        .open = tcp_open,
        .close = tcp_close,
        .fini = tcp_fini,
        .caps = tcp_caps,
        .address = tcp_address,
        .reachable = tcp_reachable,
        .link_open = coll_tcp_link_open,
        .link_close = coll_tcp_link_close,
        .link_status = coll_link_rails_status,
        .channel_open = coll_tcp_channel_open,
        .channel_close = coll_tcp_channel_close,
        .slot = coll_tcp_slot,
        .post = coll_tcp_post,
        .post_ref = coll_tcp_post_ref,
        .view = coll_tcp_view,
        .done = coll_tcp_done,
        .recv_into = coll_tcp_recv_into,
        .recv_through = coll_tcp_recv_through,
        .progress = tcp_progress,
        .arm = tcp_arm,
        .disarm = tcp_disarm,
        .poll_fd = tcp_poll_fd,
        .service_fd = tcp_service_fd,
        .service = coll_tcp_service,
        .path = tcp_path,
        .confine = tcp_confine,
        .link_counts = coll_tcp_link_counts,
};
