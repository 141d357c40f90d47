/*
 * Channels: slots, credits, and the verbs of the data path. A receiving end owns
 * a number of slots and grants the sender as many credits. DATA uses one credit, an emptied
 * slot returns one (coll_tcp_channel_owe). Credits travel in the head of a frame in
 * the other direction, or alone once half of the slots are owed.
 *
 * Invariant of a receiver: allowed + owed + frames here = slots. Invariant of a
 * sender: a slot is spare, handed out (current), or in the link's queue.
 */
#include "transports/tcp/channel.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "tcp.h"
#include "transports/tcp/grant.h"
#include "transports/tcp/kept.h"
#include "transports/tcp/link.h"
#include "transports/tcp/rails.h"
#include "transports/tcp/rx.h"
#include "transports/tcp/tx.h"

static struct tcp_sender *sender_of(struct tcp_channel *ch)
{
	assert(ch->dir == COLL_DIR_SEND);
	return (struct tcp_sender *)ch;
}

static struct tcp_receiver *receiver_of(struct tcp_channel *ch)
{
	assert(ch->dir == COLL_DIR_RECV);
	return (struct tcp_receiver *)ch;
}

/* What a verb says when it has nothing: an error if it never will have. */
static coll_status nothing(const struct tcp_channel *ch)
{
	const int status = atomic_load_explicit(&ch->link->base.status, memory_order_acquire);

	if (ch->status != COLL_OK)
		return ch->status;
	return status == COLL_OK ? COLL_AGAIN : (coll_status)status;
}

/* A slot has room for the head in front of it and for a check behind. */
static char *slot_at(const struct tcp_channel *ch, uint32_t slot)
{
	return ch->memory + slot * ch->stride + TCP_HEADROOM;
}

/* ---- completion: by whichever thread finds it, under the link's lock ---------------- */

static void finish_loaned(struct tcp_sender *s)
{
	while (s->loaned_done > 0) {
		struct coll_completion *c = s->loaned[s->loaned_first];
		const int status = atomic_load_explicit(&s->base.link->base.status, memory_order_relaxed);

		s->loaned_first = (s->loaned_first + 1) % s->base.slots;
		s->loaned_count--;
		s->loaned_done--;
		coll_completion_settle(c, status == COLL_AGAIN ? COLL_OK : (coll_status)status);
	}
}

static void finish_into(struct tcp_receiver *r)
{
	struct coll_completion *c = r->into.completion;

	if (c == NULL || !r->into.finished)
		return;
	r->into.completion = NULL;
	coll_completion_settle(c, r->into.status);
}

/* Sleepers are woken when the lock is let go: see coll_tcp_link_work. */
void coll_tcp_channel_event(struct tcp_channel *ch)
{
	if (ch->dir == COLL_DIR_SEND)
		finish_loaned(sender_of(ch));
	else
		finish_into(receiver_of(ch));
	ch->link->news = true;
}

static void enter(struct tcp_channel *ch)
{
	pthread_mutex_lock(&ch->link->base.lock);
}

/* ch itself may be gone. */
static void leave(struct tcp_link *l)
{
	coll_tcp_tx_asked(l);
	coll_tcp_link_work(l);
	pthread_mutex_unlock(&l->base.lock);
}

/* ---- open, close ------------------------------------------------------------------- */

static bool make_slots(struct tcp_channel *ch)
{
	ch->spare = malloc(ch->slots * sizeof(*ch->spare));
	/* Pages of slots that are never used are never touched. */
	if (ch->slot_bytes > SIZE_MAX / 4 / ch->slots || ch->spare == NULL)
		return false;
	ch->stride = (TCP_HEADROOM + ch->slot_bytes + TCP_TRAILER_BYTES + 63) & ~(size_t)63;
	ch->memory = aligned_alloc(64, ch->stride * ch->slots);
	for (uint32_t i = 0; i < ch->slots; i++)
		ch->spare[i] = ch->slots - 1 - i;
	ch->spare_count = ch->slots;
	return ch->memory != NULL;
}

