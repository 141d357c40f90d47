/*
 * Channels: slots, credits and the verbs of the data path. A receiving end owns a ring
 * of slots that the peer writes into; frame number i goes to slot i modulo slots, at
 * both ends. A frame by value is written from the sender's own ring, one by reference
 * from the user's registered memory; a receiver that has announced registered memory
 * in time has the payload written there, with only the head in the slot.
 *
 * A slot of the sender's ring is free again when the receiver gives the credit back:
 * by then its bytes have arrived, and if the device sends them once more, the receiving
 * device knows them for old ones and drops them. User memory is given back when the
 * device itself says that it is done with it.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "transports/rdma/rdma.h"

static struct rdma_sender *sender_of(struct rdma_channel *ch)
{
	assert(ch->dir == COLL_DIR_SEND);
	return (struct rdma_sender *)ch;
}

static struct rdma_receiver *receiver_of(struct rdma_channel *ch)
{
	assert(ch->dir == COLL_DIR_RECV);
	return (struct rdma_receiver *)ch;
}

/* What a verb says when it has nothing: an error if it never will have. */
static coll_status nothing(const struct rdma_channel *ch)
{
	const int status = atomic_load_explicit(&ch->link->status, memory_order_relaxed);

	if (atomic_load_explicit(&ch->link->inst->closed, memory_order_relaxed))
		return COLL_ERR_ABORTED;
	return status == COLL_OK ? COLL_AGAIN : (coll_status)status;
}

static void enter(struct rdma_channel *ch)
{
	pthread_mutex_lock(&ch->link->lock);
}

/* ch itself may be gone. */
static void leave(struct rdma_link *l)
{
	coll_rdma_link_leave(l);
	pthread_mutex_unlock(&l->lock);
}

/* ---- rings ------------------------------------------------------------------------ */

static coll_status make_ring(struct rdma_channel *ch)
{
	struct rdma_ring *ring = &ch->ring;
	size_t total;

	ring->room = rdma_pad(ch->slot_bytes);
	ring->stride = ring->room + 64;
	if (ch->slot_bytes > SIZE_MAX / 4 / ch->slots)
		return COLL_ERR_ARGUMENT;
	total = (ring->stride * ch->slots + 4095) & ~(size_t)4095;
	ring->memory = aligned_alloc(4096, total);
	if (!ring->memory)
		return COLL_ERR_MEMORY;
	ring->mr = coll_rdma_memory_pin(ch->link->inst, ring->memory, total, ch->dir == COLL_DIR_RECV);
	for (uint32_t i = 0; i < ch->slots; i++) /* nothing that was there before looks like a frame */
		memset(rdma_head_at(ring, i), 0, sizeof(struct coll_rdma_head));
	return ring->mr ? COLL_OK : COLL_ERR_MEMORY;
}

static void free_ring(struct rdma_channel *ch)
{
	if (ch->ring.mr)
		ch->link->inst->v.ibv_dereg_mr(ch->ring.mr);
	free(ch->ring.memory);
}

/* ---- open --------------------------------------------------------------------------- */

void coll_rdma_channel_free_sender(struct rdma_sender *s)
{
	if (s->grant)
		s->grant->sender = NULL;
	if (s->prev) {
		*s->prev = s->next;
		if (s->next)
			s->next->prev = s->prev;
	}
	free_ring(&s->base);
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

static void meet(struct rdma_sender *s, struct rdma_grant *g)
{
	if (g->slots != s->base.slots || g->slot_bytes != s->base.slot_bytes) {
		coll_rdma_link_fail(s->base.link, COLL_ERR_CORRUPT,
		                    "rdma: the ends of a channel differ: %u slots of %zu bytes here, %u of %zu there",
		                    s->base.slots, s->base.slot_bytes, g->slots, g->slot_bytes);
		return;
	}
	s->grant = g;
	g->sender = s;
}

void coll_rdma_channel_meet_grant(struct rdma_link *l, struct rdma_grant *g)
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

	for (uint32_t i = 0; i < l->grants_cap; i++)
		if (l->grants[i] && !l->grants[i]->sender && coll_same_key(&l->grants[i]->key, &s->base.key)) {
			meet(s, l->grants[i]);
			return;
		}
}

