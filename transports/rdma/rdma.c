/*
 * The rdma transport: reliable connections of InfiniBand, RoCE or iWARP devices. This
 * file has the table, the life of an instance, progress and sleeping; rdma.h and
 * docs/design/rdma.md describe the rest.
 */
#include "transports/rdma/rdma.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/errno_text.h"
#include "base/fork.h"
#include "transport/transport.h"
#include "transports/rdma/address.h"
#include "transports/rdma/channel.h"
#include "transports/rdma/cm.h"
#include "transports/rdma/device.h"
#include "transports/rdma/link.h"
#include "transports/rdma/memory.h"
#include "transports/rdma/pairs.h"
#include "transports/rdma/rails.h"
#include "transports/rdma/receiver.h"
#include "transports/rdma/requests.h"
#include "transports/rdma/rx.h"
#include "transports/rdma/sender.h"
#include "transports/rdma/service.h"
#include "transports/rdma/sums.h"
#include "transports/rdma/tx.h"

enum { TIMEOUT_EXPONENT = 14, RETRIES = 6, PROBE_BYTES = 1 << 20 };

/* ---- open ----------------------------------------------------------------------- */

static unsigned number(struct rdma_inst *in, const char *name, unsigned otherwise, unsigned max)
{
	const char *text = in->env.setting(in->env.ctx, name);
	char *end;
	const unsigned long n = strtoul(text, &end, 10);

	return text[0] && !*end && n <= max ? (unsigned)n : otherwise;
}

static void read_settings(struct rdma_inst *in)
{
	in->timeout_exponent = number(in, "COLL_RDMA_TIMEOUT", TIMEOUT_EXPONENT, 31);
	in->retries = number(in, "COLL_RDMA_RETRY", RETRIES, 7);
	in->traffic_class = number(in, "COLL_RDMA_TRAFFIC_CLASS", 0, 255);
	in->polled = number(in, "COLL_RDMA_POLLED", 1, 1) != 0;
	coll_rdma_sums_open(in);
	in->timeout_ns = number(in, "COLL_TIMEOUT_MS", 30000, INT_MAX) * COLL_NS_PER_MS;
	in->unreachable_ns = number(in, "COLL_UNREACHABLE_MS", INT_MAX, INT_MAX) * COLL_NS_PER_MS;
	if (in->unreachable_ns > in->timeout_ns)
		in->unreachable_ns = in->timeout_ns;
	/* A device that was told to wait for longer does not report sooner. */
	in->silent_ns = (in->retries + 1) * (UINT64_C(4096) << in->timeout_exponent) * 5 / 4;
	if (in->timeout_exponent == 0 || in->silent_ns < COLL_DELAY_NS(RDMA_RAIL_SILENT))
		in->silent_ns = COLL_DELAY_NS(RDMA_RAIL_SILENT);
}

