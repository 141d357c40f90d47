/*
 * Rings and trees of the GPUs of saved machines beside the best of all orders: every set of up to 9 GPUs of every
 * machine in a directory, as it is and without its links, and ranks that share GPUs. The directory of the command line
 * is that of the machines made by hand; COLL_MACHINES may name one more, of others' machines.
 *
 * usage: gpu_machines_test DIRECTORY [PART-OF-NAME]
 */
#define PLAIN_OWN_MAIN

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "tests/plain.h"
#include "tools/common/nccl_xml.h"
#include "topology/digest_read.h"
#include "topology/gpu_brute_test.h"
#include "topology/graph_hwloc.h"

enum { SEEN_MAX = 1 << 17, RANDOM_RANKS = 60 };

static const struct coll_graph *graph; /* of the case that runs */
static const char *machine;
static uint64_t seen[SEEN_MAX]; /* hashes of the classes that were looked at */
static int sets, different;

/* ---- One set of ranks --------------------------------------------------- */

/* Class numbers follow what paths go through and the rates of links, told apart here by the paths themselves. */
static void check_classes(const struct coll_gpu_paths *p)
{
	const int pairs = p->ranks * p->ranks;

	for (int i = 0; i < pairs; i++)
		for (int k = 0; k < pairs; k += 7) {
			const struct coll_gpu_path *a = &p->path[i], *b = &p->path[k];
			const bool links = a->via >= COLL_GPU_LINK && a->via <= COLL_GPU_FABRIC &&
			                   b->via >= COLL_GPU_LINK && b->via <= COLL_GPU_FABRIC;
			const bool diagonal = i % (p->ranks + 1) == 0 || k % (p->ranks + 1) == 0;

			if (diagonal || p->class[i] == p->class[k])
				continue;
			CHECK((p->class[i] < p -> class[k]) == (links ? a->rate.mbps > b->rate.mbps : a->via < b->via),
			      "%s: %s of %u Mb/s is class %d, %s of %u Mb/s class %d", machine,
			      coll_gpu_via_name(a->via), a->rate.mbps, p->class[i], coll_gpu_via_name(b->via),
			      b -> rate.mbps, p->class[k]);
		}
}

/* True the first time these classes are met: what is chosen depends on them alone. */
static bool is_new(const struct coll_gpu_paths *p)
{
	const uint64_t hash = coll_hash_bytes((uint64_t)p->ranks, p->class, (size_t)p->ranks * (size_t)p->ranks) | 1;
	size_t at = hash % SEEN_MAX;

	for (; seen[at]; at = (at + 1) % SEEN_MAX)
		if (seen[at] == hash)
			return false;
	seen[at] = hash;
	return true;
}

static void check_ranks(const struct coll_graph *g, const int *gpu, int n)
{
	struct coll_gpu_paths *p = coll_gpu_paths_make(g, gpu, n);
	struct coll_gpu_brute b;
	struct coll_gpu_ring ring;
	struct coll_gpu_tree tree;
	const char *blame;

	REQUIRE(p != NULL);
	sets++;
	if (is_new(p)) {
		different++;
		check_classes(p);
		coll_gpu_brute_rings(p, &b);
		CHECK(coll_gpu_ring_make(p, &ring) && ring.best, "%s: not known to be the best", machine);
		blame = coll_gpu_brute_blame_ring(p, &ring, &b);
		CHECK(blame == NULL, "%s, ring of %d ranks from GPU %d on: %s", machine, n, gpu[0], blame);
		if (n <= COLL_GPU_BRUTE_TREE && n > 1)
			coll_gpu_brute_trees(p, &b);
		for (int root = 0; root < n; root += 1 + n / 3) {
			coll_gpu_tree_make(p, root, &tree);
			blame = coll_gpu_brute_blame_tree(p, &tree, n <= COLL_GPU_BRUTE_TREE && n > 1 ? &b : NULL);
			CHECK(blame == NULL, "%s, tree of %d ranks from GPU %d on: %s", machine, n, gpu[0], blame);
		}
	}
	coll_gpu_paths_free(&p);
}

/* ---- One machine -------------------------------------------------------- */

/* In the order of the machine, and backwards with every second one first: another numbering of ranks. */
static void every_set(const struct coll_graph *g)
{
	for (unsigned set = 1; set < 1u << g->gpus; set++) {
		int gpu[COLL_GRAPH_GPUS_MAX], turned[COLL_GRAPH_GPUS_MAX], n = 0, m = 0;

		for (int i = 0; i < g->gpus; i++)
			if (set >> i & 1)
				gpu[n++] = i;
		if (n > COLL_GPU_BRUTE_RING)
			continue;
		for (int odd = 0; odd < 2; odd++)
			for (int i = n - 1 - odd; i >= 0; i -= 2)
				turned[m++] = gpu[i];
		check_ranks(g, gpu, n);
		check_ranks(g, turned, n);
	}
}

