/*
 * The pair counts of pairwise calls: see pair_counts.h for the order of memory accesses.
 */
#include "watch/pair_counts.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "core/comm.h"
#include "core/error.h"

static bool make(struct coll_pair_counts *t, int size)
{
	t->memory = calloc((size_t)size * 2 * COLL_PAIR_COUNTS_CALLS + COLL_PAIR_SUMS, sizeof(*t->memory));
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

static _Atomic uint64_t *sum_of(const struct coll_pair_counts *t, enum coll_pair_sum i)
{
	return &t->memory[(size_t)t->size * 2 * COLL_PAIR_COUNTS_CALLS + i];
}

static uint64_t hash_of(uint64_t pair, uint64_t number)
{
	return coll_mix64(coll_mix64(number) ^ pair) | 1;
}

static void add(const struct coll_pair_counts *t, uint64_t number, int from, int to, uint64_t elements)
{
	const uint64_t pair = (uint64_t)from * (uint64_t)t->size + (uint64_t)to;
	const uint64_t by[] = {elements, elements * pair, elements * number, elements * hash_of(pair, number)};

	for (int i = 0; i <= COLL_PAIR_SUM_HASH; i++)
		*sum_of(t, i) += by[i];
}

void coll_pair_counts_note(struct coll_pair_counts *t, const struct coll_call *c, uint64_t number, int rank, int size)
{
	struct coll_pair_counts_sheet *s;

	t->any = true;
	if (!t->memory && !make(t, size))
		return;
	s = &t->sheets[t->next++ % COLL_PAIR_COUNTS_CALLS];
	atomic_store_explicit(&s->number, 0, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	for (int r = 0; r < size; r++) {
		const uint64_t sends = length(c, rank, rank, r), expects = length(c, rank, r, rank);

		atomic_store_explicit(&s->lengths[2 * r], sends, memory_order_relaxed);
		atomic_store_explicit(&s->lengths[2 * r + 1], expects, memory_order_relaxed);
		if (r != rank && sends)
			add(t, number, rank, r, sends);
		if (r != rank && expects)
			add(t, number, r, rank, 0 - expects);
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

bool coll_pair_counts_any(const struct coll_pair_counts *t)
{
	return t->any;
}

void coll_pair_counts_sums(const struct coll_pair_counts *t, uint64_t sums[COLL_PAIR_SUMS])
{
	for (int i = 0; i < COLL_PAIR_SUMS; i++)
		sums[i] = t->memory ? atomic_load_explicit(sum_of(t, i), memory_order_relaxed) : 0;
	sums[COLL_PAIR_SUM_UNNOTED] = !t->memory;
}

bool coll_pair_counts_differ(const uint64_t sums[COLL_PAIR_SUMS], int size, int *from, int *to, uint64_t *call,
                             int64_t *elements)
{
	const int64_t by = (int64_t)sums[COLL_PAIR_SUM_ELEMENTS];
	uint64_t pair;

	*call = 0;
	if (sums[COLL_PAIR_SUM_UNNOTED] || !sums[COLL_PAIR_SUM_HASH])
		return false;
	if (by == 0 || by == INT64_MIN)
		return true;
	pair = (uint64_t)((int64_t)sums[COLL_PAIR_SUM_PAIRS] / by);
	*call = (uint64_t)((int64_t)sums[COLL_PAIR_SUM_CALLS] / by);
	*from = (int)(pair / (uint64_t)size);
	*to = (int)(pair % (uint64_t)size);
	*elements = by;
	if (pair >= (uint64_t)size * (uint64_t)size ||
	    sums[COLL_PAIR_SUM_HASH] != sums[COLL_PAIR_SUM_ELEMENTS] * hash_of(pair, *call))
		*call = 0;
	return true;
}

bool coll_pair_counts_verdict(const struct coll_comm *comm, const uint64_t sums[COLL_PAIR_SUMS], int *culprit,
                              char *text, size_t len_bytes)
{
	uint64_t call;
	int64_t by;
	int from, to;

	*culprit = -1;
	if (!coll_pair_counts_differ(sums, comm->size, &from, &to, &call, &by))
		return false;
	snprintf(text, len_bytes,
	         "[COLL-3101] calls differ: two ranks gave different lengths for a block between them, in all_to_allv, "
	         "gatherv or scatterv");
	if (!call)
		return true;
	*culprit = comm->rank == to ? from : to;
	snprintf(text, len_bytes,
	         "[COLL-3101] calls differ: %s sends %lld elements %s to rank %d in call number %llu, %s expects %s",
	         coll_comm_name(comm, from).text, (long long)(by < 0 ? -by : by), by < 0 ? "fewer" : "more", to,
	         (unsigned long long)call, coll_comm_name(comm, to).text, by < 0 ? "more" : "fewer");
	return true;
}
