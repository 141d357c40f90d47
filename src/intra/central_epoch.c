/*
 * An epoch of the central buffer: entering, being counted, what the last one does for all, and whether it is
 * done. central.h argues the order of accesses.
 */
#include "intra/central_epoch.h"

#include <assert.h>

#include "intra/central.h"

static const uint64_t one_rank = (uint64_t)1 << COLL_CENTRAL_COUNT_BIT;
static const uint64_t stale = (uint64_t)1 << COLL_CENTRAL_STALE_BIT;

/* What a call looks like, for the sum: equal for equal calls, and by chance only for others. */
static uint64_t mark_of(const struct coll_job *job)
{
	return (uint32_t)(job->signature + (uint32_t)job->sequence * 0x9e3779b1u);
}

static bool done_reached(const struct coll_intra *n, uint32_t wanted, uint32_t *epoch)
{
	*epoch =
	        (uint32_t)(atomic_load_explicit(&coll_central_round(n, wanted)->done.word, memory_order_acquire) >> 32);
	return coll_intra_reached(*epoch, wanted);
}

/* Turn is done. Who has links to all passes it on. */
static inline void see(struct coll_intra *n, uint32_t epoch)
{
	if (!coll_intra_reached(n->all, epoch)) {
		n->all = epoch;
		if (n->rank == 0 || n->central.linked)
			coll_central_nudge(n);
	}
}

coll_status coll_central_may_enter(struct coll_intra *n, uint32_t epoch)
{
	const uint32_t wanted = epoch - COLL_CENTRAL_AHEAD;
	uint32_t known;

	if (coll_intra_reached(n->all, wanted))
		return COLL_OK;
	if (!done_reached(n, wanted, &known))
		return COLL_AGAIN;
	see(n, known);
	return COLL_OK;
}

/* ---- Reducing for the others ---- */

/* Of the ranks of a group, or of all groups. */
static_assert((int)COLL_CENTRAL_GROUPS >= (int)COLL_CENTRAL_GROUP, "operands of the last reduction");
static_assert((int)COLL_CENTRAL_GROUPS <= (int)COLL_REDUCE_WEIGHTS_MAX, "and their weights");
struct operands {
	const void *src[COLL_CENTRAL_GROUPS];
	int count;
};

static uint32_t group_size(const struct coll_intra *n, uint32_t group)
{
	const uint32_t left = (uint32_t)n->size - group * COLL_CENTRAL_GROUP;

	return left < COLL_CENTRAL_GROUP ? left : COLL_CENTRAL_GROUP;
}

static void reduce_group(const struct coll_intra *n, const struct coll_job *job, uint32_t epoch, uint32_t group,
                         const struct central_part *part)
{
	struct central_round *round = coll_central_round(n, epoch);
	struct operands o = {.count = (int)group_size(n, group)};
	void *to = part->is_short ? (void *)round->partial[group].payload
	                          : coll_central_cell(n, epoch, (uint32_t)n->size + group);

	for (int i = 0; i < o.count; i++) {
		const uint32_t r = group * COLL_CENTRAL_GROUP + (uint32_t)i;

		o.src[i] = part->is_short ? round->lines[r].payload : coll_central_cell(n, epoch, r);
	}
	coll_reduce_run(job->reduction, to, o.src, o.count, -1, false, part->count);
}

static void reduce_groups(const struct coll_intra *n, const struct coll_job *job, uint32_t epoch,
                          const struct central_part *part)
{
	struct central_round *round = coll_central_round(n, epoch);
	struct operands o = {.count = (int)coll_central_groups(n->size)};
	uint32_t ranks[COLL_CENTRAL_GROUPS];
	void *to = part->is_short ? (void *)round->done.payload
	                          : coll_central_cell(n, epoch, (uint32_t)(n->size + o.count));

	for (int g = 0; g < o.count; g++) {
		o.src[g] = part->is_short ? round->partial[g].payload
		                          : coll_central_cell(n, epoch, (uint32_t)(n->size + g));
		ranks[g] = group_size(n, (uint32_t)g);
	}
	if (job->reduction->mean)
		coll_reduce_weighted(job->reduction, to, o.src, o.count, ranks, part->count);
	else
		coll_reduce_run(job->reduction, to, o.src, o.count, -1, true, part->count);
}

/* ---- Counting ---- */

/* So many ranks more, with the sum of their marks. True: it is complete, *sum of all. */
static bool add(struct central_count *count, uint64_t ranks, uint64_t *sum, uint64_t complete)
{
	const uint64_t more = ranks * one_rank + *sum;
	const uint64_t now = atomic_fetch_add_explicit(&count->ranks, more, memory_order_acq_rel) + more;

	if (now / one_rank != complete)
		return false;
	*sum = now % one_rank;
	/* For epoch + DEPTH: whoever adds then has seen the word that is stored after this. */
	atomic_store_explicit(&count->ranks, 0, memory_order_relaxed);
	return true;
}

