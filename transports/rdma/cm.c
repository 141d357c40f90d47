/*
 * Connections: asked for, accepted, refused, taken down. Either end may ask; when both
 * do at once, the one with the smaller process id wins: it refuses the other's request
 * when its own has been sent, and the other drops its own when the winner's comes. Everything runs under
 * service.lock; an event is acknowledged before it is acted upon, because destroying an
 * identifier waits for its events.
 */
#include "transports/rdma/cm.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/proof.h"
#include "transports/common/reach.h"
#include "transports/rdma/address.h"
#include "transports/rdma/channel.h"
#include "transports/rdma/device.h"
#include "transports/rdma/hello.h"
#include "transports/rdma/link.h"
#include "transports/rdma/memory.h"
#include "transports/rdma/rdma.h"
#include "transports/rdma/receiver.h"
#include "transports/rdma/requests.h"
#include "transports/rdma/rx.h"
#include "transports/rdma/sender.h"
#include "transports/rdma/tx.h"

enum { REJECTED_NOBODY_LISTENS = 8 };

struct event {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	size_t data_bytes;
	char data[256];
};

static bool before(const struct coll_process_id *a, const struct coll_process_id *b)
{
	return a->word[0] != b->word[0] ? a->word[0] < b->word[0] : a->word[1] < b->word[1];
}

/* ---- the queue pair -------------------------------------------------------------- */

static void destroy(struct rdma_inst *in, const struct rdma_corpse *c)
{
	if (c->id && c->id->qp)
		in->v.rdma_destroy_qp(c->id);
	if (c->cq && in->v.ibv_destroy_cq(c->cq) != 0)
		rdma_log(in, COLL_LOG_WARN, "[COLL-6502] rdma: cannot destroy a completion queue: %s", strerror(errno));
	if (c->notes_mr)
		in->v.ibv_dereg_mr(c->notes_mr);
	free(c->notes);
	if (c->id)
		in->v.rdma_destroy_id(c->id);
}

void coll_rdma_cm_corpses(struct rdma_inst *in, bool all)
{
	struct rdma_corpse **at = &in->corpses;

	while (*at) {
		struct rdma_corpse *c = *at;

		if (!all && !coll_rdma_device_active(c->port)) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		destroy(in, c);
		free(c);
	}
}

/* Both locks. While the port is not active the queue pair is left in the error state: then nothing is taken in for it
 * and nothing is sent, and no packet arrives anyhow. */
static void tear_down(struct rdma_link *l)
{
	struct rdma_inst *in = l->inst;
	const struct rdma_corpse body = {in->corpses, l->id, l->cq, l->notes_mr, l->notes, l->port};
	struct rdma_corpse *later = l->id && !coll_rdma_device_active(l->port) ? malloc(sizeof(*later)) : NULL;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (later && l->qp && in->v.ibv_modify_qp(l->qp, &attr, IBV_QP_STATE) != 0) {
		free(later);
		later = NULL;
	}
	if (later)
		*later = body;
	else
		destroy(in, &body);
	if (later)
		in->corpses = later;
	l->qp = NULL;
	l->cq = NULL;
	l->notes_mr = NULL;
	l->notes = NULL;
	l->id = NULL;
	l->stage = STAGE_IDLE;
}

static bool make_queue_pair(struct rdma_link *l)
{
	struct rdma_inst *in = l->inst;
	struct ibv_qp_init_attr attr = {.send_cq = l->cq,
	                                .recv_cq = l->cq,
	                                .cap = {.max_send_wr = RDMA_SENDS,
	                                        .max_recv_wr = RDMA_RECVS,
	                                        .max_send_sge = 2,
	                                        .max_recv_sge = 1,
	                                        .max_inline_data = RDMA_INLINE_BYTES},
	                                .qp_type = IBV_QPT_RC};

	if (in->v.rdma_create_qp(l->id, l->port->pd, &attr) != 0) {
		attr.cap.max_inline_data = 0;
		if (in->v.rdma_create_qp(l->id, l->port->pd, &attr) != 0)
			return false;
	}
	l->qp = l->id->qp;
	l->inline_bytes = attr.cap.max_inline_data;
	return true;
}

