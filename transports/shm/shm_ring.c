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
#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "transports/shm/shm.h"

enum { TURN_BITS = 30, KIND_BITS = 2 };

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

static inline uint32_t turn_of(uint64_t number)
{
	return (uint32_t)(number + 1) & ((1u << TURN_BITS) - 1);
}

static inline uint64_t count_of(const struct shm_channel *c)
{
	return atomic_load_explicit(&c->count, memory_order_relaxed);
}

static inline uint64_t freed_of(const struct shm_channel *c)
{
	return atomic_load_explicit(&c->freed, memory_order_relaxed);
}

static inline uint64_t reaped_of(const struct shm_channel *c)
{
	return atomic_load_explicit(&c->reaped, memory_order_relaxed);
}

static inline coll_status link_status(const struct shm_channel *c)
{
	return (coll_status)atomic_load_explicit(&c->link->status, memory_order_relaxed);
}

static inline bool arrived(const struct shm_head *head, uint64_t number, uint64_t *word)
{
	*word = atomic_load_explicit(&head->word, memory_order_acquire);
	return (uint32_t)*word >> KIND_BITS == turn_of(number);
}

static inline char *payload_of(const struct shm_channel *c)
{
	return c->payload + c->at * c->stride;
}

static inline void step(struct shm_channel *c)
{
	atomic_store_explicit(&c->count, count_of(c) + 1, memory_order_relaxed);
	c->at = c->at + 1 == c->slots ? 0 : c->at + 1;
}

static void want(struct shm_channel *c, unsigned what)
{
	atomic_store_explicit(&c->want, atomic_load_explicit(&c->want, memory_order_relaxed) | what,
	                      memory_order_relaxed);
}

static inline void unwant(struct shm_channel *c, unsigned what)
{
	const unsigned now = atomic_load_explicit(&c->want, memory_order_relaxed);

	if (unlikely(now & what))
		atomic_store_explicit(&c->want, now & ~what, memory_order_relaxed);
}

static void settle(struct coll_cookie *cookie, coll_status status)
{
	cookie->status = status;
	cookie->pending = 0;
}

/* ---- Waking the peer --------------------------------------------------------------- */

static void ring_bell(const struct shm_link *l)
{
	const uint64_t one = 1;

	if (l->peer_wake_fd >= 0 && write(l->peer_wake_fd, &one, sizeof(one)) < 0) {
		/* The counter is full: the sleeper is awake already. */
	}
}

/* After a release store that the peer may be asleep for. Without a fence the load
 * may be done before the store is visible; then the sleeper's membarrier, which comes
 * between its store of armed and its last look, makes the store visible to that look. */
static inline void wake_peer(const struct shm_link *l)
{
	const struct shm_page *page = atomic_load_explicit(&l->peer_page, memory_order_acquire);

	if (unlikely(atomic_load_explicit(&l->fenced, memory_order_relaxed)))
		shm_fence();
	atomic_signal_fence(memory_order_seq_cst);
	if (unlikely(atomic_load_explicit(&page->armed, memory_order_relaxed)))
		ring_bell(l);
}

/* ---- Cookies: only the channel's own thread settles them --------------------------------- */

static void list_pending(struct shm_channel *c)
{
	struct shm_inst *in = c->inst;

	pthread_mutex_lock(&in->pending_lock);
	c->owner = pthread_self();
	if (!c->pending) {
		c->pending = true;
		c->pending_next = in->pending;
		in->pending = c;
		atomic_fetch_add(&in->pending_count, 1);
	}
	pthread_mutex_unlock(&in->pending_lock);
}

static int settle_range(struct shm_channel *c, uint64_t from, uint64_t to, coll_status status)
{
	int settled = 0;

	for (uint64_t i = from; i < to && c->lent; i++) {
		struct coll_cookie **cookie = &c->cookies[i % c->slots];

		if (*cookie) {
			settle(*cookie, status);
			*cookie = NULL;
			c->lent--;
			settled++;
		}
	}
	return settled;
}

