/*
 * shm: the data path. Frame number i of a channel lives in slot i % slots of a ring
 * in the receiver's memory: a head line, and payload beside it when it is more than
 * the line holds.
 *
 * Ordering, in short (docs/design/shm-memory-ordering.md argues it in full). The
 * sender writes payload and head, then stores word with release; the receiver loads
 * word with acquire and looks at nothing else before it shows the turn it waits
 * for. The receiver stores freed (and, in its next frame the other way, the high
 * half of word) with release after its last read of a slot; the sender writes a
 * slot only after an acquire load that covers it. Every word has one writer, but
 * for a record's loan, which both ends change by compare-and-swap. The sleeper's
 * word is checked after the release store without a fence: the sleeper's membarrier
 * stands for both.
 *
 * A peer may be broken: whatever is read from shared memory is read once, checked,
 * and only then used.
 */
#include "transports/shm/ring.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "transports/shm/cma.h"
#include "transports/shm/completion.h"
#include "transports/shm/link.h"
#include "transports/shm/push.h"
#include "transports/shm/region.h"

/* ---- Sender --------------------------------------------------------------------------------- */

/* Take the larger of what the ring and the peer's frames say was given back, if it can
 * be true: not more than was sent. */
static void refresh(struct shm_channel *c)
{
	const struct shm_front *front = atomic_load_explicit(&c->ring, memory_order_relaxed);
	const uint64_t sent = count_of(c), known = freed_of(c);
	const uint32_t heard = atomic_load_explicit(&c->pair->heard, memory_order_acquire);
	uint64_t freed = known + (uint32_t)(heard - (uint32_t)known);

	if (freed > sent || freed == known)
		freed = atomic_load_explicit(&front->freed, memory_order_acquire);
	if (freed > known && freed <= sent)
		atomic_store_explicit(&c->freed, freed, memory_order_relaxed);
}

static coll_status credit_slow(struct shm_channel *c)
{
	if (atomic_load_explicit(&c->inst->closed, memory_order_relaxed))
		return COLL_ERR_ABORTED;
	if (link_status(c) > COLL_AGAIN)
		return link_status(c);
	if (atomic_load(&c->mismatched))
		return COLL_ERR_MISMATCH;
	if (atomic_load_explicit(&c->ring, memory_order_acquire)) {
		refresh(c);
		if (count_of(c) - freed_of(c) < c->slots) {
			unwant(c, SHM_WANT_CREDIT);
			return COLL_OK;
		}
	}
	want(c, SHM_WANT_CREDIT);
	return COLL_AGAIN;
}

static inline coll_status credit(struct shm_channel *c)
{
	if (likely(atomic_load_explicit(&c->ring, memory_order_acquire) && count_of(c) - freed_of(c) < c->slots &&
	           link_status(c) == COLL_OK && !atomic_load_explicit(&c->inst->closed, memory_order_relaxed))) {
		unwant(c, SHM_WANT_CREDIT);
		return COLL_OK;
	}
	return credit_slow(c);
}

coll_status coll_shm_credit(struct shm_channel *c)
{
	return credit(c);
}

coll_status coll_shm_slot(void *channel, size_t len_bytes, void **p)
{
	struct shm_channel *c = channel;
	const coll_status status = credit(c);

	assert(len_bytes <= c->slot_bytes);
	if (likely(status == COLL_OK))
		*p = payload_of(c);
	return status;
}

static inline void publish(struct shm_channel *c, struct shm_head *head, const struct coll_frame *frame,
                           enum shm_kind kind)
{
	const uint64_t taken = atomic_load_explicit(&c->pair->taken, memory_order_acquire);
	const uint64_t word = taken << 32 | turn_of(count_of(c)) << KIND_BITS | kind;

	head->sequence = frame->sequence;
	head->signature = frame->signature;
	head->len_bytes = frame->len_bytes;
	atomic_store_explicit(&head->word, word, memory_order_release);
	step(c);
	wake_peer(c->link);
}

