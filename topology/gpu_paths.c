/*
 * Paths between devices and their classes: see gpu_paths.h.
 */
#include "topology/gpu_paths.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static_assert(COLL_GPU_LINK_CLASSES_MAX + COLL_GPU_VIAS - 2 <= COLL_GPU_CLASSES_MAX,
              "links, directly or by switches, and a class for each other way");

const char *coll_gpu_via_name(enum coll_gpu_via via)
{
	static const char *const names[COLL_GPU_VIAS] = {
	        "one device",      "link of GPUs",  "switch of GPUs",     "PCI switch",       "PCI switches",
	        "one host bridge", "one NUMA node", "between NUMA nodes", "between packages", "unknown"};

	return names[via];
}

/* ---- One pair ----------------------------------------------------------- */

/* The slower one, with the worse origin; unknown if one of them is. */
static struct coll_rate slower(const struct coll_rate *a, const struct coll_rate *b)
{
	struct coll_rate r = *(a->mbps < b->mbps ? a : b);

	r.origin = a->origin < b->origin ? a->origin : b->origin;
	return r.mbps ? r : (struct coll_rate){0};
}

static bool equal(short a, short b)
{
	return a >= 0 && a == b;
}

/* Files tell a link at both ends; where the ends differ the slower one counts, and one end is enough. */
static uint32_t link_between(const struct coll_graph *g, int a, int b)
{
	const uint32_t there = g->link_mbps[a][b], back = g->link_mbps[b][a];

	return there && back ? (there < back ? there : back) : there | back;
}

static enum coll_gpu_via by_pci(const struct coll_graph_gpu *a, const struct coll_graph_gpu *b)
{
	if (equal(a->pci_near, b->pci_near))
		return COLL_GPU_PCI_SWITCH;
	if (equal(a->pci_switch, b->pci_switch))
		return COLL_GPU_PCI_TREE;
	if (equal(a->pci_root, b->pci_root))
		return COLL_GPU_HOST_BRIDGE;
	if (equal(a->numa, b->numa))
		return COLL_GPU_NUMA;
	if (a->package >= 0 && b->package >= 0 && a->package != b->package)
		return COLL_GPU_PACKAGES;
	return (a->numa >= 0 && b->numa >= 0) || equal(a->package, b->package) ? COLL_GPU_NODES : COLL_GPU_UNKNOWN;
}

static struct coll_gpu_path path_between(const struct coll_graph *g, int a, int b)
{
	struct coll_gpu_path path = {COLL_GPU_UNKNOWN, {0}};
	struct coll_rate link = {0}, fabric;

	if (a == b && a != -1)
		return (struct coll_gpu_path){COLL_GPU_SAME, {0}};
	if (!g || a < 0 || b < 0)
		return path;
	coll_rate_take(&link, link_between(g, a, b), g->link_origin);
	fabric = slower(&g->gpu[a].to_switch, &g->gpu[b].to_switch);
	if (link.mbps || fabric.mbps)
		return link.mbps >= fabric.mbps ? (struct coll_gpu_path){COLL_GPU_LINK, link}
		                                : (struct coll_gpu_path){COLL_GPU_FABRIC, fabric};
	path.via = by_pci(&g->gpu[a], &g->gpu[b]);
	if (path.via <= COLL_GPU_HOST_BRIDGE)
		path.rate = slower(&g->gpu[a].pci, &g->gpu[b].pci);
	return path;
}

/* ---- Classes ------------------------------------------------------------ */

static bool is_link(const struct coll_gpu_path *path)
{
	return path->via == COLL_GPU_LINK || path->via == COLL_GPU_FABRIC;
}

/* The fastest link that is slower than a limit; NULL: there is none. */
static const struct coll_gpu_path *next_link(const struct coll_gpu_paths *p, uint64_t below)
{
	const struct coll_gpu_path *best = NULL;

	for (int i = 0; i < p->ranks * p->ranks; i++)
		if (is_link(&p->path[i]) && p->path[i].rate.mbps < below &&
		    (!best || p->path[i].rate.mbps > best->rate.mbps))
			best = &p->path[i];
	return best;
}

/* What is between a tenth below the fastest link and that link is a class; then what is left, in the same way. */
static void rank_links(struct coll_gpu_paths *p)
{
	const struct coll_gpu_path *fastest = next_link(p, UINT64_MAX);

	for (int n = 1; fastest; n++) {
		const uint64_t most = fastest->rate.mbps;
		const uint64_t least = n < COLL_GPU_LINK_CLASSES_MAX ? most - most / 10 : 0;

		p->kind[p->classes] = (struct coll_gpu_class){fastest->via, (uint32_t)most};
		for (int i = 0; i < p->ranks * p->ranks; i++)
			if (is_link(&p->path[i]) && p->path[i].rate.mbps <= most && p->path[i].rate.mbps >= least)
				p->class[i] = (uint8_t)p->classes;
		p->classes++;
		fastest = next_link(p, least);
	}
}

/* Ranks of one device are a class only where there are two such ranks: the diagonal does not count. */
static void rank_paths(struct coll_gpu_paths *p)
{
	for (enum coll_gpu_via via = COLL_GPU_SAME; via < COLL_GPU_VIAS; via++) {
		bool there = false;

		if (via == COLL_GPU_LINK)
			rank_links(p);
		if (via == COLL_GPU_LINK || via == COLL_GPU_FABRIC)
			continue;
		for (int i = 0; i < p->ranks * p->ranks; i++)
			if (p->path[i].via == via && i / p->ranks != i % p->ranks) {
				p->class[i] = (uint8_t)p->classes;
				there = true;
			}
		if (there)
			p->kind[p->classes++].via = via;
	}
}

struct coll_gpu_paths *coll_gpu_paths_make(const struct coll_graph *g, const int *gpu, int ranks)
{
	const size_t pairs = ranks >= 1 && ranks <= COLL_GPU_RANKS_MAX ? (size_t)ranks * (size_t)ranks : 0;
	struct coll_gpu_paths *p = pairs ? calloc(1, sizeof(*p)) : NULL;

	if (!p)
		return NULL;
	p->ranks = ranks;
	p->class = calloc(pairs, sizeof(*p->class));
	p->path = calloc(pairs, sizeof(*p->path));
	if (!p->class || !p->path) {
		coll_gpu_paths_free(&p);
		return NULL;
	}
	for (int a = 0; a < ranks; a++)
		for (int b = 0; b < ranks; b++)
			p->path[a * ranks + b] =
			        a == b ? (struct coll_gpu_path){COLL_GPU_SAME, {0}} : path_between(g, gpu[a], gpu[b]);
	rank_paths(p);
	return p;
}

void coll_gpu_paths_free(struct coll_gpu_paths **p)
{
	if (!*p)
		return;
	free((*p)->class);
	free((*p)->path);
	free(*p);
	*p = NULL;
}

/* Ranks are looked at in their order, so the first one of a group is its lowest. */
int coll_gpu_groups(const struct coll_gpu_paths *p, int k, int *group)
{
	int stack[COLL_GPU_RANKS_MAX], groups = 0;

	for (int r = 0; r < p->ranks; r++)
		group[r] = -1;
	for (int first = 0; first < p->ranks; first++) {
		int top = 0;

		if (group[first] >= 0)
			continue;
		groups++;
		group[first] = first;
		stack[top++] = first;
		while (top) {
			const int a = stack[--top];

			for (int b = 0; b < p->ranks; b++)
				if (group[b] < 0 && p->class[a * p->ranks + b] < k) {
					group[b] = first;
					stack[top++] = b;
				}
		}
	}
	return groups;
}
