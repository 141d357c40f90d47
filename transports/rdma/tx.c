/*
 * The way out. Frames and notes wait in the link's queue until the send queue has room
 * and the peer a receive, and leave in order, several per doorbell. Notes that give
 * receives back do not wait in the queue, and may use the last receive: so two ends that
 * have run out free each other.
 */
#include "transports/rdma/tx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transports/rdma/link.h"
#include "transports/rdma/rdma.h"
#include "transports/rdma/receiver.h"
#include "transports/rdma/sender.h"
#include "transports/rdma/sums.h"

/* Work requests of one doorbell, and the pieces of memory they name. */
struct chain {
	struct ibv_send_wr wr[RDMA_CHAIN];
	struct ibv_sge sge[2 * RDMA_CHAIN];
	int n, sges;
};

static uint32_t in_flight(const struct rdma_link *l)
{
	return (uint32_t)(l->sq_tail - l->sq_done);
}

coll_status coll_rdma_tx_reserve(struct rdma_link *l, uint32_t entries)
{
	const uint32_t need = l->queue_count + entries;
	uint32_t cap = l->queue_cap ? l->queue_cap : 32;
	struct rdma_entry *grown;

	while (cap < need)
		cap *= 2;
	if (cap == l->queue_cap)
		return COLL_OK;
	grown = calloc(cap, sizeof(*grown));
	if (!grown)
		return COLL_ERR_MEMORY;
	for (uint32_t i = 0; i < l->queue_count; i++)
		grown[i] = l->queue[(l->queue_first + i) & (l->queue_cap - 1)];
	free(l->queue);
	l->queue = grown;
	l->queue_cap = cap;
	l->queue_first = 0;
	return COLL_OK;
}

void coll_rdma_tx(struct rdma_link *l, const struct rdma_entry *e)
{
	if (!rdma_works(l))
		return;
	if (l->queue_count == l->queue_cap && coll_rdma_tx_reserve(l, 1) != COLL_OK) {
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma: no memory to queue a frame");
		return;
	}
	l->queue[(l->queue_first + l->queue_count++) & (l->queue_cap - 1)] = *e;
	if (e->sender)
		e->sender->queued++;
}

void coll_rdma_tx_note(struct rdma_link *l, const struct coll_rdma_note *note)
{
	const struct rdma_entry e = {.note = *note};

	coll_rdma_tx(l, &e);
}

void coll_rdma_tx_first(struct rdma_link *l, const struct coll_rdma_note *note)
{
	if (!rdma_works(l))
		return;
	if (coll_rdma_tx_reserve(l, 1) != COLL_OK) {
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma: no memory to queue a note");
		return;
	}
	l->queue[--l->queue_first & (l->queue_cap - 1)] = (struct rdma_entry){.note = *note};
	l->queue_count++;
}

/* ---- building ----------------------------------------------------------------- */

static struct ibv_send_wr *add(struct rdma_link *l, struct chain *c, enum ibv_wr_opcode opcode, bool visible)
{
	struct ibv_send_wr *wr = &c->wr[c->n++];

	*wr = (struct ibv_send_wr){.wr_id = ++l->sq_tail, .sg_list = &c->sge[c->sges], .opcode = opcode};
	if (visible || l->sq_tail - l->sq_signalled >= RDMA_SIGNAL_EVERY) {
		wr->send_flags = IBV_SEND_SIGNALED;
		l->sq_signalled = l->sq_tail;
	}
	if (c->n > 1)
		c->wr[c->n - 2].next = wr;
	return wr;
}

static void piece(struct chain *c, struct ibv_send_wr *wr, const void *ptr, size_t len_bytes, uint32_t lkey)
{
	c->sge[c->sges++] = (struct ibv_sge){(uint64_t)(uintptr_t)ptr, (uint32_t)len_bytes, lkey};
	wr->num_sge++;
}

static void finish(const struct rdma_link *l, struct ibv_send_wr *wr)
{
	size_t total = 0;

	for (int i = 0; i < wr->num_sge; i++)
		total += wr->sg_list[i].length;
	if (total <= l->inline_bytes)
		wr->send_flags |= IBV_SEND_INLINE;
}

static uint16_t take_recvs(struct rdma_link *l)
{
	const uint32_t owed = l->recvs_owed;

	l->recvs_owed = 0;
	return (uint16_t)owed;
}

static bool urgent(const struct coll_rdma_note *note)
{
	return note->type == COLL_RDMA_NOTE_PROOF || note->type == COLL_RDMA_NOTE_CLOSE ||
	       note->type == COLL_RDMA_NOTE_CLOSED || note->type == COLL_RDMA_NOTE_LOST ||
	       note->type == COLL_RDMA_NOTE_BYE;
}

