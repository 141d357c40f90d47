/*
 * Sends: eager, offered, to this rank itself; and the answers of receives. Whatever goes to one rank leaves in order,
 * except that answers do not wait for messages that have no room.
 */
#include "match/send.h"

#include <string.h>

#include "base/planted.h"
#include "match/receive.h"
#include "match/state.h"

void coll_tag_op_send(struct coll_tag_op *op, const void *buf, size_t count, coll_dtype type, int peer, int tag)
{
	*op = (struct coll_tag_op){.buf = (void *)(uintptr_t)buf,
	                           .count = count,
	                           .type = type,
	                           .peer = peer,
	                           .tag = tag,
	                           .source = -1,
	                           .dead = -1};
	coll_list_init(&op->link);
	coll_list_init(&op->posted.link);
}

static bool is_eager(const struct coll_tags *t, const struct coll_tag_op *op)
{
	return coll_tag_bytes(op) <= t->eager_max;
}

/* Cells of the receiver's pool. */
static uint32_t cost(const struct coll_tags *t, const struct coll_tag_op *op)
{
	return coll_matcher_cells(is_eager(t, op) ? coll_tag_bytes(op) : 0);
}

/* ---- Frames ---- */

/* OK: sent. AGAIN: not now. An error is kept. */
static coll_status post(struct coll_tags *t, struct coll_tag_peer *p, struct coll_envelope *e, const void *payload,
                        size_t payload_bytes)
{
	const struct coll_transport *transport = p->out->transport;
	const struct coll_frame frame = {p->sent + 1, t->signature, (uint32_t)(sizeof(*e) + payload_bytes)};
	void *slot;
	coll_status st = transport->slot(p->out->channel, sizeof(*e) + payload_bytes, &slot);

	if (st == COLL_OK) {
		e->cells = p->owed;
		memcpy(slot, e, sizeof(*e));
		if (payload_bytes > 0)
			memcpy((char *)slot + sizeof(*e), payload, payload_bytes);
		st = transport->post(p->out->channel, &frame);
	}
	if (st == COLL_OK) {
		p->sent++;
		p->owed = 0;
		p->granted = true;
	} else if (st != COLL_AGAIN) {
		coll_tag_lost(t, p, st);
	}
	return st;
}

/* Send a message, if there is room for it. */
static coll_status post_message(struct coll_tags *t, struct coll_tag_peer *p, struct coll_tag_op *op)
{
	const bool eager = is_eager(t, op);
	struct coll_envelope e = {.kind = eager ? COLL_ENVELOPE_EAGER : COLL_ENVELOPE_OFFER,
	                          .type = (uint8_t)op->type,
	                          .tag = op->tag,
	                          .count = op->count,
	                          .id = eager ? 0 : p->offered_last + 1};
	coll_status st;

	if (p->credit < cost(t, op))
		return COLL_AGAIN;
	st = post(t, p, &e, op->buf, eager ? coll_tag_bytes(op) : 0);
	if (st != COLL_OK)
		return st;
	p->credit -= cost(t, op);
	op->id = e.id;
	p->offered_last += !eager;
	return COLL_OK;
}

static coll_status post_answer(struct coll_tags *t, struct coll_tag_peer *p, struct coll_tag_op *op)
{
	struct coll_envelope e = {.kind = op->refuses ? COLL_ENVELOPE_DROP : COLL_ENVELOPE_PULL, .id = op->id};
	const coll_status st = planted(MATCH_SILENT) && op->refuses ? COLL_OK : post(t, p, &e, NULL, 0);

	if (st != COLL_OK)
		return st;
	if (op->refuses)
		coll_tag_finish(t, op, op->status);
	else
		coll_tag_move(op, COLL_TAG_BULK, &p->bulk[COLL_TAG_RECEIVE]);
	return COLL_OK;
}

/* Half of a share may be owed: the other half has room for the longest message. */
void coll_tag_give_back(struct coll_comm *comm, struct coll_tag_peer *p)
{
	struct coll_tags *t = comm->tagged.tags;
	struct coll_envelope e = {.kind = COLL_ENVELOPE_CREDIT};

	if (p->end == COLL_OK && p->owed >= t->matcher.share / 2)
		post(t, p, &e, NULL, 0);
}

static struct coll_tag_op *next_queued(const struct coll_tag_peer *p)
{
	if (planted(MATCH_OVERTAKE) && !coll_list_empty(&p->queue))
		return COLL_ENTRY(p->queue.prev, struct coll_tag_op, link);
	return coll_tag_first(&p->queue);
}

