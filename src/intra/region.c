/*
 * Regions: made, offered, found, agreed upon, let go. Nothing here is on the path of a
 * call once the regions are there.
 *
 * Agreement. A rank has mapped all others or it has not, and writes that in its own
 * region. One that has mapped all reads all their words: if each says the same, every
 * rank has mapped all, and every rank comes to that conclusion; if one does not, neither
 * does anybody who can read it. One that has not mapped all gives up at once, as does
 * whoever cannot read its region. So either all use the regions or none does.
 */
#include "intra/region.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "intra/ahead.h"
#include "intra/central.h"
#include "intra/enter.h"
#include "intra/intra.h"

static_assert(sizeof(struct intra_line) == COLL_LINE_BYTES, "one line");
static_assert(offsetof(struct intra_region, entries) == 4096, "entries begin a page");

enum { LOOKS = 60 };

size_t coll_intra_region_bytes(size_t payload_bytes)
{
	return coll_intra_ahead_at(payload_bytes) + COLL_AHEAD_TABLE_BYTES +
	       COLL_AHEAD_SLOTS * (COLL_PAIR_SLOT_BYTES + COLL_AREA_GAP);
}

coll_status coll_intra_create(struct coll_intra **intra, const struct coll_intra_fabric *fabric,
                              const struct coll_channel_key *key, int rank, int size, size_t payload_bytes, bool alone)
{
	struct coll_intra *n = calloc(1, sizeof(*n));

	if (n)
		n->peers = calloc((size_t)size, sizeof(*n->peers));
	if (n && size <= COLL_INTRA_SIZE_MAX)
		n->unpacked = calloc((size_t)size, COLL_ENTRY_PAYLOAD);
	*intra = n;
	if (!n || !n->peers || (size <= COLL_INTRA_SIZE_MAX && !n->unpacked)) {
		coll_intra_destroy(intra);
		return COLL_ERR_MEMORY;
	}
	n->rank = rank;
	n->size = size;
	n->payload_bytes = payload_bytes;
	n->page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	n->central.cell_bytes = coll_intra_central_cell_bytes(payload_bytes);
	n->alone = alone;
	n->looks = alone ? LOOKS : 0;
	n->fabric = *fabric;
	n->key = *key;
	return COLL_OK;
}

void coll_intra_destroy(struct coll_intra **intra)
{
	struct coll_intra *n = *intra;

	if (!n)
		return;
	*intra = NULL;
	for (int r = 0; n->peers && r < n->size; r++) {
		struct intra_peer *p = &n->peers[r];

		if (p->offer.base)
			p->transport->shared->give_back(p->link, &p->offer);
		if (p->offered)
			p->transport->shared->withdraw(p->link, &n->key);
	}
	coll_ahead_forget(n);
	if (n->memory.base)
		n->fabric.free(n->fabric.arg, &n->memory);
	free(n->peers);
	free(n->unpacked);
	free(n);
}

/* ---- Forming ---- */

/* Small memory that cannot be had is no error: there is none to offer. */
static void make(struct coll_intra *n)
{
	if (n->made)
		return;
	n->made = true;
	if (n->fabric.alloc(n->fabric.arg, coll_intra_region_bytes(n->payload_bytes), &n->memory) != COLL_OK) {
		n->memory.base = NULL;
		return;
	}
	n->mine = (struct intra_region *)(void *)n->memory.base;
	n->mine->size = (uint32_t)n->size;
	n->mine->payload_bytes = n->payload_bytes;
}

static bool fits(const struct coll_intra *n, const struct coll_offer *o)
{
	const struct intra_region *r = (const struct intra_region *)(const void *)o->base;

	return o->len_bytes >= coll_intra_region_bytes(n->payload_bytes) && r->size == (uint32_t)n->size &&
	       r->payload_bytes == n->payload_bytes;
}

/* Offer ours to a peer, find its own. UNSUPPORTED: there is none. */
static coll_status meet(struct coll_intra *n, int rank)
{
	struct intra_peer *p = &n->peers[rank];
	coll_status st;

	if (!p->link) {
		st = n->fabric.link(n->fabric.arg, rank, &p->transport, &p->link);
		if (st != COLL_OK && st != COLL_AGAIN)
			return st;
	}
	if (!p->offered) {
		st = p->transport->shared->offer(p->link, &n->key, n->mine ? &n->memory : NULL);
		if (st != COLL_OK)
			return st;
		p->offered = true;
	}
	if (p->region)
		return COLL_OK;
	st = p->transport->shared->offered(p->link, &n->key, &p->offer);
	if (st != COLL_OK)
		return st;
	if (!fits(n, &p->offer))
		return COLL_ERR_CORRUPT;
	p->asleep = p->offer.asleep;
	p->fenced = p->offer.fenced;
	p->region = (const struct intra_region *)(const void *)p->offer.base;
	return COLL_OK;
}

