/*
 * Classes of paths between devices, and the rings and trees that follow from them, for machines made by hand and at
 * random. What is best is found by looking at all rings and trees (gpu_brute_test.h). Seeds are printed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "tests/plain.h"
#include "topology/gpu_brute_test.h"

/* ---- Paths made by hand ------------------------------------------------- */

static struct coll_gpu_paths *paths(int ranks, int classes)
{
	struct coll_gpu_paths *p = calloc(1, sizeof(*p));

	p->ranks = ranks;
	p->classes = classes;
	p->class = calloc((size_t)(ranks * ranks), sizeof(*p->class));
	return p;
}

static void set(struct coll_gpu_paths *p, int a, int b, int k)
{
	p->class[a * p->ranks + b] = p->class[b * p->ranks + a] = (uint8_t)k;
}

enum shape { ANY, NESTED, NEARLY_NESTED, MESH, SHAPES };

/* Ranks at random places of nested groups: a pair is as far apart as its smallest common group is large. */
static void nest(struct coll_gpu_paths *p, struct coll_rng *rng)
{
	int place[COLL_GPU_RANKS_MAX][COLL_GPU_CLASSES_MAX];

	for (int r = 0; r < p->ranks; r++)
		for (int k = 0; k < p->classes; k++)
			place[r][k] = (int)coll_rng_below(rng, 3);
	for (int a = 0; a < p->ranks; a++)
		for (int b = 0; b < a; b++) {
			int k = p->classes - 1;

			while (k > 0 && place[a][k] == place[b][k])
				k--;
			set(p, a, b, k);
		}
}

static struct coll_gpu_paths *at_random(struct coll_rng *rng, enum shape shape, int ranks, int classes)
{
	struct coll_gpu_paths *p = paths(ranks, classes);

	if (shape == NESTED || shape == NEARLY_NESTED)
		nest(p, rng);
	for (int a = 0; a < ranks; a++)
		for (int b = 0; b < a; b++)
			if (shape == ANY || (shape == NEARLY_NESTED && coll_rng_below(rng, 5) == 0))
				set(p, a, b, (int)coll_rng_below(rng, (uint32_t)classes));
			else if (shape == MESH)
				set(p, a, b, coll_rng_below(rng, 3) == 0 ? 0 : classes - 1);
	return p;
}

static void check_peers(const struct coll_gpu_ring *ring)
{
	int peer[COLL_GPU_RANKS_MAX];
	bool *read = calloc((size_t)(ring->ranks * ring->ranks), sizeof(*read));
	bool twice = false, self = true;

	for (int r = 0; r < ring->ranks; r++) {
		bool seen[COLL_GPU_RANKS_MAX] = {false};

		coll_gpu_ring_peers(ring, r, peer);
		self = self && peer[0] == r;
		for (int s = 0; s < ring->ranks; s++) {
			twice = twice || read[s * ring->ranks + peer[s]] || seen[peer[s]];
			read[s * ring->ranks + peer[s]] = seen[peer[s]] = true;
		}
	}
	CHECK(self && !twice, "%d ranks: not each peer once, or a device is read twice in a step", ring->ranks);
	free(read);
}

/* ---- Classes ------------------------------------------------------------ */

static int add_gpu(struct coll_graph *g, int package, int numa, int root, int top, int near)
{
	struct coll_graph_gpu *d = coll_graph_add_gpu(g);

	snprintf(d->name, sizeof(d->name), "gpu%d", g->gpus - 1);
	d->package = (short)package, d->numa = (short)numa, d->pci_root = (short)root;
	d->pci_switch = (short)top, d->pci_near = (short)near;
	coll_rate_take(&d->pci, 126031, COLL_ORIGIN_TOLD);
	return g->gpus - 1;
}