static bool non_blocking(int fd)
{
	const int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static bool open_descriptors(struct rdma_inst *in)
{
	in->wait_fd = COLL_FD(epoll_create1(EPOLL_CLOEXEC));
	if (in->wait_fd < 0 || !non_blocking(in->cm->fd) || !coll_reactor_open(&in->service) ||
	    !coll_reactor_watch(&in->service, in->cm->fd, EPOLLIN, RDMA_TAG_CM, EPOLL_CTL_ADD))
		return false;
	for (unsigned i = 0; i < in->ports; i++) {
		const int fd = in->port[i].completions->fd;
		struct epoll_event e = {.events = EPOLLIN};

		if (!non_blocking(fd) || epoll_ctl(in->wait_fd, EPOLL_CTL_ADD, fd, &e) != 0 ||
		    !coll_reactor_watch(&in->service, fd, EPOLLIN, RDMA_TAG_COMPLETIONS, EPOLL_CTL_ADD))
			return false;
	}
	return true;
}

/* What open() made, whole or in part. */
static void dispose(struct rdma_inst *in)
{
	coll_rdma_cm_corpses(in, true);
	coll_rdma_memory_fini(in);
	coll_rdma_requests_fini(&in->requests);
	for (unsigned i = 0; i < in->ports; i++) {
		struct rdma_port *p = &in->port[i];

		in->v.rdma_destroy_id(p->listener);
		if (p->completions)
			in->v.ibv_destroy_comp_channel(p->completions);
		if (p->pd)
			in->v.ibv_dealloc_pd(p->pd);
	}
	if (in->cm)
		in->v.rdma_destroy_event_channel(in->cm);
	if (in->wait_fd >= 0)
		coll_fd_close(in->wait_fd);
	coll_reactor_fini(&in->service);
	coll_link_table_fini(&in->links);
	coll_rdma_verbs_unload(&in->v);
	pthread_mutex_destroy(&in->arm_lock);
	pthread_rwlock_destroy(&in->memory_lock);
	free(in);
}

/* Where next to no memory may be locked, nothing would work later: better said now. */
static bool can_lock(struct rdma_port *port)
{
	void *p = aligned_alloc(4096, PROBE_BYTES);
	struct ibv_mr *mr = p ? coll_rdma_memory_pin(port, p, PROBE_BYTES, true) : NULL;

	if (mr)
		port->inst->v.ibv_dereg_mr(mr);
	free(p);
	coll_errno_clear(); /* the job does without this transport */
	return mr != NULL;
}

/* What it needs beside its listener. */
static bool equip(struct rdma_port *p, char *why, size_t why_bytes)
{
	struct rdma_inst *in = p->inst;
	const size_t message_max = number(in, "COLL_RDMA_MESSAGE_MAX", 0, UINT32_MAX);
	const bool iwarp = in->info.port[p->index].fabric == IBV_TRANSPORT_IWARP;

	p->pd = in->v.ibv_alloc_pd(p->device);
	p->completions = p->pd ? in->v.ibv_create_comp_channel(p->device) : NULL;
	if (!p->completions) {
		snprintf(why, why_bytes, "%.80s: %s: %s", p->where, p->pd ? "completion channel" : "protection domain",
		         strerror(errno));
		return false;
	}
	if (!can_lock(p)) {
		why[0] = 0; /* said already */
		return false;
	}
	p->message_max = message_max > 0 ? message_max : p->message_max;
	p->immediates = number(in, "COLL_RDMA_IMMEDIATE", !iwarp, 1) != 0;
	rdma_log(in, COLL_LOG_INFO, "rdma: %s, %u Mb/s, messages up to %zu bytes, timeout exponent %u, %u retries",
	         p->where, in->info.port[p->index].mbps, p->message_max, in->timeout_exponent, in->retries);
	return true;
}

static coll_status open_ports(struct rdma_inst *in, char *why, size_t why_bytes)
{
	coll_status status = coll_rdma_verbs_load(&in->v, why, why_bytes);

	if (status != COLL_OK)
		return status;
	in->cm = in->v.rdma_create_event_channel();
	if (!in->cm) {
		snprintf(why, why_bytes, "event channel: %s", strerror(errno));
		return COLL_ERR_UNSUPPORTED;
	}
	status = coll_rdma_device_open(in, why, why_bytes);
	for (unsigned i = 0; i < in->ports && status == COLL_OK; i++)
		if (!equip(&in->port[i], why, why_bytes))
			status = COLL_ERR_UNSUPPORTED;
	if (status == COLL_OK && !open_descriptors(in)) {
		snprintf(why, why_bytes, "descriptors: %s", strerror(errno));
		status = COLL_ERR_UNSUPPORTED;
	}
	return status;
}

static coll_status rdma_open(const struct coll_transport_env *env, void **inst)
{
	struct rdma_inst *in = calloc(1, sizeof(*in));
	char why[200] = "";
	coll_status status;

	if (!in)
		return COLL_ERR_MEMORY;
	in->env = *env;
	in->info.id = env->self;
	in->wait_fd = -1;
	coll_reactor_init(&in->service, &coll_rdma_service_table, in);
	coll_link_table_init(&in->links, sizeof(struct rdma_link), coll_rdma_link_begin, in);
	pthread_mutex_init(&in->arm_lock, NULL);
	pthread_rwlock_init(&in->memory_lock, NULL);
	read_settings(in);
	status = coll_random(in->nonces.key, sizeof(in->nonces.key)) ? COLL_OK : COLL_ERR_SYSTEM;
	if (status != COLL_OK)
		snprintf(why, sizeof(why), "getrandom: %s", strerror(errno));
	else
		status = open_ports(in, why, sizeof(why));
	coll_rdma_requests_init(&in->requests, coll_clock_ns());
	if (status != COLL_OK) {
		/* Without a device this is expected (debug); with one, the user should see the reason. */
		if (why[0])
			rdma_log(in, in->cm ? COLL_LOG_WARN : COLL_LOG_INFO, "rdma is not used: %s", why);
		dispose(in);
		return status;
	}
	*inst = in;
	return COLL_OK;
}

/* ---- close, fini ------------------------------------------------------------------ */

static void rdma_close(void *inst)
{
	struct rdma_inst *in = inst;

	atomic_store(&in->closed, true);
	coll_rdma_kick(in);
	coll_rdma_wake(in);
}

/* Whether a closed link still owes the peer its last word. */
static bool owes(struct coll_peer_link *base)
{
	struct rdma_link *l = (struct rdma_link *)base;
	bool more;

	pthread_mutex_lock(&l->base.lock);
	coll_rdma_tx_push(l);
	coll_rdma_rx_poll(l);
	more = l->state == LINK_UP && l->base.lingering && (!l->bye_sent || l->sq_done < l->bye_seq);
	pthread_mutex_unlock(&l->base.lock);
	return more;
}

static void rdma_fini(void *inst)
{
	struct rdma_inst *in = inst;

	if (!in)
		return;
	/* A peer that lives takes what was posted before the end. */
	coll_link_table_flush(&in->links, NULL, owes, COLL_DELAY_RDMA_FINI_MS);
	pthread_mutex_lock(&in->service.lock);
	for (uint32_t i = 0; i < in->links.count; i++) {
		struct rdma_link *l = (struct rdma_link *)in->links.at[i];

		pthread_mutex_lock(&l->base.lock);
		if (l->id)
			coll_rdma_cm_bury(l);
		coll_rdma_link_free(l);
		pthread_mutex_unlock(&l->base.lock);
	}
	pthread_mutex_unlock(&in->service.lock);
	dispose(in);
}

/* ---- facts ---------------------------------------------------------------------------- */

/* A peer info of 100 Gb/s of 2026; every rank must say the same. */
static void rdma_caps(void *inst, struct coll_transport_caps *caps)
{
	*caps = (struct coll_transport_caps){.latency_ns = 2000,
	                                     .overhead_ns = 300,
	                                     .bytes_per_ns = 11,
	                                     .depth = 4,
	                                     .slot_bytes_max = 1 << 20,
	                                     .post_ref = true,
	                                     .recv_into = true,
	                                     .cross_host = true};
}

static coll_status rdma_address(void *inst, void *buf, size_t cap, size_t *len_bytes)
{
	struct rdma_inst *in = inst;
	struct coll_rdma_peer_info announced;
	const coll_status status = coll_rdma_address_encode(&in->info, buf, cap, len_bytes);

	if (status != COLL_OK)
		return status;
	/* What does not fit is not announced, and both ends of a link choose rails by what is. */
	if (coll_rdma_address_decode(&announced, buf, *len_bytes) && announced.count < in->info.count) {
		rdma_log(in, COLL_LOG_INFO, "rdma: only the first %u ports are used: the address has no room for more",
		         announced.count);
		in->info.count = announced.count;
	}
	return COLL_OK;
}

static bool rdma_reachable(void *inst, const void *address, size_t len_bytes, char *why, size_t why_bytes)
{
	const struct rdma_inst *in = inst;
	struct coll_rdma_peer_info peer;
	struct coll_rdma_route route;

	if (!coll_rdma_address_decode(&peer, address, len_bytes)) {
		snprintf(why, why_bytes, "the peer has no rdma address");
		return false;
	}
	coll_rdma_route_find(&in->info, &peer, &route);
	if (route.rails == 0)
		snprintf(why, why_bytes, "%.15s there and %.15s here are of different kinds%s", peer.port[0].device,
		         in->info.port[0].device, peer.count + in->info.count > 2 ? ", and so are the others" : "");
	return route.rails > 0;
}

static void rdma_path(void *inst, const void *a, size_t a_bytes, const void *b, size_t b_bytes,
                      struct coll_transport_path *path)
{
	struct coll_rdma_peer_info x, y;
	struct coll_rdma_route route;

	*path = (struct coll_transport_path){.rails = 1};
	if (!coll_rdma_address_decode(&x, a, a_bytes) || !coll_rdma_address_decode(&y, b, b_bytes))
		return;
	coll_rdma_route_find(&x, &y, &route);
	coll_rdma_route_path(&route, &x, &y, path);
}

/* ---- progress ------------------------------------------------------------------------- */

static int advance(struct rdma_link *l)
{
	int happened = coll_rdma_tx_credits(l);

	happened += coll_rdma_tx_push(l);
	happened += coll_rdma_rx_poll(l);
	return happened;
}

static int rdma_progress(void *inst)
{
	struct rdma_inst *in = inst;
	struct rdma_link *l;
	int happened = 0;

	for (uint32_t i = 0; (l = coll_rdma_link_at(in, i)); i++) {
		if (atomic_load_explicit(&l->base.status, memory_order_relaxed) != COLL_OK ||
		    pthread_mutex_trylock(&l->base.lock) != 0)
			continue;
		if (l->state == LINK_UP)
			happened += advance(l);
		coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->base.lock);
	}
	/* Connections are made and ended here too, so that no service thread is needed for it. */
	if (atomic_load_explicit(&in->connecting, memory_order_relaxed) > 0 ||
	    atomic_load_explicit(&in->links.stale, memory_order_relaxed) > 0)
		happened += coll_reactor_try(&in->service);
	coll_rdma_rails_tear(in);
	coll_link_table_notify(&in->links, &in->env, "rdma");
	return happened;
}