static coll_status open_sender(const struct rdma_channel *base, void **channel)
{
	struct rdma_sender *s = calloc(1, sizeof(*s));
	coll_status status;

	if (!s)
		return COLL_ERR_MEMORY;
	s->base = *base;
	status = make_ring(&s->base);
	if (status == COLL_OK)
		status = coll_rdma_tx_reserve(base->link, base->slots + 2);
	if (status != COLL_OK) {
		coll_rdma_channel_free_sender(s);
		return status;
	}
	enlist(s, &base->link->senders);
	meet_sender(s);
	*channel = s;
	return COLL_OK;
}

void coll_rdma_channel_free_receiver(struct rdma_receiver *r)
{
	struct rdma_link *l = r->base.link;

	r->owed = 0;
	coll_rdma_channel_forget_owed(r);
	if (r->id < l->receivers_cap && l->receivers[r->id] == r)
		l->receivers[r->id] = NULL;
	free_ring(&r->base);
	free(r);
}

static bool free_id(struct rdma_link *l, uint32_t *id)
{
	const uint32_t cap = l->receivers_cap ? 2 * l->receivers_cap : 16;
	struct rdma_receiver **grown;

	for (*id = 0; *id < l->receivers_cap; ++*id)
		if (!l->receivers[*id])
			return true;
	if (cap > RDMA_CHANNELS_MAX)
		return false;
	grown = realloc(l->receivers, cap * sizeof(struct rdma_receiver *));
	if (!grown)
		return false;
	memset(grown + l->receivers_cap, 0, (cap - l->receivers_cap) * sizeof(struct rdma_receiver *));
	l->receivers = grown;
	l->receivers_cap = cap;
	return true;
}

static coll_status open_receiver(const struct rdma_channel *base, void **channel)
{
	struct rdma_receiver *r = calloc(1, sizeof(*r));
	struct coll_rdma_note note = {.type = COLL_RDMA_NOTE_GRANT};
	coll_status status;

	if (!r)
		return COLL_ERR_MEMORY;
	r->base = *base;
	r->id = UINT32_MAX;
	r->due_at = base->slots < 4 ? 1 : base->slots / 2;
	status = make_ring(&r->base);
	if (status == COLL_OK && (!free_id(base->link, &r->id) || coll_rdma_tx_reserve(base->link, 4) != COLL_OK))
		status = COLL_ERR_MEMORY;
	if (status != COLL_OK) {
		coll_rdma_channel_free_receiver(r);
		return status;
	}
	base->link->receivers[r->id] = r;
	note.id = r->id;
	note.grant.key = base->key;
	note.grant.slots = base->slots;
	note.grant.slot_bytes = base->slot_bytes;
	note.grant.ring = (uint64_t)(uintptr_t)r->base.ring.memory;
	note.grant.rkey = r->base.ring.mr->rkey;
	coll_rdma_tx_note(base->link, &note);
	coll_rdma_tx_push(base->link);
	*channel = r;
	return COLL_OK;
}

coll_status coll_rdma_channel_open(void *link, const struct coll_channel_key *key, enum coll_direction dir,
                                   size_t slot_bytes, uint32_t slots, void **channel)
{
	struct rdma_link *l = link;
	const struct rdma_channel base = {.link = l, .dir = dir, .key = *key, .slot_bytes = slot_bytes, .slots = slots};
	coll_status status;

	if (slots < 2 || slots > UINT16_MAX || slot_bytes > UINT32_MAX ||
	    slot_bytes > l->inst->message_max * RDMA_PIECES)
		return COLL_ERR_ARGUMENT;
	pthread_mutex_lock(&l->lock);
	status = (coll_status)atomic_load(&l->status);
	if (status == COLL_OK || status == COLL_AGAIN)
		status = dir == COLL_DIR_SEND ? open_sender(&base, channel) : open_receiver(&base, channel);
	leave(l);
	return status;
}

/* ---- close ------------------------------------------------------------------------------ */

