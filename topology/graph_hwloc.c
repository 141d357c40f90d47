/*
 * A machine of hwloc as a graph: see graph_hwloc.h. hwloc's objects are asked for cores and memory, then for devices
 * (hwloc_devices.h), then for distances; nothing of hwloc outlives a call.
 */
#include "topology/graph_hwloc.h"

#include <stdio.h>

#include "coll_build.h"

#if COLL_HAVE_HWLOC

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "topology/hwloc_devices.h"
#include "topology/hwloc_reader.h"

/* ---- Cores and memory --------------------------------------------------- */

/* The node with the lowest number among those below a memory object and its siblings that have cores; NULL: none. */
static hwloc_obj_t lowest_node(hwloc_obj_t memory)
{
	hwloc_obj_t best = NULL;

	for (; memory; memory = memory->next_sibling) {
		const hwloc_obj_t nodes[] = {memory->type == HWLOC_OBJ_NUMANODE ? memory : NULL,
		                             lowest_node(memory->memory_first_child)};

		for (int i = 0; i < 2; i++)
			if (nodes[i] && !hwloc_bitmap_iszero(nodes[i]->cpuset) &&
			    (!best || nodes[i]->os_index < best->os_index))
				best = nodes[i];
	}
	return best;
}

/* The class of the NUMA nodes near a PU, new if it is the first PU there; -1: there is none, -2: there are too many. */
static short numa_of(struct coll_hwloc_reader *r, hwloc_obj_t pu, short package)
{
	hwloc_obj_t at = pu, node = NULL;
	struct coll_graph_numa *n;

	while (at && !(node = lowest_node(at->memory_first_child)))
		at = at->parent;
	if (!node)
		return -1;
	if (!node->userdata) {
		if (r->g->numas == COLL_GRAPH_NUMA_MAX)
			return -2;
		n = &r->g->numa[coll_hwloc_number(node, &r->g->numas)];
		*n = (struct coll_graph_numa){(int)node->os_index, node->parent != at, package};
		for (hwloc_obj_t m = at->memory_first_child; m; m = m->next_sibling)
			n->nodes = (short)(n->nodes + (m->type == HWLOC_OBJ_NUMANODE));
	}
	n = &r->g->numa[coll_hwloc_numbered(node)];
	if (n->package != package)
		n->package = -1;
	return (short)coll_hwloc_numbered(node);
}

/* 0 is the slowest kind of core, and any where hwloc cannot tell them apart. */
static short kind_of(hwloc_topology_t t, hwloc_obj_t pu)
{
	int efficiency = -1;
#if HWLOC_API_VERSION >= 0x00030000
	const int kind = hwloc_cpukinds_get_by_cpuset(t, pu->cpuset, 0);

	if (kind >= 0)
		hwloc_cpukinds_get_info(t, (unsigned)kind, NULL, &efficiency, NULL, 0);
#elif HWLOC_API_VERSION >= 0x00020400
	const int kind = hwloc_cpukinds_get_by_cpuset(t, pu->cpuset, 0);

	if (kind >= 0)
		hwloc_cpukinds_get_info(t, (unsigned)kind, NULL, &efficiency, NULL, NULL, 0);
#endif
	return (short)(efficiency < 0 ? 0 : efficiency);
}

static hwloc_obj_t above(struct coll_hwloc_reader *r, hwloc_obj_t o, hwloc_obj_type_t type)
{
	return hwloc_get_ancestor_obj_by_type(r->t, type, o);
}