/* An item is on its way. */
static void log_item(struct rdma_link *l, const struct rdma_entry *e, uint64_t seq)
{
	struct rdma_entry *kept = &l->log[(l->log_first + l->log_count++) % RDMA_SENDS];

	*kept = *e;
	kept->seq = seq;
	if (e->sender)
		e->sender->logged++;
}

static struct ibv_send_wr *build_send(struct rdma_link *l, struct chain *c, const struct coll_rdma_note *note,
                                      bool visible)
{
	struct ibv_send_wr *wr = add(l, c, IBV_WR_SEND, visible);
	/* Free again: what was sent from here before is complete. */
	struct coll_rdma_note *out =
	        (struct coll_rdma_note *)(void *)(l->notes + wr->wr_id % RDMA_SENDS * COLL_RDMA_NOTE_BYTES);

	*out = *note;
	out->recvs = take_recvs(l);
	piece(c, wr, out, sizeof(*out), l->notes_mr->lkey);
	if (urgent(note))
		wr->send_flags |= IBV_SEND_SOLICITED;
	finish(l, wr);
	l->recvs--;
	l->notes_out++;
	return wr;
}

static void build_note(struct rdma_link *l, struct chain *c, const struct coll_rdma_note *note)
{
	struct rdma_entry item = {.note = *note};
	const struct ibv_send_wr *wr;

	if (note->type == COLL_RDMA_NOTE_GRANT)
		item.note.grant.rkey = coll_rdma_receiver_key(l, note->id);
	wr = build_send(l, c, &item.note, note->type == COLL_RDMA_NOTE_BYE);
	if (note->type == COLL_RDMA_NOTE_BYE) {
		l->bye_sent = true;
		l->bye_seq = wr->wr_id;
	}
	if (note->type != COLL_RDMA_NOTE_PROOF && note->type != COLL_RDMA_NOTE_KEYS)
		log_item(l, &item, wr->wr_id);
}

/* Slots of the other direction that are owed travel along. */
static void take_credits(struct rdma_link *l, struct rdma_entry *e)
{
	struct rdma_receiver *r = l->owing;

	if (!r || e->again)
		return;
	e->credit_id = r->id;
	e->credits = (uint16_t)(r->owed > UINT16_MAX ? UINT16_MAX : r->owed);
	r->owed -= e->credits;
	coll_rdma_receiver_forget_owed(r);
}

static bool fits_one_message(const struct rdma_link *l, const struct rdma_entry *e)
{
	const uint32_t n = e->frame.len_bytes;

	return !e->loaned && coll_rdma_padded(n) + coll_rdma_sums_tail(l->inst, n) <= l->port->message_max;
}

/* Where the receiver wants it; NULL: in its slot. */
static const struct rdma_target *goes_into(const struct rdma_grant *g, const struct rdma_entry *e)
{
	const struct rdma_target *t = rdma_target_of(g, e->number);

	return t && coll_same_frame(&t->expect, &e->frame) ? t : NULL;
}

static uint32_t requests_of(const struct rdma_link *l, const struct rdma_entry *e)
{
	const size_t max = l->port->message_max;

	if (!e->sender || e->fence)
		return 1;
	if (fits_one_message(l, e) && !goes_into(e->sender->grant, e))
		return 1 + !l->port->immediates;
	return 1 + !l->port->immediates + (uint32_t)((e->frame.len_bytes + max - 1) / max);
}

static void build_payload(struct rdma_link *l, struct chain *c, const char *from, uint32_t lkey, size_t len_bytes,
                          uint64_t to, uint32_t rkey)
{
	while (len_bytes > 0) {
		const size_t n = len_bytes < l->port->message_max ? len_bytes : l->port->message_max;
		struct ibv_send_wr *wr = add(l, c, IBV_WR_RDMA_WRITE, false);

		wr->wr.rdma.remote_addr = to;
		wr->wr.rdma.rkey = rkey;
		piece(c, wr, from, n, lkey);
		from += n;
		to += n;
		len_bytes -= n;
	}
}

/* That the frame is there: with an immediate, or where there are none by a note behind it.
 * Uses up a receive of the peer. */