/* By the device, or for sending it again. */
static bool in_use(const struct rdma_sender *s)
{
	return s->queued > 0 || s->logged > 0 || s->last_seq > s->base.link->sq_done;
}

/* The device is done with what belongs to a closed sender. */
void coll_rdma_channel_sweep(struct rdma_link *l)
{
	struct rdma_sender *next;

	for (struct rdma_sender *s = l->closing; s; s = next) {
		next = s->next;
		if (!in_use(s))
			coll_rdma_channel_free_sender(s);
	}
}

void coll_rdma_channel_unqueued(struct rdma_link *l, const struct rdma_entry *e)
{
	if (!e->sender)
		return;
	e->sender->queued--;
	e->sender->lent -= e->cookie != NULL;
}

/* The receiver is gone: nobody wants what is still queued. */
void coll_rdma_channel_drop_queued(struct rdma_link *l, const struct rdma_sender *s)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < l->queue_count; i++) {
		const struct rdma_entry e = l->queue[(l->queue_first + i) & (l->queue_cap - 1)];

		if (e.sender != s || e.fence) {
			l->queue[(l->queue_first + kept++) & (l->queue_cap - 1)] = e;
			continue;
		}
		coll_rdma_channel_unqueued(l, &e);
		if (e.cookie)
			coll_cookie_settle(e.cookie, COLL_OK);
	}
	l->queue_count = kept;
}

static void keep_one(struct rdma_sender *s, struct rdma_entry *e)
{
	if (e->sender != s || !e->lent)
		return;
	memcpy(s->base.ring.memory + e->number % s->base.slots * s->base.ring.stride, e->lent, e->frame.len_bytes);
	s->base.link->copied_bytes += e->frame.len_bytes;
	e->lent = NULL;
	s->lent--;
	coll_cookie_settle(e->cookie, COLL_OK);
	e->cookie = NULL;
}

/* Lent frames that have not left go by value: their slot is free. So do those that a broken
 * connection has left behind. */
static void keep_lent(struct rdma_sender *s)
{
	struct rdma_link *l = s->base.link;

	for (uint32_t i = 0; i < l->queue_count; i++)
		keep_one(s, &l->queue[(l->queue_first + i) & (l->queue_cap - 1)]);
	for (uint64_t i = 0; i < l->log_count && l->mending; i++)
		keep_one(s, &l->log[(l->log_first + i) % RDMA_SENDS]);
}

/* Until done is true or the link is not up any more; false: not within ms. The lock is let go
 * in between. */
static bool await(struct rdma_link *l, bool (*done)(struct rdma_link *l, const void *arg), const void *arg, unsigned ms)
{
	const uint64_t until = coll_clock_ns() + ms * UINT64_C(1000000);

	while (l->state == LINK_UP && !done(l, arg)) {
		if (coll_clock_ns() > until)
			return false;
		coll_rdma_tx_push(l);
		if (coll_rdma_rx_poll(l) > 0)
			continue;
		leave(l);
		sched_yield();
		pthread_mutex_lock(&l->lock);
	}
	return true;
}

/* The device lets go of everything at once: it has no queue pair any more. */
static void bury(struct rdma_link *l)
{
	pthread_mutex_unlock(&l->lock);
	pthread_mutex_lock(&l->inst->service_lock);
	pthread_mutex_lock(&l->lock);
	if (l->state == LINK_DOWN || l->state == LINK_ENDED)
		coll_rdma_cm_bury(l);
	else if (l->state == LINK_TORN)
		coll_rdma_cm_tear(l);
	pthread_mutex_unlock(&l->inst->service_lock);
}

static bool nothing_lent(struct rdma_link *l, const void *arg)
{
	return ((const struct rdma_sender *)arg)->lent == 0;
}