static void check_path(const struct coll_gpu_paths *p, int a, int b, enum coll_gpu_via via, uint32_t mbps)
{
	const struct coll_gpu_path *path = &p->path[a * p->ranks + b], *back = &p->path[b * p->ranks + a];

	CHECK(path->via == via && path->rate.mbps == mbps, "%d to %d: %s, %u Mb/s", a, b, coll_gpu_via_name(path->via),
	      path->rate.mbps);
	CHECK(back->via == via && back->rate.mbps == mbps, "%d to %d differs from %d to %d", b, a, a, b);
	CHECK((path->rate.origin == COLL_ORIGIN_UNKNOWN) == (mbps == 0), "%d to %d: %s", a, b,
	      coll_origin_name(path->rate.origin));
	CHECK(p->kind[p->class[a * p->ranks + b]].via == via, "%d to %d: class %d", a, b, p->class[a * p->ranks + b]);
}

TEST(gpu, paths_by_what_they_go_through)
{
	struct coll_graph *g = coll_graph_new();
	const int gpu[] = {0, 0, 1, 2, 3, 4, 5, 6, -1, -2, -2};

	add_gpu(g, 0, 0, 0, 0, 7);
	add_gpu(g, 0, 0, 0, 0, 7);
	add_gpu(g, 0, 0, 0, 0, 8);
	add_gpu(g, 0, 0, 0, 1, -1);
	add_gpu(g, 0, 0, 1, 2, -1);
	add_gpu(g, 0, 1, 2, 3, -1);
	add_gpu(g, 1, 2, 3, 4, -1);
	g->gpu[1].pci.mbps = 63015;

	struct coll_gpu_paths *p = coll_gpu_paths_make(g, gpu, 11);

	REQUIRE(p != NULL);
	check_path(p, 0, 1, COLL_GPU_SAME, 0);
	check_path(p, 0, 2, COLL_GPU_PCI_SWITCH, 63015);
	check_path(p, 0, 3, COLL_GPU_PCI_TREE, 126031);
	check_path(p, 0, 4, COLL_GPU_HOST_BRIDGE, 126031);
	check_path(p, 0, 5, COLL_GPU_NUMA, 0);
	check_path(p, 0, 6, COLL_GPU_NODES, 0);
	check_path(p, 0, 7, COLL_GPU_PACKAGES, 0);
	check_path(p, 0, 8, COLL_GPU_UNKNOWN, 0);
	check_path(p, 8, 9, COLL_GPU_UNKNOWN, 0);
	check_path(p, 9, 10, COLL_GPU_SAME, 0);
	CHECK(p->classes == 8, "%d", p->classes);
	for (int k = 1; k < p->classes; k++)
		CHECK(p->kind[k].via > p->kind[k - 1].via, "far paths are slower");
	coll_gpu_paths_free(&p);

	/* Neither packages nor NUMA nodes: nothing says how far apart host bridges are. */
	for (int i = 0; i < g->gpus; i++)
		g->gpu[i].numa = g->gpu[i].package = -1;
	p = coll_gpu_paths_make(g, gpu, 8);
	check_path(p, 0, 5, COLL_GPU_UNKNOWN, 0);
	check_path(p, 0, 4, COLL_GPU_HOST_BRIDGE, 126031);
	coll_gpu_paths_free(&p);
	CHECK(coll_gpu_paths_make(g, gpu, 0) == NULL);
	free(g);
	p = coll_gpu_paths_make(NULL, gpu, 8);
	check_path(p, 0, 1, COLL_GPU_SAME, 0);
	check_path(p, 0, 2, COLL_GPU_UNKNOWN, 0);
	coll_gpu_paths_free(&p);
}

