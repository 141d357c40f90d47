/*
 * The life of a link: found or made, up, ended by the peer's BYE or broken, buried,
 * forgotten. Invariant: status (for outsiders) changes from AGAIN to OK to an error
 * only; cookies of a broken link are settled when its queue pair is gone, not before,
 * so that the device touches no memory that was given back.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "transports/rdma/rdma.h"

void coll_rdma_kick(struct rdma_inst *in)
{
	const uint64_t one = 1;

	if (write(in->kick_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: it is readable already */
}

void coll_rdma_wake(struct rdma_inst *in)
{
	const uint64_t one = 1;

	if (in->env.wake_fd >= 0 && write(in->env.wake_fd, &one, sizeof(one)) < 0)
		return;
}

/* ---- table ------------------------------------------------------------------ */

struct rdma_link *coll_rdma_link_at(struct rdma_inst *in, uint32_t i)
{
	struct rdma_link *l;

	if (i >= atomic_load_explicit(&in->link_count, memory_order_acquire))
		return NULL;
	pthread_mutex_lock(&in->lock);
	l = in->links[i];
	pthread_mutex_unlock(&in->lock);
	return l;
}

struct rdma_link *coll_rdma_link_find(struct rdma_inst *in, const struct coll_process_id *peer)
{
	for (uint32_t i = 0; i < in->link_count; i++) {
		struct rdma_link *l = in->links[i];
		bool usable;

		pthread_mutex_lock(&l->lock);
		usable = coll_same_process(&l->peer, peer) && !l->lingering && rdma_works(l);
		pthread_mutex_unlock(&l->lock);
		if (usable)
			return l;
	}
	return NULL;
}

static struct rdma_link *free_link(struct rdma_inst *in)
{
	for (uint32_t i = 0; i < in->link_count; i++) {
		struct rdma_link *l = in->links[i];
		bool is_free;

		pthread_mutex_lock(&l->lock);
		is_free = l->state == LINK_FREE;
		pthread_mutex_unlock(&l->lock);
		if (is_free)
			return l;
	}
	return NULL;
}

static bool grow_table(struct rdma_inst *in)
{
	const uint32_t cap = in->link_cap ? 2 * in->link_cap : 16;
	struct rdma_link **links = realloc(in->links, cap * sizeof(struct rdma_link *));

	if (!links)
		return false;
	in->links = links;
	in->link_cap = cap;
	return true;
}

struct rdma_link *coll_rdma_link_new(struct rdma_inst *in, const struct coll_process_id *peer)
{
	struct rdma_link *l = free_link(in);

	if (!l) {
		if (in->link_count == in->link_cap && !grow_table(in))
			return NULL;
		l = calloc(1, sizeof(*l));
		if (!l)
			return NULL;
		l->inst = in;
		l->slot = in->link_count;
		pthread_mutex_init(&l->lock, NULL);
		in->links[l->slot] = l;
		atomic_fetch_add_explicit(&in->link_count, 1, memory_order_release);
	}
	pthread_mutex_lock(&l->lock);
	l->peer = *peer;
	l->state = LINK_CONNECTING;
	atomic_store(&l->status, COLL_AGAIN);
	atomic_fetch_add(&in->connecting, 1);
	pthread_mutex_unlock(&l->lock);
	return l;
}

/* ---- open, close -------------------------------------------------------------- */

coll_status coll_rdma_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                                void **link)
{
	struct rdma_inst *in = inst;
	struct coll_rdma_card target;
	struct rdma_link *l;

	if (atomic_load(&in->closed))
		return COLL_ERR_ABORTED;
	if (!coll_rdma_card_valid(address, len_bytes, &target) || !coll_same_process(&target.id, peer)) {
		rdma_log(in, COLL_LOG_ERROR,
		         "[COLL-6506] rdma: the address of a peer (%zu bytes) is not one of this transport", len_bytes);
		return COLL_ERR_ARGUMENT;
	}
	pthread_mutex_lock(&in->lock);
	l = coll_rdma_link_find(in, peer);
	if (!l)
		l = coll_rdma_link_new(in, peer);
	if (!l) {
		pthread_mutex_unlock(&in->lock);
		return COLL_ERR_MEMORY;
	}
	pthread_mutex_lock(&l->lock);
	if (l->opens++ == 0) {
		l->target = target;
		l->have_target = true;
	}
	pthread_mutex_unlock(&l->lock);
	pthread_mutex_unlock(&in->lock);
	coll_rdma_kick(in);
	*link = l;
	return COLL_OK;
}

