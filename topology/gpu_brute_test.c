/*
 * The oracle of rings and trees: see gpu_brute_test.h.
 */
#include "topology/gpu_brute_test.h"

#include <stdlib.h>
#include <string.h>

/* -1, 0, 1: a is better than b, equal, worse. The slowest class that differs decides. */
static int compare(const int *a, const int *b)
{
	for (int k = COLL_GPU_CLASSES_MAX - 1; k > 0; k--)
		if (a[k] != b[k])
			return a[k] < b[k] ? -1 : 1;
	return 0;
}

static void look_at(struct coll_gpu_brute *b, const int *count, const int *order, int n)
{
	int slower = 0;

	for (int k = COLL_GPU_CLASSES_MAX - 1; k >= 0; k--) {
		slower += count[k];
		if (b->looked_at == 0 || slower < b->least[k])
			b->least[k] = slower;
	}
	if (b->looked_at == 0 || compare(count, b->count) < 0) {
		memcpy(b->count, count, sizeof(b->count));
		if (order)
			memcpy(b->order, order, sizeof(*order) * (size_t)n);
	}
	b->looked_at++;
}

/* ---- Rings -------------------------------------------------------------- */

/* order[0..at-1] is chosen, and these are its steps: choose what follows, lowest ranks first. */
static void extend(const struct coll_gpu_paths *p, struct coll_gpu_brute *b, int *order, int at, unsigned used,
                   int *count)
{
	const int n = p->ranks, last = order[at - 1];

	if (at == n) {
		const int home = p->class[last * n];

		count[home] += n > 1;
		look_at(b, count, order, n);
		count[home] -= n > 1;
		return;
	}
	for (int r = 1; r < n; r++) {
		if (used >> r & 1)
			continue;
		order[at] = r;
		count[p->class[last * n + r]]++;
		extend(p, b, order, at + 1, used | 1u << r, count);
		count[p->class[last * n + r]]--;
	}
}

void coll_gpu_brute_rings(const struct coll_gpu_paths *p, struct coll_gpu_brute *b)
{
	int order[COLL_GPU_BRUTE_RING] = {0}, count[COLL_GPU_CLASSES_MAX] = {0};

	*b = (struct coll_gpu_brute){.looked_at = 0};
	extend(p, b, order, 1, 1, count);
}

/* For each set of ranks and its last one: the best chain from rank 0 through all of the set. Counts have four bits. */
bool coll_gpu_brute_sets(const struct coll_gpu_paths *p, struct coll_gpu_brute *b)
{
	const size_t n = (size_t)p->ranks, sets = (size_t)1 << n;
	uint64_t *best = malloc(sets * n * sizeof(*best)), least = UINT64_MAX;

	*b = (struct coll_gpu_brute){.looked_at = 1};
	if (!best)
		return false;
	for (size_t i = 0; i < sets * n; i++)
		best[i] = UINT64_MAX;
	best[1 * n + 0] = 0;
	for (size_t set = 1; set < sets; set++)
		for (size_t last = 0; last < n; last++) {
			const uint64_t here = best[set * n + last];

			for (size_t r = 0; r < n && here != UINT64_MAX; r++) {
				const int k = p->class[last * n + r];
				const uint64_t with = here + (k ? (uint64_t)1 << 4 * (k - 1) : 0);
				const size_t more = (set | (size_t)1 << r) * n + r;

				if (set == sets - 1 && r == 0 && with < least)
					least = with;
				if (!(set >> r & 1) && with < best[more])
					best[more] = with;
			}
		}
	for (int k = 1; k < COLL_GPU_CLASSES_MAX; k++)
		b->count[k] = (int)(least >> 4 * (k - 1) & 15);
	free(best);
	return true;
}

/* ---- Trees -------------------------------------------------------------- */

/* The tree that a Pruefer sequence of n - 2 ranks stands for; every tree has one. */
static void count_tree(const struct coll_gpu_paths *p, const int *sequence, int *count)
{
	int degree[COLL_GPU_BRUTE_TREE];
	const int n = p->ranks;

	for (int r = 0; r < n; r++)
		degree[r] = 1;
	for (int i = 0; i < n - 2; i++)
		degree[sequence[i]]++;
	for (int i = 0; i < n - 1; i++) {
		int leaf = 0, other = -1;

		while (degree[leaf] != 1)
			leaf++;
		if (i < n - 2)
			other = sequence[i];
		for (int r = leaf + 1; r < n && other < 0; r++)
			if (degree[r] == 1)
				other = r;
		count[p->class[leaf * n + other]]++;
		degree[leaf]--;
		degree[other]--;
	}
}