TEST(gpu, links_by_their_rates)
{
	struct coll_graph *g = coll_graph_new();
	int gpu[COLL_GRAPH_GPUS_MAX];

	for (int i = 0; i < COLL_GRAPH_GPUS_MAX; i++)
		gpu[i] = add_gpu(g, 0, 0, 0, 0, 0);
	g->link_mbps[0][1] = 800000, g->link_mbps[1][0] = 400000; /* the slower end */
	g->link_mbps[0][2] = 380000;                              /* one end; within a tenth of the fastest */
	g->link_mbps[3][0] = 350000;
	g->link_origin = COLL_ORIGIN_TOLD;
	coll_rate_take(&g->gpu[1].to_switch, 300000, COLL_ORIGIN_TOLD);
	coll_rate_take(&g->gpu[3].to_switch, 390000, COLL_ORIGIN_ASSUMED);

	struct coll_gpu_paths *p = coll_gpu_paths_make(g, gpu, 4);

	REQUIRE(p != NULL && p->classes == 4, "%d", p ? p->classes : 0);
	CHECK(p->class[0 * 4 + 1] == 0 && p->class[0 * 4 + 2] == 0 && p->class[0 * 4 + 3] == 1);
	CHECK(p->path[0 * 4 + 1].rate.mbps == 400000 && p->path[0 * 4 + 2].rate.mbps == 380000);
	CHECK(p->kind[0].mbps == 400000 && p->kind[1].mbps == 350000 && p->kind[2].mbps == 300000);
	check_path(p, 1, 3, COLL_GPU_FABRIC, 300000);
	CHECK(p->path[1 * 4 + 3].rate.origin == COLL_ORIGIN_ASSUMED, "the worse origin of two");
	check_path(p, 2, 3, COLL_GPU_PCI_SWITCH, 126031);
	coll_gpu_paths_free(&p);

	/* Each pair at a rate of its own: the slowest share a class. */
	for (int a = 0; a < COLL_GRAPH_GPUS_MAX; a++)
		for (int b = 0; b < a; b++)
			g->link_mbps[a][b] = 1u << (a % 31);
	g->gpu[1].to_switch.mbps = 0;
	p = coll_gpu_paths_make(g, gpu, COLL_GRAPH_GPUS_MAX);
	REQUIRE(p != NULL && p->classes == COLL_GPU_LINK_CLASSES_MAX, "%d", p ? p->classes : 0);
	CHECK(p->class[30 * 32 + 0] == 0 && p->class[23 * 32 + 0] == 7 && p->class[1 * 32 + 0] == 7);
	coll_gpu_paths_free(&p);
	free(g);
}

/* ---- Rings and trees ---------------------------------------------------- */

static void check_small(uint64_t seed, enum shape shape, int n, int classes)
{
	struct coll_rng rng = {seed};
	struct coll_gpu_paths *p = at_random(&rng, shape, n, classes);
	struct coll_gpu_brute b;
	struct coll_gpu_ring ring;
	struct coll_gpu_tree tree;
	const char *blame;

	coll_gpu_brute_rings(p, &b);
	CHECK(coll_gpu_ring_make(p, &ring) && ring.best);
	blame = coll_gpu_brute_blame_ring(p, &ring, &b);
	CHECK(blame == NULL, "seed %llu, shape %d, %d ranks: %s", (unsigned long long)seed, shape, n, blame);
	CHECK(memcmp(ring.order, b.order, sizeof(int) * (size_t)n) == 0,
	      "seed %llu: not the first best ring in rank order", (unsigned long long)seed);
	check_peers(&ring);
	if (n <= COLL_GPU_BRUTE_TREE)
		coll_gpu_brute_trees(p, &b);
	for (int root = 0; root < n; root++) {
		coll_gpu_tree_make(p, root, &tree);
		blame = coll_gpu_brute_blame_tree(p, &tree, n <= COLL_GPU_BRUTE_TREE && n > 1 ? &b : NULL);
		CHECK(blame == NULL, "seed %llu, shape %d, %d ranks, root %d: %s", (unsigned long long)seed, shape, n,
		      root, blame);
	}
	coll_gpu_paths_free(&p);
}

TEST(gpu, best_of_all_rings_and_trees)
{
	for (uint64_t seed = 1; seed <= 480; seed++)
		check_small(seed, (enum shape)(seed % SHAPES), 1 + (int)(seed / SHAPES % 8), 1 + (int)(seed / 32 % 6));
	for (uint64_t seed = 1; seed <= 8; seed++)
		check_small(seed, (enum shape)(seed % SHAPES), COLL_GPU_BRUTE_RING, 3);
	check_small(1, ANY, 7, COLL_GPU_CLASSES_MAX);
}