bool coll_tag_flush(struct coll_comm *comm, struct coll_tag_peer *p)
{
	struct coll_tags *t = comm->tagged.tags;
	const uint64_t before = p->sent;
	struct coll_tag_op *op;

	while (p->end == COLL_OK && (op = coll_tag_first(&p->answers)) && post_answer(t, p, op) == COLL_OK)
		;
	while (p->end == COLL_OK && (op = next_queued(p)) && post_message(t, p, op) == COLL_OK) {
		if (is_eager(t, op))
			coll_tag_finish(t, op, COLL_OK);
		else
			coll_tag_move(op, COLL_TAG_OFFERED, &p->offered);
	}
	coll_tag_give_back(comm, p);
	return p->sent != before;
}

/* ---- To this rank itself ---- */

/* The message of a send has been received or kept. False: there is no room for it. */
static bool pass(struct coll_comm *comm, struct coll_tag_op *op)
{
	struct coll_tags *t = comm->tagged.tags;
	struct coll_posted *p = coll_matcher_arrive(&t->matcher, comm->rank, op->tag);
	struct coll_message_head head = {.source = comm->rank,
	                                 .tag = op->tag,
	                                 .type = (uint8_t)op->type,
	                                 .here = is_eager(t, op),
	                                 .len_bytes = is_eager(t, op) ? (uint32_t)coll_tag_bytes(op) : 0,
	                                 .count = op->count,
	                                 .sender = is_eager(t, op) ? NULL : op};
	coll_status st;

	if (p) {
		coll_tag_hand_over(t, COLL_ENTRY(p, struct coll_tag_op, posted), op);
		return true;
	}
	st = coll_matcher_keep(&t->matcher, &head, op->buf);
	if (st == COLL_ERR_CORRUPT)
		return false;
	if (st != COLL_OK)
		coll_tag_fail(t, st, comm->rank, "no memory for messages that wait");
	else if (head.here)
		coll_tag_finish(t, op, COLL_OK);
	else
		coll_tag_move(op, COLL_TAG_OFFERED, &t->peers[comm->rank].offered);
	if (st == COLL_OK)
		coll_tag_show(t, &head);
	return true;
}

bool coll_tag_flush_self(struct coll_comm *comm)
{
	struct coll_tag_peer *self = &comm->tagged.tags->peers[comm->rank];
	struct coll_tag_op *op;
	bool moved = false;

	while ((op = coll_tag_first(&self->queue)) && comm->tagged.tags->fault.status == COLL_OK && pass(comm, op))
		moved = true;
	return moved;
}

bool coll_tags_take_back(struct coll_comm *comm, struct coll_tag_op *op)
{
	struct coll_tags *t = comm->tagged.tags;
	struct coll_arrival *a;
	bool waits;

	pthread_mutex_lock(&comm->tagged.lock);
	waits = !comm->tagged.closed && (op->state == COLL_TAG_QUEUED || op->state == COLL_TAG_OFFERED);
	if (waits) {
		a = coll_matcher_withdraw(&t->matcher, comm->rank, op);
		if (a)
			coll_matcher_release(&t->matcher, a);
		coll_tag_move(op, COLL_TAG_DONE, NULL);
		coll_tag_flush_self(comm); /* there may be room for others now */
	}
	pthread_mutex_unlock(&comm->tagged.lock);
	return waits;
}

/* ---- Interface ---- */

bool coll_tags_send_now(struct coll_comm *comm, struct coll_tag_op *op)
{
	struct coll_tags *t = comm->tagged.tags;
	struct coll_tag_peer *p = &t->peers[op->peer];
	bool sent;

	if (op->peer == comm->rank || !is_eager(t, op))
		return false;
	pthread_mutex_lock(&comm->tagged.lock);
	sent = !comm->tagged.closed && t->fault.status == COLL_OK && p->open && p->end == COLL_OK &&
	       coll_list_empty(&p->queue) && post_message(t, p, op) == COLL_OK;
	pthread_mutex_unlock(&comm->tagged.lock);
	return sent;
}

void coll_tags_send(struct coll_comm *comm, struct coll_tag_op *op)
{
	struct coll_tag_peer *p;

	pthread_mutex_lock(&comm->tagged.lock);
	if (!comm->tagged.closed) {
		p = &comm->tagged.tags->peers[op->peer];
		coll_tag_move(op, COLL_TAG_QUEUED, &p->queue);
		if (p->dead) {
			coll_tag_finish_dead(comm, op, p->rank);
		} else if (op->peer == comm->rank) {
			coll_tag_flush_self(comm);
		} else {
			coll_tag_open(comm, p, true);
			if (p->open && p->end == COLL_OK)
				coll_tag_flush(comm, p);
		}
	}
	pthread_mutex_unlock(&comm->tagged.lock);
}
