/*
 * Rings of devices: see gpu_ring.h. Four attempts, the first that is proven best wins: rank order; ranks by groups;
 * all rings, by dynamic programming over sets of ranks (Held and Karp 1962); local search from several orders.
 */
#include "topology/gpu_ring.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* Steps of one class are counted in four bits. */
enum { COUNT_BITS = 4, SEGMENT_MAX = 3, SEARCH_EFFORT = 2048 };
static_assert(COLL_GPU_RING_EXACT < 1 << COUNT_BITS, "steps of a ring fit in their bits");
static_assert(COUNT_BITS * (COLL_GPU_CLASSES_MAX - 1) < 64, "the counts of all classes but the fastest fit in a word");

static int class_of(const struct coll_gpu_paths *p, int a, int b)
{
	return p->class[a * p->ranks + b];
}

void coll_gpu_ring_count(const struct coll_gpu_paths *p, const int *order, int *slower)
{
	memset(slower, 0, sizeof(*slower) * COLL_GPU_CLASSES_MAX);
	for (int i = 0; i < p->ranks && p->ranks > 1; i++)
		for (int k = class_of(p, order[i], order[(i + 1) % p->ranks]); k >= 0; k--)
			slower[k]++;
}

/* The first difference from the slowest class on decides. */
static bool better(const int *a, const int *b)
{
	for (int k = COLL_GPU_CLASSES_MAX - 1; k > 0; k--)
		if (a[k] != b[k])
			return a[k] < b[k];
	return false;
}

/* ---- What no ring can beat ---------------------------------------------- */

/*
 * Steps of class k or slower are at least all steps less the most that can be faster. Faster steps stay in one group of
 * ranks (coll_gpu_groups()). A ring has at most two of them at a rank, and no more than faster paths are there: half
 * the sum over the group is a limit. Where there are several groups they form no ring within one: ranks less one is
 * another.
 */
static int bound_of(const struct coll_gpu_paths *p, int k)
{
	int group[COLL_GPU_RANKS_MAX], ends[COLL_GPU_RANKS_MAX] = {0}, size[COLL_GPU_RANKS_MAX] = {0};
	const int n = p->ranks, groups = coll_gpu_groups(p, k, group);
	int fast = 0;

	if (n <= 2)
		return n == 2 && groups == 2 ? 2 : 0;
	for (int a = 0; a < n; a++) {
		int degree = 0;

		for (int b = 0; b < n && degree < 2; b++)
			degree += b != a && class_of(p, a, b) < k;
		ends[group[a]] += degree;
		size[group[a]]++;
	}
	for (int a = 0; a < n; a++) {
		const int chain = groups == 1 ? size[a] : size[a] - 1;

		if (size[a])
			fast += ends[a] / 2 < chain ? ends[a] / 2 : chain;
	}
	return n - fast;
}

/* ---- Groups ------------------------------------------------------------- */

/* Ranks by their groups, the widest first: the ranks of each group follow each other, and groups are in the order of
 * their lowest ranks. */
static void order_by_groups(const struct coll_gpu_paths *p, int *order)
{
	int group[COLL_GPU_RANKS_MAX], sorted[COLL_GPU_RANKS_MAX];

	for (int r = 0; r < p->ranks; r++)
		order[r] = r;
	/* From the narrowest groups to the widest: a stable sort by each keeps the order inside. */
	for (int k = 1; k < p->classes; k++) {
		int n = 0;

		coll_gpu_groups(p, k, group);
		for (int first = 0; first < p->ranks; first++)
			for (int i = 0; i < p->ranks && group[first] == first; i++)
				if (group[order[i]] == first)
					sorted[n++] = order[i];
		memcpy(order, sorted, sizeof(*order) * (size_t)p->ranks);
	}
}

/* ---- All rings ---------------------------------------------------------- */

/* Counts of all classes but the fastest in one word, the slowest in the highest bits. */
static uint64_t price(const struct coll_gpu_paths *p, int a, int b)
{
	const int k = class_of(p, a, b);

	return k ? (uint64_t)1 << COUNT_BITS * (k - 1) : 0;
}

