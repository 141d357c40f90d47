/*
 * The pair counts of pairwise calls: see pair_counts.h for the order of memory accesses.
 */
#include "watch/pair_counts.h"

#include <stdlib.h>

#include "core/comm.h"

static bool make(struct coll_pair_counts *t, int size)
{
	t->memory = calloc((size_t)size * 2 * COLL_PAIR_COUNTS_CALLS, sizeof(*t->memory));
	if (!t->memory)
		return false;
	t->size = size;
	for (size_t i = 0; i < COLL_PAIR_COUNTS_CALLS; i++)
		t->sheets[i].lengths = t->memory + i * 2 * (size_t)size;
	atomic_store_explicit(&t->ready, true, memory_order_release);
	return true;
}

void coll_pair_counts_free(struct coll_pair_counts *t)
{
	free((void *)t->memory);
	t->memory = NULL;
}

/* Elements from one rank to another as this rank's arguments have it; one of them is this
 * rank. Rooted calls move nothing but to or from the root. */
static uint64_t length(const struct coll_call *c, int rank, int from, int to)
{
	const int other = from == rank ? to : from;

	switch (c->kind) {
	case COLL_KIND_GATHER: return to == c->root ? c->in_counts[from] : 0;
	case COLL_KIND_SCATTER: return from == c->root ? c->in_counts[to] : 0;
	default: return from == rank ? c->in_counts[other] : c->out_counts[other];
	}
}

void coll_pair_counts_note(struct coll_pair_counts *t, const struct coll_call *c, uint64_t number, int rank, int size)
{
	struct coll_pair_counts_sheet *s;

	if (!t->memory && !make(t, size))
		return;
	s = &t->sheets[t->next++ % COLL_PAIR_COUNTS_CALLS];
	atomic_store_explicit(&s->number, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	for (int r = 0; r < size; r++) {
		atomic_store_explicit(&s->lengths[2 * r], length(c, rank, rank, r), memory_order_relaxed);
		atomic_store_explicit(&s->lengths[2 * r + 1], length(c, rank, r, rank), memory_order_relaxed);
	}
	atomic_store_explicit(&s->number, number, memory_order_release);
}

bool coll_pair_counts_find(const struct coll_pair_counts *t, uint64_t number, int rank, uint64_t *to, uint64_t *from)
{
	if (number == 0 || rank < 0 || !atomic_load_explicit(&t->ready, memory_order_acquire) || rank >= t->size)
		return false;
	for (int i = 0; i < COLL_PAIR_COUNTS_CALLS; i++) {
		const struct coll_pair_counts_sheet *s = &t->sheets[i];

		if (atomic_load_explicit(&s->number, memory_order_acquire) != number)
			continue;
		*to = atomic_load_explicit(&s->lengths[2 * rank], memory_order_relaxed);
		*from = atomic_load_explicit(&s->lengths[2 * rank + 1], memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		return atomic_load_explicit(&s->number, memory_order_relaxed) == number;
	}
	return false;
}