/* Ranks that share GPUs, and some whose GPU is not in the file. */
static void at_random(const struct coll_graph *g)
{
	for (uint64_t seed = 1; seed <= RANDOM_RANKS; seed++) {
		struct coll_rng rng = {seed};
		const int n = 2 + (int)coll_rng_below(&rng, COLL_GPU_BRUTE_RING - 2);
		int gpu[COLL_GPU_BRUTE_RING];

		for (int r = 0; r < n; r++)
			gpu[r] = coll_rng_below(&rng, 8) == 0 ? -1 - (int)coll_rng_below(&rng, 3)
			                                      : (int)coll_rng_below(&rng, (uint32_t)g->gpus);
		check_ranks(g, gpu, n);
	}
}

/* All GPUs, twice each too: more than can be compared, but proven by the bounds. */
static void all_at_once(const struct coll_graph *g)
{
	for (int each = 1; each <= 2; each++) {
		int gpu[2 * COLL_GRAPH_GPUS_MAX];
		const int n = each * g->gpus;
		struct coll_gpu_ring ring;

		for (int r = 0; r < n; r++)
			gpu[r] = r % g->gpus;

		struct coll_gpu_paths *p = coll_gpu_paths_make(g, gpu, n);

		REQUIRE(p != NULL && coll_gpu_ring_make(p, &ring));
		CHECK(coll_gpu_brute_blame_ring(p, &ring, NULL) == NULL && ring.best, "%s: %d ranks by %s", machine, n,
		      coll_gpu_ring_how_name(ring.how));
		coll_gpu_paths_free(&p);
	}
}

/* Ranks of one host have its digest, not the file: the same paths follow from it. */
static void check_digest(void)
{
	uint8_t bytes[COLL_DIGEST_MAX];
	char why[200] = "";
	struct coll_graph *copy = coll_digest_read(bytes, coll_digest_write(graph, bytes), why, sizeof(why));
	int gpu[COLL_GRAPH_GPUS_MAX];

	REQUIRE(copy != NULL, "%s: %s", machine, why);
	for (int i = 0; i < graph->gpus; i++) {
		gpu[i] = i;
		CHECK(graph->gpu[i].address && coll_graph_find_gpu(copy, graph->gpu[i].address) == i,
		      "%s: GPU %d is not found by its address", machine, i);
	}

	struct coll_gpu_paths *a = coll_gpu_paths_make(graph, gpu, graph->gpus);
	struct coll_gpu_paths *b = coll_gpu_paths_make(copy, gpu, graph->gpus);

	CHECK(a && b && a->classes == b->classes &&
	              memcmp(a->class, b->class, (size_t)(graph->gpus * graph->gpus)) == 0,
	      "%s: the digest has other paths", machine);
	coll_gpu_paths_free(&a);
	coll_gpu_paths_free(&b);
	free(copy);
}

static void gpus_of_a_machine(void)
{
	struct coll_graph *bare = malloc(sizeof(*bare));

	REQUIRE(bare != NULL);
	memset(seen, 0, sizeof(seen));
	sets = different = 0;
	if (graph->gpus == 0) {
		free(bare);
		SKIP("it has no GPU");
	}
	check_digest();
	every_set(graph);
	at_random(graph);
	all_at_once(graph);
	/* What it would be without its links: PCI and NUMA alone. */
	memcpy(bare, graph, sizeof(*bare));
	memset(bare->link_mbps, 0, sizeof(bare->link_mbps));
	for (int i = 0; i < bare->gpus; i++)
		bare->gpu[i].to_switch = (struct coll_rate){0};
	every_set(bare);
	at_random(bare);
	all_at_once(bare);
	free(bare);
	printf("     %d GPUs, %d sets of ranks, %d with different classes\n", graph->gpus, sets, different);
}

/* ---- The directories ---------------------------------------------------- */

static int is_machine(const struct dirent *e)
{
	const char *end = strrchr(e->d_name, '.');

	return end && strcmp(end, ".xml") == 0;
}

static int run_directory(const char *dir, const char *part)
{
	struct dirent **names;
	const int n = scandir(dir, &names, is_machine, alphasort);

	for (int i = 0; i < n; i++) {
		char path[1024], why[300] = "";
		struct coll_graph *g;

		machine = names[i]->d_name;
		snprintf(path, sizeof(path), "%s/%s", dir, machine);
		if (!part || strstr(machine, part)) {
			g = strstr(machine, "nccl") ? coll_graph_nccl_file(path, why, sizeof(why))
			                            : coll_graph_hwloc_file(path, why, sizeof(why));
			if (!g)
				printf("%s\n", why);
			graph = g;
			plain_failed += g == NULL;
			if (g)
				plain_run("gpus of", machine, gpus_of_a_machine);
			free(g);
		}
		free(names[i]);
	}
	if (n >= 0)
		free(names);
	return n;
}

int main(int argc, char **argv)
{
	const char *more = getenv("COLL_MACHINES");

	if (argc < 2) {
		fprintf(stderr, "usage: gpu_machines_test DIRECTORY [PART-OF-NAME]\n");
		return 2;
	}
	if (run_directory(argv[1], argc > 2 ? argv[2] : NULL) < 1 ||
	    (more && run_directory(more, argc > 2 ? argv[2] : NULL) < 1)) {
		fprintf(stderr, "gpu_machines_test: %s: no machines\n", more ? more : argv[1]);
		return 1;
	}
	return plain_summary();
}
