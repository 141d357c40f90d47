/*
 * The way in: completions. A frame's completion says which channel; its head stands in
 * the channel's next slot. Everything a peer says is checked before it is used: a wrong
 * number fails the link, not the process. Receives that were used are posted again
 * several at a time, and only then promised to the peer.
 */
#include "transports/rdma/rx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "transports/rdma/device.h"
#include "transports/rdma/hello.h"
#include "transports/rdma/link.h"
#include "transports/rdma/rails.h"
#include "transports/rdma/rdma.h"
#include "transports/rdma/receiver.h"
#include "transports/rdma/sender.h"
#include "transports/rdma/sums.h"
#include "transports/rdma/tx.h"

enum { BATCH = 16, BUDGET = 512 };

#define RECV_TAG (UINT64_C(1) << 63)

static void corrupt(struct rdma_link *l, const char *what)
{
	char path[180];

	coll_rdma_path_text(l, path, sizeof(path));
	coll_rdma_link_fail(l, COLL_ERR_CORRUPT, "rdma %s: %s", path, what);
}

/* ---- receives -------------------------------------------------------------------- */

static struct coll_rdma_note *note_at(struct rdma_link *l, uint32_t i)
{
	return (struct coll_rdma_note *)(void *)(l->notes + (size_t)(RDMA_SENDS + i) * COLL_RDMA_NOTE_BYTES);
}

/* How many of them are posted: all, or those before one that the device refuses (errno). */
static uint32_t post_recvs(struct rdma_link *l, const uint32_t *index, uint32_t count)
{
	struct ibv_recv_wr wr[BATCH], *bad = wr;
	struct ibv_sge sge[BATCH];
	uint32_t posted = 0;

	errno = 0;
	while (posted < count && errno == 0) {
		const uint32_t n = count - posted < BATCH ? count - posted : BATCH;

		for (uint32_t i = 0; i < n; i++) {
			const uint32_t at = index[posted + i];

			sge[i] = (struct ibv_sge){(uint64_t)(uintptr_t)note_at(l, at), COLL_RDMA_NOTE_BYTES,
			                          l->notes_mr->lkey};
			wr[i] = (struct ibv_recv_wr){.wr_id = RECV_TAG | at, .sg_list = &sge[i], .num_sge = 1};
			if (i > 0)
				wr[i - 1].next = &wr[i];
		}
		errno = ibv_post_recv(l->qp, wr, &bad);
		posted += errno == 0 ? n : (uint32_t)(bad - wr);
	}
	l->recvs_posted += posted;
	return posted;
}

bool coll_rdma_rx_post_all(struct rdma_link *l)
{
	for (uint32_t i = 0; i < RDMA_RECVS; i++)
		l->spent[i] = i;
	l->spent_count = 0;
	l->recvs_posted = 0;
	return post_recvs(l, l->spent, RDMA_RECVS) == RDMA_RECVS;
}

/* Some at a time: the peer has enough of them left. */
static void post_spent(struct rdma_link *l)
{
	uint32_t posted;

	if (l->spent_count < BATCH || (l->state != LINK_UP && l->state != LINK_CONNECTING))
		return;
	posted = post_recvs(l, l->spent, l->spent_count);
	/* What is posted comes back as spent, whatever becomes of the link. */
	l->spent_count -= posted;
	if (l->spent_count > 0) {
		memmove(l->spent, l->spent + posted, l->spent_count * sizeof(*l->spent));
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma %s refuses a receive: %s", l->port->where,
		                    strerror(errno));
		return;
	}
	l->recvs_owed += posted;
}

/* ---- frames ------------------------------------------------------------------------- */

static bool take_credits(struct rdma_link *l, uint32_t id, uint32_t count)
{
	struct rdma_grant *g = coll_id_table_get(&l->grants, id);

	if (count == 0 || !g) /* a channel that was closed meanwhile */
		return true;
	if (count > g->slots - g->credits)
		return false;
	g->credits += count;
	l->news = true;
	return true;
}

/* What a head says beside its frame; false: it is impossible. */
static bool take_head(struct rdma_link *l, const struct rdma_receiver *r, const struct coll_rdma_head *head)
{
	l->recvs += head->recvs;
	if (head->number != (uint32_t)r->arrived || head->frame.len_bytes > r->base.slot_bytes ||
	    r->arrived - r->done >= r->base.slots || l->recvs > RDMA_RECVS ||
	    !take_credits(l, head->credit_id, head->credits)) {
		corrupt(l, "a frame's head is impossible");
		return false;
	}
	l->frames_in++;
	return true;
}