static void close_sender(struct rdma_sender *s)
{
	struct rdma_link *l = s->base.link;
	const struct rdma_entry fence = {.sender = s, .fence = true};

	keep_lent(s);
	if (!await(l, nothing_lent, s, 4 * RDMA_CANCEL_MS))
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma %s: a send does not end", l->inst->where);
	if (s->lent > 0)
		bury(l);
	keep_lent(s); /* what is to be sent again */
	if (!rdma_works(l) ? !l->qp : !in_use(s)) {
		coll_rdma_channel_free_sender(s);
		return;
	}
	s->closed = true;
	delist(s);
	enlist(s, &l->closing);
	if (s->queued > 0 || s->last_seq > l->sq_signalled)
		coll_rdma_tx(l, &fence);
	coll_rdma_tx_push(l);
}

static bool receiver_gone(struct rdma_link *l, const void *arg)
{
	const uint32_t id = *(const uint32_t *)arg;

	return !l->receivers[id] || !l->receivers[id]->draining;
}

static void take_announcement_back(struct rdma_receiver *r)
{
	struct coll_cookie *cookie = r->into.cookie;

	r->into.cookie = NULL;
	if (cookie)
		coll_cookie_settle(cookie, COLL_ERR_ABORTED);
}

static void close_receiver(struct rdma_receiver *r)
{
	struct rdma_link *l = r->base.link;
	const struct coll_rdma_note close = {.type = COLL_RDMA_NOTE_CLOSE, .id = r->id};
	const uint32_t id = r->id;
	struct coll_cookie *told;

	if (l->state != LINK_UP && r->into.told)
		bury(l); /* nobody writes there any more */
	told = r->into.told ? r->into.cookie : NULL;
	if (!told)
		take_announcement_back(r);
	if (!rdma_works(l)) {
		take_announcement_back(r);
		/* Until the queue pair is gone the device may still write into the ring. */
		if (l->qp)
			r->draining = true;
		else
			coll_rdma_channel_free_receiver(r);
		return;
	}
	r->owed = 0;
	coll_rdma_channel_forget_owed(r);
	r->draining = true;
	coll_rdma_tx_note(l, &close);
	coll_rdma_tx_push(l);
	if (!told)
		return;
	/* The peer may be writing there now. Its word that it does not comes behind its last
	 * write; it is given by its service thread, whatever its callers do. */
	r->into.cookie = NULL;
	if (!await(l, receiver_gone, &id, RDMA_CANCEL_MS))
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma %s: the peer does not take back the right to write",
		                    l->inst->where);
	if (l->state != LINK_UP)
		bury(l);
	coll_cookie_settle(told, COLL_ERR_ABORTED);
}

void coll_rdma_channel_close(void *channel)
{
	struct rdma_channel *ch = channel;
	struct rdma_link *l = ch->link;

	enter(ch);
	if (ch->dir == COLL_DIR_SEND)
		close_sender(sender_of(ch));
	else
		close_receiver(receiver_of(ch));
	leave(l);
}

/* ---- sending ------------------------------------------------------------------------------ */

static bool credit(const struct rdma_sender *s)
{
	return s->grant && s->grant->credits > 0 && nothing(&s->base) == COLL_AGAIN;
}

coll_status coll_rdma_slot(void *channel, size_t len_bytes, void **p)
{
	struct rdma_channel *ch = channel;
	struct rdma_sender *s = sender_of(ch);
	coll_status status;

	assert(len_bytes <= ch->slot_bytes);
	enter(ch);
	status = nothing(ch);
	/* One that was given out stays the caller's, even if the receiver has closed since. */
	if (status == COLL_AGAIN && credit(s))
		s->held = ch->ring.memory + s->grant->count % ch->slots * ch->ring.stride;
	if (status == COLL_AGAIN && s->held) {
		*p = s->held;
		status = COLL_OK;
	}
	leave(ch->link);
	return status;
}

/* Uses up the credit. */
static void accept_frame(struct rdma_sender *s, struct rdma_entry *e)
{
	e->sender = s;
	e->number = s->grant->count++;
	s->grant->credits--;
	coll_rdma_tx(s->base.link, e);
	coll_rdma_tx_push(s->base.link);
}

static coll_status after_send(const struct rdma_channel *ch)
{
	return nothing(ch) == COLL_AGAIN ? COLL_OK : nothing(ch);
}