static const struct ibv_send_wr *build_arrival(struct rdma_link *l, struct chain *c, struct ibv_send_wr *wr,
                                               uint32_t word, bool visible)
{
	const struct coll_rdma_note note = {.type = COLL_RDMA_NOTE_FRAME, .word = {word}};

	finish(l, wr);
	if (wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
		return build_send(l, c, &note, visible);
	wr->imm_data = htobe32(word);
	l->recvs--;
	return wr;
}

static void build_frame(struct rdma_link *l, struct chain *c, struct rdma_entry *e)
{
	struct rdma_sender *s = e->sender;
	struct rdma_grant *g = s->grant;
	const struct rdma_ring *ring = &s->base.ring;
	const uint64_t slot = e->number % s->base.slots;
	const size_t pad = coll_rdma_padded(e->frame.len_bytes);
	const struct rdma_target *into = goes_into(g, e);
	const bool one = fits_one_message(l, e) && !into;
	const char *from = e->loaned ? e->loaned : ring->memory + slot * ring->stride;
	const struct ibv_mr *mr = ring->mr[l->port->index];
	const uint32_t lkey = e->loaned ? e->region->mr[l->port->index]->lkey : mr->lkey;
	const uint64_t head_to = g->ring + slot * ring->stride + ring->room;
	struct coll_rdma_head *head = rdma_head_at(ring, slot);
	const bool imm = l->port->immediates;
	struct ibv_send_wr *wr;
	uint64_t seq;

	if (!one)
		build_payload(l, c, from, lkey, e->frame.len_bytes, into ? into->ptr : head_to - pad,
		              into ? into->rkey : g->rkey);
	take_credits(l, e);
	*head = (struct coll_rdma_head){.frame = e->frame,
	                                .number = (uint32_t)e->number,
	                                .recvs = take_recvs(l),
	                                .credit_id = e->credit_id,
	                                .credits = e->credits};
	if (one && e->frame.len_bytes <= COLL_RDMA_POLLED_BYTES && l->inst->polled)
		head->check = coll_rdma_check(head, from);
	if (l->inst->check)
		coll_rdma_sums_put(l->inst, head, from);
	wr = add(l, c, imm ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, imm && e->completion);
	wr->wr.rdma.rkey = g->rkey;
	wr->wr.rdma.remote_addr = one ? head_to - pad : head_to;
	if (one && pad > 0)
		piece(c, wr, from, pad, lkey);
	piece(c, wr, head, coll_rdma_sums_tail(l->inst, e->frame.len_bytes), mr->lkey);
	seq = build_arrival(l, c, wr, g->id | (into ? COLL_RDMA_IMM_INTO : 0), e->completion != NULL)->wr_id;
	s->last_seq = seq;
	l->frames_out++;
	l->ref_out += e->loaned != NULL;
	log_item(l, e, seq);
}

static void build_fence(struct rdma_link *l, struct chain *c, const struct rdma_entry *e)
{
	struct ibv_send_wr *wr = add(l, c, IBV_WR_RDMA_WRITE, true);

	if (e->sender)
		e->sender->last_seq = wr->wr_id;
}

/* ---- posting --------------------------------------------------------------------- */

static int post_chain(struct rdma_link *l, struct chain *c)
{
	struct ibv_send_wr *bad = NULL;
	int e;

	if (c->n == 0)
		return 0;
	l->doorbells++;
	e = ibv_post_send(l->qp, c->wr, &bad);
	if (e != 0)
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma %s refuses a work request: %s", l->port->where,
		                    strerror(e));
	return c->n;
}

/* The link's share of the peer's receives that an entry of the queue may not touch, and where its ring is. */
static bool may_go(const struct rdma_link *l, const struct chain *c, const struct rdma_entry *e)
{
	const uint32_t n = requests_of(l, e);

	if (in_flight(l) + n > RDMA_SENDS - 2 || (uint32_t)c->n + n > RDMA_CHAIN)
		return false;
	return e->fence || (l->recvs > RDMA_RECVS_SPARE && !(e->sender && e->sender->grant->held));
}

int coll_rdma_tx_push(struct rdma_link *l)
{
	int sent = 0;

	while (l->state == LINK_UP && l->queue_count > 0) {
		struct chain c;

		c.n = c.sges = 0;
		while (l->queue_count > 0) {
			struct rdma_entry *e = &l->queue[l->queue_first & (l->queue_cap - 1)];

			if (!may_go(l, &c, e))
				break;
			if (e->fence)
				build_fence(l, &c, e);
			else if (e->sender)
				build_frame(l, &c, e);
			else
				build_note(l, &c, &e->note);
			l->queue_first++;
			l->queue_count--;
			if (e->sender)
				e->sender->queued--;
		}
		if (c.n == 0)
			break;
		sent += post_chain(l, &c);
	}
	return sent;
}

/* One note past the queue. */
static bool post_note(struct rdma_link *l, const struct coll_rdma_note *note)
{
	struct chain c;

	c.n = c.sges = 0;
	build_note(l, &c, note);
	return post_chain(l, &c) > 0 && (l->state == LINK_UP || l->state == LINK_CONNECTING);
}

