/*
 * The receiving end of a channel: frames that have arrived in its slots, slots returned, and
 * destinations of frames by reference. If a receiver has announced registered memory in
 * time, the payload is written there and only the head goes into the slot.
 *
 * Large frames by reference wait at the sender until the receiver has sent their destination, so
 * that none is copied:
 *  - A recv_into() that finds nothing sends the destination (INTO). From then on the sender
 *    expects a note for each large frame.
 *  - A view() that finds nothing permits the sender to use the slots (COME). The permission
 *    holds until a small frame is sent, which both ends see.
 *  - Then the sender asks (ASK) about the next large frame, and gets INTO or COME.
 * So channels of small frames need no notes, and a sender that waits has asked, or the receiver
 * has to send a note anyway. A COME that crosses with a frame sent meanwhile does not count, and the
 * sender asks. A frame is copied only if it used the permission and recv_into() then finds it
 * (WAIT ends the permission).
 */
#include "transports/rdma/receiver.h"

#include <stdlib.h>
#include <string.h>

#include "base/delay.h"
#include "transports/rdma/channel.h"
#include "transports/rdma/link.h"
#include "transports/rdma/memory.h"
#include "transports/rdma/rdma.h"
#include "transports/rdma/rx.h"
#include "transports/rdma/tx.h"

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
	free(r->into);
	free(r->frames);
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
	r->into = calloc(base->slots, sizeof(*r->into));
	r->frames = calloc(base->slots, sizeof(*r->frames));
	status = r->into && r->frames ? coll_rdma_channel_make_ring(&r->base) : COLL_ERR_MEMORY;
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

static struct rdma_into *into_at(const struct rdma_receiver *r, uint64_t number)
{
	return &r->into[number % r->base.slots];
}

void coll_rdma_receiver_settle(struct rdma_receiver *r, coll_status status)
{
	while (rdma_announced(r))
		coll_completion_settle(into_at(r, --r->announced)->completion, status);
}

/* Whether the peer has been sent memory where it may write. */
static bool any_reported(const struct rdma_receiver *r)
{
	for (uint64_t i = r->arrived; i < r->announced; i++)
		if (into_at(r, i)->told)
			return true;
	return false;
}

/* The peer may be writing there now. Its word that it does not comes behind its last write; it is
 * given by its service thread, whatever its callers do. r may be gone before the completion words are settled. */
static void take_back(struct rdma_receiver *r)
{
	struct rdma_link *l = r->base.link;
	struct rdma_receiver mine = *r;

	r->announced = r->arrived;
	r->into = NULL; /* draining: not looked at any more */
	if (!coll_rdma_channel_await(l, receiver_gone, &mine.id, COLL_DELAY_RDMA_CANCEL_MS))
		coll_rdma_link_fail(l, COLL_ERR_SYSTEM, "rdma %s: the peer did not confirm that it no longer writes",
		                    l->port->where);
	if (l->state != LINK_UP)
		coll_rdma_channel_bury(l);
	coll_rdma_receiver_settle(&mine, COLL_ERR_ABORTED);
	free(mine.into);
}