/* Why lent memory will never be given back, or OK. */
static coll_status lost(const struct shm_channel *c)
{
	const struct shm_front *front = atomic_load_explicit(&c->ring, memory_order_relaxed);

	if (link_status(c) > COLL_AGAIN)
		return link_status(c);
	return front && atomic_load_explicit(&front->closed, memory_order_acquire) ? COLL_ERR_ABORTED : COLL_OK;
}

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

/* Whoever waits for a cookie must not miss a given back that only the ring tells. */
static void refresh_fully(struct shm_channel *c)
{
	const struct shm_front *front = atomic_load_explicit(&c->ring, memory_order_relaxed);
	const uint64_t freed = atomic_load_explicit(&front->freed, memory_order_acquire);

	if (freed > freed_of(c) && freed <= count_of(c))
		atomic_store_explicit(&c->freed, freed, memory_order_relaxed);
}

static int reap(struct shm_channel *c)
{
	int settled;
	coll_status why;

	refresh_fully(c);
	settled = settle_range(c, reaped_of(c), freed_of(c), COLL_OK);
	atomic_store_explicit(&c->reaped, freed_of(c), memory_order_relaxed);
	why = c->lent ? lost(c) : COLL_OK;
	if (why != COLL_OK)
		settled += settle_range(c, reaped_of(c), count_of(c), why);
	if (!c->lent)
		unwant(c, SHM_WANT_COOKIE);
	return settled;
}

static bool same(const struct coll_frame *a, const struct coll_frame *b)
{
	return a->sequence == b->sequence && a->signature == b->signature && a->len_bytes == b->len_bytes;
}

/* ---- Sender --------------------------------------------------------------------------------- */

