/*
 * Objects of hwloc's XML: see hwloc_objects.h. Every object is read into a list, in the order of the file and with its
 * parent; the places of hardware threads are taken from the objects above them when all is read.
 */
#include "topology/hwloc_objects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* ---- Values ------------------------------------------------------------- */

/* "0x000000ff,,0x0000ffff": words of 32 bits, the highest first; an empty one is 0. */
static bool read_mask(struct coll_xml *x, const char *text, struct coll_hwloc_mask *m)
{
	uint32_t words[COLL_HWLOC_MASK_WORDS];
	int n = 0;

	memset(m, 0, sizeof(*m));
	for (const char *at = text;;) {
		char *end = (char *)at;
		const unsigned long w = *at == ',' || *at == 0 ? 0 : strtoul(at, &end, 16);

		if (w > UINT32_MAX || (*end && *end != ',') || *at == '-' || *at == '+')
			return coll_xml_fail(x, "\"%.40s\" in <%s>: not a set of CPUs", text, x->tag);
		if (n == COLL_HWLOC_MASK_WORDS)
			return coll_xml_fail(x, "<%s> has CPUs beyond %d", x->tag, COLL_GRAPH_PUS_MAX - 1);
		words[n++] = (uint32_t)w;
		if (*end == 0)
			break;
		at = end + 1;
	}
	for (int i = 0; i < n; i++)
		m->word[n - 1 - i] = words[i];
	m->set = true;
	return true;
}

static bool in_mask(const struct coll_hwloc_mask *m, int cpu)
{
	return cpu >= 0 && cpu < COLL_GRAPH_PUS_MAX && (m->word[cpu / 32] >> cpu % 32 & 1);
}

static enum coll_hwloc_type type_named(const char *name)
{
	static const struct {
		const char *name;
		enum coll_hwloc_type type;
	} known[] = {{"Machine", COLL_HWLOC_MACHINE},   {"Package", COLL_HWLOC_PACKAGE}, {"L3Cache", COLL_HWLOC_L3},
	             {"Core", COLL_HWLOC_CORE},         {"PU", COLL_HWLOC_PU},           {"NUMANode", COLL_HWLOC_NUMA},
	             {"MemCache", COLL_HWLOC_MEMCACHE}, {"Bridge", COLL_HWLOC_BRIDGE},   {"PCIDev", COLL_HWLOC_PCI},
	             {"OSDev", COLL_HWLOC_OS}};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strcmp(known[i].name, name) == 0)
			return known[i].type;
	return COLL_HWLOC_OTHER;
}

/* ---- Objects ------------------------------------------------------------ */

void coll_hwloc_copy_name(char *to, const char *from)
{
	size_t n = strlen(from);

	if (n >= COLL_GRAPH_NAME_MAX)
		n = COLL_GRAPH_NAME_MAX - 1;
	memcpy(to, from, n);
	to[n] = 0;
}

/* pci_type="0302 [10de:1eb8] [10de:12a2] a1", pci_link_speed in GB/s, bridge_type="0-1". */
static bool read_pci(struct coll_xml *x, struct coll_hwloc_object *o)
{
	const char *type = coll_xml_attribute(x, "pci_type"), *speed = coll_xml_attribute(x, "pci_link_speed");
	const char *bridge = coll_xml_attribute(x, "bridge_type"), *bus = coll_xml_attribute(x, "pci_busid");
	const double gbs = speed ? strtod(speed, NULL) : 0;

	if (type && sscanf(type, "%4x [%4x:%4x]", &o->class, &o->vendor, &o->device) != 3)
		return coll_xml_fail(x, "pci_type=\"%.40s\": expected class [vendor:device]", type);
	if (!(gbs >= 0 && gbs < 100000))
		return coll_xml_fail(x, "pci_link_speed=\"%.40s\": expected GB/s", speed);
	o->pci_mbps = (uint32_t)(gbs * 8000 + 0.5);
	o->host_bridge = bridge && strncmp(bridge, "0-", 2) == 0;
	o->address = coll_pci_address(bus);
	if (bus && o->type == COLL_HWLOC_PCI)
		coll_hwloc_copy_name(o->name, bus);
	return true;
}