coll_status coll_rdma_post(void *channel, const struct coll_frame *frame)
{
	struct rdma_channel *ch = channel;
	struct rdma_sender *s = sender_of(ch);
	struct rdma_entry e = {.frame = *frame};
	coll_status status;

	assert(frame->len_bytes <= ch->slot_bytes);
	enter(ch);
	assert(s->held);
	s->held = NULL;
	/* Without a grant the receiver has closed since slot(): nobody wants it. */
	if (credit(s))
		accept_frame(s, &e);
	status = after_send(ch);
	leave(ch->link);
	return status;
}

coll_status coll_rdma_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                               const struct coll_frame *frame, struct coll_cookie *cookie)
{
	struct rdma_channel *ch = channel;
	struct rdma_sender *s = sender_of(ch);
	struct rdma_entry e = {.frame = *frame, .lent = ptr, .cookie = cookie};
	coll_status status;
	uint32_t rkey;

	assert(frame->len_bytes <= ch->slot_bytes);
	if ((mem && mem->kind != 0) || frame->len_bytes == 0 ||
	    !coll_rdma_memory_find(ch->link->inst, ptr, frame->len_bytes, &e.lkey, &rkey))
		return COLL_ERR_UNSUPPORTED;
	enter(ch);
	status = nothing(ch);
	if (credit(s)) {
		s->held = NULL;
		cookie->status = COLL_OK;
		cookie->pending = 1;
		s->lent++;
		accept_frame(s, &e);
		status = COLL_OK;
	}
	leave(ch->link);
	return status;
}

/* ---- receiving ------------------------------------------------------------------------------ */

static struct coll_frame *front(const struct rdma_receiver *r)
{
	return &rdma_head_at(&r->base.ring, r->done % r->base.slots)->frame;
}

/* The payload ends where the head begins, so that one message carries both. */
static char *payload(const struct rdma_receiver *r)
{
	const struct rdma_ring *ring = &r->base.ring;

	return ring->memory + r->done % r->base.slots * ring->stride + ring->room - rdma_pad(front(r)->len_bytes);
}

void coll_rdma_channel_forget_owed(struct rdma_receiver *r)
{
	struct rdma_receiver **at = &r->base.link->owing;

	if (!r->owing || r->owed > 0)
		return;
	while (*at != r)
		at = &(*at)->owing_next;
	*at = r->owing_next;
	r->owing = false;
	r->base.link->due -= r->owed_due;
	r->owed_due = 0;
}

static void pop(struct rdma_receiver *r)
{
	struct rdma_link *l = r->base.link;

	r->done++;
	r->owed++;
	if (!r->owing) {
		r->owing = true;
		r->owing_next = l->owing;
		l->owing = r;
	}
	if (!r->owed_due && r->owed >= r->due_at) {
		r->owed_due = 1;
		l->due++;
	}
}

coll_status coll_rdma_view(void *channel, const void **p, struct coll_frame *frame)
{
	struct rdma_channel *ch = channel;
	struct rdma_receiver *r = receiver_of(ch);
	coll_status status = COLL_OK;

	enter(ch);
	if (r->arrived == r->done)
		coll_rdma_rx_look(r);
	if (r->arrived == r->done) {
		status = nothing(ch);
	} else {
		*p = payload(r);
		*frame = *front(r);
	}
	leave(ch->link);
	return status;
}

coll_status coll_rdma_done(void *channel)
{
	struct rdma_channel *ch = channel;
	struct rdma_receiver *r = receiver_of(ch);

	enter(ch);
	assert(r->arrived > r->done);
	pop(r);
	leave(ch->link);
	return COLL_OK;
}

/* The frame that the announcement is for has come, into its slot. */
static coll_status copy_out(struct rdma_receiver *r, char *ptr, const struct coll_frame *expect)
{
	if (!coll_same_frame(front(r), expect))
		return COLL_ERR_MISMATCH;
	if (expect->len_bytes > 0)
		memcpy(ptr, payload(r), expect->len_bytes);
	r->base.link->copied_bytes += expect->len_bytes;
	pop(r);
	return COLL_OK;
}

