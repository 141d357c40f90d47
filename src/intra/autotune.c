/*
 * Which way is quickest on this machine, for calls of one kind and size: two copies by slots or
 * one by the kernel, results through the caches or past them. It hangs on caches that nobody tells the
 * truth about, on what the kernel takes for each page, and in a virtual machine on where the host runs the cores at the
 * moment: so calls are timed.
 *
 * The first FIRST calls of each way, or FIRST_LONG of long ones, are its trial; then the ranks tell each other what
 * these took and settle. Later, at the end of every ROUND calls, LATER calls try one other way and LATER the best one
 * again, in turn, and the ranks settle anew. A challenger must be a twentieth quicker. What a way took is the quickest
 * of its calls, on the rank where that was quicker: the one that came last did not wait for others.
 *
 * Agreement. Which way call number k goes is a function of k and of what was settled, and all ranks settle
 * at the same calls with the same numbers. A call that settles goes the way it settles for.
 */
#include "intra/autotune.h"

#include <string.h>

enum { FIRST = 4, FIRST_LONG = 2, LATER = 3, ROUND = 128 };

static enum intra_copy nth_other(enum intra_copy best, uint32_t n)
{
	const uint32_t way = n % (COLL_TRIED_WAYS - 1);

	return (enum intra_copy)(way < best ? way : way + 1);
}

/* Without pulls, what is the same but for that. */
static enum intra_copy possible(enum intra_copy way, bool can_pull)
{
	return can_pull ? way : (enum intra_copy)(way & 1);
}

/* Of call number k. *tried: it is part of a trial. */
static enum intra_copy way_of(const struct intra_autotune *t, uint32_t k, bool *tried)
{
	const uint32_t in_round = (k - t->tried) % ROUND;

	*tried = k < t->tried || in_round >= ROUND - 2 * LATER;
	if (k < t->tried)
		return (enum intra_copy)(k / (t->tried / COLL_TRIED_WAYS));
	if (*tried && in_round < ROUND - LATER)
		return nth_other((enum intra_copy)t->best, (k - t->tried) / ROUND);
	return (enum intra_copy)t->best;
}

enum intra_copy coll_intra_autotune_begin(struct intra_autotune *t, bool is_long, bool can_pull, bool *settles)
{
	const uint32_t k = t->calls, first = (is_long ? FIRST_LONG : FIRST) * COLL_TRIED_WAYS;
	enum intra_copy way;
	bool tried;

	t->tried = first;
	way = possible(way_of(t, k, &tried), can_pull);
	*settles = k >= first && (k - first) % ROUND == 0;
	/* What others took long ago says nothing. */
	if (k >= first && (k - first) % ROUND == ROUND - 2 * LATER)
		memset(t->ns, 0, sizeof(t->ns));
	/* Never 0 again: 2^32 calls end with a round. */
	t->calls = k + 1 >= first + 2 * (ROUND << 20) ? first + ((k + 1 - first) % ROUND) : k + 1;
	return way;
}

void coll_intra_autotune_end(struct intra_autotune *t, enum intra_copy way, uint64_t ns)
{
	const uint32_t took = ns > UINT32_MAX ? UINT32_MAX : ns > 0 ? (uint32_t)ns : 1;
	bool tried;

	(void)way_of(t, t->calls - 1, &tried);
	if (tried && (t->ns[way] == 0 || took < t->ns[way]))
		t->ns[way] = took;
}

void coll_intra_autotune_receive(uint32_t least[COLL_TRIED_WAYS], const uint32_t ns[COLL_TRIED_WAYS])
{
	for (int way = 0; way < COLL_TRIED_WAYS; way++)
		if (least[way] == 0 || (ns[way] > 0 && ns[way] < least[way]))
			least[way] = ns[way];
}

enum intra_copy coll_intra_autotune_settle(struct intra_autotune *t, const uint32_t least[COLL_TRIED_WAYS],
                                           bool can_pull)
{
	const bool initial = t->calls - 1 == t->tried;
	uint8_t best = (uint8_t)possible((enum intra_copy)t->best, can_pull);
	uint64_t quickest = least[best];

	for (unsigned way = 0; way < COLL_TRIED_WAYS; way++) {
		const uint64_t took = least[way];

		if (took == 0 || (coll_intra_cmas((enum intra_copy)way) && !can_pull))
			continue;
		if (quickest == 0 || (initial ? took < quickest : took * 20 < quickest * 19)) {
			quickest = took;
			best = (uint8_t)way;
		}
	}
	t->best = best;
	return (enum intra_copy)best;
}