/* Everything a connection needs before it is asked for or accepted. */
static bool make_connection(struct rdma_link *l)
{
	struct rdma_inst *in = l->inst;
	const size_t note_bytes = (RDMA_SENDS + RDMA_RECVS) * (size_t)COLL_RDMA_NOTE_BYTES;

	if (l->id->verbs != l->port->device) {
		errno = ENODEV;
		return false;
	}
	l->notes = aligned_alloc(4096, note_bytes);
	l->notes_mr = l->notes ? coll_rdma_memory_pin(l->port, l->notes, note_bytes, false) : NULL;
	l->cq = l->notes_mr
	                ? in->v.ibv_create_cq(l->port->device, RDMA_SENDS + RDMA_RECVS + 8, l, l->port->completions, 0)
	                : NULL;
	if (!l->cq || !make_queue_pair(l))
		return false;
	l->sq_done = l->sq_signalled = l->sq_tail; /* the old queue pair is gone, if there was one */
	l->recvs = l->recvs_owed = 0;
	l->bye_sent = false;
	/* Urgent notes come to the service, whatever the callers do. */
	return ibv_req_notify_cq(l->cq, 1) == 0 && coll_rdma_rx_post_all(l);
}

static struct rdma_conn_param parameters(const struct rdma_inst *in, const struct coll_rdma_hello *m)
{
	return (struct rdma_conn_param){.private_data = m,
	                                .private_data_len = (uint8_t)coll_rdma_hello_bytes(m),
	                                .responder_resources = 1,
	                                .initiator_depth = 1,
	                                .retry_count = (uint8_t)in->retries,
	                                .rnr_retry_count = 7};
}

/* Options that a library or a kernel may not know: then its own values hold. */
static void tune(struct rdma_inst *in, struct rdma_cm_id *id)
{
	uint8_t timeout = (uint8_t)in->timeout_exponent, traffic = (uint8_t)in->traffic_class;

	if (in->v.rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1) != 0)
		rdma_log(in, COLL_LOG_DEBUG, "rdma: acknowledgement timeout %u: %s", timeout, strerror(errno));
	if (traffic && in->v.rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic, 1) != 0)
		rdma_log(in, COLL_LOG_WARN, "[COLL-6503] rdma: COLL_RDMA_TRAFFIC_CLASS=%u: %s", traffic,
		         strerror(errno));
}

/* ---- the end of a connection -------------------------------------------------------- */

/* Both locks. What waited for the device learns how it ended. */
void coll_rdma_cm_bury(struct rdma_link *l)
{
	const coll_status status = (coll_status)atomic_load(&l->base.status);
	const coll_status end = status > COLL_AGAIN ? status : COLL_ERR_ABORTED;

	if (l->cq)
		while (coll_rdma_rx_poll(l) > 0)
			; /* what had arrived or was sent before the end counts */
	tear_down(l);
	coll_rdma_tx_drop_log(l, UINT64_MAX, end);
	while (l->queue_count > 0) {
		const struct rdma_entry e = l->queue[l->queue_first++ & (l->queue_cap - 1)];

		l->queue_count--;
		if (e.completion)
			coll_completion_settle(e.completion, end);
		coll_rdma_sender_unqueued(&e);
	}
	l->sq_done = l->sq_tail;
	for (struct rdma_sender *s = l->senders; s; s = s->next)
		coll_rdma_sender_drop_waiting(s, end);
	for (struct rdma_sender *s = l->closing; s; s = s->next)
		coll_rdma_sender_drop_waiting(s, end);
	coll_rdma_sender_sweep(l);
	for (uint32_t i = 0; i < l->receivers.cap; i++) {
		struct rdma_receiver *r = l->receivers.at[i];

		if (r)
			coll_rdma_receiver_settle(r, end);
		if (r && r->draining)
			coll_rdma_receiver_free(r);
	}
	if (l->connections > 0 && !l->buried)
		coll_rdma_link_report(l);
	l->buried = true;
	l->news = true;
	atomic_fetch_add(&l->inst->links.stale, 1);
}

/* Both locks. What has arrived is taken in, to the last; then nothing more can. */
void coll_rdma_cm_tear(struct rdma_link *l)
{
	const uint64_t until = coll_clock_ns() + COLL_DELAY_NS(RDMA_FLUSH);

	assert(l->state == LINK_TORN);
	while ((coll_rdma_rx_poll(l) > 0 || l->recvs_posted > 0) && coll_clock_ns() < until && l->state == LINK_TORN)
		sched_yield();
	if (l->state != LINK_TORN)
		return; /* ended by what came last, or failed */
	tear_down(l);
	l->state = LINK_CONNECTING;
	l->mending = true;
	l->retry_ns = 0;
	l->recvs = l->recvs_owed = 0;
	coll_rdma_receiver_forget_announcements(l);
}