bool coll_rdma_tx_proof(struct rdma_link *l, const struct coll_proof *p)
{
	return post_note(l, &(struct coll_rdma_note){.type = COLL_RDMA_NOTE_PROOF,
	                                             .word = {p->word[0], p->word[1], l->items_in}});
}

void coll_rdma_tx_ping(struct rdma_link *l)
{
	struct chain c;

	if (l->state != LINK_UP || l->sq_signalled > l->sq_done || in_flight(l) >= RDMA_SENDS)
		return;
	c.n = c.sges = 0;
	add(l, &c, IBV_WR_RDMA_WRITE, true);
	post_chain(l, &c);
}

static void fill_credits(struct rdma_link *l, struct coll_rdma_note *note)
{
	while (l->owing && note->count < COLL_RDMA_NOTE_CREDITS) {
		struct rdma_receiver *r = l->owing;

		note->credit[note->count].id = r->id;
		note->credit[note->count++].count = r->owed;
		r->owed = 0;
		coll_rdma_receiver_forget_owed(r);
	}
}

int coll_rdma_tx_credits(struct rdma_link *l)
{
	int sent = 0;

	while (l->state == LINK_UP && in_flight(l) < RDMA_SENDS - 1) {
		const bool many = l->recvs_owed >= RDMA_RECVS / 4;
		struct coll_rdma_note note = {.type = COLL_RDMA_NOTE_CREDIT};

		if (!(many && l->recvs_owed >= RDMA_RECVS / 2) && l->due == 0)
			break;
		/* The last one only for a note that brings many back. */
		if (l->recvs < (many ? 1 : 2))
			break;
		fill_credits(l, &note);
		if (!post_note(l, &note))
			break;
		sent++;
	}
	return sent;
}

/* The oldest item needs no second sending. */
static void drop_first(struct rdma_link *l, coll_status status)
{
	const struct rdma_entry *e = &l->log[l->log_first++ % RDMA_SENDS];

	l->log_count--;
	if (e->sender)
		e->sender->logged--;
	if (!e->completion)
		return;
	e->sender->loaned--;
	coll_completion_settle(e->completion, status);
	l->news = true;
}

void coll_rdma_tx_drop_log(struct rdma_link *l, uint64_t items, coll_status status)
{
	while (l->log_count > 0 && l->log_first < items)
		drop_first(l, status);
}

/*
 * What the peer has not got stands before all else in the queue again, in the order in
 * which it was sent, but behind the keys that it needs to send its own. Announcements are left out: they are made anew.
 */
void coll_rdma_tx_resume(struct rdma_link *l)
{
	uint32_t count;

	if (!l->mending)
		return;
	l->mending = false;
	if (l->peer_items < l->log_first || l->peer_items > l->log_first + l->log_count) {
		coll_rdma_link_fail(l, COLL_ERR_CORRUPT, "rdma %s: the peer received %llu items, expected %llu to %llu",
		                    l->port->where, (unsigned long long)l->peer_items, (unsigned long long)l->log_first,
		                    (unsigned long long)(l->log_first + l->log_count));
		return;
	}
	coll_rdma_tx_drop_log(l, l->peer_items, COLL_OK);
	count = (uint32_t)l->log_count;
	if (coll_rdma_tx_reserve(l, count) != COLL_OK) {
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma: no memory to send %u items again", count);
		return;
	}
	for (uint32_t i = count; i-- > 0;) {
		struct rdma_entry e = l->log[(l->log_first + i) % RDMA_SENDS];

		e.again = true;
		if (!e.sender && e.note.type == COLL_RDMA_NOTE_INTO)
			continue;
		if (e.sender)
			e.sender->logged--;
		if (e.sender && !e.sender->grant) { /* its receiver has closed */
			e.sender->loaned -= e.completion != NULL;
			if (e.completion)
				coll_completion_settle(e.completion, COLL_OK);
			continue;
		}
		if (e.sender)
			e.sender->queued++;
		l->queue[--l->queue_first & (l->queue_cap - 1)] = e;
		l->queue_count++;
	}
	l->log_count = 0;
	coll_rdma_receiver_tell_keys(l);
	if (l->closing)
		coll_rdma_sender_sweep(l);
}

void coll_rdma_tx_completed(struct rdma_link *l, uint64_t seq)
{
	if (seq > l->sq_done)
		l->sq_done = seq;
	l->mends = 0;
	while (l->log_count > 0 && !l->mending && l->log[l->log_first % RDMA_SENDS].seq <= l->sq_done)
		drop_first(l, COLL_OK);
	if (l->closing)
		coll_rdma_sender_sweep(l);
	if (l->bye_sent && l->sq_done >= l->bye_seq) {
		atomic_fetch_add(&l->inst->links.stale, 1);
		coll_rdma_kick(l->inst);
	}
}
