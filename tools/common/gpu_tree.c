/*
 * Trees of devices: see gpu_tree.h. From the slowest class to the fastest: the groups that faster paths join are
 * connected by paths of this class, so no edge is slower than it must be (Kruskal 1956, from the other end).
 */
#include "tools/common/gpu_tree.h"

#include <string.h>

enum { NEVER = 1 << 20 };

/* While the tree grows: when each rank has the data and may send next, in rounds; a rank that is inside a group that
 * was reached, but whose own edge is not chosen yet, has NEVER. */
struct growth {
	const struct coll_gpu_paths *p;
	struct coll_gpu_tree *tree;
	int free[COLL_GPU_RANKS_MAX];
	int group[COLL_GPU_RANKS_MAX];
	bool reached[COLL_GPU_RANKS_MAX]; /* of groups, by their lowest rank */
};

/* The next edge of class k from a group that was reached to one that was not: from the rank that is free first, then
 * the lowest ranks. False: there is none. */
static bool next_edge(const struct growth *w, int k, int *from, int *to)
{
	const int n = w->p->ranks;

	*from = -1;
	for (int a = 0; a < n; a++) {
		if (!w->reached[w->group[a]] || (*from >= 0 && w->free[a] >= w->free[*from]))
			continue;
		for (int b = 0; b < n; b++)
			if (!w->reached[w->group[b]] && w->p->class[a * n + b] == k) {
				*from = a;
				*to = b;
				break;
			}
	}
	return *from >= 0;
}

static void connect_groups(struct growth *w, int k)
{
	const int n = w->p->ranks;
	int from, to;

	coll_gpu_groups(w->p, k, w->group);
	memset(w->reached, 0, sizeof(w->reached));
	/* Who is in the tree already is the first of its group. */
	for (int r = 0; r < n; r++)
		if (r == w->tree->root || w->tree->parent[r] >= 0)
			w->reached[w->group[r]] = true;
	while (next_edge(w, k, &from, &to)) {
		w->tree->parent[to] = from;
		w->reached[w->group[to]] = true;
		w->free[to] = ++w->free[from];
	}
}

/* A rank serves those children first whose own subtrees need more rounds: no other order ends earlier. */
static void set_rounds(struct coll_gpu_tree *t)
{
	int need[COLL_GPU_RANKS_MAX] = {0}, depth[COLL_GPU_RANKS_MAX], deepest = 0;

	for (int r = 0; r < t->ranks; r++) {
		depth[r] = 0;
		for (int up = t->parent[r]; up >= 0; up = t->parent[up])
			depth[r]++;
		deepest = depth[r] > deepest ? depth[r] : deepest;
	}
	for (int d = deepest - 1; d >= 0; d--)
		for (int r = 0; r < t->ranks; r++) {
			if (depth[r] != d)
				continue;
			/* Each child of r in turn: those that need more, and equal ones of lower rank, are served
			 * before. */
			for (int c = 0; c < t->ranks; c++) {
				int before = 1;

				if (t->parent[c] != r)
					continue;
				for (int other = 0; other < t->ranks; other++)
					before += t->parent[other] == r &&
					          (need[other] > need[c] || (need[other] == need[c] && other < c));
				t->round[c] = before;
				if (before + need[c] > need[r])
					need[r] = before + need[c];
			}
		}
	/* So far after the parent has it. */
	for (int d = 1; d <= deepest; d++)
		for (int r = 0; r < t->ranks; r++)
			if (depth[r] == d)
				t->round[r] += t->round[t->parent[r]];
	t->rounds = need[t->root];
}

void coll_gpu_tree_make(const struct coll_gpu_paths *p, int root, struct coll_gpu_tree *tree)
{
	struct growth w = {.p = p, .tree = tree};

	*tree = (struct coll_gpu_tree){.ranks = p->ranks, .root = root};
	for (int r = 0; r < p->ranks; r++) {
		tree->parent[r] = -1;
		w.free[r] = r == root ? 0 : NEVER;
	}
	for (int k = p->classes - 1; k >= 0; k--)
		connect_groups(&w, k);
	for (int r = 0; r < p->ranks; r++)
		for (int k = r == root ? -1 : p->class[r * p->ranks + tree->parent[r]]; k >= 0; k--)
			tree->slower[k]++;
	set_rounds(tree);
}