/* This rank has mapped all, or never will. */
static void decide(struct coll_intra *n, enum intra_verdict verdict)
{
	if (!n->mine)
		return;
	atomic_store_explicit(&n->mine->verdict, verdict, memory_order_release);
	atomic_signal_fence(memory_order_seq_cst);
	for (int r = 0; r < n->size; r++)
		if (n->peers[r].region)
			coll_intra_nudge_one(&n->peers[r]);
}

/* All ranks use the regions, or none does. Peers have met by now, and nothing is offered any more. */
static coll_status settle(struct coll_intra *n, enum intra_verdict verdict)
{
	n->verdict = verdict;
	if (n->memory.base)
		n->fabric.settle(n->fabric.arg, &n->memory);
	return verdict == INTRA_GOOD ? COLL_OK : COLL_ERR_UNSUPPORTED;
}

static coll_status give_up(struct coll_intra *n)
{
	decide(n, INTRA_BAD);
	return settle(n, INTRA_BAD);
}

/* All peers are met, even when one has nothing: they wait for a word of ours. */
static coll_status meet_all(struct coll_intra *n, uint32_t *waits_for)
{
	coll_status result = COLL_OK;

	for (int r = 0; r < n->size; r++) {
		const coll_status st = r == n->rank ? COLL_OK : meet(n, r);

		if (st == COLL_OK)
			continue;
		if (st != COLL_ERR_UNSUPPORTED && st != COLL_AGAIN) {
			*waits_for = (uint32_t)r;
			return st;
		}
		/* Nothing is better known by waiting for the rest. */
		if (result != COLL_ERR_UNSUPPORTED)
			*waits_for = (uint32_t)r;
		if (result == COLL_OK || st == COLL_ERR_UNSUPPORTED)
			result = st;
	}
	return result;
}

coll_status coll_intra_form(struct coll_intra *n, uint32_t *waits_for)
{
	coll_status st;

	if (n->verdict != INTRA_UNDECIDED)
		return n->verdict == INTRA_GOOD ? COLL_OK : COLL_ERR_UNSUPPORTED;
	make(n);
	st = meet_all(n, waits_for);
	if (st == COLL_ERR_UNSUPPORTED || (st == COLL_OK && !n->mine))
		return give_up(n);
	if (st != COLL_OK)
		return st;
	if (atomic_load_explicit(&n->mine->verdict, memory_order_relaxed) == INTRA_UNDECIDED)
		decide(n, INTRA_GOOD);
	for (int r = 0; r < n->size; r++) {
		const struct intra_peer *p = &n->peers[r];
		uint32_t verdict;

		if (r == n->rank)
			continue;
		verdict = atomic_load_explicit(&p->region->verdict, memory_order_acquire);
		if (verdict == INTRA_BAD)
			return give_up(n);
		if (verdict != INTRA_GOOD) {
			*waits_for = (uint32_t)r;
			return COLL_AGAIN;
		}
	}
	if (n->size == 2 && !n->peers[!n->rank].fenced) {
		n->quick_mine = n->mine->entries;
		n->quick_theirs = n->peers[!n->rank].region->entries;
		n->quick_asleep = n->peers[!n->rank].asleep;
	}
	return settle(n, INTRA_GOOD);
}

/* ---- Evidence ---- */

/* An epoch that a peer has entered, as the entry of another says. Acquire: all that it read before is read. */
static uint32_t entered(const struct intra_peer *p, uint32_t epoch)
{
	return (uint32_t)(atomic_load_explicit(&p->region->entries[epoch % COLL_DEPTH].lines[0].word,
	                                       memory_order_acquire) >>
	                  32);
}

coll_status coll_intra_entered(struct coll_intra *n, uint32_t wanted, uint32_t *waits_for)
{
	uint32_t least = wanted + COLL_DEPTH / 2;

	if (coll_intra_reached(n->all, wanted))
		return COLL_OK;
	for (int r = 0; r < n->size; r++) {
		struct intra_peer *p = &n->peers[r];
		uint32_t epoch;

		if (r == n->rank)
			continue;
		/* Nobody is further ahead: it is of long ago, when this was looked at last. */
		if (p->seen - n->all > 2 * COLL_DEPTH)
			p->seen = n->all;
		if (coll_intra_reached(p->seen, wanted)) {
			if (!coll_intra_reached(p->seen, least))
				least = p->seen;
			continue;
		}
		/* A later epoch says more: then nothing is looked at for a while. */
		epoch = entered(p, wanted + COLL_DEPTH / 2);
		if (!coll_intra_reached(epoch, wanted))
			epoch = entered(p, wanted);
		if (!coll_intra_reached(epoch, wanted)) {
			*waits_for = (uint32_t)r;
			return COLL_AGAIN;
		}
		p->seen = epoch;
		if (!coll_intra_reached(epoch, least))
			least = epoch;
	}
	/* The least of them all: it is looked at again when that is too little. */
	n->all = least;
	return COLL_OK;
}
