/*
 * The life of a link: found or made, up, ended by the peer's BYE or broken, buried,
 * forgotten. Invariant: status (for outsiders) changes from AGAIN to OK to an error
 * only; completion words of a broken link are settled when its queue pair is gone, not before,
 * so that the device touches no memory that was given back.
 */
#include "transports/rdma/link.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "transports/rdma/address.h"
#include "transports/rdma/cm.h"
#include "transports/rdma/device.h"
#include "transports/rdma/rails.h"
#include "transports/rdma/rdma.h"
#include "transports/rdma/receiver.h"
#include "transports/rdma/requests.h"
#include "transports/rdma/sender.h"
#include "transports/rdma/tx.h"

bool coll_rdma_link_begin(void *inst, struct coll_peer_link *base)
{
	struct rdma_link *l = (struct rdma_link *)base;

	l->inst = inst;
	l->state = LINK_CONNECTING;
	atomic_fetch_add(&l->inst->connecting, 1);
	return true;
}

/* ---- open, close -------------------------------------------------------------- */

coll_status coll_rdma_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                                void **link)
{
	struct rdma_inst *in = inst;
	struct coll_rdma_peer_info target;
	struct coll_peer_link *l;
	coll_status status;

	if (atomic_load(&in->closed))
		return COLL_ERR_ABORTED;
	if (!coll_rdma_address_decode(&target, address, len_bytes) || !coll_same_process(&target.id, peer)) {
		rdma_log(in, COLL_LOG_ERROR,
		         "[COLL-6506] rdma: the address of a peer (%zu bytes) is not one of this transport", len_bytes);
		return COLL_ERR_ARGUMENT;
	}
	status = coll_rdma_rails_open(in, &target, &l);
	if (status != COLL_OK)
		return status;
	coll_rdma_kick(in);
	*link = l;
	return COLL_OK;
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
	coll_peer_link_up(&l->base);
	coll_rdma_path_text(l, path, sizeof(path));
	rdma_log(in, COLL_LOG_INFO, "rdma: connected %s (inline %u bytes)", path, l->inline_bytes);
	l->give_up_ns = 0;
	l->waits_ns = coll_clock_ns();
	l->attempts = 0;
	coll_rdma_requests_draw(l);
	coll_rdma_receiver_announce_all(l);
	coll_rdma_tx_push(l);
	l->news = true;
	coll_rdma_link_leave(l);
}

bool coll_rdma_link_swamped(const struct rdma_link *l)
{
	uint64_t most = RDMA_QUEUE_SPARE;

	if (l->queue_count <= most)
		return false;
	for (const struct rdma_sender *s = l->senders; s; s = s->next)
		most += 2 * s->base.slots;
	for (const struct rdma_sender *s = l->closing; s; s = s->next)
		most += 2 * s->base.slots;
	for (uint32_t i = 0; i < l->receivers.cap; i++)
		if (l->receivers.at[i])
			most += 2 * ((const struct rdma_receiver *)l->receivers.at[i])->base.slots;
	return l->queue_count > most;
}

/* ---- end ------------------------------------------------------------------------ */

/* What outsiders see of it has ended. */
static void stop(struct rdma_link *l, enum rdma_state state)
{
	struct rdma_inst *in = l->inst;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	atomic_fetch_sub(l->state == LINK_UP ? &in->up : &in->connecting, 1);
	l->state = state;
	/* From here on the device takes nothing in for this link and sends nothing out;
	 * what is under way is over when the service has destroyed the queue pair. */
	if (l->qp && state == LINK_DOWN)
		in->v.ibv_modify_qp(l->qp, &attr, IBV_QP_STATE);
	l->news = true;
	coll_rdma_kick(in);
}

void coll_rdma_link_fail(struct rdma_link *l, coll_status why, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	if (coll_peer_link_fail(&l->inst->links, &l->base, why, format, ap)) {
		/* Once for all rails; rails_tear() looks at them. */
		l->base.notice &= !l->down_reported;
		l->down_reported = true;
		if (l->base.rails > 1 || l->base.part > 0)
			atomic_store(&l->inst->links.torn, true);
		stop(l, LINK_DOWN);
	}
	va_end(ap);
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
	vsnprintf(l->base.cause, sizeof(l->base.cause), format, ap);
	va_end(ap);
	/* iWARP reports that a message was sent, not that it has arrived, so it is unknown what to resend. */
	if (l->base.lingering || l->mends++ >= RDMA_MENDS || atomic_load(&in->closed) ||
	    in->info.port[l->port->index].fabric == IBV_TRANSPORT_IWARP) {
		char cause[sizeof(l->base.cause)];

		memcpy(cause, l->base.cause, sizeof(cause));
		coll_rdma_link_fail(l, why, "%s", cause);
		return;
	}
	rdma_log(in, COLL_LOG_INFO, "%s: connecting again", l->base.cause);
	l->base.why = why;
	l->state = LINK_TORN;
	atomic_fetch_sub(&in->up, 1);
	atomic_fetch_add(&in->connecting, 1);
	in->v.ibv_modify_qp(l->qp, &attr, IBV_QP_STATE);
	l->broke_at = l->at;
	l->since_ns = coll_clock_ns();
	l->give_up_ns = l->since_ns + COLL_DELAY_NS(RDMA_MEND);
	if (l->give_up_ns < l->moved_ns + in->unreachable_ns)
		l->give_up_ns = l->moved_ns + in->unreachable_ns;
	atomic_fetch_add(&in->links.stale, 1);
	coll_rdma_kick(in);
}

