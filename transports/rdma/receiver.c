/*
 * The receiving end of a channel: what has arrived in its slots, slots given back, and
 * where frames by reference shall go. A receiver that has announced registered memory in
 * time has the payload written there, with only the head in the slot.
 *
 * Large frames by reference wait at the sender until we have said where they go, so that
 * none is copied. A recv_into() that finds nothing says where (INTO), and from then on the
 * sender trusts that it will be told: a view() that finds nothing says that they may come
 * into the slots (COME). So they do until a small frame is sent, which both ends see; then
 * the sender asks (ASK) about the next large one, and is answered by INTO or COME. So
 * channels of small frames need no notes, and a sender that waits has asked, or we know
 * that it does. A COME that crosses with what was sent meanwhile does not count, and the
 * sender asks. Copied are only those that came by leave when recv_into() found them (then
 * WAIT ends the leave).
 */
#include <stdlib.h>
#include <string.h>

#include "transports/rdma/rdma.h"

static struct rdma_receiver *receiver_of(void *channel)
{
	struct rdma_channel *ch = channel;

	assert(ch->dir == COLL_DIR_RECV);
	return (struct rdma_receiver *)ch;
}

/* ---- open --------------------------------------------------------------------------- */

void coll_rdma_receiver_free(struct rdma_receiver *r)
{
	struct rdma_link *l = r->base.link;

	r->owed = 0;
	coll_rdma_receiver_forget_owed(r);
	coll_id_table_drop(&l->receivers, r->id, r);
	coll_rdma_channel_free_ring(&r->base);
	free(r);
}

coll_status coll_rdma_receiver_open(const struct rdma_channel *base, void **channel)
{
	struct rdma_receiver *r = calloc(1, sizeof(*r));
	struct coll_rdma_note note = {.type = COLL_RDMA_NOTE_GRANT};
	coll_status status;

	if (!r)
		return COLL_ERR_MEMORY;
	r->base = *base;
	r->id = UINT32_MAX;
	r->due_at = base->slots < 4 ? 1 : base->slots / 2;
	status = coll_rdma_channel_make_ring(&r->base);
	if (status == COLL_OK && (!coll_id_table_free_id(&base->link->receivers, RDMA_CHANNELS_MAX, &r->id) ||
	                          coll_rdma_tx_reserve(base->link, 4) != COLL_OK))
		status = COLL_ERR_MEMORY;
	if (status != COLL_OK) {
		coll_rdma_receiver_free(r);
		return status;
	}
	coll_id_table_put(&base->link->receivers, r->id, r);
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

/* ---- close ---------------------------------------------------------------------------- */

static bool receiver_gone(struct rdma_link *l, const void *arg)
{
	const struct rdma_receiver *r = coll_id_table_get(&l->receivers, *(const uint32_t *)arg);

	return !r || !r->draining;
}

static void take_announcement_back(struct rdma_receiver *r)
{
	struct coll_cookie *cookie = r->into.cookie;

	r->into.cookie = NULL;
	if (cookie)
		coll_cookie_settle(cookie, COLL_ERR_ABORTED);
}

void coll_rdma_receiver_close(struct rdma_receiver *r)
{
	struct rdma_link *l = r->base.link;
	const struct coll_rdma_note close = {.type = COLL_RDMA_NOTE_CLOSE, .id = r->id};
	const uint32_t id = r->id;
	struct coll_cookie *told;

	if (l->state != LINK_UP && r->into.told)
		coll_rdma_channel_bury(l); /* nobody writes there any more */
	told = r->into.told ? r->into.cookie : NULL;
	if (!told)
		take_announcement_back(r);
	if (!rdma_works(l)) {
		take_announcement_back(r);
		/* Until the queue pair is gone the device may still write into the ring. */
		if (l->qp)
			r->draining = true;
		else
			coll_rdma_receiver_free(r);
		return;
	}
	r->owed = 0;
	coll_rdma_receiver_forget_owed(r);
	r->draining = true;
	coll_rdma_tx_note(l, &close);
	coll_rdma_tx_push(l);
	if (!told)
		return;
	/* The peer may be writing there now. Its word that it does not comes behind its last
	 * write; it is given by its service thread, whatever its callers do. */
	r->into.cookie = NULL;
	if (!coll_rdma_channel_await(l, receiver_gone, &id, RDMA_CANCEL_MS))
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma %s: the peer does not take back the right to write",
		                    l->inst->where);
	if (l->state != LINK_UP)
		coll_rdma_channel_bury(l);
	coll_cookie_settle(told, COLL_ERR_ABORTED);
}

/* ---- slots ------------------------------------------------------------------------------ */

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

void coll_rdma_receiver_forget_owed(struct rdma_receiver *r)
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

static void say_manner(struct rdma_receiver *r, enum rdma_manner manner)
{
	struct coll_rdma_note note = {.type = manner == MANNER_COMES ? COLL_RDMA_NOTE_COME : COLL_RDMA_NOTE_WAIT,
	                              .id = r->id};

	note.into.number = (uint32_t)r->arrived;
	r->manner = manner;
	r->asked = false;
	coll_rdma_tx_note(r->base.link, &note);
	coll_rdma_tx_push(r->base.link);
}