/* A small payload rides in the head's line; a slot is never shorter than a line, so the
 * copies have constant lengths. The slot's own line stays in our cache. Reading in the
 * units that were just written: a wider load would wait for the store buffer (10 ns of
 * an 8-byte all-reduce). */
static inline void copy_inline(char *to, const char *from, uint32_t len_bytes)
{
	if (len_bytes == 8)
		memcpy(to, from, 8);
	else if (len_bytes <= 4)
		memcpy(to, from, 4);
	else
		memcpy(to, from, SHM_INLINE_MAX);
}

coll_status coll_shm_post(void *channel, const struct coll_frame *frame)
{
	struct shm_channel *c = channel;
	struct shm_head *head = &c->heads[c->at];

	assert(frame->len_bytes <= c->slot_bytes);
	if (frame->len_bytes <= SHM_INLINE_MAX)
		copy_inline(head->bytes, payload_of(c), frame->len_bytes);
	if (unlikely(c->kind == SHM_PUSHED))
		coll_shm_end_pushing(c);
	publish(c, head, frame, (enum shm_kind)c->kind);
	c->kind = SHM_VALUE;
	return COLL_OK;
}

/* Plain memory is loaned for the peer's kernel to read only where that is asked for. It makes one
 * copy where slots make two, but it walks the pages of both sides, and slots, filled through the
 * caches or past them, were faster at every size and distance: docs/design/shm-large.md. Asked for, it is
 * done where it is the only copy, to an announced place, and the frame is of middle size. */
static bool pull_would_pay(const struct shm_channel *c, uint32_t len_bytes)
{
	return c->inst->pulls && len_bytes >= SHM_REF_MIN && len_bytes <= SHM_REF_MAX &&
	       atomic_load_explicit(&c->link->they_pull, memory_order_relaxed);
}

static bool pull_pays(const struct shm_channel *c, uint32_t len_bytes)
{
	const struct shm_front *front = atomic_load_explicit(&c->ring, memory_order_relaxed);

	if (!pull_would_pay(c, len_bytes))
		return false;
	return atomic_load_explicit(&front->announced, memory_order_relaxed) > count_of(c) ||
	       invitation_state(c, atomic_load_explicit(&c->invitations[c->at].state, memory_order_relaxed)) !=
	               SHM_INVITE_NONE;
}

coll_status coll_shm_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                              const struct coll_frame *frame, struct coll_completion *completion)
{
	struct shm_channel *c = channel;
	struct shm_head *head;
	uint32_t region;
	uint64_t offset = 0;
	coll_status status;

	assert(frame->len_bytes <= c->slot_bytes);
	if (frame->len_bytes < SHM_MAP_MIN || (mem && mem->kind != 0))
		return COLL_ERR_UNSUPPORTED;
	status = credit(c);
	if (status != COLL_OK)
		return status;
	region = coll_shm_lend(c, ptr, mem, frame->len_bytes, &offset);
	if (!region && !pull_pays(c, frame->len_bytes)) {
		c->kind = pull_would_pay(c, frame->len_bytes) ? SHM_WISH : SHM_VALUE;
		return COLL_ERR_UNSUPPORTED;
	}
	coll_shm_loaned(c, completion);
	c->kind = SHM_VALUE;
	head = &c->heads[c->at];
	head->record.address = (uint64_t)(uintptr_t)ptr;
	head->record.offset = offset;
	head->record.pid = c->inst->self.pid;
	head->record.region = region;
	atomic_store_explicit(&head->record.loan, SHM_LOANED, memory_order_relaxed);
	publish(c, head, frame, SHM_REF);
	return COLL_OK;
}

/* ---- Receiver --------------------------------------------------------------------------------- */

static coll_status corrupt(struct shm_channel *c, const char *what)
{
	pthread_mutex_lock(&c->inst->lock);
	coll_shm_link_break(c->link, COLL_ERR_CORRUPT, what);
	pthread_mutex_unlock(&c->inst->lock);
	return COLL_ERR_CORRUPT;
}

/* The loaned memory is the sender's again. Fails if it took it back meanwhile: then the
 * bytes may have been anything. */