/* A PU that may be used, and its core if that is new. NULL, or what there are too many of. */
static const char *add_pu(struct coll_hwloc_reader *r, hwloc_obj_t pu)
{
	hwloc_obj_t core = above(r, pu, HWLOC_OBJ_CORE), owner = core ? core : pu;
	const short package = coll_hwloc_number(above(r, pu, HWLOC_OBJ_PACKAGE), &r->g->packages);
	const short numa = numa_of(r, pu, package);
	struct coll_graph *g = r->g;

	if (g->pus == COLL_GRAPH_PUS_MAX || pu->os_index >= COLL_GRAPH_PUS_MAX)
		return "hardware threads";
	if (numa == -2)
		return "NUMA nodes";
	if (!owner->userdata) {
		struct coll_graph_core *c = &g->core[coll_hwloc_number(owner, &g->cores)];

		*c = (struct coll_graph_core){coll_hwloc_number(above(r, pu, HWLOC_OBJ_L3CACHE), &g->l3s), numa,
		                              package, kind_of(r->t, pu)};
		if (c->kind >= g->kinds)
			g->kinds = c->kind + 1;
	}
	g->pu[g->pus++] = (struct coll_graph_pu){(int)pu->os_index, coll_hwloc_numbered(owner)};
	return NULL;
}

static bool place_cores(struct coll_hwloc_reader *r, const char *name, char *why, size_t why_bytes)
{
	hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(r->t);
	hwloc_obj_t pu = NULL;

	while ((pu = hwloc_get_next_obj_by_type(r->t, HWLOC_OBJ_PU, pu))) {
		const char *many = hwloc_bitmap_isset(allowed, pu->os_index) ? add_pu(r, pu) : NULL;

		if (many) {
			snprintf(why, why_bytes, "%s: too many %s", name, many);
			return false;
		}
	}
	if (r->g->pus == 0)
		snprintf(why, why_bytes, "%s: no hardware thread that may be used", name);
	return r->g->pus > 0;
}

/* ---- Distances ---------------------------------------------------------- */

static void take_numa_distances(struct coll_graph *g, const struct hwloc_distances_s *d)
{
	for (unsigned i = 0; i < d->nbobjs; i++)
		for (unsigned k = 0; k < d->nbobjs; k++) {
			const uint64_t local = d->values[i * d->nbobjs + i], far = d->values[i * d->nbobjs + k];
			const int from = coll_hwloc_numbered(d->objs[i]), to = coll_hwloc_numbered(d->objs[k]);

			if (from < 0 || to < 0 || local == 0 || far == 0 || far / local >= 25)
				continue;
			g->distance[from][to] = (uint8_t)(far * COLL_GRAPH_LOCAL / local);
			g->distance_origin = COLL_ORIGIN_TOLD;
		}
}

/* The GPU that an OS device belongs to; -1: it is something else, such as a switch of GPUs. */
static int gpu_of(const struct hwloc_obj *o)
{
	return o->type == HWLOC_OBJ_OS_DEVICE && o->parent->type == HWLOC_OBJ_PCI_DEVICE
	               ? coll_hwloc_numbered(o->parent)
	               : -1;
}

/* hwloc has MB/s. */
static void take_gpu_links(struct coll_graph *g, const struct hwloc_distances_s *d)
{
	uint64_t to_switch[COLL_GRAPH_GPUS_MAX] = {0};

	for (unsigned i = 0; i < d->nbobjs; i++)
		for (unsigned k = 0; k < d->nbobjs; k++) {
			const uint64_t mbs = d->values[i * d->nbobjs + k];
			const int from = gpu_of(d->objs[i]), to = gpu_of(d->objs[k]);

			if (i == k || from < 0 || from == to || mbs == 0 || mbs > 100000000)
				continue;
			if (to >= 0)
				g->link_mbps[from][to] = (uint32_t)(mbs * 8);
			else
				to_switch[from] += mbs * 8;
			g->link_origin = COLL_ORIGIN_TOLD;
		}
	for (int i = 0; i < g->gpus; i++)
		coll_rate_take(&g->gpu[i].to_switch, to_switch[i], COLL_ORIGIN_TOLD);
}