/* Nested groups: every bound is met, so no ring is better, whatever its size. */
TEST(gpu, nested_groups_are_proven)
{
	for (uint64_t seed = 1; seed <= 60; seed++) {
		struct coll_rng rng = {seed};
		const int n = 13 + (int)coll_rng_below(&rng, 60);
		struct coll_gpu_paths *p = at_random(&rng, NESTED, n, 1 + (int)(seed % 6));
		struct coll_gpu_ring ring;
		int group[COLL_GPU_RANKS_MAX];

		REQUIRE(coll_gpu_ring_make(p, &ring));
		CHECK(coll_gpu_brute_blame_ring(p, &ring, NULL) == NULL && ring.best, "seed %llu: %s",
		      (unsigned long long)seed, coll_gpu_ring_how_name(ring.how));
		for (int k = 1; k < p->classes; k++) {
			const int groups = coll_gpu_groups(p, k, group);

			CHECK(ring.slower[k] == (groups > 1 ? groups : 0), "seed %llu: %d steps between %d groups",
			      (unsigned long long)seed, ring.slower[k], groups);
		}
		coll_gpu_paths_free(&p);
	}
}

/* Beyond what is compared exhaustively: rings are rings, bounds hold, and the local search seldom misses the best. */
TEST(gpu, local_search)
{
	int proven = 0, reached = 0, all = 0;

	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct coll_rng rng = {seed};
		const int n = COLL_GPU_RING_EXACT + 1 + (int)(seed % 2);
		struct coll_gpu_paths *p = at_random(&rng,
		                                     seed % 3 == 0   ? ANY
		                                     : seed % 3 == 1 ? NEARLY_NESTED
		                                                     : MESH,
		                                     n, 4);
		struct coll_gpu_brute b;
		struct coll_gpu_ring ring;
		bool equal = true;

		REQUIRE(coll_gpu_brute_sets(p, &b) && coll_gpu_ring_make(p, &ring));
		const char *blame = coll_gpu_brute_blame_ring(p, &ring, &b);

		CHECK(blame == NULL, "seed %llu: %s", (unsigned long long)seed, blame);
		for (int k = p->classes - 1, slower = 0; k > 0; k--) {
			slower += b.count[k];
			equal = equal && slower == ring.slower[k];
			/* The bounds together: from the slowest class on, as long as the best ring meets them. */
			if (k == p->classes - 1)
				CHECK(ring.bound[k] <= slower, "seed %llu", (unsigned long long)seed);
		}
		all++;
		reached += equal;
		proven += ring.best;
		coll_gpu_paths_free(&p);
	}
	printf("best ring found in %d of %d cases, proven in %d\n", reached, all, proven);
	CHECK(reached >= all - 2 && proven >= all / 3, "%d reached, %d proven of %d", reached, proven, all);
}

static int log2_up(int n)
{
	int log = 0;

	while (1 << log < n)
		log++;
	return log;
}

TEST(gpu, equal_paths_change_nothing)
{
	for (int n = 1; n <= 40; n++) {
		struct coll_gpu_paths *p = paths(n, n > 1);
		struct coll_gpu_ring ring;
		struct coll_gpu_tree tree;

		REQUIRE(coll_gpu_ring_make(p, &ring));
		CHECK(ring.how == COLL_GPU_RING_RANKS && ring.best && ring.order[n - 1] == n - 1);
		CHECK(coll_gpu_brute_blame_ring(p, &ring, NULL) == NULL);
		check_peers(&ring);
		coll_gpu_tree_make(p, n / 3, &tree);
		CHECK(coll_gpu_brute_blame_tree(p, &tree, NULL) == NULL && tree.rounds == log2_up(n),
		      "%d ranks in %d rounds", n, tree.rounds);
		coll_gpu_paths_free(&p);
	}
}

/* The slow path is used once, and early; then both halves work at the same time. */
TEST(gpu, a_tree_crosses_first)
{
	struct coll_gpu_paths *p = paths(16, 2);
	struct coll_gpu_tree tree;

	for (int a = 0; a < 16; a++)
		for (int b = 0; b < a; b++)
			set(p, a, b, a % 2 != b % 2);
	coll_gpu_tree_make(p, 5, &tree);
	CHECK(coll_gpu_brute_blame_tree(p, &tree, NULL) == NULL && tree.slower[1] == 1 && tree.rounds == 4, "%d rounds",
	      tree.rounds);
	for (int r = 0; r < 16; r++)
		CHECK(r == 5 || r % 2 == tree.parent[r] % 2 || (tree.round[r] == 1 && tree.parent[r] == 5), "rank %d",
		      r);
	coll_gpu_paths_free(&p);
}