/* It lies where it may, and is what was sent. */
static bool sound(struct rdma_link *l, const struct rdma_receiver *r, const struct coll_rdma_head *head, bool into)
{
	const struct rdma_ring *ring = &r->base.ring;
	const uint64_t slot = r->arrived % r->base.slots;
	const char *payload =
	        into ? coll_rdma_receiver_told(r, &head->frame) : rdma_payload_at(ring, slot, head->frame.len_bytes);
	char wrong[128] = "a frame for memory that was not announced";

	if (payload && (!l->inst->check || coll_rdma_sums_pass(l->inst, head, rdma_head_at(ring, slot) + 1, payload,
	                                                       wrong, sizeof(wrong))))
		return true;
	corrupt(l, wrong);
	return false;
}

static void frame_came(struct rdma_link *l, uint32_t imm)
{
	const uint32_t id = imm & COLL_RDMA_IMM_ID;
	struct rdma_receiver *r = coll_id_table_get(&l->receivers, id);
	struct coll_rdma_head head;

	if (!r) {
		corrupt(l, "a frame for a channel that does not exist");
		return;
	}
	l->items_in++;
	head = *rdma_head_at(&r->base.ring, r->completed % r->base.slots);
	if (r->completed++ < r->arrived) { /* seen in its slot before */
		if (r->polled_on != l->connections && head.number == (uint32_t)(r->completed - 1))
			l->recvs += head.recvs; /* sent a second time */
		return;
	}
	if (take_head(l, r, &head) && (r->draining || sound(l, r, &head, imm & COLL_RDMA_IMM_INTO)))
		coll_rdma_receiver_arrived(r, &head.frame, imm & COLL_RDMA_IMM_INTO);
}

void coll_rdma_rx_look(struct rdma_receiver *r)
{
	struct rdma_link *l = r->base.link;
	const struct rdma_ring *ring = &r->base.ring;
	const uint64_t slot = r->arrived % r->base.slots;
	const char *payload;
	struct coll_rdma_head head;

	if (l->state != LINK_UP || r->draining || rdma_announced(r) || !l->inst->polled)
		return;
	/* The device writes it at this moment, perhaps: whatever the copy holds, the check tells. */
	atomic_signal_fence(memory_order_acq_rel);
	head = *rdma_head_at(ring, slot);
	if (head.number != (uint32_t)r->arrived || head.check == 0 || head.frame.len_bytes > COLL_RDMA_POLLED_BYTES ||
	    head.frame.len_bytes > r->base.slot_bytes)
		return;
	payload = rdma_payload_at(ring, slot, head.frame.len_bytes);
	/* A sum that is wrong may not be there yet: the completion decides. */
	if (head.check != coll_rdma_check(&head, payload) ||
	    (l->inst->check && !coll_rdma_sums_pass(l->inst, &head, rdma_head_at(ring, slot) + 1, payload, NULL, 0)))
		return;
	atomic_thread_fence(memory_order_acquire);
	if (!take_head(l, r, &head))
		return;
	r->polled_on = l->connections;
	l->polled_in++;
	coll_rdma_receiver_arrived(r, &head.frame, false);
}

/* ---- notes ---------------------------------------------------------------------------- */

static void grant_came(struct rdma_link *l, const struct coll_rdma_note *n)
{
	struct rdma_grant *g;

	if (n->id >= RDMA_CHANNELS_MAX || n->grant.slots < 2 || n->grant.slots > UINT16_MAX ||
	    coll_id_table_get(&l->grants, n->id)) {
		corrupt(l, "a channel is opened twice or out of range");
		return;
	}
	g = calloc(1, sizeof(*g));
	if (!g || !coll_id_table_put(&l->grants, n->id, g)) {
		free(g);
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma: no memory for a channel");
		return;
	}
	*g = (struct rdma_grant){.key = n->grant.key,
	                         .id = n->id,
	                         .slots = n->grant.slots,
	                         .slot_bytes = n->grant.slot_bytes,
	                         .ring = n->grant.ring,
	                         .rkey = n->grant.rkey,
	                         .credits = n->grant.slots,
	                         .manner = MANNER_ASKS};
	coll_rdma_sender_meet_grant(l, g);
	l->news = true;
}

