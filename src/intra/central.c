/*
 * The central buffer's area: made by rank 0, found by all others, agreed upon, let go. And waking everybody.
 *
 * Agreement. Rank 0 offers its area to all, or that it has none. Who has mapped it says so in
 * it. Who cannot offers rank 0 "none" in turn, and runs the plan from then on. Rank 0 alone decides: good
 * when all have mapped it, bad when one has refused; the others look at its verdict in the area.
 *
 * Waking. Links between all ranks would be a thousand and more, so there are those of rank 0 and, up to
 * COLL_CENTRAL_ROOTS_MAX ranks, of each root that there has been. Who completes an epoch wakes the ranks it has a link
 * to, rank 0 and the root among them; these two wake all others when they see it. Where there is no link yet, or rank 0
 * does not look, because it computes, a sleeper wakes up by itself some milliseconds later.
 */
#include "intra/central.h"

#include <assert.h>
#include <stddef.h>

static_assert(COLL_CENTRAL_SIZE_MAX % COLL_CENTRAL_GROUP == 0, "whole groups");
static_assert((int)COLL_CENTRAL_CELL_MIN <= (int)COLL_CENTRAL_CELL_MAX, "a cell has a block for each rank");
static_assert((COLL_CENTRAL_DEPTH & (COLL_CENTRAL_DEPTH - 1)) == 0, "turns may wrap");
static_assert(sizeof(struct central_count) == COLL_LINE_BYTES, "one line");
static_assert(offsetof(struct central_area, rounds) % 4096 == 0, "rounds begin a page");

size_t coll_intra_central_cell_bytes(size_t payload_bytes)
{
	const size_t bytes = payload_bytes / COLL_CENTRAL_AHEAD & ~(size_t)(COLL_LINE_BYTES - 1);

	return bytes < COLL_CENTRAL_CELL_MIN   ? COLL_CENTRAL_CELL_MIN
	       : bytes > COLL_CENTRAL_CELL_MAX ? COLL_CENTRAL_CELL_MAX
	                                       : bytes;
}

size_t coll_intra_central_bytes(int size, size_t payload_bytes)
{
	return sizeof(struct central_area) + COLL_CENTRAL_DEPTH * ((size_t)size + coll_central_groups(size) + 1) *
	                                             coll_central_stride(coll_intra_central_cell_bytes(payload_bytes));
}

static coll_status link_to(struct coll_intra *n, int rank)
{
	struct intra_peer *p = &n->peers[rank];
	coll_status st;

	if (p->link)
		return COLL_OK;
	st = n->fabric.link(n->fabric.arg, rank, &p->transport, &p->link);
	return st == COLL_AGAIN ? COLL_OK : st;
}

void coll_central_nudge(struct coll_intra *n)
{
	atomic_signal_fence(memory_order_seq_cst);
	for (int r = 0; r < n->size; r++) {
		struct intra_peer *p = &n->peers[r];

		if (r == n->rank || !p->link)
			continue;
		if (unlikely(!p->joined))
			p->joined = p->transport->link_status(p->link) == COLL_OK;
		if (p->joined)
			p->transport->shared->nudge(p->link);
	}
}

static coll_status refuse(struct coll_intra *n)
{
	n->verdict = INTRA_BAD;
	return COLL_ERR_UNSUPPORTED;
}

/* ---- Rank 0 ---- */

static void make(struct coll_intra *n)
{
	if (n->made)
		return;
	n->made = true;
	if (n->fabric.alloc(n->fabric.arg, coll_intra_central_bytes(n->size, n->payload_bytes), &n->memory) !=
	    COLL_OK) {
		n->memory.base = NULL;
		return;
	}
	n->central.area = (struct central_area *)(void *)n->memory.base;
	n->central.area->size = (uint32_t)n->size;
	n->central.area->cell_bytes = n->central.cell_bytes;
}

static coll_status decide(struct coll_intra *n, enum intra_verdict verdict)
{
	n->verdict = verdict;
	if (n->central.area) {
		atomic_store_explicit(&n->central.area->verdict, verdict, memory_order_release);
		n->fabric.settle(n->fabric.arg, &n->memory);
	}
	coll_central_nudge(n);
	return verdict == INTRA_GOOD ? COLL_OK : COLL_ERR_UNSUPPORTED;
}