static coll_status return_loan(struct shm_head *head)
{
	unsigned loaned = SHM_LOANED;

	return atomic_compare_exchange_strong(&head->record.loan, &loaned, SHM_BACK) ? COLL_OK : COLL_ERR_ABORTED;
}

/* Read loaned memory to a place of ours. */
static coll_status pull(struct shm_channel *c, struct shm_head *head, void *to, uint32_t len_bytes)
{
	const uint64_t address = head->record.address;

	errno = 0;
	if (coll_shm_cma(c->link, head->record.pid, address, to, len_bytes))
		return return_loan(head);
	if (link_status(c) > COLL_AGAIN)
		return link_status(c);
	if (atomic_load(&head->record.loan) == SHM_REVOKED)
		return COLL_ERR_ABORTED;
	/* A dying process has lost its memory a moment before its handle says so; or it is another process now. */
	if (errno == ESRCH || errno == ESTALE || !coll_shm_alive(c->link))
		return COLL_ERR_PEER_DEAD;
	c->inst->env.log(c->inst->env.ctx, 0, "[COLL-6203] shm: cannot read %u bytes of process %u: %m", len_bytes,
	                 c->link->reported_pid);
	return COLL_ERR_SYSTEM;
}

/* Where loaned memory can be looked at in place. NULL: it cannot, or not yet; *status is
 * AGAIN if that is the only way. */
static const char *borrow(struct shm_channel *c, const struct shm_head *head, uint32_t len_bytes, coll_status *status)
{
	const uint32_t region = head->record.region;
	const char *p = NULL;

	*status = COLL_OK;
	if (region)
		p = coll_shm_borrow(c->link, region, head->record.offset, len_bytes, &c->using);
	if (!p && !atomic_load_explicit(&c->link->we_pull, memory_order_relaxed))
		*status = link_status(c) > COLL_AGAIN ? link_status(c) : COLL_AGAIN;
	return p;
}

static coll_status nothing_yet(struct shm_channel *c)
{
	if (link_status(c) > COLL_AGAIN)
		return link_status(c);
	want(c, SHM_WANT_FRAME);
	return atomic_load_explicit(&c->inst->closed, memory_order_relaxed) ? COLL_ERR_ABORTED : COLL_AGAIN;
}

/* The head of the next frame, taken over and checked. What a peer wrote before it ended
 * is still delivered: the link is asked first, the ring after it. */
static inline coll_status next_head(struct shm_channel *c, enum shm_kind *kind, struct coll_frame *frame)
{
	struct shm_head *head = &c->heads[c->at];
	uint64_t word;

	if (unlikely(!arrived(head, count_of(c), &word))) {
		const coll_status status = nothing_yet(c);

		if (likely(status <= COLL_AGAIN) || !arrived(head, count_of(c), &word))
			return status;
	}
	unwant(c, SHM_WANT_FRAME);
	*kind = (enum shm_kind)(word & ((1u << KIND_BITS) - 1));
	frame->sequence = head->sequence;
	frame->signature = head->signature;
	frame->len_bytes = head->len_bytes;
	if (unlikely(frame->len_bytes > c->slot_bytes))
		return corrupt(c, "a frame is longer than its slot");
	atomic_store_explicit(&c->pair->heard, (uint32_t)(word >> 32), memory_order_release);
	return COLL_OK;
}

/* A destination that would have been announced was declined, and that was wrong. */
static void heed_wish(struct shm_channel *c)
{
	if (atomic_load_explicit(&c->declined, memory_order_relaxed) == count_of(c))
		atomic_store_explicit(&c->by_value, false, memory_order_relaxed);
}

/* A frame by reference is looked at where it lies, if that is mapped here; else it is
 * pulled into the slot's own payload, which it does not use. */