static void into_came(struct rdma_link *l, const struct coll_rdma_note *n)
{
	struct rdma_grant *g = coll_id_table_get(&l->grants, n->id);
	uint64_t number;

	if (!g)
		return;
	/* Of the whole number only the lower half came; it is near what we are at. */
	number = g->count + (uint64_t)(int64_t)(int32_t)(n->into.number - (uint32_t)g->count);
	if (number % g->slots >= g->targets && !coll_rdma_sender_early_target(l, g, number % g->slots))
		return;
	g->into[number % g->slots] =
	        (struct rdma_target){n->into.number, n->into.rkey, n->into.ptr, n->into.expect, true};
	if (g->sender)
		coll_rdma_sender_manner(g->sender, MANNER_TOLD, 0);
	else
		g->manner = MANNER_TOLD;
}

/* How the receiver wants frames by reference from now on. */
static void manner_came(struct rdma_link *l, const struct coll_rdma_note *n)
{
	struct rdma_grant *g = coll_id_table_get(&l->grants, n->id);
	const enum rdma_manner manner = n->type == COLL_RDMA_NOTE_WAIT ? MANNER_TOLD : MANNER_COMES;

	if (g && g->sender)
		coll_rdma_sender_manner(g->sender, manner, n->into.number);
	else if (g)
		g->manner = manner;
}

/* A receiver that is gone has said so, or does. */
static void ask_came(struct rdma_link *l, const struct coll_rdma_note *n)
{
	struct rdma_receiver *r = coll_id_table_get(&l->receivers, n->id);

	if (r)
		coll_rdma_receiver_asked(r);
}

/* Behind everything we have written there. */
static void close_came(struct rdma_link *l, const struct coll_rdma_note *n)
{
	struct rdma_grant *g = coll_id_table_get(&l->grants, n->id);
	const struct coll_rdma_note closed = {.type = COLL_RDMA_NOTE_CLOSED, .id = n->id};

	if (!g) {
		corrupt(l, "a channel that is not open is closed");
		return;
	}
	if (g->sender) {
		coll_rdma_sender_drop_queued(l, g->sender);
		g->sender->grant = NULL;
	}
	coll_id_table_drop(&l->grants, n->id, g);
	coll_rdma_sender_free_grant(g);
	coll_rdma_tx_note(l, &closed);
	l->news = true;
}

static void closed_came(struct rdma_link *l, const struct coll_rdma_note *n)
{
	struct rdma_receiver *r = coll_id_table_get(&l->receivers, n->id);

	if (!r || !r->draining)
		corrupt(l, "an open channel is reported closed");
	else
		coll_rdma_receiver_free(r);
	l->news = true;
}

static void proof_came(struct rdma_link *l, const struct coll_rdma_note *n)
{
	const struct coll_proof want = coll_rdma_hello_proof(l->inst, &l->base.peer, l->other, l->nonce, n->word[2]);

	if (l->state == LINK_CONNECTING && l->stage == STAGE_ACCEPTED &&
	    coll_proof_same(&want, &(struct coll_proof){{n->word[0], n->word[1]}})) {
		l->peer_items = n->word[2];
		coll_rdma_link_up(l);
	}
	/* Otherwise the deadline of the attempt ends it. */
}

static void credits_came(struct rdma_link *l, const struct coll_rdma_note *n)
{
	for (unsigned i = 0; i < n->count && i < COLL_RDMA_NOTE_CREDITS; i++)
		if (!take_credits(l, n->credit[i].id, n->credit[i].count))
			corrupt(l, "more slots returned than exist");
}

/* One that has not been opened here yet says its key when it is. */
static void keys_came(struct rdma_link *l, const struct coll_rdma_note *n)
{
	for (unsigned i = 0; i < n->count && i < COLL_RDMA_NOTE_CREDITS; i++) {
		struct rdma_grant *g = coll_id_table_get(&l->grants, n->key[i].id);

		if (!g)
			continue;
		g->rkey = n->key[i].rkey;
		g->held = false;
	}
}