void coll_rdma_link_ended(struct rdma_link *l)
{
	if (l->state != LINK_UP && l->state != LINK_TORN)
		return;
	coll_peer_link_ended(&l->inst->links, &l->base);
	stop(l, LINK_ENDED);
}

void coll_rdma_link_report(const struct rdma_link *l)
{
	rdma_log(l->inst, COLL_LOG_INFO,
	         "rdma: a link ends: sent %llu frames (%llu by reference, %llu waited for the address) and %llu notes, "
	         "%llu work requests in %llu doorbells; received %llu frames (%llu seen in their slots, %llu into "
	         "announced memory); %llu completions; %llu bytes copied; connected %u times",
	         (unsigned long long)l->frames_out, (unsigned long long)l->ref_out, (unsigned long long)l->waited,
	         (unsigned long long)l->notes_out, (unsigned long long)l->sq_tail, (unsigned long long)l->doorbells,
	         (unsigned long long)l->frames_in, (unsigned long long)l->polled_in, (unsigned long long)l->into_in,
	         (unsigned long long)l->moved, (unsigned long long)l->copied_bytes, l->connections);
}

void coll_rdma_link_free(struct rdma_link *l)
{
	struct rdma_inst *in = l->inst;
	const size_t from = offsetof(struct rdma_link, state);

	assert(!l->id);
	if (l->state == LINK_CONNECTING || l->state == LINK_TORN)
		atomic_fetch_sub(&in->connecting, 1);
	if (l->state == LINK_UP)
		atomic_fetch_sub(&in->up, 1);
	if (l->base.lingering)
		atomic_fetch_sub(&in->lingering, 1);
	free(l->queue);
	l->queue = NULL;
	l->queue_count = 0;
	while (l->closing)
		coll_rdma_sender_free(l->closing);
	while (l->senders)
		coll_rdma_sender_free(l->senders);
	for (uint32_t i = 0; i < l->receivers.cap; i++)
		if (l->receivers.at[i])
			coll_rdma_receiver_free(l->receivers.at[i]);
	for (uint32_t i = 0; i < l->grants.cap; i++)
		coll_rdma_sender_free_grant(l->grants.at[i]);
	coll_id_table_fini(&l->receivers);
	coll_id_table_fini(&l->grants);
	memset((char *)l + from, 0, sizeof(*l) - from);
	coll_peer_link_forget(&l->base);
}

/* Our last message has arrived, or the peer no longer exists. */
static bool finished(const struct rdma_link *l)
{
	return l->base.lingering &&
	       (l->state != LINK_UP || (l->bye_sent && l->queue_count == 0 && l->sq_done >= l->bye_seq));
}

/* The peer asked for this link and gave up before it was up; this side never opened it. If the peer asks again,
 * it gets another one. */
static bool abandoned(const struct rdma_link *l)
{
	return l->state == LINK_CONNECTING && l->stage == STAGE_IDLE && !l->mending;
}

static bool is_over(const struct rdma_link *l)
{
	return l->state == LINK_DOWN || l->state == LINK_ENDED;
}

void coll_rdma_link_compact(struct rdma_inst *in)
{
	if (atomic_exchange(&in->links.stale, 0) == 0)
		return;
	pthread_mutex_lock(&in->links.lock);
	for (uint32_t i = 0; i < in->links.count; i++) {
		struct rdma_link *l = (struct rdma_link *)in->links.at[i];

		pthread_mutex_lock(&l->base.lock);
		if ((is_over(l) && !l->buried) || (l->id && finished(l)))
			coll_rdma_cm_bury(l);
		else if (l->state == LINK_TORN && !l->base.lingering)
			coll_rdma_cm_tear(l);
		if (l->state != LINK_FREE && !l->id && l->base.opens == 0 && !l->base.notice &&
		    (l->base.lingering || is_over(l) || abandoned(l)))
			coll_rdma_link_free(l);
		else
			coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->base.lock);
	}
	pthread_mutex_unlock(&in->links.lock);
}

/*
 * A thread that goes to sleep increments armed and then reads news, or the state that it waits
 * for under this lock. A thread with new events sets news and then reads armed. Both are
 * sequentially consistent, so at least one of the two sees the other.
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
		coll_reactor_soon(&in->service);
}