/* What is left to pay at `last` when the ranks of `seen` are behind (bits of ranks, rank 0 among them). */
static uint64_t rest(const struct coll_gpu_paths *p, const uint64_t *left, unsigned seen, int last, int next)
{
	return price(p, last, next) + left[(size_t)(seen | 1u << next) * (size_t)p->ranks + (size_t)next];
}

static void fill(const struct coll_gpu_paths *p, uint64_t *left)
{
	const unsigned all = (1u << p->ranks) - 1;

	for (unsigned seen = all; seen > 0; seen--)
		for (int last = 0; last < p->ranks && (seen & 1); last++) {
			uint64_t least = UINT64_MAX;

			if (!(seen >> last & 1))
				continue;
			for (int next = 1; next < p->ranks; next++)
				if (!(seen >> next & 1) && rest(p, left, seen, last, next) < least)
					least = rest(p, left, seen, last, next);
			left[(size_t)seen * (size_t)p->ranks + (size_t)last] = seen == all ? price(p, last, 0) : least;
		}
}

/* The first of the best rings in the order of rank numbers. */
static bool order_of_all(const struct coll_gpu_paths *p, int *order)
{
	uint64_t *left = malloc(((size_t)1 << p->ranks) * (size_t)p->ranks * sizeof(*left));
	unsigned seen = 1;

	if (!left)
		return false;
	fill(p, left);
	order[0] = 0;
	for (int i = 1; i < p->ranks; i++) {
		int best = -1;

		for (int next = 1; next < p->ranks; next++)
			if (!(seen >> next & 1) && (best < 0 || rest(p, left, seen, order[i - 1], next) <
			                                                rest(p, left, seen, order[i - 1], best)))
				best = next;
		order[i] = best;
		seen |= 1u << best;
	}
	free(left);
	return true;
}

/* ---- Local search ------------------------------------------------------- */

/* Whether these classes are better than those, as many: the slowest ones are compared first. */
static bool gains(int *added, int *removed, int n)
{
	for (int i = 0; i < n; i++) {
		for (int k = i + 1; k < n; k++) {
			const int a = added[i], r = removed[i];

			if (added[k] > a)
				added[i] = added[k], added[k] = a;
			if (removed[k] > r)
				removed[i] = removed[k], removed[k] = r;
		}
		if (added[i] != removed[i])
			return added[i] < removed[i];
	}
	return false;
}

static void reverse(int *order, int from, int to)
{
	for (; from < to; from++, to--) {
		const int swap = order[from];

		order[from] = order[to];
		order[to] = swap;
	}
}

/* Turn a part round wherever that replaces two steps by better ones. True: something was gained. */
static bool turn_parts(const struct coll_gpu_paths *p, int *order)
{
	const int n = p->ranks;
	bool gained = false;

	for (int i = 1; i < n - 1; i++)
		for (int k = i + 1; k < n; k++) {
			const int before = order[i - 1], after = order[(k + 1) % n];
			int removed[] = {class_of(p, before, order[i]), class_of(p, order[k], after)};
			int added[] = {class_of(p, before, order[k]), class_of(p, order[i], after)};

			if (before != after && gains(added, removed, 2)) {
				reverse(order, i, k);
				gained = true;
			}
		}
	return gained;
}

/* Ranks from..from+len-1 of the order to behind place `to`, which is outside. */
static void move(int *order, int from, int len, int to, bool turned)
{
	if (turned)
		reverse(order, from, from + len - 1);
	/* Three reversals exchange two neighbouring parts. */
	const int a = to < from ? to + 1 : from, b = to < from ? from : from + len, c = to < from ? from + len : to + 1;

	reverse(order, a, b - 1);
	reverse(order, b, c - 1);
	reverse(order, a, c - 1);
}

/* A move that replaces three steps by better ones, if there is one for these ranks. */
static bool try_move(const struct coll_gpu_paths *p, int *order, int from, int len)
{
	const int n = p->ranks, first = order[from], last = order[from + len - 1];
	const int before = order[from - 1], after = order[(from + len) % n];

	for (int to = 0; to < n; to++) {
		const int a = order[to], b = order[(to + 1) % n];

		if (to >= from - 1 && to < from + len)
			continue;
		for (int turned = 0; turned < 2; turned++) {
			int removed[] = {class_of(p, before, first), class_of(p, last, after), class_of(p, a, b)};
			int added[] = {class_of(p, before, after), class_of(p, a, turned ? last : first),
			               class_of(p, turned ? first : last, b)};

			if (gains(added, removed, 3)) {
				move(order, from, len, to, turned);
				return true;
			}
		}
	}
	return false;
}

