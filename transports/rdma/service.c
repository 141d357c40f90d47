/*
 * The service thread's work: connections, urgent notes, what calls left behind, and
 * whether idle peers are still there. Everything runs under service.lock and is bounded.
 */
#include "transports/rdma/service.h"

#include "base/clock.h"
#include "base/delay.h"
#include "transports/common/reach.h"
#include "transports/rdma/cm.h"
#include "transports/rdma/link.h"
#include "transports/rdma/rails.h"
#include "transports/rdma/rdma.h"
#include "transports/rdma/rx.h"
#include "transports/rdma/tx.h"

/* The control plane is asked without the lock of the link. */
static uint64_t heard_elsewhere(struct rdma_link *l, uint64_t now)
{
	uint64_t until_ns;

	pthread_mutex_lock(&l->base.lock);
	until_ns = l->mending && l->state == LINK_CONNECTING && !l->base.lingering ? l->give_up_ns : UINT64_MAX;
	pthread_mutex_unlock(&l->base.lock);
	if (until_ns == UINT64_MAX)
		return 0;
	return coll_reach_heard_ns(&l->inst->env, &l->base.peer, until_ns, l->inst->unreachable_ns, now);
}

static void pursue_all(struct rdma_inst *in)
{
	struct rdma_link *l;

	if (atomic_load(&in->connecting) == 0)
		return;
	for (uint32_t i = 0; (l = coll_rdma_link_at(in, i)); i++) {
		const uint64_t heard_ns = heard_elsewhere(l, coll_clock_ns());

		coll_rdma_rails_pursue(l, coll_clock_ns());
		pthread_mutex_lock(&l->base.lock);
		l->heard_ns = heard_ns;
		coll_rdma_cm_pursue(l, coll_clock_ns());
		coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->base.lock);
	}
}

/* An event disarms its queue. Armed again first and polled then, nothing is missed. */
static int take_events(const struct rdma_port *port)
{
	struct rdma_inst *in = port->inst;
	struct ibv_cq *cq;
	void *context;
	int happened = 0;

	while (in->v.ibv_get_cq_event(port->completions, &cq, &context) == 0) {
		struct rdma_link *l = context;

		in->v.ibv_ack_cq_events(cq, 1);
		pthread_mutex_lock(&l->base.lock);
		if (l->cq == cq) {
			ibv_req_notify_cq(cq, 1);
			happened += coll_rdma_rx_poll(l);
		}
		coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->base.lock);
	}
	return happened;
}

int coll_rdma_service_completions(struct rdma_inst *in)
{
	int happened = 0;

	for (unsigned i = 0; i < in->ports; i++)
		happened += take_events(&in->port[i]);
	return happened;
}

/* What calls left behind when they returned. */
static void flush_idle(struct rdma_inst *in)
{
	struct rdma_link *l;

	for (uint32_t i = 0; (l = coll_rdma_link_at(in, i)); i++) {
		pthread_mutex_lock(&l->base.lock);
		if (l->state == LINK_UP && (l->queue_count > 0 || l->due > 0 || l->base.lingering)) {
			coll_rdma_tx_credits(l);
			coll_rdma_tx_push(l);
			coll_rdma_rx_poll(l);
		}
		coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->base.lock);
	}
}

/* A link on which nothing has completed since the last look writes nothing, visibly:
 * the device of a peer that is there acknowledges it, one that is not ends the link. */
static void ask_for_life(struct rdma_inst *in, uint64_t now)
{
	struct rdma_link *l;

	if (now - in->liveness_ns < COLL_DELAY_NS(RDMA_TICK) / 2)
		return;
	in->liveness_ns = now;
	for (uint32_t i = 0; (l = coll_rdma_link_at(in, i)); i++) {
		pthread_mutex_lock(&l->base.lock);
		if (l->state == LINK_UP) {
			coll_rdma_rx_poll(l);
			if (l->moved == l->moved_at_tick)
				coll_rdma_tx_ping(l);
			l->moved_at_tick = l->moved;
		}
		coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->base.lock);
		coll_rdma_rails_listen(l, now);
	}
}

/* ---- what the reactor calls -------------------------------------------------------- */

static bool tick(void *inst, bool soon)
{
	struct rdma_inst *in = inst;

	if (soon || atomic_load(&in->lingering) > 0)
		flush_idle(in);
	ask_for_life(in, coll_clock_ns());
	return false;
}

static uint32_t interval_ms(void *inst)
{
	const struct rdma_inst *in = inst;

	if (atomic_load(&in->lingering) > 0)
		return COLL_DELAY_REACTOR_SOON_MS;
	if (atomic_load(&in->connecting) > 0 || in->corpses)
		return COLL_DELAY_RDMA_AGAIN_MS;
	return atomic_load(&in->up) > 0 ? COLL_DELAY_RDMA_TICK_MS : 0;
}

static void event(void *inst, uint64_t tag)
{
	if (tag == RDMA_TAG_CM)
		coll_rdma_cm_events(inst);
	else
		coll_rdma_service_completions(inst);
}

static void after(void *inst)
{
	pursue_all(inst);
	coll_rdma_link_compact(inst);
	coll_rdma_cm_corpses(inst, false);
}

const struct coll_reactor_table coll_rdma_service_table = {event, tick, after, interval_ms};

void coll_rdma_service(void *inst)
{
	struct rdma_inst *in = inst;

	coll_reactor_serve(&in->service);
	coll_rdma_rails_tear(in);
	coll_link_table_notify(&in->links, &in->env, "rdma");
}
