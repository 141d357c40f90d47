/*
 * The sending end of a channel, and its view of the receiving end that the peer has
 * opened (the grant). A frame by value is written from the sender's own ring, one by
 * reference from the user's registered memory. A slot of the ring is free again when the
 * receiver returns the credit: by then its bytes have arrived, and if the device sends
 * them once more, the receiving device recognises the duplicate and drops it. User
 * memory is released when the device itself reports that it has finished with it.
 *
 * A large frame by reference stays here until the receiver has sent its destination, or
 * permission to use the slot. So a frame that is by reference at both ends is not copied. A
 * sender that cannot expect this note asks for it. receiver.c has the rules.
 */
#include "transports/rdma/sender.h"

#include <stdlib.h>
#include <string.h>

#include "base/delay.h"
#include "transports/rdma/channel.h"
#include "transports/rdma/link.h"
#include "transports/rdma/memory.h"
#include "transports/rdma/rdma.h"
#include "transports/rdma/tx.h"

static struct rdma_sender *sender_of(void *channel)
{
	struct rdma_channel *ch = channel;

	assert(ch->dir == COLL_DIR_SEND);
	return (struct rdma_sender *)ch;
}

/* ---- open --------------------------------------------------------------------------- */

void coll_rdma_sender_free(struct rdma_sender *s)
{
	if (s->grant)
		s->grant->sender = NULL;
	if (s->prev) {
		*s->prev = s->next;
		if (s->next)
			s->next->prev = s->prev;
	}
	coll_rdma_channel_free_ring(&s->base);
	free(s->waiting);
	free(s);
}

static void enlist(struct rdma_sender *s, struct rdma_sender **list)
{
	s->next = *list;
	s->prev = list;
	if (s->next)
		s->next->prev = &s->next;
	*list = s;
}

static void delist(struct rdma_sender *s)
{
	*s->prev = s->next;
	if (s->next)
		s->next->prev = s->prev;
	s->prev = NULL;
}

static bool make_targets(struct rdma_link *l, struct rdma_grant *g, uint32_t targets)
{
	struct rdma_target *into = realloc(g->into, targets * sizeof(*into));

	if (!into) {
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma: no memory for a channel");
		return false;
	}
	memset(into + g->targets, 0, (targets - g->targets) * sizeof(*into));
	g->into = into;
	g->targets = targets;
	return true;
}

/* One after the other: how many there are, the peer says only with each. */
bool coll_rdma_sender_early_target(struct rdma_link *l, struct rdma_grant *g, uint64_t at)
{
	const uint32_t twice = g->targets < 4 ? 8 : 2 * g->targets;

	if (at == g->targets)
		return make_targets(l, g, twice < g->slots ? twice : g->slots);
	coll_rdma_link_fail(l, COLL_ERR_CORRUPT, "rdma %s: memory is announced for frames out of order",
	                    l->port->where);
	return false;
}

void coll_rdma_sender_free_grant(struct rdma_grant *g)
{
	if (g)
		free(g->into);
	free(g);
}

static void meet(struct rdma_sender *s, struct rdma_grant *g)
{
	if (g->slots != s->base.slots || g->slot_bytes != s->base.slot_bytes) {
		coll_rdma_link_fail(s->base.link, COLL_ERR_CORRUPT,
		                    "rdma: the ends of a channel differ: %u slots of %zu bytes here, %u of %zu there",
		                    s->base.slots, s->base.slot_bytes, g->slots, g->slot_bytes);
		return;
	}
	if (g->targets < g->slots && !make_targets(s->base.link, g, g->slots))
		return;
	s->grant = g;
	g->sender = s;
}

void coll_rdma_sender_meet_grant(struct rdma_link *l, struct rdma_grant *g)
{
	for (struct rdma_sender *s = l->senders; s; s = s->next)
		if (!s->grant && coll_same_key(&s->base.key, &g->key)) {
			meet(s, g);
			return;
		}
}

static void meet_sender(struct rdma_sender *s)
{
	const struct rdma_link *l = s->base.link;

	for (uint32_t i = 0; i < l->grants.cap; i++) {
		struct rdma_grant *g = l->grants.at[i];

		if (g && !g->sender && coll_same_key(&g->key, &s->base.key)) {
			meet(s, g);
			return;
		}
	}
}

coll_status coll_rdma_sender_open(const struct rdma_channel *base, void **channel)
{
	struct rdma_sender *s = calloc(1, sizeof(*s));
	coll_status status;

	if (!s)
		return COLL_ERR_MEMORY;
	s->base = *base;
	s->waiting = calloc(base->slots, sizeof(*s->waiting));
	status = s->waiting ? coll_rdma_channel_make_ring(&s->base) : COLL_ERR_MEMORY;
	if (status == COLL_OK)
		status = coll_rdma_tx_reserve(base->link, base->slots + 2);
	if (status != COLL_OK) {
		coll_rdma_sender_free(s);
		return status;
	}
	enlist(s, &base->link->senders);
	meet_sender(s);
	*channel = s;
	return COLL_OK;
}