coll_status coll_rdma_link_status(void *link)
{
	struct rdma_link *l = link;

	return (coll_status)atomic_load_explicit(&l->status, memory_order_acquire);
}

void coll_rdma_link_close(void *link)
{
	struct rdma_link *l = link;
	struct rdma_inst *in = l->inst;
	struct coll_rdma_note bye = {.type = COLL_RDMA_NOTE_BYE};

	pthread_mutex_lock(&l->lock);
	assert(l->opens > 0);
	if (--l->opens > 0) {
		pthread_mutex_unlock(&l->lock);
		return;
	}
	l->lingering = true;
	atomic_fetch_add(&in->lingering, 1);
	if (l->state == LINK_UP) {
		coll_rdma_tx_note(l, &bye);
		coll_rdma_tx_push(l);
	}
	atomic_fetch_add(&in->stale, 1);
	coll_rdma_link_leave(l);
	pthread_mutex_unlock(&l->lock);
	coll_rdma_kick(in);
}

/* ---- up ----------------------------------------------------------------------- */

void coll_rdma_link_up(struct rdma_link *l)
{
	struct rdma_inst *in = l->inst;
	char path[220];

	assert(l->state == LINK_CONNECTING);
	coll_rdma_tx_resume(l);
	if (l->state != LINK_CONNECTING)
		return;
	l->state = LINK_UP;
	l->connections++;
	l->stage = STAGE_IDLE;
	atomic_fetch_sub(&in->connecting, 1);
	atomic_fetch_add(&in->up, 1);
	atomic_store_explicit(&l->status, COLL_OK, memory_order_release);
	coll_rdma_path_text(l, path, sizeof(path));
	rdma_log(in, COLL_LOG_INFO, "rdma: connected %s (inline %u bytes)", path, l->inline_bytes);
	l->give_up_ns = 0;
	coll_rdma_receiver_announce_all(l);
	coll_rdma_tx_push(l);
	l->news = true;
	coll_rdma_link_leave(l);
}

/* ---- end ------------------------------------------------------------------------ */

static void stop(struct rdma_link *l, enum rdma_state state, coll_status status)
{
	struct rdma_inst *in = l->inst;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	atomic_fetch_sub(l->state == LINK_UP ? &in->up : &in->connecting, 1);
	l->state = state;
	atomic_store_explicit(&l->status, status, memory_order_release);
	/* From here on the device takes nothing in for this link and sends nothing out;
	 * what is under way is over when the service has destroyed the queue pair. */
	if (l->qp && state == LINK_DOWN)
		in->v.ibv_modify_qp(l->qp, &attr, IBV_QP_STATE);
	l->news = true;
	atomic_fetch_add(&in->notices, 1);
	atomic_fetch_add(&in->stale, 1);
	coll_rdma_kick(in);
}

void coll_rdma_link_fail(struct rdma_link *l, coll_status why, const char *format, ...)
{
	va_list ap;

	if (!rdma_works(l))
		return;
	va_start(ap, format);
	vsnprintf(l->cause, sizeof(l->cause), format, ap);
	va_end(ap);
	l->why = why;
	l->notice = !l->lingering;
	stop(l, LINK_DOWN, why);
}

/*
 * The queue pair can be destroyed by the service only; until then the device may still
 * write what had come in before.
 */
void coll_rdma_link_torn(struct rdma_link *l, coll_status why, const char *format, ...)
{
	struct rdma_inst *in = l->inst;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	va_list ap;

	if (l->state != LINK_UP)
		return;
	va_start(ap, format);
	vsnprintf(l->cause, sizeof(l->cause), format, ap);
	va_end(ap);
	/* iWARP says that a message has left, not that it has arrived: nobody knows what to send again. */
	if (l->lingering || l->mends++ >= RDMA_MENDS || atomic_load(&in->closed) ||
	    in->card.fabric == IBV_TRANSPORT_IWARP) {
		char cause[sizeof(l->cause)];

		memcpy(cause, l->cause, sizeof(cause));
		coll_rdma_link_fail(l, why, "%s", cause);
		return;
	}
	rdma_log(in, COLL_LOG_INFO, "%s: connecting again", l->cause);
	l->why = why;
	l->state = LINK_TORN;
	atomic_fetch_sub(&in->up, 1);
	atomic_fetch_add(&in->connecting, 1);
	in->v.ibv_modify_qp(l->qp, &attr, IBV_QP_STATE);
	l->give_up_ns = coll_clock_ns() + RDMA_MEND_MS * UINT64_C(1000000);
	atomic_fetch_add(&in->stale, 1);
	coll_rdma_kick(in);
}