/* Nothing has come: whoever waits may come into the slots. */
static void give_leave(struct rdma_receiver *r)
{
	if (r->asked || r->manner == MANNER_TOLD)
		say_manner(r, MANNER_COMES);
}

/* A view() answers, called again; memory that is not registered and waits is not asked again. */
void coll_rdma_receiver_asked(struct rdma_receiver *r)
{
	r->asked = true;
	r->base.link->news = true;
	if (r->into.cookie && !r->into.registered)
		give_leave(r);
}

coll_status coll_rdma_view(void *channel, const void **p, struct coll_frame *frame)
{
	struct rdma_receiver *r = receiver_of(channel);
	coll_status status = COLL_OK;

	coll_rdma_channel_enter(&r->base);
	if (r->arrived == r->done)
		coll_rdma_rx_look(r);
	if (r->arrived == r->done) {
		status = coll_rdma_channel_nothing(&r->base);
		if (status == COLL_AGAIN)
			give_leave(r);
	} else {
		*p = payload(r);
		*frame = *front(r);
	}
	coll_rdma_channel_leave(r->base.link);
	return status;
}

coll_status coll_rdma_done(void *channel)
{
	struct rdma_receiver *r = receiver_of(channel);

	coll_rdma_channel_enter(&r->base);
	assert(r->arrived > r->done);
	pop(r);
	coll_rdma_channel_leave(r->base.link);
	return COLL_OK;
}

/* ---- announcements ---------------------------------------------------------------------- */

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

void coll_rdma_receiver_arrived(struct rdma_receiver *r, const struct coll_frame *frame, bool into)
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
	if (frame->len_bytes < RDMA_INTO_BYTES && r->manner == MANNER_COMES)
		r->manner = MANNER_ASKS;
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
	r->manner = MANNER_TOLD;
	r->asked = false;
	coll_rdma_tx_note(r->base.link, &note);
	coll_rdma_tx_push(r->base.link);
}

void coll_rdma_receiver_announce_all(struct rdma_link *l)
{
	for (uint32_t i = 0; i < l->receivers.cap; i++) {
		struct rdma_receiver *r = l->receivers.at[i];

		if (r && r->into.cookie && r->into.registered && !r->into.told)
			tell(r);
	}
}

/* The connection is gone: the peer's copies count no more, nor do those that wait to be sent. */
void coll_rdma_receiver_forget_announcements(struct rdma_link *l)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < l->receivers.cap; i++)
		if (l->receivers.at[i])
			((struct rdma_receiver *)l->receivers.at[i])->into.told = false;
	for (uint32_t i = 0; i < l->grants.cap; i++)
		if (l->grants.at[i])
			((struct rdma_grant *)l->grants.at[i])->into.set = false;
	for (uint32_t i = 0; i < l->queue_count; i++) {
		const struct rdma_entry e = l->queue[(l->queue_first + i) & (l->queue_cap - 1)];

		if (e.sender || e.note.type != COLL_RDMA_NOTE_INTO)
			l->queue[(l->queue_first + kept++) & (l->queue_cap - 1)] = e;
	}
	l->queue_count = kept;
}

/* Nothing has come yet: it shall go where ptr is. */
static void await_frame(struct rdma_receiver *r, char *ptr, const struct coll_frame *expect, struct coll_cookie *cookie,
                        bool registered, uint32_t rkey)
{
	cookie->pending = 1;
	r->into = (struct rdma_into){
	        .ptr = ptr, .expect = *expect, .cookie = cookie, .registered = registered, .rkey = rkey};
	if (!registered)
		give_leave(r);
	else if (r->base.link->state == LINK_UP)
		tell(r);
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
		if (registered && r->manner == MANNER_COMES) /* too late for this one */
			say_manner(r, MANNER_TOLD);
		cookie->status = copy_out(r, ptr, expect);
		return COLL_OK;
	}
	status = coll_rdma_channel_nothing(&r->base);
	if (status != COLL_AGAIN)
		return status;
	await_frame(r, ptr, expect, cookie, registered, rkey);
	return COLL_OK;
}

coll_status coll_rdma_recv_into(void *channel, void *ptr, const struct coll_memory *mem,
                                const struct coll_frame *expect, struct coll_cookie *cookie)
{
	struct rdma_receiver *r = receiver_of(channel);
	uint32_t lkey = 0, rkey = 0;
	coll_status status;
	bool registered;

	if (mem && mem->kind != 0)
		return COLL_ERR_UNSUPPORTED;
	registered = expect->len_bytes >= RDMA_INTO_BYTES &&
	             coll_rdma_memory_find(r->base.link->inst, ptr, expect->len_bytes, &lkey, &rkey);
	coll_rdma_channel_enter(&r->base);
	status = announce(r, ptr, expect, cookie, registered, rkey);
	coll_rdma_channel_leave(r->base.link);
	return status;
}