/* ---- asking --------------------------------------------------------------------------- */

static void retry_later(struct rdma_link *l, uint64_t now, unsigned ms)
{
	tear_down(l);
	l->retry_ns = now + ms * COLL_NS_PER_MS;
	if (l->base.opens == 0) /* nobody here will try */
		atomic_fetch_add(&l->inst->links.stale, 1);
}

/* What cut the connection is still in the way. */
static void give_up(struct rdma_link *l)
{
	char cause[sizeof(l->base.cause)];

	memcpy(cause, l->base.cause, sizeof(cause));
	coll_rdma_link_fail(l, COLL_ERR_PEER_SILENT, "%s, and not connected again in time", cause);
}

/* A host with more to do than it can needs longer than the first attempt allows. */
static uint64_t attempt_ns(struct rdma_link *l)
{
	const unsigned again = l->attempts < 2 ? l->attempts++ : 2;

	return l->mending ? COLL_DELAY_NS(RDMA_MEND_CONNECT) : COLL_DELAY_NS(RDMA_CONNECT) << again;
}

/* An attempt that gets on is not cut short. */
static void renew(struct rdma_link *l)
{
	const uint64_t until =
	        coll_clock_ns() +
	        (l->mending ? COLL_DELAY_RDMA_MEND_CONNECT_MS : COLL_DELAY_RDMA_CONNECT_MS) * COLL_NS_PER_MS;

	if (l->deadline_ns < until)
		l->deadline_ns = until;
}

static void set_limit(struct rdma_link *l, uint64_t now)
{
	if (!l->give_up_ns)
		l->give_up_ns = now + l->inst->unreachable_ns;
}

/* The time limit for attempts to a peer that exists or may exist; the watchdog decides whether it is dead or
 * late. */
static uint64_t silence_ns(const struct rdma_link *l)
{
	return l->give_up_ns + (l->mending ? 0 : l->inst->timeout_ns - l->inst->unreachable_ns);
}

/* Of a link that was up. */
static bool is_over(const struct rdma_link *l, uint64_t now)
{
	return coll_reach_is_over(l->give_up_ns, l->inst->unreachable_ns, l->heard_ns, now);
}

/* An attempt has failed; for a moment that may be so. there: the peer has said something, so it is no
 * matter of the way. */
static void not_made(struct rdma_link *l, const char *what, int e, bool there)
{
	const uint64_t now = coll_clock_ns();
	uint64_t limit;
	char path[200];

	set_limit(l, now);
	limit = there ? silence_ns(l) : l->give_up_ns;
	coll_rdma_path_text(l, path, sizeof(path));
	rdma_log(l->inst, COLL_LOG_DEBUG, "rdma %s: %s%s%s", path, what, e ? ": " : "", e ? strerror(e) : "");
	if (l->mending && is_over(l, now))
		give_up(l);
	else if (now >= limit && !l->mending)
		coll_rdma_link_fail(l, COLL_ERR_PEER_DEAD, "rdma %s: %s%s%s", path, what, e ? ": " : "",
		                    e ? strerror(e) : "");
	retry_later(l, now, COLL_DELAY_RDMA_AGAIN_MS);
}

/* The way there is not open. */
static void not_reached(struct rdma_link *l, const char *what, int e)
{
	not_made(l, what, e, false);
}

static void ask(struct rdma_link *l, uint64_t now)
{
	struct rdma_inst *in = l->inst;
	struct sockaddr_storage from, to;

	coll_rdma_spot_sockaddr(&in->info.port[l->port->index], 0, &from);
	coll_rdma_spot_sockaddr(&l->target, l->target.listens, &to);
	set_limit(l, now);
	if (!coll_rdma_device_active(l->port)) {
		not_reached(l, "the port is not active", 0);
		return;
	}
	if (in->v.rdma_create_id(in->cm, &l->id, l, RDMA_PS_TCP) != 0) {
		l->id = NULL;
		not_reached(l, "no identifier of the connection manager", errno);
		return;
	}
	tune(in, l->id);
	l->asked = true;
	l->stage = STAGE_ADDRESS;
	l->deadline_ns = now + attempt_ns(l);
	if (in->v.rdma_resolve_addr(l->id, (struct sockaddr *)&from, (struct sockaddr *)&to,
	                            COLL_DELAY_RDMA_RESOLVE_MS) != 0)
		not_reached(l, "the peer's address cannot be resolved", errno);
}