void coll_rdma_link_ended(struct rdma_link *l)
{
	if (l->state != LINK_UP && l->state != LINK_TORN)
		return;
	snprintf(l->cause, sizeof(l->cause), "the peer has closed the link");
	stop(l, LINK_ENDED, COLL_ERR_PEER_DEAD);
}

/* What stays: inst, slot, lock. */
void coll_rdma_link_free(struct rdma_link *l)
{
	struct rdma_inst *in = l->inst;
	const size_t from = offsetof(struct rdma_link, state);

	assert(!l->id);
	if (l->state == LINK_CONNECTING || l->state == LINK_TORN)
		atomic_fetch_sub(&in->connecting, 1);
	if (l->state == LINK_UP)
		atomic_fetch_sub(&in->up, 1);
	if (l->lingering)
		atomic_fetch_sub(&in->lingering, 1);
	free(l->queue);
	l->queue = NULL;
	l->queue_count = 0;
	while (l->closing)
		coll_rdma_sender_free(l->closing);
	while (l->senders)
		coll_rdma_sender_free(l->senders);
	for (uint32_t i = 0; i < l->receivers_cap; i++)
		if (l->receivers[i])
			coll_rdma_receiver_free(l->receivers[i]);
	for (uint32_t i = 0; i < l->grants_cap; i++)
		free(l->grants[i]);
	free(l->receivers);
	free(l->grants);
	memset((char *)l + from, 0, sizeof(*l) - from);
}

/* Our last word has arrived, or there is nobody to hear it. */
static bool finished(const struct rdma_link *l)
{
	return l->lingering &&
	       (l->state != LINK_UP || (l->bye_sent && l->queue_count == 0 && l->sq_done >= l->bye_seq));
}

void coll_rdma_link_compact(struct rdma_inst *in)
{
	if (atomic_exchange(&in->stale, 0) == 0)
		return;
	pthread_mutex_lock(&in->lock);
	for (uint32_t i = 0; i < in->link_count; i++) {
		struct rdma_link *l = in->links[i];

		pthread_mutex_lock(&l->lock);
		if (((l->state == LINK_DOWN || l->state == LINK_ENDED) && !l->buried) || (l->id && finished(l)))
			coll_rdma_cm_bury(l);
		else if (l->state == LINK_TORN && !l->lingering)
			coll_rdma_cm_tear(l);
		if (l->state != LINK_FREE && !l->id && l->opens == 0 && !l->notice &&
		    (l->lingering || l->state == LINK_DOWN || l->state == LINK_ENDED))
			coll_rdma_link_free(l);
		else
			coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->lock);
	}
	pthread_mutex_unlock(&in->lock);
}

struct notice {
	struct coll_process_id peer;
	coll_status why;
	char cause[240];
};

/* One link that owes a link_down; false if none. */
static bool next_notice(struct rdma_inst *in, struct notice *n)
{
	bool found = false;

	pthread_mutex_lock(&in->lock);
	for (uint32_t i = 0; i < in->link_count && !found; i++) {
		struct rdma_link *l = in->links[i];

		pthread_mutex_lock(&l->lock);
		if (l->notice) {
			n->peer = l->peer;
			n->why = l->why;
			memcpy(n->cause, l->cause, sizeof(n->cause));
			found = l->opens > 0;
			l->notice = false;
			atomic_fetch_add(&in->stale, 1);
		}
		pthread_mutex_unlock(&l->lock);
	}
	pthread_mutex_unlock(&in->lock);
	return found;
}

void coll_rdma_link_notify(struct rdma_inst *in)
{
	struct notice n;

	if (atomic_load_explicit(&in->notices, memory_order_relaxed) == 0)
		return;
	atomic_store(&in->notices, 0);
	while (next_notice(in, &n)) {
		rdma_log(in, COLL_LOG_INFO, "rdma: link down: %s", n.cause);
		in->env.link_down(in->env.ctx, &n.peer, n.why, n.cause);
	}
}

/*
 * Who goes to sleep counts itself in armed and then looks at news, or at what it waits
 * for under this lock; who brings news sets it and then looks at armed. Both are
 * sequentially consistent, so one of the two sees the other.
 */
void coll_rdma_link_leave(struct rdma_link *l)
{
	struct rdma_inst *in = l->inst;

	if (l->news) {
		l->news = false;
		atomic_store(&in->news, 1);
		if (atomic_load(&in->armed) > 0)
			coll_rdma_wake(in);
	}
	if (l->state == LINK_UP && (l->queue_count > 0 || l->due > 0))
		coll_rdma_service_flush_soon(in);
}