void coll_tcp_channel_free_sender(struct tcp_sender *s)
{
	if (s->grant != NULL)
		s->grant->sender = NULL;
	if (s->prev != NULL) {
		*s->prev = s->next;
		if (s->next != NULL)
			s->next->prev = s->prev;
	}
	coll_tcp_tx_release(s->base.link, s->base.reserved);
	for (uint32_t i = 0; i < s->kept_count; i++)
		free(s->kept[(s->kept_first + i) % s->base.slots].owned);
	free(s->kept);
	free(s->loaned);
	free(s->base.spare);
	free(s->base.memory);
	free(s);
}

void coll_tcp_channel_free_receiver(struct tcp_receiver *r)
{
	struct tcp_link *l = r->base.link;

	if (r->owed > 0)
		coll_tcp_channel_forget_owed(r);
	coll_id_table_drop(&l->receivers, r->id, r);
	coll_tcp_tx_release(l, r->base.reserved);
	free(r->ring);
	free(r->base.spare);
	free(r->base.memory);
	free(r);
}

static coll_status open_sender(struct tcp_link *l, const struct tcp_channel *base, void **channel)
{
	struct tcp_sender *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return COLL_ERR_MEMORY;
	s->base = *base;
	s->current = UINT32_MAX;
	s->loaned = malloc(base->slots * sizeof(struct coll_completion *));
	if (l->several)
		s->kept = malloc(base->slots * sizeof(*s->kept));
	if (!make_slots(&s->base) || s->loaned == NULL || (l->several && s->kept == NULL) ||
	    coll_tcp_tx_reserve(l, base->slots + 2) != COLL_OK) {
		coll_tcp_channel_free_sender(s);
		return COLL_ERR_MEMORY;
	}
	s->base.reserved = base->slots + 2;
	s->next = l->senders;
	s->prev = &l->senders;
	if (s->next != NULL)
		s->next->prev = &s->next;
	l->senders = s;
	coll_tcp_channel_meet(s);
	*channel = s;
	return COLL_OK;
}

void coll_tcp_channel_grant(struct tcp_receiver *r)
{
	const struct coll_channel_key *key = &r->base.key;
	struct coll_tcp_head head = {
	        .type = COLL_TCP_GRANT,
	        .channel = r->id,
	        .len_bytes = (uint32_t)r->base.slot_bytes,
	        .signature = key->epoch,
	        .sequence = key->comm,
	        .credits = r->base.slots,
	        .index = (uint32_t)key->lane << 16 | key->window,
	};

	coll_tcp_tx_control(r->base.link, &head);
}

static coll_status open_receiver(struct tcp_link *l, const struct tcp_channel *base, void **channel)
{
	struct tcp_receiver *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return COLL_ERR_MEMORY;
	r->base = *base;
	r->id = UINT32_MAX;
	r->allowed = base->slots;
	r->due_at = base->slots < 4 ? 1 : base->slots / 2;
	r->ring = malloc(base->slots * sizeof(*r->ring));
	/* In the queue: the grant, and at most two credit frames. */
	if (!make_slots(&r->base) || r->ring == NULL ||
	    !coll_id_table_free_id(&l->receivers, TCP_CHANNELS_MAX, &r->id) || coll_tcp_tx_reserve(l, 4) != COLL_OK) {
		coll_tcp_channel_free_receiver(r);
		return COLL_ERR_MEMORY;
	}
	r->base.reserved = 4;
	coll_id_table_put(&l->receivers, r->id, r);
	coll_tcp_channel_grant(r);
	*channel = r;
	return COLL_OK;
}

coll_status coll_tcp_channel_open(void *link, const struct coll_channel_key *key, enum coll_direction dir,
                                  size_t slot_bytes, uint32_t slots, void **channel)
{
	struct tcp_link *l = (struct tcp_link *)coll_link_rails_of(link, key);
	const struct tcp_channel base = {.link = l, .dir = dir, .key = *key, .slot_bytes = slot_bytes, .slots = slots};
	coll_status status;

	if (slots < 2 || slots > TCP_CHANNELS_MAX || slot_bytes > UINT32_MAX)
		return COLL_ERR_ARGUMENT;
	pthread_mutex_lock(&l->base.lock);
	status = (coll_status)atomic_load(&l->base.status);
	if (status == COLL_OK || status == COLL_AGAIN)
		status = dir == COLL_DIR_SEND ? open_sender(l, &base, channel) : open_receiver(l, &base, channel);
	leave(l);
	return status;
}

/* Frames in the queue that point into user memory take a copy along: after close
 * the memory is the caller's again. */