static void ask_on(struct rdma_link *l)
{
	struct rdma_inst *in = l->inst;
	struct coll_rdma_hello m;
	struct rdma_conn_param p;

	if (!make_connection(l)) {
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma %s: no queue pair for a connection: %s", l->port->where,
		                    strerror(errno));
		return;
	}
	coll_rdma_requests_nonce(l);
	coll_rdma_hello_make(&m, in, l->mending ? COLL_RDMA_ASK_AGAIN : COLL_RDMA_ASK, &l->base.peer, l->nonce, NULL,
	                     l);
	p = parameters(in, &m);
	l->stage = STAGE_CONNECT;
	if (in->v.rdma_connect(l->id, &p) != 0)
		not_reached(l, "connect", errno);
}

/* The peer has accepted; its answer proves that it is the peer. */
static void answered(struct rdma_link *l, const struct event *e)
{
	struct rdma_inst *in = l->inst;
	struct coll_rdma_hello m;
	struct coll_proof proof;
	const char *wrong =
	        coll_rdma_hello_check(e->data, e->data_bytes, in, COLL_RDMA_ANSWER, &l->base.peer, l->nonce, &m);

	if (wrong) {
		rdma_log(in, COLL_LOG_WARN, "[COLL-6504] rdma: an answer from %.24s is refused: %s", l->target.device,
		         wrong);
		retry_later(l, coll_clock_ns(), COLL_DELAY_RDMA_AGAIN_MS);
		return;
	}
	l->recvs = m.recvs;
	l->peer_items = m.items;
	proof = coll_rdma_hello_proof(in, &in->env.self, l->nonce, m.nonce, l->items_in);
	if (coll_rdma_tx_proof(l, &proof))
		coll_rdma_link_up(l);
}

/* ---- being asked ------------------------------------------------------------------------ */

static void refuse(struct rdma_inst *in, struct rdma_cm_id *id, const char *why, bool for_good)
{
	const uint8_t gone = COLL_RDMA_GONE;

	rdma_log(in, COLL_LOG_DEBUG, "rdma: a connection is refused: %s", why);
	in->v.rdma_reject(id, for_good ? &gone : NULL, for_good ? 1 : 0);
	in->v.rdma_destroy_id(id);
}

/* Over the way that the asking end has chosen. */
static bool accept_it(struct rdma_link *l, struct rdma_cm_id *id, struct rdma_port *port,
                      const struct coll_rdma_hello *m)
{
	struct rdma_inst *in = l->inst;
	struct coll_rdma_hello answer;
	struct rdma_conn_param p;

	tear_down(l); /* our own attempt, or one that never proved itself */
	l->id = id;
	id->context = l;
	l->asked = false;
	memcpy(l->other, m->nonce, sizeof(l->other));
	coll_nonce(&in->nonces, l->nonce);
	l->deadline_ns = coll_clock_ns() + attempt_ns(l);
	l->port = port;
	if ((l->at != m->way && !coll_rdma_cm_aim(l, m->way)) || !make_connection(l))
		return false;
	l->recvs = m->recvs;
	tune(in, id);
	coll_rdma_hello_make(&answer, in, COLL_RDMA_ANSWER, &m->from, l->nonce, m->nonce, l);
	p = parameters(in, &answer);
	l->stage = STAGE_ACCEPTED;
	return in->v.rdma_accept(id, &p) == 0;
}

/* It comes by a pair of ports of the link, if those are known here. */
static bool fits(const struct rdma_link *l, const struct rdma_port *port, uint32_t way)
{
	return l->ways == 0 || (way < l->ways && l->way[way].port == port);
}

/* Ours counts once the peer may have it: until then it may wait for an address for a second, as long as the kernel does
 * before it asks the network again. One over the way that broke yields to one over another. */