/* ---- sleeping ---------------------------------------------------------------------------- */

/* While a thread is armed every completion makes the descriptors readable; the sleeper handles
 * that, not the service thread. */
static void watch_completions(struct rdma_inst *in, bool on)
{
	for (unsigned i = 0; i < in->ports; i++)
		coll_reactor_watch(&in->service, in->port[i].completions->fd, on ? EPOLLIN : 0, RDMA_TAG_COMPLETIONS,
		                   EPOLL_CTL_MOD);
}

static void rdma_disarm(void *inst)
{
	struct rdma_inst *in = inst;

	coll_rdma_service_completions(in);
	pthread_mutex_lock(&in->arm_lock);
	if (atomic_fetch_sub(&in->armed, 1) == 1)
		watch_completions(in, true);
	pthread_mutex_unlock(&in->arm_lock);
}

static coll_status rdma_arm(void *inst)
{
	struct rdma_inst *in = inst;
	struct rdma_link *l;

	pthread_mutex_lock(&in->arm_lock);
	if (atomic_fetch_add(&in->armed, 1) == 0)
		watch_completions(in, false);
	pthread_mutex_unlock(&in->arm_lock);
	for (uint32_t i = 0; (l = coll_rdma_link_at(in, i)); i++) {
		if (atomic_load_explicit(&l->base.status, memory_order_relaxed) != COLL_OK)
			continue;
		pthread_mutex_lock(&l->base.lock);
		if (l->state == LINK_UP) {
			ibv_req_notify_cq(l->cq, 0);
			advance(l);
		}
		coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->base.lock);
	}
	/* Whatever was taken in since the last time, by whomever, may be what the caller was
	 * refused before. */
	if (!atomic_load(&in->closed) && atomic_exchange(&in->news, 0) == 0)
		return COLL_OK;
	rdma_disarm(in);
	return COLL_AGAIN;
}

