/*
 * shm: memory of a receiver that its peer writes. The receiver offers where the next
 * frames go; a sender that finds an offer for its frame fills that place itself, and the
 * frame's head says so: one copy, or none if the sender computes what it sends.
 *
 * Invariant: a peer writes memory of ours only between its claim of an offer and the
 * moment in which it lets go of it, both of them swaps or stores of the offer's state; and
 * once coll_shm_uninvite() has returned, no peer writes there, whatever became of it. Only
 * whole pages of memory that this transport made are offered to be written: so a writer
 * that was stopped in the middle of a frame can be left with the pages, and the owner gets
 * others (docs/design/shm-large.md argues it).
 */
#include "transports/shm/push.h"

#include <assert.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/delay.h"
#include "transports/shm/region.h"
#include "transports/shm/ring.h"

enum { PAGE = 4096 };

/* How long a claim may last before the owner takes other pages: a writer fills a slot in
 * microseconds, if it runs. */

/* ---- Receiver -------------------------------------------------------------------------- */

static unsigned word_for(uint64_t number, enum shm_invitation_state state)
{
	return (unsigned)(turn_of(number) << KIND_BITS | state);
}

static bool whole_pages(const void *ptr, size_t len_bytes)
{
	return ((uintptr_t)ptr | len_bytes) % PAGE == 0;
}

/* The record of this place is of a frame that was seen long ago: its sender looks at it no
 * more. */
coll_status coll_shm_invite(void *channel, uint32_t ahead, void *ptr, const struct coll_memory *mem,
                            const struct coll_frame *expect)
{
	struct shm_channel *c = channel;
	const uint64_t number = count_of(c) + ahead;
	struct shm_invitation *o = &c->invitations[number % c->slots];
	uint64_t offset = 0;
	uint32_t region;

	if (ahead >= c->slots || expect->len_bytes < SHM_MAP_MIN || expect->len_bytes > c->slot_bytes ||
	    (mem && mem->kind != 0) || !whole_pages(ptr, expect->len_bytes))
		return COLL_ERR_UNSUPPORTED;
	region = coll_shm_lend(c, ptr, mem, expect->len_bytes, &offset);
	if (!region)
		return COLL_ERR_UNSUPPORTED;
	c->invited[number % c->slots] =
	        (struct shm_invited){.number = number + 1, .ptr = ptr, .len_bytes = expect->len_bytes};
	c->inviting = true;
	o->region = region;
	o->offset = offset;
	o->expect = *expect;
	atomic_store_explicit(&o->state, word_for(number, SHM_INVITE_OPEN), memory_order_release);
	return COLL_OK;
}

/* The place of the frame that has come; NULL: it was not offered. */
void *coll_shm_pushed(const struct shm_channel *c, uint32_t len_bytes)
{
	const struct shm_invited *o = &c->invited[c->at];

	return c->inviting && o->number == count_of(c) + 1 && o->len_bytes == len_bytes ? o->ptr : NULL;
}

/* Other pages with the same bytes, at the same place. Without memory for them they are
 * empty: what a call that failed leaves is undefined. False: not even room for that. */
static bool exchange_pages(char *p, size_t len_bytes)
{
	const int prot = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS;
	char *fresh = mmap(NULL, len_bytes, prot, kind, -1, 0);

	if (fresh != MAP_FAILED) {
		memcpy(fresh, p, len_bytes);
		if (mremap(fresh, len_bytes, len_bytes, MREMAP_MAYMOVE | MREMAP_FIXED, p) == p)
			return true;
		munmap(fresh, len_bytes);
	}
	return mmap(p, len_bytes, prot, kind | MAP_FIXED, -1, 0) == p;
}

/* Whoever else maps these pages keeps them. */
static bool leave_behind(struct shm_link *l, char *p, size_t len_bytes)
{
	coll_shm_region_tear(l->inst, p, len_bytes);
	if (!exchange_pages(p, len_bytes))
		return false;
	l->inst->env.log(l->inst->env.ctx, 1,
	                 "[COLL-6206] shm: process %u holds a place it was to fill; its pages were exchanged",
	                 l->reported_pid);
	return true;
}

void coll_shm_part(void *link, void *ptr, size_t len_bytes)
{
	assert(whole_pages(ptr, len_bytes));
	while (!leave_behind(link, ptr, len_bytes))
		sched_yield();
}

/* Until the writer lets go, or is left behind with the pages. */
static void await_writer(struct shm_channel *c, const struct shm_invitation *o, const struct shm_invited *mine,
                         unsigned claimed)
{
	const uint64_t since_ns = coll_clock_ns();

	while (atomic_load_explicit(&o->state, memory_order_acquire) == claimed) {
		if (coll_clock_ns() - since_ns < COLL_DELAY_NS(SHM_PUSH_CLAIM)) {
			sched_yield();
			continue;
		}
		if (leave_behind(c->link, mine->ptr, mine->len_bytes))
			return;
	}
}

void coll_shm_uninvite(struct shm_channel *c)
{
	if (!c->inviting)
		return;
	for (uint64_t i = count_of(c); i < count_of(c) + c->slots; i++) {
		const struct shm_invited *mine = &c->invited[i % c->slots];
		struct shm_invitation *o = &c->invitations[i % c->slots];
		unsigned open = word_for(i, SHM_INVITE_OPEN);

		if (mine->number == i + 1 && !atomic_compare_exchange_strong(&o->state, &open, 0) &&
		    open == word_for(i, SHM_INVITE_CLAIMED))
			await_writer(c, o, mine, open);
	}
	c->inviting = false;
}

/* ---- Sender ------------------------------------------------------------------------------ */

/* The receiver may withdraw at any moment, but not once the claim has succeeded. What the
 * record says is checked like all that comes from a peer: the mapping decides. */
coll_status coll_shm_push(void *channel, const struct coll_frame *frame, void **p)
{
	struct shm_channel *c = channel;
	struct shm_invitation *o;
	unsigned word;
	const char *at;
	coll_status status;

	if (frame->len_bytes < SHM_MAP_MIN)
		return COLL_ERR_UNSUPPORTED;
	status = coll_shm_credit(c);
	if (status != COLL_OK)
		return status;
	assert(c->kind != SHM_PUSHED);
	o = &c->invitations[c->at];
	word = atomic_load_explicit(&o->state, memory_order_acquire);
	if (invitation_state(c, word) != SHM_INVITE_OPEN || !coll_same_frame(&o->expect, frame))
		return COLL_ERR_UNSUPPORTED;
	at = coll_shm_borrow(c->link, o->region, o->offset, frame->len_bytes, &c->using);
	if (!at)
		return COLL_ERR_UNSUPPORTED;
	if (!atomic_compare_exchange_strong(&o->state, &word, word_for(count_of(c), SHM_INVITE_CLAIMED))) {
		coll_shm_return(c->using);
		c->using = NULL;
		return COLL_ERR_UNSUPPORTED;
	}
	c->kind = SHM_PUSHED;
	*p = (void *)(uintptr_t)at;
	return COLL_OK;
}

/* Release: what was written comes before it, so that the owner, who reads it with acquire,
 * may use its memory. */
void coll_shm_end_pushing(struct shm_channel *c)
{
	atomic_store_explicit(&c->invitations[c->at].state, 0, memory_order_release);
	coll_shm_return(c->using);
	c->using = NULL;
}