void coll_rdma_receiver_close(struct rdma_receiver *r)
{
	struct rdma_link *l = r->base.link;
	const struct coll_rdma_note close = {.type = COLL_RDMA_NOTE_CLOSE, .id = r->id};

	if (l->state != LINK_UP && any_reported(r))
		coll_rdma_channel_bury(l); /* nobody writes there any more */
	if (!any_reported(r) || !rdma_works(l))
		coll_rdma_receiver_settle(r, COLL_ERR_ABORTED);
	if (!rdma_works(l)) {
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
	if (rdma_announced(r))
		take_back(r);
}

/* ---- slots ------------------------------------------------------------------------------ */

/* As it was when it was checked: the peer may write into the ring at any moment. */
static struct coll_frame *frame_at(const struct rdma_receiver *r, uint64_t number)
{
	return &r->frames[number % r->base.slots];
}

static char *payload_at(const struct rdma_receiver *r, uint64_t number)
{
	return rdma_payload_at(&r->base.ring, number % r->base.slots, frame_at(r, number)->len_bytes);
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

/* The frame needs its slot no more. Slots go back in order: behind one that is not the one that
 * was announced, and is to be viewed, others may have come. */
static void take(struct rdma_receiver *r, uint64_t number)
{
	into_at(r, number)->taken = true;
	while (r->done < r->arrived && into_at(r, r->done)->taken) {
		into_at(r, r->done)->taken = false;
		pop(r);
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

/* Nothing has arrived: waiting frames may use the slots. */
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
	if (rdma_announced(r) && !into_at(r, r->arrived)->registered)
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
		*p = payload_at(r, r->done);
		*frame = *frame_at(r, r->done);
	}
	coll_rdma_channel_leave(r->base.link);
	return status;
}

coll_status coll_rdma_done(void *channel)
{
	struct rdma_receiver *r = receiver_of(channel);

	coll_rdma_channel_enter(&r->base);
	assert(r->arrived > r->done);
	take(r, r->done);
	coll_rdma_channel_leave(r->base.link);
	return COLL_OK;
}

/* ---- announcements ---------------------------------------------------------------------- */

/* The frame that the announcement is for has come, into its slot. */
static coll_status copy_out(struct rdma_receiver *r, uint64_t number, char *ptr, const struct coll_frame *expect)
{
	if (!coll_same_frame(frame_at(r, number), expect))
		return COLL_ERR_MISMATCH;
	if (expect->len_bytes > 0)
		memcpy(ptr, payload_at(r, number), expect->len_bytes);
	r->base.link->copied_bytes += expect->len_bytes;
	take(r, number);
	return COLL_OK;
}

const char *coll_rdma_receiver_told(const struct rdma_receiver *r, const struct coll_frame *frame)
{
	const struct rdma_into *a = rdma_announced(r) ? into_at(r, r->arrived) : NULL;

	return a && a->told && coll_same_frame(frame, &a->expect) ? a->ptr : NULL;
}

void coll_rdma_receiver_arrived(struct rdma_receiver *r, const struct coll_frame *frame, bool into)
{
	struct rdma_link *l = r->base.link;
	const uint64_t number = r->arrived;
	const struct rdma_into *a;
	coll_status status = COLL_OK;

	if (r->draining) {
		r->arrived++;
		r->done++;
		return;
	}
	a = rdma_announced(r) ? into_at(r, number) : NULL;
	assert(!into || a);
	*frame_at(r, number) = *frame;
	r->arrived++;
	l->news = true;
	if (frame->len_bytes < RDMA_INTO_BYTES && r->manner == MANNER_COMES)
		r->manner = MANNER_ASKS;
	if (!a)
		return;
	if (into) {
		l->into_in++;
		take(r, number);
	} else {
		status = copy_out(r, number, a->ptr, &a->expect);
	}
	coll_completion_settle(a->completion, status);
}

static void tell(struct rdma_receiver *r, uint64_t number)
{
	struct coll_rdma_note note = {.type = COLL_RDMA_NOTE_INTO, .id = r->id};
	struct rdma_into *a = into_at(r, number);

	note.into.number = (uint32_t)number;
	note.into.rkey = a->region->mr[r->base.link->port->index]->rkey;
	note.into.ptr = (uint64_t)(uintptr_t)a->ptr;
	note.into.expect = a->expect;
	a->told = true;
	r->manner = MANNER_TOLD;
	r->asked = false;
	coll_rdma_tx_note(r->base.link, &note);
	coll_rdma_tx_push(r->base.link);
}

void coll_rdma_receiver_announce_all(struct rdma_link *l)
{
	for (uint32_t i = 0; i < l->receivers.cap; i++) {
		struct rdma_receiver *r = l->receivers.at[i];

		for (uint64_t k = r ? r->arrived : 0; r && k < r->announced; k++)
			if (into_at(r, k)->registered && !into_at(r, k)->told)
				tell(r, k);
	}
}

uint32_t coll_rdma_receiver_key(const struct rdma_link *l, uint32_t id)
{
	const struct rdma_receiver *r = coll_id_table_get(&l->receivers, id);

	return r ? r->base.ring.mr[l->port->index]->rkey : 0;
}

void coll_rdma_receiver_tell_keys(struct rdma_link *l)
{
	struct coll_rdma_note note = {.type = COLL_RDMA_NOTE_KEYS};

	for (uint32_t i = 0; i < l->receivers.cap; i++) {
		if (!l->receivers.at[i])
			continue;
		note.key[note.count].id = i;
		note.key[note.count++].rkey = coll_rdma_receiver_key(l, i);
		if (note.count < COLL_RDMA_NOTE_CREDITS)
			continue;
		coll_rdma_tx_first(l, &note);
		note.count = 0;
	}
	if (note.count > 0)
		coll_rdma_tx_first(l, &note);
}

static void forget_reported(struct rdma_receiver *r)
{
	for (uint64_t i = r->arrived; i < r->announced; i++)
		into_at(r, i)->told = false;
}

/* The connection is gone: the peer's copies count no more, nor do those that wait to be sent. Nor do its keys. */
void coll_rdma_receiver_forget_announcements(struct rdma_link *l)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < l->receivers.cap; i++)
		if (l->receivers.at[i])
			forget_reported(l->receivers.at[i]);
	for (uint32_t i = 0; i < l->grants.cap; i++) {
		struct rdma_grant *g = l->grants.at[i];

		if (!g)
			continue;
		if (g->targets > 0)
			memset(g->into, 0, g->targets * sizeof(g->into[0]));
		g->held = true;
	}
	for (uint32_t i = 0; i < l->queue_count; i++) {
		const struct rdma_entry e = l->queue[(l->queue_first + i) & (l->queue_cap - 1)];

		if (e.sender || (e.note.type != COLL_RDMA_NOTE_INTO && e.note.type != COLL_RDMA_NOTE_KEYS))
			l->queue[(l->queue_first + kept++) & (l->queue_cap - 1)] = e;
	}
	l->queue_count = kept;
}