static coll_status show(struct shm_channel *c, enum shm_kind kind)
{
	struct shm_head *head = &c->heads[c->at];
	coll_status status;

	if (unlikely(kind == SHM_PUSHED)) {
		c->shown = coll_shm_pushed(c, c->frame.len_bytes);
		return c->shown ? COLL_OK : corrupt(c, "a frame was pushed into memory that was not offered");
	}
	if (likely(kind != SHM_REF)) {
		if (unlikely(kind == SHM_WISH))
			heed_wish(c);
		c->shown = c->frame.len_bytes <= SHM_INLINE_MAX ? head->bytes : payload_of(c);
		return COLL_OK;
	}
	c->shown = borrow(c, head, c->frame.len_bytes, &status);
	if (c->shown || status != COLL_OK)
		return status;
	c->shown = payload_of(c);
	return pull(c, head, payload_of(c), c->frame.len_bytes);
}

coll_status coll_shm_view(void *channel, const void **p, struct coll_frame *frame)
{
	struct shm_channel *c = channel;
	enum shm_kind kind = SHM_VALUE;
	coll_status status;

	if (!c->held) {
		status = next_head(c, &kind, &c->frame);
		if (status == COLL_OK)
			status = show(c, kind);
		if (status != COLL_OK)
			return status;
		c->held = true;
	}
	*p = c->shown;
	*frame = c->frame;
	return COLL_OK;
}

/* Looked at in place: only now the sender may have it back. */
coll_status coll_shm_end_borrowing(struct shm_channel *c)
{
	const coll_status status = return_loan(&c->heads[c->at]);

	coll_shm_return(c->using);
	c->using = NULL;
	return status;
}

static inline coll_status give_back(struct shm_channel *c)
{
	struct shm_front *front = atomic_load_explicit(&c->ring, memory_order_relaxed);
	const coll_status status = unlikely(c->using != NULL) ? coll_shm_end_borrowing(c) : COLL_OK;

	c->held = false;
	step(c);
	atomic_store_explicit(&c->pair->taken, (uint32_t)count_of(c), memory_order_release);
	atomic_store_explicit(&front->freed, count_of(c), memory_order_release);
	wake_peer(c->link);
	return status;
}

coll_status coll_shm_done(void *channel)
{
	struct shm_channel *c = channel;

	assert(c->held);
	return give_back(c);
}

/* ---- To an announced destination ---- */

/* One copy for a frame by reference, from the peer's memory to where it belongs. */
static coll_status fetch(struct shm_channel *c, enum shm_kind kind, void *to, uint32_t len_bytes)
{
	struct shm_head *head = &c->heads[c->at];
	const char *from;
	coll_status status;

	if (kind == SHM_PUSHED) {
		from = coll_shm_pushed(c, len_bytes);
		if (!from)
			return corrupt(c, "a frame was pushed into memory that was not offered");
		if (from != to)
			memcpy(to, from, len_bytes);
		return COLL_OK;
	}
	if (kind != SHM_REF) {
		memcpy(to, len_bytes <= SHM_INLINE_MAX ? head->bytes : payload_of(c), len_bytes);
		return COLL_OK;
	}
	from = borrow(c, head, len_bytes, &status);
	if (from)
		memcpy(to, from, len_bytes);
	return from || status != COLL_OK ? status : pull(c, head, to, len_bytes);
}

coll_status coll_shm_deliver(struct shm_channel *c, const struct shm_announce *a)
{
	struct coll_frame frame = {0};
	enum shm_kind kind = SHM_VALUE;
	coll_status status;

	if (c->held) { /* it was viewed before it was announced */
		if (!coll_same_frame(&c->frame, &a->expect))
			return COLL_ERR_MISMATCH;
		memcpy(a->ptr, c->shown, c->frame.len_bytes);
		return give_back(c);
	}
	status = next_head(c, &kind, &frame);
	if (status != COLL_OK)
		return status;
	if (!coll_same_frame(&frame, &a->expect))
		return COLL_ERR_MISMATCH;
	if (frame.len_bytes) /* ptr may be NULL otherwise */
		status = fetch(c, kind, a->ptr, frame.len_bytes);
	if ((kind == SHM_VALUE || kind == SHM_PUSHED) && c->answered + 1 == c->announced)
		atomic_store_explicit(&c->by_value, true, memory_order_relaxed);
	return status == COLL_OK ? give_back(c) : status;
}