static coll_status offer_to(struct coll_intra *n, int rank)
{
	struct intra_peer *p = &n->peers[rank];
	/* An offer on its way keeps a descriptor: none waits for its link. */
	coll_status st = p->transport->link_status(p->link);

	if (st == COLL_OK && !p->offered) {
		st = p->transport->shared->offer(p->link, &n->key, n->central.area ? &n->memory : NULL);
		p->offered = st == COLL_OK;
	}
	return st;
}

/* Links to all are opened, then the area is offered to all, then all are heard of, one behind another. */
static coll_status form_owner(struct coll_intra *n, uint32_t *waits_for)
{
	make(n);
	for (; n->central.opened < n->size - 1; n->central.opened++) {
		const coll_status st = link_to(n, n->central.opened + 1);

		*waits_for = (uint32_t)n->central.opened + 1;
		if (st != COLL_OK)
			return st;
	}
	for (; n->central.offered < n->size - 1; n->central.offered++) {
		const coll_status st = offer_to(n, n->central.offered + 1);

		*waits_for = (uint32_t)n->central.offered + 1;
		if (st != COLL_OK)
			return st;
	}
	if (!n->central.area)
		return decide(n, INTRA_BAD);
	for (; n->central.heard < n->size - 1; n->central.heard++) {
		const int r = n->central.heard + 1;
		struct coll_offer none;
		coll_status st;

		*waits_for = (uint32_t)r;
		if (atomic_load_explicit(&n->central.area->joined[r], memory_order_acquire))
			continue;
		st = n->peers[r].transport->shared->offered(n->peers[r].link, &n->key, &none);
		return st == COLL_ERR_UNSUPPORTED ? decide(n, INTRA_BAD) : st == COLL_OK ? COLL_ERR_CORRUPT : st;
	}
	return decide(n, INTRA_GOOD);
}

/* ---- The others ---- */

static bool fits(const struct coll_intra *n, const struct coll_offer *o)
{
	const struct central_area *area = (const struct central_area *)(const void *)o->base;

	return o->len_bytes >= coll_intra_central_bytes(n->size, n->payload_bytes) && area->size == (uint32_t)n->size &&
	       area->cell_bytes == n->central.cell_bytes;
}

static coll_status find(struct coll_intra *n)
{
	struct intra_peer *owner = &n->peers[0];
	coll_status st = link_to(n, 0);

	if (st != COLL_OK || n->central.area)
		return st;
	st = owner->transport->shared->offered(owner->link, &n->key, &owner->offer);
	if (st == COLL_ERR_UNSUPPORTED) {
		st = owner->transport->shared->offer(owner->link, &n->key, NULL);
		owner->offered = st == COLL_OK;
		return st == COLL_OK ? COLL_ERR_UNSUPPORTED : st;
	}
	if (st != COLL_OK)
		return st;
	if (!fits(n, &owner->offer))
		return COLL_ERR_CORRUPT;
	n->central.area = (struct central_area *)(uintptr_t)owner->offer.base;
	atomic_store_explicit(&n->central.area->joined[n->rank], 1, memory_order_release);
	coll_central_nudge(n);
	return COLL_OK;
}

static coll_status form_other(struct coll_intra *n, uint32_t *waits_for)
{
	coll_status st = find(n);
	uint32_t verdict;

	*waits_for = 0;
	if (st != COLL_OK)
		return st == COLL_ERR_UNSUPPORTED ? refuse(n) : st;
	verdict = atomic_load_explicit(&n->central.area->verdict, memory_order_acquire);
	if (verdict == INTRA_UNDECIDED)
		return COLL_AGAIN;
	n->verdict = (enum intra_verdict)verdict;
	return verdict == INTRA_GOOD ? COLL_OK : refuse(n);
}

coll_status coll_central_form(struct coll_intra *n, uint32_t *waits_for)
{
	if (n->verdict != INTRA_UNDECIDED)
		return n->verdict == INTRA_GOOD ? COLL_OK : COLL_ERR_UNSUPPORTED;
	return n->rank == 0 ? form_owner(n, waits_for) : form_other(n, waits_for);
}

/* A link that cannot be opened is of a rank that is gone: others find that out, too. */
void coll_central_root(struct coll_intra *n, int root)
{
	if (n->size > COLL_CENTRAL_ROOTS_MAX)
		return;
	if (root != n->rank) {
		link_to(n, root);
		return;
	}
	for (; n->central.linked < n->size; n->central.linked++)
		if (n->central.linked != n->rank)
			link_to(n, n->central.linked);
}