static coll_status credit_slow(struct shm_channel *c)
{
	if (atomic_load_explicit(&c->inst->closed, memory_order_relaxed))
		return COLL_ERR_ABORTED;
	if (link_status(c) > COLL_AGAIN)
		return link_status(c);
	if (atomic_load(&c->mismatched))
		return COLL_ERR_MISMATCH;
	if (atomic_load_explicit(&c->ring, memory_order_acquire)) {
		if (c->lent)
			reap(c);
		else
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

coll_status coll_shm_post(void *channel, const struct coll_frame *frame)
{
	struct shm_channel *c = channel;
	struct shm_head *head = &c->heads[c->at];

	assert(frame->len_bytes <= c->slot_bytes);
	/* A small payload rides in the head's line; a slot is never shorter than a line,
	 * so the copy has a constant length. The slot's own line stays in our cache. */
	if (frame->len_bytes <= SHM_INLINE_MAX)
		memcpy(head->bytes, payload_of(c), SHM_INLINE_MAX);
	publish(c, head, frame, SHM_VALUE);
	return COLL_OK;
}

coll_status coll_shm_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                              const struct coll_frame *frame, struct coll_cookie *cookie)
{
	struct shm_channel *c = channel;
	struct shm_head *head;
	coll_status status;

	assert(frame->len_bytes <= c->slot_bytes);
	if (frame->len_bytes < SHM_REF_MIN || (mem && mem->kind != 0))
		return COLL_ERR_UNSUPPORTED;
	status = credit(c);
	if (status != COLL_OK)
		return status;
	head = &c->heads[c->at];
	if (!atomic_load_explicit(&c->link->they_pull, memory_order_relaxed))
		return COLL_ERR_UNSUPPORTED;
	cookie->status = COLL_OK;
	cookie->pending = 1;
	if (!c->lent) /* frames before this one have no cookie, whether seen given back or not */
		atomic_store_explicit(&c->reaped, count_of(c), memory_order_relaxed);
	c->cookies[count_of(c) % c->slots] = cookie;
	c->lent++;
	want(c, SHM_WANT_COOKIE);
	head->record.address = (uint64_t)(uintptr_t)ptr;
	head->record.pid = c->inst->self.pid;
	atomic_store_explicit(&head->record.loan, SHM_LENT, memory_order_relaxed);
	publish(c, head, frame, SHM_REF);
	list_pending(c);
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

/* Read lent memory to a place of ours; then it is the sender's again, unless the sender
 * took it back meanwhile: in that case the bytes may be anything. */
static coll_status pull(struct shm_channel *c, struct shm_head *head, void *to, uint32_t len_bytes)
{
	const uint64_t address = head->record.address;
	unsigned lent = SHM_LENT;

	if (!coll_shm_pull(c->link, head->record.pid, address, to, len_bytes)) {
		if (link_status(c) > COLL_AGAIN)
			return link_status(c);
		if (atomic_load(&head->record.loan) == SHM_REVOKED)
			return COLL_ERR_ABORTED;
		if (!coll_shm_alive(c->link))
			return COLL_ERR_PEER_DEAD;
		c->inst->env.log(c->inst->env.ctx, 0, "shm: cannot read %u bytes of process %u: %m", len_bytes,
		                 c->link->told_pid);
		return COLL_ERR_SYSTEM;
	}
	return atomic_compare_exchange_strong(&head->record.loan, &lent, SHM_BACK) ? COLL_OK : COLL_ERR_ABORTED;
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
	if (unlikely(frame->len_bytes > c->slot_bytes || *kind > SHM_REF))
		return corrupt(c, "a frame is longer than its slot, or of no known kind");
	atomic_store_explicit(&c->pair->heard, (uint32_t)(word >> 32), memory_order_release);
	return COLL_OK;
}

/* A frame by reference is pulled into the slot's own payload, which it does not use. */
static coll_status show(struct shm_channel *c, enum shm_kind kind)
{
	struct shm_head *head = &c->heads[c->at];

	if (kind == SHM_VALUE) {
		c->shown = c->frame.len_bytes <= SHM_INLINE_MAX ? head->bytes : payload_of(c);
		return COLL_OK;
	}
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

static inline void give_back(struct shm_channel *c)
{
	struct shm_front *front = atomic_load_explicit(&c->ring, memory_order_relaxed);

	c->held = false;
	step(c);
	atomic_store_explicit(&c->pair->taken, (uint32_t)count_of(c), memory_order_release);
	atomic_store_explicit(&front->freed, count_of(c), memory_order_release);
	wake_peer(c->link);
}

coll_status coll_shm_done(void *channel)
{
	struct shm_channel *c = channel;

	assert(c->held);
	give_back(c);
	return COLL_OK;
}

/* ---- Announced destinations ------------------------------------------------------------------- */

static void refuse_announced(struct shm_channel *c, coll_status status)
{
	for (; c->answered < c->announced; c->answered++)
		settle(c->announces[c->answered % c->slots].cookie, status);
	unwant(c, SHM_WANT_FRAME);
}

/* One copy for a frame by reference, from the peer's memory to where it belongs. */
static coll_status deliver(struct shm_channel *c, const struct shm_announce *a)
{
	struct shm_head *head = &c->heads[c->at];
	struct coll_frame frame = {0};
	enum shm_kind kind = SHM_VALUE;
	coll_status status;

	if (c->held) { /* it was viewed before it was announced */
		if (!same(&c->frame, &a->expect))
			return COLL_ERR_MISMATCH;
		memcpy(a->ptr, c->shown, c->frame.len_bytes);
		give_back(c);
		return COLL_OK;
	}
	status = next_head(c, &kind, &frame);
	if (status != COLL_OK)
		return status;
	if (!same(&frame, &a->expect))
		return COLL_ERR_MISMATCH;
	if (kind == SHM_REF)
		status = pull(c, head, a->ptr, frame.len_bytes);
	else if (frame.len_bytes)
		memcpy(a->ptr, frame.len_bytes <= SHM_INLINE_MAX ? head->bytes : payload_of(c), frame.len_bytes);
	if (status == COLL_OK)
		give_back(c);
	return status;
}

static int answer(struct shm_channel *c)
{
	int settled = 0;

	while (c->answered < c->announced) {
		const struct shm_announce *a = &c->announces[c->answered % c->slots];
		const coll_status status = deliver(c, a);

		if (status == COLL_AGAIN)
			return settled;
		if (status != COLL_OK) {
			/* What was announced behind it cannot fit either. */
			settled += (int)(c->announced - c->answered);
			refuse_announced(c, status);
			return settled;
		}
		settle(a->cookie, COLL_OK);
		c->answered++;
		settled++;
	}
	return settled;
}

coll_status coll_shm_recv_into(void *channel, void *ptr, const struct coll_memory *mem, const struct coll_frame *expect,
                               struct coll_cookie *cookie)
{
	struct shm_channel *c = channel;

	if (mem && mem->kind != 0)
		return COLL_ERR_UNSUPPORTED;
	if (c->announced - c->answered == c->slots)
		answer(c);
	if (c->announced - c->answered == c->slots)
		return COLL_AGAIN;
	cookie->status = COLL_OK;
	cookie->pending = 1;
	c->announces[c->announced++ % c->slots] = (struct shm_announce){ptr, *expect, cookie};
	answer(c);
	if (c->answered < c->announced)
		list_pending(c);
	return COLL_OK;
}

/* ---- Progress, sleeping, closing ------------------------------------------------------------------ */

static int settle_pending(struct shm_inst *in)
{
	struct shm_channel **at = &in->pending;
	int moved = 0;

	if (pthread_mutex_trylock(&in->pending_lock) != 0)
		return 0;
	while (*at) {
		struct shm_channel *c = *at;

		if (!pthread_equal(c->owner, pthread_self())) {
			at = &c->pending_next;
			continue;
		}
		moved += c->dir == COLL_DIR_SEND ? reap(c) : answer(c);
		if (c->lent || c->answered < c->announced) {
			at = &c->pending_next;
			continue;
		}
		*at = c->pending_next;
		c->pending = false;
		atomic_fetch_sub(&in->pending_count, 1);
	}
	pthread_mutex_unlock(&in->pending_lock);
	return moved;
}

/* Where nobody runs a service thread, its work is done here, seldom. */
int coll_shm_progress(void *inst)
{
	struct shm_inst *in = inst;
	int moved = 0;

	if (unlikely(atomic_load_explicit(&in->pending_count, memory_order_relaxed)))
		moved = settle_pending(in);
	if (unlikely(!atomic_load_explicit(&in->serviced, memory_order_relaxed)) &&
	    (atomic_fetch_add_explicit(&in->spins, 1, memory_order_relaxed) & 255) == 255)
		coll_shm_service_step(in, false);
	return moved;
}

bool coll_shm_noteworthy(const struct shm_channel *c)
{
	const unsigned wanted = atomic_load_explicit(&c->want, memory_order_relaxed);
	const struct shm_front *front = atomic_load(&c->ring);
	uint64_t word, freed;

	if (!wanted)
		return false;
	if (link_status(c) > COLL_AGAIN || atomic_load(&c->mismatched))
		return true;
	if (wanted & SHM_WANT_FRAME)
		return arrived(&c->heads[count_of(c) % c->slots], count_of(c), &word);
	if (!front)
		return false;
	freed = atomic_load_explicit(&front->freed, memory_order_acquire);
	if ((wanted & SHM_WANT_COOKIE) && (freed > reaped_of(c) || atomic_load(&front->closed)))
		return true;
	return (wanted & SHM_WANT_CREDIT) && count_of(c) - freed < c->slots;
}

static void take_back(struct shm_channel *c)
{
	const struct shm_front *front = atomic_load(&c->ring);

	if (front && c->lent)
		reap(c);
	for (uint64_t i = reaped_of(c); i < count_of(c) && c->lent; i++) {
		unsigned lent = SHM_LENT;

		if (c->cookies[i % c->slots])
			atomic_compare_exchange_strong(&c->heads[i % c->slots].record.loan, &lent, SHM_REVOKED);
	}
	settle_range(c, reaped_of(c), count_of(c), COLL_ERR_ABORTED);
}

void coll_shm_quiesce(struct shm_channel *c)
{
	struct shm_front *front = atomic_load(&c->ring);

	if (c->dir == COLL_DIR_SEND) {
		take_back(c);
		return;
	}
	refuse_announced(c, COLL_ERR_ABORTED);
	atomic_store(&front->closed, 1);
	if (atomic_load(&c->link->peer_page))
		wake_peer(c->link);
}