void coll_rdma_channel_arrived(struct rdma_receiver *r, const struct coll_frame *frame, bool into)
{
	struct rdma_link *l = r->base.link;
	struct coll_cookie *cookie = r->into.cookie;
	coll_status status = COLL_OK;

	if (r->draining) {
		r->arrived++;
		r->done++;
		return;
	}
	if (into && (!cookie || !r->into.told || !coll_same_frame(frame, &r->into.expect))) {
		coll_rdma_link_fail(l, COLL_ERR_CORRUPT, "rdma: a frame for memory that was not announced");
		return;
	}
	r->arrived++;
	l->news = true;
	if (!cookie)
		return;
	if (into) {
		l->into_in++;
		pop(r);
	} else {
		status = copy_out(r, r->into.ptr, &r->into.expect);
	}
	r->into.cookie = NULL;
	coll_cookie_settle(cookie, status);
}

static void tell(struct rdma_receiver *r)
{
	struct coll_rdma_note note = {.type = COLL_RDMA_NOTE_INTO, .id = r->id};

	note.into.number = (uint32_t)r->arrived;
	note.into.rkey = r->into.rkey;
	note.into.ptr = (uint64_t)(uintptr_t)r->into.ptr;
	note.into.expect = r->into.expect;
	r->into.told = true;
	coll_rdma_tx_note(r->base.link, &note);
	coll_rdma_tx_push(r->base.link);
}

void coll_rdma_channel_announce_all(struct rdma_link *l)
{
	for (uint32_t i = 0; i < l->receivers_cap; i++) {
		struct rdma_receiver *r = l->receivers[i];

		if (r && r->into.cookie && r->into.registered && !r->into.told)
			tell(r);
	}
}

/* The connection is gone: the peer's copies count no more, nor do those that wait to be sent. */
void coll_rdma_channel_forget_announcements(struct rdma_link *l)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < l->receivers_cap; i++)
		if (l->receivers[i])
			l->receivers[i]->into.told = false;
	for (uint32_t i = 0; i < l->grants_cap; i++)
		if (l->grants[i])
			l->grants[i]->into.set = false;
	for (uint32_t i = 0; i < l->queue_count; i++) {
		const struct rdma_entry e = l->queue[(l->queue_first + i) & (l->queue_cap - 1)];

		if (e.sender || e.note.type != COLL_RDMA_NOTE_INTO)
			l->queue[(l->queue_first + kept++) & (l->queue_cap - 1)] = e;
	}
	l->queue_count = kept;
}

static coll_status announce(struct rdma_receiver *r, char *ptr, const struct coll_frame *expect,
                            struct coll_cookie *cookie, bool registered, uint32_t rkey)
{
	coll_status status;

	if (r->into.cookie)
		return COLL_AGAIN;
	cookie->status = COLL_OK;
	cookie->pending = 0;
	if (r->arrived > r->done) {
		cookie->status = copy_out(r, ptr, expect);
		return COLL_OK;
	}
	status = nothing(&r->base);
	if (status != COLL_AGAIN)
		return status;
	cookie->pending = 1;
	r->into = (struct rdma_into){
	        .ptr = ptr, .expect = *expect, .cookie = cookie, .registered = registered, .rkey = rkey};
	if (registered && r->base.link->state == LINK_UP)
		tell(r);
	return COLL_OK;
}

coll_status coll_rdma_recv_into(void *channel, void *ptr, const struct coll_memory *mem,
                                const struct coll_frame *expect, struct coll_cookie *cookie)
{
	struct rdma_channel *ch = channel;
	uint32_t lkey = 0, rkey = 0;
	coll_status status;
	bool registered;

	if (mem && mem->kind != 0)
		return COLL_ERR_UNSUPPORTED;
	registered = expect->len_bytes >= RDMA_INTO_BYTES &&
	             coll_rdma_memory_find(ch->link->inst, ptr, expect->len_bytes, &lkey, &rkey);
	enter(ch);
	status = announce(receiver_of(ch), ptr, expect, cookie, registered, rkey);
	leave(ch->link);
	return status;
}