/* This rank is counted, and what it has to do as the last of a count is done. True: it was the last of all. */
static bool count_in(struct coll_intra *n, const struct coll_job *job, uint32_t epoch, const struct central_part *part)
{
	const uint32_t group = (uint32_t)n->rank / COLL_CENTRAL_GROUP, ranks = group_size(n, group);
	const uint64_t mark = mark_of(job);
	struct central_round *round = coll_central_round(n, epoch);
	struct intra_line *mine = &round->lines[n->rank];
	uint64_t sum = mark;
	bool good;

	mine->sequence = job->sequence;
	/* Release: who sees the word sees the cell. */
	atomic_store_explicit(&mine->word, coll_intra_word(epoch, job->signature), memory_order_release);
	if (!add(&round->groups[group], 1, &sum, ranks))
		return false;
	/* What is not alike is not looked at; and the sum of all must not come right by accident. */
	if (sum != ranks * mark)
		sum |= stale;
	else if (part->reduces)
		reduce_group(n, job, epoch, group, part);
	if (!add(&round->all, ranks, &sum, (uint64_t)n->size))
		return false;
	good = sum == (uint64_t)n->size * mark;
	if (good && part->reduces)
		reduce_groups(n, job, epoch, part);
	/* No call has this number. */
	round->done.sequence = good ? job->sequence : UINT64_MAX;
	atomic_store_explicit(&round->done.word, coll_intra_word(epoch, job->signature), memory_order_release);
	return true;
}

bool coll_central_arrive(struct coll_intra *n, const struct coll_job *job, uint32_t epoch,
                         const struct central_part *part)
{
	const bool last = count_in(n, job, epoch, part);

	/* Only now: wherever a rank is stopped before, others wait for it. */
	atomic_store_explicit(&n->central.area->arrivals[n->rank].epoch, epoch, memory_order_relaxed);
	if (last)
		coll_central_nudge(n);
	return last;
}

/* ---- Looking ---- */

static bool same_call(const struct intra_line *line, const struct coll_job *job, uint32_t epoch)
{
	return atomic_load_explicit(&line->word, memory_order_acquire) == coll_intra_word(epoch, job->signature) &&
	       line->sequence == job->sequence;
}

static coll_status differs(const struct intra_line *line, struct coll_intra_state *s, uint32_t rank)
{
	s->pending = rank;
	s->bad_frame =
	        (struct coll_frame){.sequence = line->sequence,
	                            .signature = (uint32_t)atomic_load_explicit(&line->word, memory_order_relaxed)};
	return COLL_ERR_MISMATCH;
}

coll_status coll_central_done(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s,
                              uint32_t epoch)
{
	const struct central_round *round = coll_central_round(n, epoch);
	uint32_t known;

	if (likely(same_call(&round->done, job, epoch))) {
		see(n, epoch);
		return COLL_OK;
	}
	if (!done_reached(n, epoch, &known))
		return COLL_AGAIN;
	/* It may have come between the two looks. */
	if (same_call(&round->done, job, epoch)) {
		see(n, epoch);
		return COLL_OK;
	}
	for (uint32_t r = 0; r < (uint32_t)n->size; r++)
		if (!same_call(&round->lines[r], job, epoch))
			return differs(&round->lines[r], s, r);
	return COLL_ERR_CORRUPT;
}

coll_status coll_central_sent(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s,
                              uint32_t epoch, uint32_t root)
{
	const struct intra_line *line = &coll_central_round(n, epoch)->lines[root];

	if (likely(same_call(line, job, epoch))) {
		if (unlikely(n->size > COLL_CENTRAL_ROOTS_MAX) && n->rank == 0)
			coll_central_nudge(n);
		return COLL_OK;
	}
	if ((uint32_t)(atomic_load_explicit(&line->word, memory_order_acquire) >> 32) != epoch)
		return COLL_AGAIN;
	return same_call(line, job, epoch) ? COLL_OK : differs(line, s, root);
}

uint32_t coll_central_late(const struct coll_intra *n, uint32_t epoch)
{
	for (uint32_t r = 0; r < (uint32_t)n->size; r++) {
		const uint32_t arrived =
		        atomic_load_explicit(&n->central.area->arrivals[r].epoch, memory_order_relaxed);

		if (r != (uint32_t)n->rank && !coll_intra_reached(arrived, epoch))
			return r;
	}
	/* The epoch is done, and this rank is about to see it. */
	return n->rank == 0;
}