static struct coll_hwloc_object *new_object(struct coll_hwloc_reader *r)
{
	if (r->count == COLL_HWLOC_OBJECTS_MAX) {
		coll_xml_fail(&r->x, "more than %d objects", COLL_HWLOC_OBJECTS_MAX);
		return NULL;
	}
	if (r->count == r->cap) {
		const int cap = r->cap ? r->cap * 2 : 512;
		struct coll_hwloc_object *more = realloc(r->list, (size_t)cap * sizeof(*more));

		if (!more) {
			coll_xml_fail(&r->x, "out of memory");
			return NULL;
		}
		r->list = more;
		r->cap = cap;
	}
	r->list[r->count] = (struct coll_hwloc_object){.parent = -1, .os = -1, .index = -1, .port = 1};
	return &r->list[r->count++];
}

static bool read_object(struct coll_hwloc_reader *r, int parent)
{
	struct coll_xml *x = &r->x;
	struct coll_hwloc_object *o = new_object(r);
	const char *type = coll_xml_attribute(x, "type"), *cpus = coll_xml_attribute(x, "cpuset");
	const char *name = coll_xml_attribute(x, "name"), *may = coll_xml_attribute(x, "allowed_cpuset");
	long os = -1, gp = 0, os_type = -1;
	struct coll_hwloc_mask m = {.set = false};

	if (!o)
		return false;
	if (!type)
		return coll_xml_fail(x, "an object without a type");
	o->type = type_named(type);
	o->parent = parent;
	o->first_pu = r->pus;
	/* A package may have any number in the kernel, and none may be written as 2^32 - 1. */
	if (!coll_xml_number(x, "os_index", 0, UINT32_MAX, &os) || !coll_xml_number(x, "gp_index", 0, INT32_MAX, &gp) ||
	    !coll_xml_number(x, "osdev_type", 0, 64, &os_type) || (cpus && !read_mask(x, cpus, &m)))
		return false;
	if (o->type == COLL_HWLOC_NUMA && (os < 0 || os > UINT16_MAX))
		return coll_xml_fail(x, "a NUMANode needs an os_index from 0 to %d", UINT16_MAX);
	if (o->type == COLL_HWLOC_PU && (os < 0 || os >= COLL_GRAPH_PUS_MAX))
		return coll_xml_fail(x, "a PU needs an os_index from 0 to %d", COLL_GRAPH_PUS_MAX - 1);
	o->os = os > INT32_MAX ? -1 : (int)os;
	o->gp = (unsigned long)gp;
	o->os_type = (enum coll_hwloc_os)os_type;
	o->cpuless = m.set;
	for (int i = 0; i < COLL_HWLOC_MASK_WORDS; i++)
		o->cpuless = o->cpuless && m.word[i] == 0;
	if (o->type == COLL_HWLOC_MACHINE && may && !read_mask(x, may, &r->allowed))
		return false;
	if (o->type == COLL_HWLOC_OS && name)
		coll_hwloc_copy_name(o->name, name);
	if ((o->type == COLL_HWLOC_PCI || o->type == COLL_HWLOC_BRIDGE) && !read_pci(x, o))
		return false;
	r->pus += o->type == COLL_HWLOC_PU;
	return true;
}

/* <info name= value=/> of an object. */
static void read_info(struct coll_xml *x, struct coll_hwloc_object *o)
{
	const char *name = coll_xml_attribute(x, "name"), *value = coll_xml_attribute(x, "value");
	unsigned port;
	char state, rest[24];

	if (!name || !value)
		return;
	if (o->type == COLL_HWLOC_PCI && strcmp(name, "PCIDevice") == 0) {
		o->product_mbps = coll_rate_in_name(value);
	} else if (o->type == COLL_HWLOC_OS && strcmp(name, "Port") == 0) {
		o->port = atoi(value) > 0 && atoi(value) <= COLL_HWLOC_PORTS_MAX ? atoi(value) : 1;
	} else if (o->type == COLL_HWLOC_OS && strcmp(name, "Address") == 0) {
		/* Of 20 bytes: IP over InfiniBand. */
		o->infiniband = strlen(value) == 59;
	} else if (o->type == COLL_HWLOC_OS && sscanf(name, "Port%uStat%1[e]", &port, rest) == 2 && port >= 1 &&
	           port <= COLL_HWLOC_PORTS_MAX) {
		state = value[0];
		o->state[port - 1] = state;
		o->ports = (int)port > o->ports ? (int)port : o->ports;
	} else if (o->type == COLL_HWLOC_OS && strcmp(name, "Port1GID0") == 0 && strncmp(value, "fe80:", 5) != 0) {
		o->prefix = (uint32_t)coll_hash_bytes(2, value, strnlen(value, 19)) | 1;
	} else if (o->type == COLL_HWLOC_OS && strcmp(name, "Port1LID") == 0) {
		o->infiniband |= strtoul(value, NULL, 0) != 0;
	}
}