/* Another destination after those announced, if the peer is notified at once and slots are left. */
static bool may_follow(const struct rdma_receiver *r, const struct rdma_into *a)
{
	return a->registered && into_at(r, r->announced - 1)->registered && r->announced - r->done < r->base.slots;
}

static coll_status announce(struct rdma_receiver *r, const struct rdma_into *a)
{
	coll_status status;

	if (rdma_announced(r) && !may_follow(r, a))
		return COLL_AGAIN;
	a->completion->status = COLL_OK;
	a->completion->pending = 0;
	if (!rdma_announced(r) && r->arrived > r->done) {
		if (a->registered && r->manner == MANNER_COMES) /* too late for this one */
			say_manner(r, MANNER_TOLD);
		a->completion->status = copy_out(r, r->done, a->ptr, &a->expect);
		return COLL_OK;
	}
	status = coll_rdma_channel_nothing(&r->base);
	if (status != COLL_AGAIN)
		return status;
	if (!rdma_announced(r))
		r->announced = r->arrived;
	a->completion->pending = 1;
	*into_at(r, r->announced++) = *a;
	if (!a->registered)
		give_leave(r);
	else if (r->base.link->state == LINK_UP)
		tell(r, r->announced - 1);
	return COLL_OK;
}

coll_status coll_rdma_recv_into(void *channel, void *ptr, const struct coll_memory *mem,
                                const struct coll_frame *expect, struct coll_completion *completion)
{
	struct rdma_receiver *r = receiver_of(channel);
	struct rdma_into a = {.ptr = ptr, .expect = *expect, .completion = completion};
	coll_status status;

	if (mem && mem->kind != 0)
		return COLL_ERR_UNSUPPORTED;
	a.region = expect->len_bytes >= RDMA_INTO_BYTES
	                   ? coll_rdma_memory_find(r->base.link->inst, ptr, expect->len_bytes)
	                   : NULL;
	a.registered = a.region != NULL;
	coll_rdma_channel_enter(&r->base);
	status = announce(r, &a);
	coll_rdma_channel_leave(r->base.link);
	return status;
}