static bool ours_counts(const struct rdma_link *l, uint32_t way)
{
	return l->asked && l->stage == STAGE_CONNECT && before(&l->inst->env.self, &l->base.peer) &&
	       (l->at == way || l->at != l->broke_at);
}

static void asked_for(struct rdma_link *l, struct rdma_port *port, struct rdma_cm_id *id,
                      const struct coll_rdma_hello *m)
{
	if (!l->port) {
		l->port = port;
		l->at = l->broke_at = m->way;
	}
	/* The peer has noticed first that the connection is gone. */
	if (l->state == LINK_UP && m->type == COLL_RDMA_ASK_AGAIN && fits(l, port, m->way)) {
		if (!coll_rdma_requests_proved(l, id, m))
			return;
		coll_rdma_link_torn(l, COLL_ERR_PEER_DEAD, "rdma %s: the peer's end broke", l->port->where);
	}
	if (l->state == LINK_TORN)
		coll_rdma_cm_tear(l);
	if (l->state != LINK_CONNECTING || !fits(l, port, m->way) || ours_counts(l, m->way)) {
		refuse(l->inst, id, "the link is connected, or this rank is connecting it", false);
	} else if (!accept_it(l, id, port, m)) {
		rdma_log(l->inst, COLL_LOG_WARN, "[COLL-6505] rdma: %s cannot accept a connection: %s", l->port->where,
		         strerror(errno));
		retry_later(l, coll_clock_ns(), COLL_DELAY_RDMA_AGAIN_MS);
	}
}

static void asked(struct rdma_inst *in, const struct event *e)
{
	struct rdma_port *port = coll_rdma_device_port(in, e->id);
	struct coll_rdma_hello m;
	const char *wrong = coll_rdma_requests_read(in, e->data, e->data_bytes, &m);
	struct rdma_link *l;

	if (!wrong && !port)
		wrong = "it comes by a port that is not used";
	if (wrong || atomic_load(&in->closed)) {
		refuse(in, e->id, wrong ? wrong : "closed", false);
		return;
	}
	pthread_mutex_lock(&in->links.lock);
	l = (struct rdma_link *)coll_link_table_find(&in->links, &m.from, m.rail);
	if (!l && m.type == COLL_RDMA_ASK)
		l = (struct rdma_link *)coll_link_table_new(&in->links, &m.from, m.rail);
	pthread_mutex_unlock(&in->links.lock);
	if (!l) {
		refuse(in, e->id, "no such link", m.type == COLL_RDMA_ASK_AGAIN);
		return;
	}
	pthread_mutex_lock(&l->base.lock);
	asked_for(l, port, e->id, &m);
	pthread_mutex_unlock(&l->base.lock);
}

/* ---- events ------------------------------------------------------------------------------- */

static void refused(struct rdma_link *l, const struct event *e)
{
	const bool nobody = e->status == REJECTED_NOBODY_LISTENS,
	           gone = e->data_bytes > 0 && e->data[0] == COLL_RDMA_GONE;
	char path[200];

	coll_rdma_path_text(l, path, sizeof(path));
	if (l->mending && (nobody || gone)) {
		coll_rdma_link_fail(l, COLL_ERR_PEER_DEAD, "rdma %s: the peer's %s ended without notice", path,
		                    nobody ? "process" : "end");
		retry_later(l, coll_clock_ns(), COLL_DELAY_RDMA_AGAIN_MS);
	} else if (coll_rdma_requests_challenged(l, e->data, e->data_bytes))
		retry_later(l, coll_clock_ns(), 0);
	else if (nobody)
		not_reached(l, "no process listens there: the peer's process has ended", 0);
	else
		retry_later(l, coll_clock_ns(), (l->mending ? 2 : 4) * COLL_DELAY_RDMA_AGAIN_MS);
}

static void disconnected(struct rdma_link *l)
{
	char path[200];

	while (l->state == LINK_UP && coll_rdma_rx_poll(l) > 0)
		;
	coll_rdma_path_text(l, path, sizeof(path));
	if (l->state == LINK_UP)
		coll_rdma_link_torn(l, COLL_ERR_PEER_DEAD, "rdma %s: the peer's end closed without notice", path);
	else if (l->state == LINK_CONNECTING)
		retry_later(l, coll_clock_ns(), COLL_DELAY_RDMA_AGAIN_MS);
}