void coll_gpu_brute_trees(const struct coll_gpu_paths *p, struct coll_gpu_brute *b)
{
	long trees = 1;

	*b = (struct coll_gpu_brute){.looked_at = 0};
	for (int i = 0; i < p->ranks - 2; i++)
		trees *= p->ranks;
	for (long t = 0; t < trees; t++) {
		int sequence[COLL_GPU_BRUTE_TREE] = {0}, count[COLL_GPU_CLASSES_MAX] = {0};
		long digits = t;

		for (int i = 0; i < p->ranks - 2; i++, digits /= p->ranks)
			sequence[i] = (int)(digits % p->ranks);
		count_tree(p, sequence, count);
		look_at(b, count, NULL, 0);
	}
}

/* ---- Blame -------------------------------------------------------------- */

/* Counts of each class as steps of class k or slower. */
static bool same_counts(const int *count, const int *slower)
{
	int sum = 0;

	for (int k = COLL_GPU_CLASSES_MAX - 1; k >= 0; k--) {
		sum += count[k];
		if (slower[k] != sum)
			return false;
	}
	return true;
}

const char *coll_gpu_brute_blame_ring(const struct coll_gpu_paths *p, const struct coll_gpu_ring *ring,
                                      const struct coll_gpu_brute *b)
{
	int count[COLL_GPU_CLASSES_MAX] = {0};
	bool seen[COLL_GPU_RANKS_MAX] = {false};
	const int n = p->ranks;

	if (ring->ranks != n || ring->order[0] != 0)
		return "it does not begin with rank 0";
	for (int i = 0; i < n; i++) {
		const int r = ring->order[i], next = ring->order[(i + 1) % n];

		if (r < 0 || r >= n || seen[r] || ring->position[r] != i)
			return "a rank is not there once, or its position is another";
		seen[r] = true;
		count[p->class[r * n + next]] += n > 1;
	}
	if (!same_counts(count, ring->slower))
		return "its steps are counted wrongly";
	for (int k = 0; k < p->classes; k++)
		if (ring->bound[k] > ring->slower[k])
			return "a bound is above what the ring has";
	for (int k = 0; k < p->classes && b && b->looked_at > 1; k++)
		if (ring->bound[k] > b->least[k])
			return "a bound is above what a ring has";
	if (b && compare(count, b->count) < 0)
		return "it is better than the best";
	if (b && ring->best && compare(count, b->count) > 0)
		return "it crosses slower links more often than the best, and says that it is the best";
	return NULL;
}

const char *coll_gpu_brute_blame_tree(const struct coll_gpu_paths *p, const struct coll_gpu_tree *tree,
                                      const struct coll_gpu_brute *b)
{
	int count[COLL_GPU_CLASSES_MAX] = {0}, group[COLL_GPU_RANKS_MAX];
	const int n = p->ranks;

	for (int r = 0; r < n; r++) {
		int up = r, steps = 0;

		while (up >= 0 && up < n && up != tree->root && steps++ < n)
			up = tree->parent[up];
		if (up != tree->root || (r == tree->root) != (tree->parent[r] == -1))
			return "a rank does not lead to the root";
		if (r != tree->root)
			count[p->class[r * n + tree->parent[r]]]++;
		if (r != tree->root && tree->round[r] <= tree->round[tree->parent[r]])
			return "a rank receives before its parent has it";
		if (tree->round[r] > tree->rounds)
			return "a rank receives after the last round";
		for (int c = 0; c < r; c++)
			if (r != tree->root && tree->parent[c] == tree->parent[r] && tree->round[c] == tree->round[r])
				return "a rank sends twice in a round";
	}
	if (!same_counts(count, tree->slower))
		return "its edges are counted wrongly";
	for (int k = 0; k < p->classes; k++)
		if (tree->slower[k] != coll_gpu_groups(p, k, group) - 1)
			return "it has more slow edges than groups less one";
	if (b && compare(count, b->count) != 0)
		return "it crosses slower links more often than the best";
	for (int k = 0; k < p->classes && b; k++)
		if (tree->slower[k] != b->least[k])
			return "a tree has fewer edges of a class";
	return NULL;
}