TEST(gpu, the_most_ranks)
{
	struct coll_rng rng = {7};
	struct coll_gpu_paths *p = at_random(&rng, NEARLY_NESTED, COLL_GPU_RANKS_MAX, 5);
	struct coll_gpu_ring ring, again;
	struct coll_gpu_tree tree;

	REQUIRE(coll_gpu_ring_make(p, &ring) && coll_gpu_ring_make(p, &again));
	CHECK(coll_gpu_brute_blame_ring(p, &ring, NULL) == NULL);
	CHECK(memcmp(ring.order, again.order, sizeof(ring.order)) == 0, "the same again");
	check_peers(&ring);
	coll_gpu_tree_make(p, 200, &tree);
	CHECK(coll_gpu_brute_blame_tree(p, &tree, NULL) == NULL);
	coll_gpu_paths_free(&p);
}

/* ---- Mistakes that must be found ---------------------------------------- */

static bool blamed(const struct coll_gpu_paths *p, const struct coll_gpu_ring *ring, const struct coll_gpu_brute *b,
                   const char *part)
{
	const char *blame = coll_gpu_brute_blame_ring(p, ring, b);

	return blame && strstr(blame, part);
}

TEST(gpu, planted_mistakes_are_found)
{
	struct coll_gpu_paths *p = paths(6, 2);
	struct coll_gpu_ring ring, wrong;
	struct coll_gpu_tree tree, bad;
	struct coll_gpu_brute b, trees;
	const char *blame;

	/* Two groups of three, numbered in turn. */
	for (int a = 0; a < 6; a++)
		for (int c = 0; c < a; c++)
			set(p, a, c, a % 2 != c % 2);
	coll_gpu_brute_rings(p, &b);
	REQUIRE(coll_gpu_ring_make(p, &ring) && coll_gpu_brute_blame_ring(p, &ring, &b) == NULL);
	CHECK(ring.slower[1] == 2 && b.looked_at == 120, "%d, %ld", ring.slower[1], b.looked_at);

	/* In the order of ranks, as if nobody had looked at the machine. */
	wrong = ring;
	for (int r = 0; r < 6; r++)
		wrong.order[r] = wrong.position[r] = r;
	CHECK(blamed(p, &wrong, &b, "counted wrongly"));
	coll_gpu_ring_count(p, wrong.order, wrong.slower);
	CHECK(wrong.slower[1] == 6 && blamed(p, &wrong, &b, "slower links more often"));
	wrong = ring;
	wrong.order[5] = wrong.order[4];
	CHECK(blamed(p, &wrong, &b, "not there once"));
	wrong = ring;
	wrong.bound[1] = 3;
	CHECK(blamed(p, &wrong, &b, "bound"));

	coll_gpu_brute_trees(p, &trees);
	coll_gpu_tree_make(p, 0, &tree);
	REQUIRE(trees.looked_at == 1296 && coll_gpu_brute_blame_tree(p, &tree, &trees) == NULL);
	/* A second edge between the groups. */
	bad = tree;
	for (int r = 5; r > 0; r--)
		if (tree.parent[r] == 0 && r % 2 == 0 && tree.round[r] > 1) {
			int other = 1;

			while (tree.parent[other] != 0)
				other += 2;
			bad.parent[r] = other;
			bad.slower[1]++;
			bad.round[r] = bad.rounds = 5;
			break;
		}
	blame = coll_gpu_brute_blame_tree(p, &bad, &trees);
	CHECK(blame && strstr(blame, "more slow edges"), "%s", blame ? blame : "nothing");
	bad = tree;
	bad.parent[tree.parent[3] == 0 ? 5 : 3] = -1;
	blame = coll_gpu_brute_blame_tree(p, &bad, &trees);
	CHECK(blame && strstr(blame, "lead to the root"), "%s", blame ? blame : "nothing");
	coll_gpu_paths_free(&p);
}
