/*
 * Paths, ring and tree of GPUs as text and JSON: see topo_gpus.h.
 */
#include "topo_gpus.h"

#include <stdio.h>
#include <string.h>

/* ---- The ranks ---------------------------------------------------------- */

static int find(const struct coll_graph *g, const char *name, size_t len)
{
	for (int i = 0; i < g->gpus; i++)
		if (strlen(g->gpu[i].name) == len && strncmp(g->gpu[i].name, name, len) == 0)
			return i;
	return -1;
}

/* How many ranks; 0 with the reason in why. */
static int take_names(struct topo_gpus *t, const char *names, char *why, size_t why_bytes)
{
	for (int n = 0;; names++) {
		const size_t len = strcspn(names, ",");

		if (n == COLL_GPU_RANKS_MAX) {
			snprintf(why, why_bytes, "more than %d ranks", COLL_GPU_RANKS_MAX);
			return 0;
		}
		t->gpu[n] = find(t->graph, names, len);
		if (t->gpu[n++] < 0) {
			snprintf(why, why_bytes, "'%.*s': the machine has no such GPU", len < 40 ? (int)len : 40,
			         names);
			return 0;
		}
		names += len;
		if (!*names)
			return n;
	}
}

bool topo_gpus_make(struct topo_gpus *t, const struct coll_graph *g, const char *names, char *why, size_t why_bytes)
{
	int ranks = g->gpus;

	*t = (struct topo_gpus){.graph = g};
	for (int i = 0; i < g->gpus; i++)
		t->gpu[i] = i;
	if (names && !(ranks = take_names(t, names, why, why_bytes)))
		return false;
	if (ranks == 0)
		return true;
	t->paths = coll_gpu_paths_make(g, t->gpu, ranks);
	if (!t->paths || !coll_gpu_ring_make(t->paths, &t->ring)) {
		snprintf(why, why_bytes, "out of memory");
		return false;
	}
	coll_gpu_tree_make(t->paths, 0, &t->tree);
	return true;
}

/* ---- As text ------------------------------------------------------------ */

/* The slowest rate in a class, and where it comes from; unknown if any is. */
static struct coll_rate rate_of(const struct coll_gpu_paths *p, int k)
{
	struct coll_rate least = {0};
	bool first = true;

	for (int i = 0; i < p->ranks * p->ranks; i++) {
		if (p->class[i] != k || i / p->ranks == i % p->ranks)
			continue;
		if (first || p->path[i].rate.mbps < least.mbps)
			least = p->path[i].rate;
		first = false;
	}
	return least;
}

static void print_classes(const struct coll_gpu_paths *p)
{
	for (int k = 0; k < p->classes; k++) {
		const struct coll_rate rate = rate_of(p, k);

		printf("  class %d: %s", k, coll_gpu_via_name(p->kind[k].via));
		if (p->kind[k].via == COLL_GPU_SAME)
			printf("\n");
		else if (rate.mbps)
			printf(", %u Mb/s (%s)\n", rate.mbps, coll_origin_name(rate.origin));
		else
			printf(", rate unknown\n");
	}
}

static void print_matrix(const struct topo_gpus *t)
{
	const struct coll_gpu_paths *p = t->paths;

	printf("  class of the path, by rank\n");
	for (int a = 0; a < p->ranks; a++) {
		printf("  rank %d (%s):", a, t->graph->gpu[t->gpu[a]].name);
		for (int b = 0; b < p->ranks; b++)
			if (a == b)
				printf(" -");
			else
				printf(" %d", p->class[a * p->ranks + b]);
		printf("\n");
	}
}

void topo_gpus_print(const struct topo_gpus *t)
{
	const struct coll_gpu_paths *p = t->paths;

	if (!p)
		return;
	printf("paths of GPUs: %d %s, %d %s, the fastest first\n", p->ranks, p->ranks == 1 ? "rank" : "ranks",
	       p->classes, p->classes == 1 ? "class" : "classes");
	print_classes(p);
	print_matrix(t);
	printf("ring of GPUs:");
	for (int i = 0; i < p->ranks; i++)
		printf(" %d", t->ring.order[i]);
	printf(" (%s, %s)\n", coll_gpu_ring_how_name(t->ring.how),
	       t->ring.best ? "none is better" : "a better one may exist");
	for (int k = 1; k < p->classes; k++)
		printf("  steps of class %d or slower: %d of %d; at least %d in any ring\n", k, t->ring.slower[k],
		       t->ring.slower[0], t->ring.bound[k]);
	printf("tree of GPUs from rank 0: %d %s, from its parent to each rank:", t->tree.rounds,
	       t->tree.rounds == 1 ? "round" : "rounds");
	for (int r = 1; r < p->ranks; r++)
		printf(" %d-%d", t->tree.parent[r], r);
	printf("\n");
	for (int k = 1; k < p->classes; k++)
		printf("  edges of class %d or slower: %d of %d; no tree has fewer\n", k, t->tree.slower[k],
		       t->tree.slower[0]);
}

/* ---- As JSON ------------------------------------------------------------ */

static void json_numbers(struct coll_text *text, const char *name, const int *v, int n)
{
	coll_text_add(text, ", \"%s\": [", name);
	for (int i = 0; i < n; i++)
		coll_text_add(text, "%s%d", i ? "," : "", v[i]);
	coll_text_add(text, "]");
}

static void json_pairs(struct coll_text *text, const struct coll_gpu_paths *p)
{
	coll_text_add(text, ",\n  \"pairs\": [");
	for (int a = 0; a < p->ranks; a++)
		for (int b = 0; b < a; b++) {
			const struct coll_gpu_path *path = &p->path[a * p->ranks + b];

			coll_text_add(text,
			              "%s\n   {\"ranks\": [%d,%d], \"class\": %d, \"via\": \"%s\", \"mbps\": %u, "
			              "\"origin\": \"%s\"}",
			              a + b > 1 ? "," : "", b, a, p->class[a * p->ranks + b],
			              coll_gpu_via_name(path->via), path -> rate.mbps,
			              coll_origin_name(path->rate.origin));
		}
	coll_text_add(text, "]");
}

void topo_gpus_json(const struct topo_gpus *t, struct coll_text *text)
{
	const struct coll_gpu_paths *p = t->paths;

	if (!p)
		return;
	coll_text_add(text, ",\n\"gpu_paths\": {\"gpus\": [");
	for (int r = 0; r < p->ranks; r++) {
		coll_text_add(text, "%s", r ? ", " : "");
		coll_text_add_json(text, t->graph->gpu[t->gpu[r]].name);
	}
	coll_text_add(text, "], \"classes\": [");
	for (int k = 0; k < p->classes; k++)
		coll_text_add(text, "%s\"%s\"", k ? ", " : "", coll_gpu_via_name(p->kind[k].via));
	coll_text_add(text, "]");
	json_pairs(text, p);
	coll_text_add(text, ",\n  \"ring\": {\"how\": \"%s\", \"best\": %s", coll_gpu_ring_how_name(t->ring.how),
	              t->ring.best ? "true" : "false");
	json_numbers(text, "order", t->ring.order, p->ranks);
	json_numbers(text, "slower", t->ring.slower, p->classes);
	json_numbers(text, "bound", t->ring.bound, p->classes);
	coll_text_add(text, "},\n  \"tree\": {\"rounds\": %d", t->tree.rounds);
	json_numbers(text, "parent", t->tree.parent, p->ranks);
	json_numbers(text, "round", t->tree.round, p->ranks);
	json_numbers(text, "slower", t->tree.slower, p->classes);
	coll_text_add(text, "}}");
}