static void keep_loaned(struct tcp_sender *s)
{
	struct tcp_link *l = s->base.link;

	for (uint32_t i = 0; i < l->queue_count; i++) {
		struct tcp_entry *e = tcp_queue_at(l, i);

		if (e->sender != s || !e->loaned)
			continue;
		e->owned = malloc(e->len_bytes ? e->len_bytes : 1);
		if (e->owned == NULL) {
			coll_tcp_link_fail(l, COLL_ERR_SYSTEM, "out of memory for frames of a closed channel");
			return;
		}
		memcpy(e->owned, e->payload, e->len_bytes);
		e->payload = e->owned;
		e->loaned = false;
		s->loaned_done++;
	}
}

static void close_sender(struct tcp_sender *s)
{
	if (s->kept == NULL)
		keep_loaned(s);
	else if (!coll_tcp_kept_copy(s))
		coll_tcp_link_fail(s->base.link, COLL_ERR_SYSTEM, "out of memory for frames of a closed channel");
	finish_loaned(s);
	s->closed = true;
	if (s->kept != NULL) {
		coll_tcp_kept_release(s);
		return;
	}
	if (s->grant != NULL)
		s->grant->sender = NULL;
	s->grant = NULL;
	if (s->queued == 0)
		coll_tcp_channel_free_sender(s);
}

static void close_receiver(struct tcp_receiver *r)
{
	struct tcp_link *l = r->base.link;
	struct coll_tcp_head head = {.type = COLL_TCP_CLOSE, .channel = r->id};

	if (l->into == r) {
		l->into = NULL;
		l->into_ptr = NULL;
		l->taking = false;
		l->skip = 0;
	}
	if (r->into.completion != NULL) {
		if (!r->into.finished) {
			r->into.finished = true;
			r->into.status = COLL_ERR_ABORTED;
		}
		finish_into(r);
	}
	if (l->state != LINK_UP && l->state != LINK_CONNECTING) {
		coll_tcp_channel_free_receiver(r);
		return;
	}
	if (r->owed > 0)
		coll_tcp_channel_forget_owed(r);
	r->draining = true;
	free(r->base.memory);
	r->base.memory = NULL;
	coll_tcp_tx_control(l, &head);
}

void coll_tcp_channel_close(void *channel)
{
	struct tcp_channel *ch = channel;
	struct tcp_link *l = ch->link;

	enter(ch);
	if (ch->dir == COLL_DIR_SEND)
		close_sender(sender_of(ch));
	else
		close_receiver(receiver_of(ch));
	leave(l);
}

void coll_tcp_channel_sent(struct tcp_link *l, struct tcp_entry *e)
{
	struct tcp_sender *s = e->sender;

	if (s != NULL && s->kept != NULL) {
		s->queued--;
		coll_tcp_kept_release(s);
		return;
	}
	free(e->owned);
	e->owned = NULL;
	if (s == NULL)
		return;
	s->queued--;
	if (e->slot != UINT32_MAX)
		s->base.spare[s->base.spare_count++] = e->slot;
	if (e->loaned)
		s->loaned_done++;
	if (s->closed && s->queued == 0)
		coll_tcp_channel_free_sender(s);
	else if (!s->closed)
		coll_tcp_channel_event(&s->base);
}

/* ---- sending ------------------------------------------------------------------------------ */

coll_status coll_tcp_slot(void *channel, size_t len_bytes, void **p)
{
	struct tcp_channel *ch = channel;
	struct tcp_sender *s = sender_of(ch);
	coll_status status = COLL_OK;

	assert(len_bytes <= ch->slot_bytes);
	enter(ch);
	if (s->grant == NULL || s->grant->credits == 0 || nothing(ch) != COLL_AGAIN)
		status = nothing(ch);
	else if (s->current == UINT32_MAX && ch->spare_count == 0)
		status = COLL_AGAIN;
	else if (s->current == UINT32_MAX)
		s->current = ch->spare[--ch->spare_count];
	if (status == COLL_OK)
		*p = slot_at(ch, s->current);
	leave(ch->link);
	return status;
}

/* Head of the next DATA; uses up the credit. */
static struct coll_tcp_head data_head(struct tcp_sender *s, const struct coll_frame *frame)
{
	struct tcp_grant *g = s->grant;