/* ---- frames that wait for their destination ------------------------------------------- */

static bool must_wait(const struct rdma_sender *s, const struct rdma_entry *e)
{
	const struct rdma_grant *g = s->grant;

	return e->loaned && e->frame.len_bytes >= RDMA_INTO_BYTES && g->manner != MANNER_COMES &&
	       !rdma_target_of(g, e->number);
}

/* To the queue. A small frame ends the leave to come. */
static void go(struct rdma_sender *s, const struct rdma_entry *e)
{
	if (e->frame.len_bytes < RDMA_INTO_BYTES && s->grant->manner == MANNER_COMES)
		s->grant->manner = MANNER_ASKS;
	coll_rdma_tx(s->base.link, e);
}

static void ask(struct rdma_sender *s)
{
	const struct coll_rdma_note note = {.type = COLL_RDMA_NOTE_ASK, .id = s->grant->id};

	if (s->asked || s->grant->manner != MANNER_ASKS)
		return;
	s->asked = true;
	coll_rdma_tx_note(s->base.link, &note);
	coll_rdma_tx_push(s->base.link);
}

static struct rdma_entry *waiting_at(const struct rdma_sender *s, uint32_t i)
{
	return &s->waiting[(s->waiting_first + i) % s->base.slots];
}

void coll_rdma_sender_release(struct rdma_sender *s)
{
	while (s->waiting_count > 0 && !must_wait(s, waiting_at(s, 0))) {
		const struct rdma_entry e = *waiting_at(s, 0);

		s->waiting_first++;
		s->waiting_count--;
		go(s, &e);
	}
	if (s->waiting_count > 0)
		ask(s);
}

void coll_rdma_sender_manner(struct rdma_sender *s, enum rdma_manner manner, uint32_t number)
{
	struct rdma_grant *g = s->grant;
	const uint64_t next = s->waiting_count > 0 ? waiting_at(s, 0)->number : g->count;

	/* Leave that came too late has ended at the receiver, or does not end with what we send. */
	g->manner = manner == MANNER_COMES && number != (uint32_t)next ? MANNER_ASKS : manner;
	s->asked = false;
	coll_rdma_sender_release(s);
}

void coll_rdma_sender_drop_waiting(struct rdma_sender *s, coll_status status)
{
	for (; s->waiting_count > 0; s->waiting_count--, s->waiting_first++) {
		struct coll_completion *completion = waiting_at(s, 0)->completion;

		s->loaned -= completion != NULL;
		if (completion)
			coll_completion_settle(completion, status);
	}
}

/* ---- close ------------------------------------------------------------------------------ */

/* By the device, or for sending it again. */
static bool in_use(const struct rdma_sender *s)
{
	return s->queued > 0 || s->waiting_count > 0 || s->logged > 0 || s->last_seq > s->base.link->sq_done;
}

/* The device is done with what belongs to a closed sender. */
void coll_rdma_sender_sweep(struct rdma_link *l)
{
	struct rdma_sender *next;

	for (struct rdma_sender *s = l->closing; s; s = next) {
		next = s->next;
		if (!in_use(s))
			coll_rdma_sender_free(s);
	}
}

void coll_rdma_sender_unqueued(const struct rdma_entry *e)
{
	if (!e->sender)
		return;
	e->sender->queued--;
	e->sender->loaned -= e->completion != NULL;
}

/* The receiver has closed: frames that were not sent are dropped. */
void coll_rdma_sender_drop_queued(struct rdma_link *l, struct rdma_sender *s)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < l->queue_count; i++) {
		const struct rdma_entry e = l->queue[(l->queue_first + i) & (l->queue_cap - 1)];

		if (e.sender != s || e.fence) {
			l->queue[(l->queue_first + kept++) & (l->queue_cap - 1)] = e;
			continue;
		}
		coll_rdma_sender_unqueued(&e);
		if (e.completion)
			coll_completion_settle(e.completion, COLL_OK);
	}
	l->queue_count = kept;
	coll_rdma_sender_drop_waiting(s, COLL_OK);
}

static void keep_one(struct rdma_sender *s, struct rdma_entry *e)
{
	if (e->sender != s || !e->loaned)
		return;
	memcpy(s->base.ring.memory + e->number % s->base.slots * s->base.ring.stride, e->loaned, e->frame.len_bytes);
	s->base.link->copied_bytes += e->frame.len_bytes;
	e->loaned = NULL;
	s->loaned--;
	coll_completion_settle(e->completion, COLL_OK);
	e->completion = NULL;
}

/* Loaned frames that have not left go by value: their slot is free. So do those that a broken
 * connection has left behind. */
