/*
 * shm: what the two halves of the data path share: the words of a channel and how to
 * read them, and waking the peer. Ordering: see ring.c.
 */
#ifndef COLL_TRANSPORTS_SHM_RING_H
#define COLL_TRANSPORTS_SHM_RING_H

#include <unistd.h>

#include "transports/shm/shm.h"

enum { TURN_BITS = 30, KIND_BITS = 2 };

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* ring.c */
coll_status coll_shm_slot(void *channel, size_t len_bytes, void **p);
coll_status coll_shm_post(void *channel, const struct coll_frame *frame);
coll_status coll_shm_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                              const struct coll_frame *frame, struct coll_completion *completion);
coll_status coll_shm_view(void *channel, const void **p, struct coll_frame *frame);
coll_status coll_shm_done(void *channel);

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

static inline uint32_t loaned_of(const struct shm_channel *c)
{
	return atomic_load_explicit(&c->loaned, memory_order_relaxed);
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

static inline void want(struct shm_channel *c, unsigned what)
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

/* What a word of state says about the next frame. */
static inline enum shm_invitation_state invitation_state(const struct shm_channel *c, unsigned word)
{
	return word >> KIND_BITS == turn_of(count_of(c)) ? (enum shm_invitation_state)(word & ((1u << KIND_BITS) - 1))
	                                                 : SHM_INVITE_NONE;
}

/* ---- Waking the peer --------------------------------------------------------------- */

static inline void ring_bell(const struct shm_link *l)
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

/* completion.c */

/* ring.c: whether a frame may be sent now */
coll_status coll_shm_credit(struct shm_channel *c);

/* ring.c: the next frame goes to the announced place. AGAIN: it is not there. */
coll_status coll_shm_deliver(struct shm_channel *c, const struct shm_announce *a);
/* ABORTED: the lender took it back meanwhile. */
coll_status coll_shm_end_borrowing(struct shm_channel *c);

#endif