	g->credits--;
	s->base.link->data_out++;
	return (struct coll_tcp_head){
	        .type = COLL_TCP_DATA,
	        .channel = g->id,
	        .len_bytes = frame->len_bytes,
	        .signature = frame->signature,
	        .sequence = frame->sequence,
	        .index = g->index++,
	};
}

/* Whether its memory is free again. */
static bool send_data(struct tcp_sender *s, const struct tcp_entry *e)
{
	bool gone = false;

	if (s->kept != NULL) {
		coll_tcp_kept_send(s, e);
		return false;
	}
	s->queued++;
	coll_tcp_tx(s->base.link, e, &gone);
	s->queued -= gone;
	return gone;
}

/* An error of the socket shows here first; frames that came before it are read. */
static coll_status after_send(struct tcp_channel *ch)
{
	if (ch->link->out_errno != 0)
		coll_tcp_rx(ch->link, SIZE_MAX);
	return nothing(ch) == COLL_AGAIN ? COLL_OK : nothing(ch);
}

coll_status coll_tcp_post(void *channel, const struct coll_frame *frame)
{
	struct tcp_channel *ch = channel;
	struct tcp_sender *s = sender_of(ch);
	struct tcp_entry e = {.sender = s, .slot = s->current, .len_bytes = frame->len_bytes};
	coll_status status;
	bool gone = true;

	assert(frame->len_bytes <= ch->slot_bytes);
	enter(ch);
	assert(s->current != UINT32_MAX);
	s->current = UINT32_MAX;
	/* Without a grant the receiver has closed since slot(): the frame is dropped. */
	if (s->grant != NULL && nothing(ch) == COLL_AGAIN) {
		e.head = data_head(s, frame);
		e.payload = slot_at(ch, e.slot);
		gone = send_data(s, &e);
	}
	if (gone)
		ch->spare[ch->spare_count++] = e.slot;
	status = after_send(ch);
	leave(ch->link);
	return status;
}

coll_status coll_tcp_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                              const struct coll_frame *frame, struct coll_completion *completion)
{
	struct tcp_channel *ch = channel;
	struct tcp_sender *s = sender_of(ch);
	struct tcp_entry e = {
	        .sender = s, .slot = UINT32_MAX, .len_bytes = frame->len_bytes, .payload = ptr, .loaned = true};
	coll_status status;

	assert(frame->len_bytes <= ch->slot_bytes);
	if (mem != NULL && mem->kind != 0)
		return COLL_ERR_UNSUPPORTED;
	enter(ch);
	status = nothing(ch);
	if (s->grant == NULL || s->grant->credits == 0 || status != COLL_AGAIN || s->loaned_count == ch->slots) {
		leave(ch->link);
		return status;
	}
	if (s->current != UINT32_MAX) /* slot() was asked, and is not going to be posted */
		ch->spare[ch->spare_count++] = s->current;
	s->current = UINT32_MAX;
	e.head = data_head(s, frame);
	e.head.flags = s->kept != NULL ? COLL_TCP_ASKS : 0;
	completion->status = COLL_OK;
	completion->pending = 1;
	s->loaned[(s->loaned_first + s->loaned_count++) % ch->slots] = completion;
	s->loaned_done += send_data(s, &e);
	after_send(ch); /* an error reaches the caller by the completion word */
	finish_loaned(s);
	leave(ch->link);
	return COLL_OK;
}

/* ---- receiving --------------------------------------------------------------------------------- */

static struct tcp_arrival *front(struct tcp_receiver *r)
{
	return &r->ring[r->first];
}

/*
 * Without the lock. The thread that reads the socket fills the entry behind the last and then
 * increments count with release. The entries before it, first and the slots they name belong to
 * the caller until it pops them; a slot is filled again only after that.
 */
coll_status coll_tcp_view(void *channel, const void **p, struct coll_frame *frame)
{
	struct tcp_channel *ch = channel;
	struct tcp_receiver *r = receiver_of(ch);
	/* The status first: once it tells of an end, no frame comes any more. */
	const coll_status status = nothing(ch);

	if (atomic_load_explicit(&r->count, memory_order_acquire) == 0)
		return status;
	*p = slot_at(ch, front(r)->slot);
	*frame = front(r)->frame;
	return COLL_OK;
}