static bool move_parts(const struct coll_gpu_paths *p, int *order)
{
	bool gained = false;

	for (int len = 1; len <= SEGMENT_MAX; len++)
		for (int from = 1; from + len <= p->ranks && p->ranks > len + 2; from++)
			gained |= try_move(p, order, from, len);
	return gained;
}

/* Each gain is for good, so it ends. */
static void improve(const struct coll_gpu_paths *p, int *order)
{
	bool gained = true;

	while (gained) {
		gained = turn_parts(p, order);
		gained |= move_parts(p, order);
	}
}

/* The same shuffles on each rank. */
static void shuffle(int *order, int n, struct coll_rng *rng)
{
	for (int i = n - 1; i > 1; i--) {
		const int k = 1 + (int)coll_rng_below(rng, (uint32_t)i), swap = order[i];

		order[i] = order[k];
		order[k] = swap;
	}
}

/* ---- The choice --------------------------------------------------------- */

/* Take an order if it is better, and say whether nothing can be better still. */
static bool take(const struct coll_gpu_paths *p, struct coll_gpu_ring *ring, const int *order,
                 enum coll_gpu_ring_how how)
{
	int slower[COLL_GPU_CLASSES_MAX];

	coll_gpu_ring_count(p, order, slower);
	if (how == COLL_GPU_RING_RANKS || better(slower, ring->slower)) {
		memcpy(ring->order, order, sizeof(*order) * (size_t)p->ranks);
		memcpy(ring->slower, slower, sizeof(slower));
		ring->how = how;
		ring->best = true;
		for (int k = 1; k < p->classes; k++)
			ring->best = ring->best && slower[k] == ring->bound[k];
	}
	return ring->best;
}

static bool choose(const struct coll_gpu_paths *p, struct coll_gpu_ring *ring)
{
	int order[COLL_GPU_RANKS_MAX], groups[COLL_GPU_RANKS_MAX];
	struct coll_rng rng = {1};

	for (int r = 0; r < p->ranks; r++)
		order[r] = r;
	if (take(p, ring, order, COLL_GPU_RING_RANKS))
		return true;
	if (p->ranks <= COLL_GPU_RING_EXACT) {
		if (!order_of_all(p, groups))
			return false;
		take(p, ring, groups, COLL_GPU_RING_ALL);
		ring->best = true;
		return true;
	}
	order_by_groups(p, groups);
	if (take(p, ring, groups, COLL_GPU_RING_GROUPS))
		return true;
	improve(p, groups);
	for (int i = 0; !take(p, ring, groups, COLL_GPU_RING_SEARCH) && i < SEARCH_EFFORT / p->ranks; i++) {
		if (i > 0)
			shuffle(order, p->ranks, &rng);
		memcpy(groups, order, sizeof(*order) * (size_t)p->ranks);
		improve(p, groups);
	}
	return true;
}

bool coll_gpu_ring_make(const struct coll_gpu_paths *p, struct coll_gpu_ring *ring)
{
	*ring = (struct coll_gpu_ring){.ranks = p->ranks};
	for (int k = 0; k < p->classes; k++)
		ring->bound[k] = k ? bound_of(p, k) : p->ranks > 1 ? p->ranks : 0;
	if (!choose(p, ring))
		return false;
	for (int i = 0; i < p->ranks; i++)
		ring->position[ring->order[i]] = i;
	return true;
}

void coll_gpu_ring_peers(const struct coll_gpu_ring *ring, int rank, int *peer)
{
	for (int s = 0; s < ring->ranks; s++)
		peer[s] = ring->order[(ring->position[rank] + s) % ring->ranks];
}

const char *coll_gpu_ring_how_name(enum coll_gpu_ring_how how)
{
	static const char *const names[] = {"rank order", "nested groups", "all rings compared", "local search"};

	return names[how];
}