static void keep_loaned(struct rdma_sender *s)
{
	struct rdma_link *l = s->base.link;

	for (uint32_t i = 0; i < l->queue_count; i++)
		keep_one(s, &l->queue[(l->queue_first + i) & (l->queue_cap - 1)]);
	for (uint64_t i = 0; i < l->log_count && l->mending; i++)
		keep_one(s, &l->log[(l->log_first + i) % RDMA_SENDS]);
	for (uint32_t i = 0; i < s->waiting_count; i++)
		keep_one(s, waiting_at(s, i));
	if (s->grant)
		coll_rdma_sender_release(s);
}

static bool nothing_loaned(struct rdma_link *l, const void *arg)
{
	return ((const struct rdma_sender *)arg)->loaned == 0;
}

void coll_rdma_sender_close(struct rdma_sender *s)
{
	struct rdma_link *l = s->base.link;
	const struct rdma_entry fence = {.sender = s, .fence = true};

	keep_loaned(s);
	if (!coll_rdma_channel_await(l, nothing_loaned, s, COLL_DELAY_RDMA_LOANED_MS))
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma %s: a send does not end", l->port->where);
	if (s->loaned > 0)
		coll_rdma_channel_bury(l);
	keep_loaned(s); /* what is to be sent again */
	if (!rdma_works(l) ? !l->qp : !in_use(s)) {
		coll_rdma_sender_free(s);
		return;
	}
	s->closed = true;
	delist(s);
	enlist(s, &l->closing);
	if (s->queued > 0 || s->last_seq > l->sq_signalled)
		coll_rdma_tx(l, &fence);
	coll_rdma_tx_push(l);
}

/* ---- sending ------------------------------------------------------------------------------ */

static bool credit(const struct rdma_sender *s)
{
	return s->grant && s->grant->credits > 0 && coll_rdma_channel_nothing(&s->base) == COLL_AGAIN;
}

coll_status coll_rdma_slot(void *channel, size_t len_bytes, void **p)
{
	struct rdma_channel *ch = channel;
	struct rdma_sender *s = sender_of(ch);
	coll_status status;

	assert(len_bytes <= ch->slot_bytes);
	coll_rdma_channel_enter(ch);
	status = coll_rdma_channel_nothing(ch);
	/* One that was given out stays the caller's, even if the receiver has closed since. */
	if (status == COLL_AGAIN && credit(s))
		s->held = ch->ring.memory + s->grant->count % ch->slots * ch->ring.stride;
	if (status == COLL_AGAIN && s->held) {
		*p = s->held;
		status = COLL_OK;
	}
	coll_rdma_channel_leave(ch->link);
	return status;
}

/* Uses up the credit. What follows a frame that waits, waits behind it. */
static void accept_frame(struct rdma_sender *s, struct rdma_entry *e)
{
	e->sender = s;
	e->number = s->grant->count++;
	s->grant->credits--;
	if (s->waiting_count > 0 || must_wait(s, e)) {
		*waiting_at(s, s->waiting_count++) = *e;
		s->base.link->waited++;
		ask(s);
		return;
	}
	go(s, e);
	coll_rdma_tx_push(s->base.link);
}

static coll_status after_send(const struct rdma_channel *ch)
{
	const coll_status status = coll_rdma_channel_nothing(ch);

	return status == COLL_AGAIN ? COLL_OK : status;
}

coll_status coll_rdma_post(void *channel, const struct coll_frame *frame)
{
	struct rdma_channel *ch = channel;
	struct rdma_sender *s = sender_of(ch);
	struct rdma_entry e = {.frame = *frame};
	coll_status status;

	assert(frame->len_bytes <= ch->slot_bytes);
	coll_rdma_channel_enter(ch);
	assert(s->held);
	s->held = NULL;
	/* Without a grant the receiver has closed since slot(): the frame is dropped. */
	if (credit(s))
		accept_frame(s, &e);
	status = after_send(ch);
	coll_rdma_channel_leave(ch->link);
	return status;
}

coll_status coll_rdma_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                               const struct coll_frame *frame, struct coll_completion *completion)
{
	struct rdma_channel *ch = channel;
	struct rdma_sender *s = sender_of(ch);
	struct rdma_entry e = {.frame = *frame, .loaned = ptr, .completion = completion};
	coll_status status;

	assert(frame->len_bytes <= ch->slot_bytes);
	e.region = coll_rdma_memory_find(ch->link->inst, ptr, frame->len_bytes);
	if ((mem && mem->kind != 0) || frame->len_bytes == 0 || !e.region)
		return COLL_ERR_UNSUPPORTED;
	coll_rdma_channel_enter(ch);
	status = coll_rdma_channel_nothing(ch);
	if (credit(s)) {
		s->held = NULL;
		completion->status = COLL_OK;
		completion->pending = 1;
		s->loaned++;
		accept_frame(s, &e);
		status = COLL_OK;
	}
	coll_rdma_channel_leave(ch->link);
	return status;
}