static void pop(struct tcp_receiver *r)
{
	const bool asks = front(r)->asks;

	r->base.spare[r->base.spare_count++] = front(r)->slot;
	r->first = (r->first + 1) % r->base.slots;
	r->count--;
	coll_tcp_channel_owe(r, asks);
}

coll_status coll_tcp_done(void *channel)
{
	struct tcp_channel *ch = channel;
	struct tcp_receiver *r = receiver_of(ch);

	enter(ch);
	assert(r->count > 0);
	pop(r);
	leave(ch->link);
	return COLL_OK;
}

/* A frame of this channel is half read: go on in the caller's memory, or hand it on. */
static void redirect(struct tcp_receiver *r)
{
	struct tcp_link *l = r->base.link;
	const struct coll_taker *taker = r->into.taker;
	const char *slot = slot_at(&r->base, l->into_slot);
	const size_t have = (size_t)(l->into_ptr - slot);
	const size_t good = have < l->good ? have : l->good;
	const size_t whole = taker != NULL ? good / TCP_PIECE_BYTES * TCP_PIECE_BYTES : 0;

	if (whole > 0)
		taker->take(taker->arg, slot, 0, whole);
	r->into.taken = whole;
	l->taking = taker != NULL;
	l->into_ptr = !l->taking ? r->into.ptr : taker->at ? taker->at + whole : l->bulk;
	memcpy(l->into_ptr, slot + whole, have - whole);
	l->into_ptr += have - whole;
	r->base.spare[r->base.spare_count++] = l->into_slot;
	l->into_slot = UINT32_MAX;
}

/* A frame that is here. */
static void hand_over(struct tcp_receiver *r, const struct tcp_into *want)
{
	const char *slot = slot_at(&r->base, front(r)->slot);
	const size_t len_bytes = want->expect.len_bytes;

	if (len_bytes > 0 && want->taker != NULL)
		want->taker->take(want->taker->arg, slot, 0, len_bytes);
	else if (len_bytes > 0)
		memcpy(want->ptr, slot, len_bytes);
	pop(r);
}

static coll_status announce(struct tcp_receiver *r, const struct tcp_into *want)
{
	const struct coll_frame *expect = &want->expect;
	struct coll_completion *completion = want->completion;
	struct tcp_link *l = r->base.link;
	const bool half = l->into == r;
	const struct coll_frame coming = {l->into_head.sequence, l->into_head.signature, l->into_head.len_bytes};
	coll_status status = COLL_OK;

	if (r->into.completion != NULL)
		return COLL_AGAIN;
	completion->status = COLL_OK;
	completion->pending = 0;
	if (r->count > 0) {
		if (!coll_same_frame(&front(r)->frame, expect)) {
			completion->status = COLL_ERR_MISMATCH;
			return COLL_OK;
		}
		hand_over(r, want);
		return COLL_OK;
	}
	status = nothing(&r->base);
	if (status != COLL_AGAIN)
		return status;
	if (half && !coll_same_frame(&coming, expect)) {
		completion->status = COLL_ERR_MISMATCH;
		return COLL_OK;
	}
	completion->pending = 1;
	r->into = *want;
	if (half)
		redirect(r);
	return COLL_OK;
}

coll_status coll_tcp_recv_into(void *channel, void *ptr, const struct coll_memory *mem, const struct coll_frame *expect,
                               struct coll_completion *completion)
{
	struct tcp_channel *ch = channel;
	coll_status status;

	if (mem != NULL && mem->kind != 0)
		return COLL_ERR_UNSUPPORTED;
	enter(ch);
	status = announce(receiver_of(ch), &(struct tcp_into){.ptr = ptr, .expect = *expect, .completion = completion});
	leave(ch->link);
	return status;
}

coll_status coll_tcp_recv_through(void *channel, const struct coll_taker *taker, const struct coll_frame *expect,
                                  struct coll_completion *completion)
{
	struct tcp_channel *ch = channel;
	coll_status status;

	enter(ch);
	if (ch->link->bulk == NULL)
		ch->link->bulk = aligned_alloc(64, TCP_BULK_BYTES);
	status = COLL_ERR_UNSUPPORTED;
	if (ch->link->bulk != NULL)
		status = announce(receiver_of(ch),
		                  &(struct tcp_into){.taker = taker, .expect = *expect, .completion = completion});
	leave(ch->link);
	return status;
}