/* What is inside the outermost <object>; the objects above the current one are a stack of their numbers. */
bool coll_hwloc_read_objects(struct coll_hwloc_reader *r)
{
	int stack[COLL_XML_DEPTH_MAX], depth = 0;

	for (;;) {
		const struct coll_xml *x = &r->x;

		if (strcmp(x->tag, "object") == 0) {
			if (!read_object(r, depth ? stack[depth - 1] : -1))
				return false;
			stack[depth++] = r->count - 1;
		} else {
			if (strcmp(x->tag, "info") == 0)
				read_info(&r->x, &r->list[stack[depth - 1]]);
			if (!coll_xml_skip(&r->x))
				return false;
		}
		for (;;) {
			const enum coll_xml_event e = coll_xml_next(&r->x);

			if (e == COLL_XML_ERROR || e == COLL_XML_END)
				return false;
			if (e == COLL_XML_OPEN)
				break;
			if (e != COLL_XML_CLOSE)
				continue;
			depth--;
			r->list[stack[depth]].pus = r->pus - r->list[stack[depth]].first_pu;
			if (depth == 0)
				return true;
		}
	}
}

/* ---- Kinds of cores ----------------------------------------------------- */

bool coll_hwloc_read_kind(struct coll_hwloc_reader *r)
{
	const char *cpus = coll_xml_attribute(&r->x, "cpuset");
	struct coll_hwloc_kind *k = &r->kind[r->kinds];
	const int inside = r->x.depth;

	if (r->kinds == COLL_HWLOC_KINDS_MAX)
		return coll_xml_fail(&r->x, "more than %d kinds of cores", COLL_HWLOC_KINDS_MAX);
	*k = (struct coll_hwloc_kind){.efficiency = -1};
	if (!cpus || !read_mask(&r->x, cpus, &k->cpus) ||
	    !coll_xml_number(&r->x, "forced_efficiency", -1, INT32_MAX, &k->efficiency))
		return coll_xml_fail(&r->x, "<cpukind> without a set of CPUs");
	r->kinds++;
	for (;;) {
		const enum coll_xml_event e = coll_xml_next(&r->x);
		const char *name = e == COLL_XML_OPEN ? coll_xml_attribute(&r->x, "name") : NULL;
		const char *value = name ? coll_xml_attribute(&r->x, "value") : NULL;

		if (e == COLL_XML_ERROR || e == COLL_XML_END)
			return false;
		if (e == COLL_XML_CLOSE && r->x.depth < inside)
			return true;
		if (value && strcmp(name, "FrequencyMaxMHz") == 0)
			k->mhz = atol(value);
		if (value && strcmp(name, "CoreType") == 0)
			k->core_type = strcmp(value, "IntelAtom") == 0 ? 1 : 2;
	}
}

static bool slower(const struct coll_hwloc_kind *a, const struct coll_hwloc_kind *b)
{
	if (a->efficiency >= 0 && b->efficiency >= 0 && a->efficiency != b->efficiency)
		return a->efficiency < b->efficiency;
	if (a->core_type && b->core_type && a->core_type != b->core_type)
		return a->core_type < b->core_type;
	return a->mhz < b->mhz;
}

/* How many kinds are slower. */
static int kind_of(const struct coll_hwloc_reader *r, int cpu)
{
	int kind = 0;

	for (int i = 0; i < r->kinds; i++)
		if (in_mask(&r->kind[i].cpus, cpu))
			for (int k = 0; k < r->kinds; k++)
				kind += slower(&r->kind[k], &r->kind[i]);
	return kind;
}

/* ---- Cores and memory --------------------------------------------------- */

static int above(const struct coll_hwloc_reader *r, int o, enum coll_hwloc_type type)
{
	while (o >= 0 && r->list[o].type != type)
		o = r->list[o].parent;
	return o;
}

/* A dense number for an object, in the order in which cores reach it. */
short coll_hwloc_number(struct coll_hwloc_reader *r, int o, int *count)
{
	if (o < 0)
		return -1;
	if (r->list[o].index < 0)
		r->list[o].index = (*count)++;
	return (short)r->list[o].index;
}