static void take_distances(struct coll_hwloc_reader *r)
{
	enum { MATRICES_MAX = 8 };
	struct hwloc_distances_s *list[MATRICES_MAX];
	unsigned n = MATRICES_MAX;

	if (hwloc_distances_get(r->t, &n, list, 0, 0) < 0)
		return;
	for (unsigned i = 0; i < n && i < MATRICES_MAX; i++) {
		const struct hwloc_distances_s *d = list[i];
		const char *name = hwloc_distances_get_name(r->t, list[i]);

		if (d->objs[0]->type == HWLOC_OBJ_NUMANODE && (d->kind & HWLOC_DISTANCES_KIND_MEANS_LATENCY))
			take_numa_distances(r->g, d);
		else if ((d->kind & HWLOC_DISTANCES_KIND_MEANS_BANDWIDTH) && name && strstr(name, "Bandwidth"))
			take_gpu_links(r->g, d);
		hwloc_distances_release(r->t, list[i]);
	}
}

/* ---- hwloc itself ------------------------------------------------------- */

/* The names of PCI products come from a table of libpciaccess: it is large, read anew each time, and never freed. sysfs
 * has the devices, and says more of their rates than a name. The others, where hwloc has them as plugins, start drivers
 * and connect to displays, which takes seconds; they only name what is known by then. */
static void leave_out(hwloc_topology_t t)
{
#if HWLOC_API_VERSION >= 0x00020100
	static const char *const names[] = {"pci", "cuda", "opencl", "gl", "levelzero"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, names[i]);
#else
	(void)t;
#endif
}

static struct coll_graph *take_all(hwloc_topology_t t, const char *name, char *why, size_t why_bytes)
{
	struct coll_hwloc_reader r = {.t = t, .g = coll_graph_new()};

	if (!r.g) {
		snprintf(why, why_bytes, "%s: out of memory", name);
		return NULL;
	}
	if (!place_cores(&r, name, why, why_bytes)) {
		free(r.g);
		return NULL;
	}
	coll_hwloc_add_devices(&r);
	take_distances(&r);
	coll_graph_disbelieve(r.g);
	return r.g;
}

/* At most one of both; NULL both: this host. */
static bool load(hwloc_topology_t t, const char *path, const char *synthetic, char *why, size_t why_bytes)
{
	hwloc_topology_set_io_types_filter(t, path ? HWLOC_TYPE_FILTER_KEEP_ALL : HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
	leave_out(t);
	if (path && access(path, R_OK) < 0) {
		snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
	} else if (path && (hwloc_topology_set_xml(t, path) < 0 ||
	                    hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) < 0)) {
		snprintf(why, why_bytes, "%s: hwloc does not read this file", path);
	} else if (synthetic && hwloc_topology_set_synthetic(t, synthetic) < 0) {
		snprintf(why, why_bytes, "hwloc does not understand \"%s\"", synthetic);
	} else if (hwloc_topology_load(t) < 0) {
		snprintf(why, why_bytes, "%s: hwloc does not read this %s", path ? path : "hwloc",
		         path ? "file" : "host");
	} else {
		return true;
	}
	return false;
}

static struct coll_graph *from_hwloc(const char *path, const char *synthetic, char *why, size_t why_bytes)
{
	struct coll_graph *g = NULL;
	hwloc_topology_t t;

	if (hwloc_topology_init(&t) < 0) {
		snprintf(why, why_bytes, "hwloc cannot start");
		return NULL;
	}
	if (load(t, path, synthetic, why, why_bytes))
		g = take_all(t, path ? path : "hwloc", why, why_bytes);
	hwloc_topology_destroy(t);
	return g;
}

#else

static struct coll_graph *from_hwloc(const char *path, const char *synthetic, char *why, size_t why_bytes)
{
	(void)synthetic;
	snprintf(why, why_bytes, "%s%sbuilt without hwloc", path ? path : "", path ? ": " : "");
	return NULL;
}

#endif

struct coll_graph *coll_graph_hwloc_live(char *why, size_t why_bytes)
{
	return from_hwloc(NULL, NULL, why, why_bytes);
}

struct coll_graph *coll_graph_hwloc_file(const char *path, char *why, size_t why_bytes)
{
	return from_hwloc(path, NULL, why, why_bytes);
}

struct coll_graph *coll_graph_hwloc_synthetic(const char *description, char *why, size_t why_bytes)
{
	return from_hwloc(NULL, description, why, why_bytes);
}