static void note_came(struct rdma_link *l, const struct coll_rdma_note *n)
{
	if (n->type != COLL_RDMA_NOTE_PROOF && l->state != LINK_UP && l->state != LINK_TORN)
		return; /* nobody we know */
	l->items_in +=
	        n->type != COLL_RDMA_NOTE_PROOF && n->type != COLL_RDMA_NOTE_FRAME && n->type != COLL_RDMA_NOTE_KEYS;
	l->recvs += n->recvs;
	if (l->recvs > RDMA_RECVS) {
		corrupt(l, "more receives promised than posted");
		return;
	}
	if (coll_rdma_link_swamped(l)) {
		corrupt(l, "questions without end, and no receive for an answer");
		return;
	}
	switch (n->type) {
	case COLL_RDMA_NOTE_PROOF: proof_came(l, n); break;
	case COLL_RDMA_NOTE_GRANT: grant_came(l, n); break;
	case COLL_RDMA_NOTE_CREDIT: credits_came(l, n); break;
	case COLL_RDMA_NOTE_INTO: into_came(l, n); break;
	case COLL_RDMA_NOTE_ASK: ask_came(l, n); break;
	case COLL_RDMA_NOTE_WAIT:
	case COLL_RDMA_NOTE_COME: manner_came(l, n); break;
	case COLL_RDMA_NOTE_FRAME: frame_came(l, (uint32_t)n->word[0]); break;
	case COLL_RDMA_NOTE_CLOSE: close_came(l, n); break;
	case COLL_RDMA_NOTE_CLOSED: closed_came(l, n); break;
	case COLL_RDMA_NOTE_LOST: coll_rdma_rails_lost(l, n->id); break;
	case COLL_RDMA_NOTE_KEYS: keys_came(l, n); break;
	case COLL_RDMA_NOTE_BYE: coll_rdma_link_ended(l); break;
	default: corrupt(l, "a note of an unknown kind"); break;
	}
}

/* ---- completions ------------------------------------------------------------------------ */

/* The peer may still exist: the network was interrupted, or its end closed first. When a
 * process is killed, its memory may be freed before its queue pair. A write is then refused, and the next
 * attempt to connect finds no listener. */
static bool may_be_mended(enum ibv_wc_status status)
{
	return status == IBV_WC_RETRY_EXC_ERR || status == IBV_WC_RNR_RETRY_EXC_ERR || status == IBV_WC_WR_FLUSH_ERR ||
	       status == IBV_WC_LOC_QP_OP_ERR || status == IBV_WC_RESP_TIMEOUT_ERR || status == IBV_WC_GENERAL_ERR ||
	       status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_OP_ERR;
}

static void went_wrong(struct rdma_link *l, const struct ibv_wc *wc)
{
	const char *text = l->inst->v.ibv_wc_status_str(wc->status);
	char path[180];

	if (l->state != LINK_UP)
		return; /* flushed: known */
	coll_rdma_path_text(l, path, sizeof(path));
	if (may_be_mended(wc->status))
		coll_rdma_link_torn(l, COLL_ERR_PEER_DEAD, "rdma %s: %s%s", path, text,
		                    wc->status == IBV_WC_RETRY_EXC_ERR ? " (host unreachable)" : "");
	else
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma %s: %s", path, text);
}

/* True: a sign of life; what is flushed from a broken queue pair is none. */
static bool complete(struct rdma_link *l, const struct ibv_wc *wc)
{
	const uint32_t index = (uint32_t)(wc->wr_id & 0xffffffff);

	l->moved++;
	l->recvs_posted -= (wc->wr_id & RECV_TAG) != 0;
	if (wc->status != IBV_WC_SUCCESS) {
		went_wrong(l, wc);
		return false;
	}
	if (!(wc->wr_id & RECV_TAG)) {
		coll_rdma_tx_completed(l, wc->wr_id);
		return true;
	}
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM && (l->state == LINK_UP || l->state == LINK_TORN))
		frame_came(l, be32toh(wc->imm_data));
	else if (wc->opcode == IBV_WC_RECV && wc->byte_len == COLL_RDMA_NOTE_BYTES)
		note_came(l, note_at(l, index));
	l->spent[l->spent_count++] = index;
	return true;
}

int coll_rdma_rx_poll(struct rdma_link *l)
{
	struct ibv_wc wc[BATCH];
	int total = 0, alive = 0, n;

	if (!l->cq)
		return 0;
	do {
		n = ibv_poll_cq(l->cq, BATCH, wc);
		for (int i = 0; i < n; i++)
			alive += complete(l, &wc[i]);
		if (n > 0)
			post_spent(l);
		total += n > 0 ? n : 0;
	} while (n == BATCH && total < BUDGET);
	if (alive > 0)
		l->moved_ns = coll_clock_coarse_ns();
	if (n < 0)
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma %s: polling completions failed", l->port->where);
	if (total > 0 && l->queue_count > 0)
		coll_rdma_tx_push(l);
	return total;
}