/* What befalls an attempt. */
static void attempt_event(struct rdma_link *l, const struct event *e)
{
	struct rdma_inst *in = l->inst;
	const int error = e->status < 0 ? -e->status : 0;

	switch (e->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		l->stage = STAGE_ROUTE;
		renew(l);
		if (in->v.rdma_resolve_route(l->id, COLL_DELAY_RDMA_RESOLVE_MS) != 0)
			not_reached(l, "no route", errno);
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		renew(l);
		ask_on(l);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (l->asked)
			answered(l, e);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR: not_reached(l, in->v.rdma_event_str(e->type), error); break;
	case RDMA_CM_EVENT_UNREACHABLE: /* who has accepted misses the last word of a peer that asked */
		not_made(l, in->v.rdma_event_str(e->type), error, !l->asked);
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR: /* the peer has answered, too late for one of us */
		not_made(l, in->v.rdma_event_str(e->type), error, true);
		break;
	case RDMA_CM_EVENT_REJECTED: refused(l, e); break;
	default: break;
	}
}

/* A refusal may arrive on a link that is up: the peer has checked our proof and ended before its
 * connection manager received our last message, which a busy kernel delivers late. */
static void link_event(struct rdma_link *l, const struct event *e)
{
	if (e->type == RDMA_CM_EVENT_DISCONNECTED || (e->type == RDMA_CM_EVENT_REJECTED && l->state == LINK_UP))
		disconnected(l);
	else if (e->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma %s: the device was removed", l->port->where);
	else if (l->state == LINK_CONNECTING) /* not when the proof has come before the manager's last word */
		attempt_event(l, e);
}

static bool take_event(struct rdma_inst *in, struct event *e)
{
	struct rdma_cm_event *got;

	if (in->v.rdma_get_cm_event(in->cm, &got) != 0)
		return false;
	*e = (struct event){.type = got->event, .status = got->status, .id = got->id};
	if (got->param.conn.private_data) {
		e->data_bytes = got->param.conn.private_data_len;
		memcpy(e->data, got->param.conn.private_data, e->data_bytes);
	}
	in->v.rdma_ack_cm_event(got);
	return true;
}

void coll_rdma_cm_events(struct rdma_inst *in)
{
	struct event e;

	for (int i = 0; i < 64 && take_event(in, &e); i++) {
		struct rdma_link *l = e.id->context;

		if (e.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
			asked(in, &e);
			continue;
		}
		if (!l)
			continue;
		pthread_mutex_lock(&l->base.lock);
		if (l->id == e.id)
			link_event(l, &e);
		coll_rdma_link_leave(l);
		pthread_mutex_unlock(&l->base.lock);
	}
}

void coll_rdma_cm_pursue(struct rdma_link *l, uint64_t now_ns)
{
	if (l->state != LINK_CONNECTING || l->base.lingering)
		return;
	if (l->stage == STAGE_ACCEPTED)
		coll_rdma_rx_poll(l); /* its proof */
	if (l->state != LINK_CONNECTING)
		return;
	if (l->mending && is_over(l, now_ns)) {
		give_up(l);
		return;
	}
	if (l->stage != STAGE_IDLE && now_ns >= l->deadline_ns) {
		if (l->asked && now_ns >= silence_ns(l))
			not_made(l, "the peer does not answer", 0, true);
		else
			retry_later(l, now_ns, COLL_DELAY_RDMA_AGAIN_MS);
	}
	if (l->state == LINK_CONNECTING && l->stage == STAGE_IDLE && l->base.opens > 0 && now_ns >= l->retry_ns)
		ask(l, now_ns);
}

bool coll_rdma_cm_aim(struct rdma_link *l, unsigned way)
{
	if (l->asked)
		tear_down(l);
	l->at = way;
	l->since_ns = coll_clock_ns();
	l->retry_ns = 0;
	if (way < l->ways) {
		l->port = l->way[way].port;
		l->target = l->way[way].target;
	}
	rdma_log(l->inst, COLL_LOG_INFO, "rdma: rail %u is lost (%.160s), and goes on over %s", l->base.part + 1,
	         l->base.cause[0] ? l->base.cause : "it was never connected", l->port->where);
	if (coll_rdma_channel_pin_all(l))
		return true;
	coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma %s: no memory can be registered for a rail that was lost",
	                    l->port->where);
	return false;
}
