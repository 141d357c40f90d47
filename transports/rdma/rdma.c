/*
 * The rdma transport: reliable connections of InfiniBand, RoCE or iWARP devices. This
 * file has the table, the life of an instance, progress and sleeping; rdma.h and
 * docs/design/rdma.md describe the rest.
 */
#include "transports/rdma/rdma.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/delay.h"
#include "transports/common/registry.h"
#include "transports/rdma/channel.h"
#include "transports/rdma/cm.h"
#include "transports/rdma/device.h"
#include "transports/rdma/link.h"
#include "transports/rdma/memory.h"
#include "transports/rdma/receiver.h"
#include "transports/rdma/rx.h"
#include "transports/rdma/sender.h"
#include "transports/rdma/service.h"
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
}

static bool non_blocking(int fd)
{
	const int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static bool open_descriptors(struct rdma_inst *in)
{
	return non_blocking(in->cm->fd) && non_blocking(in->completions->fd) && coll_reactor_open(&in->service) &&
	       coll_reactor_watch(&in->service, in->cm->fd, EPOLLIN, RDMA_TAG_CM, EPOLL_CTL_ADD) &&
	       coll_reactor_watch(&in->service, in->completions->fd, EPOLLIN, RDMA_TAG_COMPLETIONS, EPOLL_CTL_ADD);
}

/* What open() made, whole or in part. */
static void dispose(struct rdma_inst *in)
{
	coll_rdma_cm_corpses(in, true);
	if (in->listener)
		in->v.rdma_destroy_id(in->listener);
	coll_rdma_memory_fini(in);
	if (in->completions)
		in->v.ibv_destroy_comp_channel(in->completions);
	if (in->pd)
		in->v.ibv_dealloc_pd(in->pd);
	if (in->cm)
		in->v.rdma_destroy_event_channel(in->cm);
	coll_reactor_fini(&in->service);
	coll_link_table_fini(&in->links);
	coll_rdma_verbs_unload(&in->v);
	pthread_mutex_destroy(&in->arm_lock);
	pthread_rwlock_destroy(&in->memory_lock);
	free(in);
}

/* Where next to no memory may be locked, nothing would work later: better said now. */
static bool can_lock(struct rdma_inst *in)
{
	void *p = aligned_alloc(4096, PROBE_BYTES);
	struct ibv_mr *mr = p ? coll_rdma_memory_pin(in, p, PROBE_BYTES, true) : NULL;

	if (mr)
		in->v.ibv_dereg_mr(mr);
	free(p);
	return mr != NULL;
}

static coll_status open_device(struct rdma_inst *in, char *why, size_t why_bytes)
{
	coll_status status = coll_rdma_verbs_load(&in->v, why, why_bytes);
	const char *step = "event channel";

	if (status != COLL_OK)
		return status;
	in->cm = in->v.rdma_create_event_channel();
	if (in->cm) {
		status = coll_rdma_device_open(in, why, why_bytes);
		if (status != COLL_OK)
			return status;
		step = "protection domain";
		in->pd = in->v.ibv_alloc_pd(in->device);
	}
	if (in->pd) {
		step = "completion channel";
		in->completions = in->v.ibv_create_comp_channel(in->device);
	}
	if (in->completions && !can_lock(in)) {
		why[0] = 0; /* said already */
		return COLL_ERR_UNSUPPORTED;
	}
	if (in->completions && open_descriptors(in))
		return COLL_OK;
	snprintf(why, why_bytes, "%s: %s", step, strerror(errno));
	return COLL_ERR_UNSUPPORTED;
}

static coll_status rdma_open(const struct coll_transport_env *env, void **inst)
{
	struct rdma_inst *in = calloc(1, sizeof(*in));
	char why[200] = "";
	coll_status status;

	if (!in)
		return COLL_ERR_MEMORY;
	in->env = *env;
	coll_reactor_init(&in->service, &coll_rdma_service_table, in);
	coll_link_table_init(&in->links, sizeof(struct rdma_link), coll_rdma_link_begin, in);
	pthread_mutex_init(&in->arm_lock, NULL);
	pthread_rwlock_init(&in->memory_lock, NULL);
	read_settings(in);
	status = open_device(in, why, sizeof(why));
	if (status != COLL_OK) {
		/* Without a device this is expected (debug); with one, the user should see the reason. */
		if (why[0])
			rdma_log(in, in->cm ? COLL_LOG_WARN : COLL_LOG_INFO, "rdma is not used: %s", why);
		dispose(in);
		return status;
	}
	in->message_max = number(in, "COLL_RDMA_MESSAGE_MAX", 0, UINT32_MAX)
	                          ? number(in, "COLL_RDMA_MESSAGE_MAX", 0, UINT32_MAX)
	                          : in->message_max;
	in->immediates = number(in, "COLL_RDMA_IMMEDIATE", in->info.fabric != IBV_TRANSPORT_IWARP, 1) != 0;
	rdma_log(in, COLL_LOG_INFO, "rdma: %s, messages up to %zu bytes, timeout exponent %u, %u retries", in->where,
	         in->message_max, in->timeout_exponent, in->retries);
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
	const struct rdma_inst *in = inst;

	if (cap < sizeof(in->info))
		return COLL_ERR_ARGUMENT;
	memcpy(buf, &in->info, sizeof(in->info));
	*len_bytes = sizeof(in->info);
	return COLL_OK;
}

static bool rdma_reachable(void *inst, const void *address, size_t len_bytes, char *why, size_t why_bytes)
{
	const struct coll_rdma_peer_info *self = &((struct rdma_inst *)inst)->info;
	struct coll_rdma_peer_info peer;

	if (!coll_rdma_peer_info_valid(address, len_bytes, &peer)) {
		snprintf(why, why_bytes, "the peer has no rdma address");
		return false;
	}
	if (peer.fabric != self->fabric || peer.layer != self->layer || peer.family != self->family) {
		snprintf(why, why_bytes, "%.24s there and %.24s here are of different kinds", peer.device,
		         self->device);
		return false;
	}
	return true;
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
	coll_link_table_notify(&in->links, &in->env, "rdma");
	return happened;
}

/* ---- sleeping ---------------------------------------------------------------------------- */

/* While a thread is armed every completion makes the descriptor readable; the sleeper handles
 * that, not the service thread. */
static void watch_completions(struct rdma_inst *in, bool on)
{
	coll_reactor_watch(&in->service, in->completions->fd, on ? EPOLLIN : 0, RDMA_TAG_COMPLETIONS, EPOLL_CTL_MOD);
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
	return ((struct rdma_inst *)inst)->completions->fd;
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
        .link_status = coll_peer_link_status,
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
};