/* NUMA nodes hang below what they are local to: for each object the node with the lowest number; -1: none.
 */
static void attach_memory(struct coll_hwloc_reader *r, int *memory)
{
	for (int i = 0; i < r->count; i++)
		memory[i] = -1;
	for (int i = 0; i < r->count; i++) {
		int at = r->list[i].parent;

		if (r->list[i].type != COLL_HWLOC_NUMA || r->list[i].cpuless)
			continue;
		while (at >= 0 && (r->list[at].type == COLL_HWLOC_MEMCACHE || r->list[at].type == COLL_HWLOC_NUMA))
			at = r->list[at].parent;
		if (at >= 0 && (memory[at] < 0 || r->list[i].os < r->list[memory[at]].os))
			memory[at] = i;
	}
}

/* The class of the NUMA nodes near a PU; new if it is the first PU there. */
static bool numa_of(struct coll_hwloc_reader *r, const int *memory, int pu, short package, short *numa)
{
	int at = pu;

	*numa = -1;
	while (at >= 0 && memory[at] < 0)
		at = r->list[at].parent;
	if (at < 0)
		return true;
	struct coll_hwloc_object *o = &r->list[memory[at]];

	if (o->index < 0) {
		if (r->g->numas == COLL_GRAPH_NUMA_MAX)
			return coll_xml_fail(&r->x, "more than %d NUMA nodes", COLL_GRAPH_NUMA_MAX);
		o->index = r->g->numas++;
		r->g->numa[o->index] = (struct coll_graph_numa){o->os, 0, package};
		for (int i = 0; i < r->count; i++)
			r->g->numa[o->index].nodes +=
			        r->list[i].type == COLL_HWLOC_NUMA && (i == memory[at] || r->list[i].parent == at);
	}
	if (r->g->numa[o->index].package != package)
		r->g->numa[o->index].package = -1;
	*numa = (short)o->index;
	return true;
}

/* A PU that may be used, and its core if that is new. */
static bool add_pu(struct coll_hwloc_reader *r, const int *memory, int pu)
{
	struct coll_graph *g = r->g;
	const int core = above(r, pu, COLL_HWLOC_CORE), owner = core < 0 ? pu : core;
	struct coll_hwloc_object *c = &r->list[owner];
	short numa, package;

	if (g->pus == COLL_GRAPH_PUS_MAX)
		return coll_xml_fail(&r->x, "more than %d PUs", COLL_GRAPH_PUS_MAX);
	package = coll_hwloc_number(r, above(r, pu, COLL_HWLOC_PACKAGE), &g->packages);
	if (!numa_of(r, memory, pu, package, &numa))
		return false;
	if (c->index < 0) {
		c->index = g->cores++;
		g->core[c->index] = (struct coll_graph_core){coll_hwloc_number(r, above(r, pu, COLL_HWLOC_L3), &g->l3s),
		                                             numa, package, (short)kind_of(r, r->list[pu].os)};
		if (g->core[c->index].kind >= g->kinds)
			g->kinds = g->core[c->index].kind + 1;
	}
	g->pu[g->pus++] = (struct coll_graph_pu){r->list[pu].os, c->index};
	r->core_of[r->list[pu].first_pu] = (short)c->index;
	return true;
}

bool coll_hwloc_place_cores(struct coll_hwloc_reader *r)
{
	int *memory = malloc((size_t)(r->count ? r->count : 1) * sizeof(*memory));
	bool seen[COLL_GRAPH_PUS_MAX] = {false};
	bool ok;

	r->core_of = malloc((size_t)(r->pus ? r->pus : 1) * sizeof(*r->core_of));
	ok = memory && r->core_of;
	if (!ok)
		coll_xml_fail(&r->x, "out of memory");
	else
		attach_memory(r, memory);
	for (int i = 0; ok && i < r->pus; i++)
		r->core_of[i] = -1;
	for (int i = 0; ok && i < r->count; i++) {
		struct coll_hwloc_object *o = &r->list[i];

		if (o->type != COLL_HWLOC_PU || (r->allowed.set && !in_mask(&r->allowed, o->os)))
			continue;
		ok = seen[o->os] ? coll_xml_fail(&r->x, "PU %d is there twice", o->os) : add_pu(r, memory, i);
		seen[o->os] = true;
	}
	free(memory);
	if (ok && r->g->pus == 0)
		return coll_xml_fail(&r->x, "no hardware thread that may be used");
	return ok;
}