static int rdma_poll_fd(void *inst)
{
	return ((struct rdma_inst *)inst)->wait_fd;
}

static int rdma_service_fd(void *inst)
{
	return ((struct rdma_inst *)inst)->service.epoll_fd;
}

const struct coll_transport coll_transport_rdma = {
        .size = sizeof(struct coll_transport),
        .name = "rdma",
        .open = rdma_open,
        .close = rdma_close,
        .fini = rdma_fini,
        .caps = rdma_caps,
        .address = rdma_address,
        .reachable = rdma_reachable,
        .link_open = coll_rdma_link_open,
        .link_close = coll_rdma_link_close,
        .link_status = coll_link_rails_status,
        .channel_open = coll_rdma_channel_open,
        .channel_close = coll_rdma_channel_close,
        .slot = coll_rdma_slot,
        .post = coll_rdma_post,
        .post_ref = coll_rdma_post_ref,
        .view = coll_rdma_view,
        .done = coll_rdma_done,
        .recv_into = coll_rdma_recv_into,
        .progress = rdma_progress,
        .arm = rdma_arm,
        .disarm = rdma_disarm,
        .poll_fd = rdma_poll_fd,
        .service_fd = rdma_service_fd,
        .service = coll_rdma_service,
        .mem_alloc = coll_rdma_mem_alloc,
        .mem_free = coll_rdma_mem_free,
        .mem_reg = coll_rdma_mem_reg,
        .mem_dereg = coll_rdma_mem_dereg,
        .path = rdma_path,
};
