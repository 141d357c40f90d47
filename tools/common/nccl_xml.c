/*
 * NCCL's XML as a graph: see nccl_xml.h. <cpu> is a NUMA node, <pci> a device or a bridge, <gpu> and <net> are what a
 * PCI device is, <nvlink> and <xgmi> lead to another GPU or to a switch of them. The file has no cores, packages, or
 * distances: each hardware thread counts as a core, and what is not told stays unknown.
 */
#include "tools/common/nccl_xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "tools/common/xml.h"

enum {
	LINKS_MAX = COLL_GRAPH_GPUS_MAX * 64,
	WORDS_MAX = COLL_GRAPH_PUS_MAX / 32,
	/* One link of NVLink or xGMI in one direction, which the file does not say. */
	LINK_MBPS = 160000
};

struct pci {
	char bus[COLL_GRAPH_NAME_MAX];
	unsigned class, vendor, device;
	uint32_t mbps;
	short pci_switch, near; /* the outermost bridge, and the one right above */
	short number;           /* of a bridge */
	bool named, bridge;     /* it has a <gpu> or <net>; it has devices below it */
};

struct link {
	char target[COLL_GRAPH_NAME_MAX];
	int gpu, line;
	long count;
	bool to_switch;
};

struct reader {
	struct coll_xml x;
	struct coll_graph *g;
	short numa, switches, bridges;
	struct pci pci[COLL_XML_DEPTH_MAX];
	int depth;
	char gpu_bus[COLL_GRAPH_GPUS_MAX][COLL_GRAPH_NAME_MAX];
	int gpu; /* whose links are read; -1: it is left out */
	struct link link[LINKS_MAX];
	int links;
};

static void copy_name(char *to, const char *from)
{
	snprintf(to, COLL_GRAPH_NAME_MAX, "%.*s", COLL_GRAPH_NAME_MAX - 1, from ? from : "");
}

/* "00000000,0000ffff,ffffffff": words of 32 bits, the highest first. */
static bool read_affinity(struct reader *r, const char *text)
{
	uint32_t words[WORDS_MAX];
	struct coll_graph *g = r->g;
	int n = 0;

	for (const char *at = text; *at;) {
		char *end;
		const unsigned long w = strtoul(at, &end, 16);

		if (end == at || w > UINT32_MAX || (*end && *end != ',') || *at == '-')
			return coll_xml_fail(&r->x, "affinity=\"%.40s\": not a set of CPUs", text);
		if (n == WORDS_MAX)
			return coll_xml_fail(&r->x, "CPUs beyond %d", COLL_GRAPH_PUS_MAX - 1);
		words[n++] = (uint32_t)w;
		at = *end ? end + 1 : end;
	}
	for (int cpu = 0; cpu < n * 32; cpu++) {
		if (!(words[n - 1 - cpu / 32] >> cpu % 32 & 1))
			continue;
		for (int i = 0; i < g->pus; i++)
			if (g->pu[i].os == cpu)
				return coll_xml_fail(&r->x, "CPU %d is near two NUMA nodes", cpu);
		if (g->pus == COLL_GRAPH_PUS_MAX)
			return coll_xml_fail(&r->x, "more than %d CPUs", COLL_GRAPH_PUS_MAX);
		g->core[g->cores] = (struct coll_graph_core){-1, r->numa, -1, 0};
		g->pu[g->pus++] = (struct coll_graph_pu){cpu, g->cores++};
	}
	g->kinds = g->pus > 0;
	return true;
}

static bool open_cpu(struct reader *r)
{
	const char *affinity = coll_xml_attribute(&r->x, "affinity");
	long node = r->g->numas;

	if (r->g->numas == COLL_GRAPH_NUMA_MAX)
		return coll_xml_fail(&r->x, "more than %d NUMA nodes", COLL_GRAPH_NUMA_MAX);
	/* -1: the machine has none. */
	if (!coll_xml_number(&r->x, "numaid", -1, 65535, &node))
		return false;
	r->numa = (short)r->g->numas;
	r->g->numa[r->g->numas++] = (struct coll_graph_numa){node < 0 ? 0 : (int)node, 1, -1};
	return !affinity || read_affinity(r, affinity);
}

static bool open_pci(struct reader *r)
{
	const char *speed = coll_xml_attribute(&r->x, "link_speed");
	struct pci *p = &r->pci[r->depth];
	long class = 0, vendor = 0, device = 0, width = 0;

	if (r->numa < 0)
		return coll_xml_fail(&r->x, "<pci> outside <cpu>");
	/* The class without its interface: 0x060400 is 0x0604. */
	if (!coll_xml_number(&r->x, "class", 0, 0xffffff, &class) ||
	    !coll_xml_number(&r->x, "vendor", 0, 0xffff, &vendor) ||
	    !coll_xml_number(&r->x, "device", 0, 0xffff, &device) ||
	    !coll_xml_number(&r->x, "link_width", 0, 255, &width))
		return false;
	*p = (struct pci){.class = (unsigned)class >> 8,
	                  .vendor = (unsigned)vendor,
	                  .device = (unsigned)device,
	                  .mbps = coll_pci_mbps(speed, width),
	                  .pci_switch = -1,
	                  .near = -1};
	copy_name(p->bus, coll_xml_attribute(&r->x, "busid"));
	if (r->depth == 0 && p->class == 0x0604)
		p->pci_switch = r->switches++;
	else if (r->depth > 0) {
		struct pci *up = &r->pci[r->depth - 1];

		if (!up->bridge)
			up->number = r->bridges++;
		p->pci_switch = up->pci_switch;
		p->near = up->number;
		up->bridge = true;
	}
	r->depth++;
	return true;
}

static void add_gpu(struct reader *r, struct pci *p, const char *name)
{
	struct coll_graph_gpu *gpu = coll_graph_add_gpu(r->g);

	p->named = true;
	r->gpu = -1;
	if (!gpu)
		return;
	r->gpu = r->g->gpus - 1;
	copy_name(gpu->name, name);
	copy_name(r->gpu_bus[r->gpu], p->bus);
	gpu->numa = r->numa;
	gpu->pci_switch = p->pci_switch;
	gpu->pci_near = p->near;
	gpu->address = coll_pci_address(p->bus);
	gpu->hardware = p->vendor << 16 | p->device;
	coll_rate_take(&gpu->pci, p->mbps, COLL_ORIGIN_TOLD);
}

/* p is NULL for an interface without a PCI device. */
static struct coll_graph_nic *add_nic(struct reader *r, struct pci *p, const char *name)
{
	struct coll_graph_nic *nic = coll_graph_add_nic(r->g);

	if (p)
		p->named = true;
	if (!nic)
		return NULL;
	copy_name(nic->name, name);
	nic->numa = r->numa;
	/* The file does not say what it carries. */
	nic->transports = COLL_NIC_TCP | COLL_NIC_VERBS;
	if (!p)
		return nic;
	nic->pci_switch = p->pci_switch;
	nic->hardware = p->vendor << 16 | p->device;
	nic->fabric = p->class == 0x0207   ? COLL_FABRIC_INFINIBAND
	              : p->class == 0x0200 ? COLL_FABRIC_ETHERNET
	                                   : COLL_FABRIC_UNKNOWN;
	coll_rate_take(&nic->pci, p->mbps, COLL_ORIGIN_TOLD);
	return nic;
}

static bool open_gpu(struct reader *r)
{
	char name[COLL_GRAPH_NAME_MAX];
	long dev = r->g->gpus;

	if (r->depth == 0)
		return coll_xml_fail(&r->x, "<gpu> outside <pci>");
	if (!coll_xml_number(&r->x, "dev", 0, 65535, &dev))
		return false;
	snprintf(name, sizeof(name), "gpu%ld", dev);
	add_gpu(r, &r->pci[r->depth - 1], name);
	return true;
}

static bool open_net(struct reader *r)
{
	const char *name = coll_xml_attribute(&r->x, "name");
	struct pci *p = r->depth > 0 ? &r->pci[r->depth - 1] : NULL;
	struct coll_graph_nic *nic;
	long speed = 0, port = 1;

	if (r->numa < 0)
		return coll_xml_fail(&r->x, "<net> outside <cpu>");
	if (!coll_xml_number(&r->x, "speed", -1, INT32_MAX, &speed) || !coll_xml_number(&r->x, "port", 0, 255, &port))
		return false;
	nic = add_nic(r, p, name ? name : p ? p->bus : "net");
	if (!nic)
		return true;
	/* A name that is given is that of a verbs device, or of an interface: the file does not say which. */
	nic->port = port > 0 ? (int)port : 1;
	coll_rate_take(&nic->rate, speed > 0 ? (uint64_t)speed : 0, COLL_ORIGIN_TOLD);
	return true;
}

static bool open_link(struct reader *r)
{
	const char *target = coll_xml_attribute(&r->x, "target");
	enum { SWITCH = 0x068000 /* 0x068001 is a CPU, of POWER */ };
	long count = 1, class = 0;

	if (!target)
		return coll_xml_fail(&r->x, "<%s> without a target", r->x.tag);
	if (!coll_xml_number(&r->x, "count", 1, 1024, &count) || !coll_xml_number(&r->x, "tclass", 0, 0xffffff, &class))
		return false;
	if (r->gpu < 0)
		return true;
	if (r->links == LINKS_MAX)
		return coll_xml_fail(&r->x, "more than %d links of GPUs", LINKS_MAX);
	r->link[r->links] =
	        (struct link){.gpu = r->gpu, .line = r->x.line, .count = count, .to_switch = class == SWITCH};
	copy_name(r->link[r->links++].target, target);
	return true;
}

/* A device of which the file says no more than its class is a NIC or a GPU, too. */
static void close_pci(struct reader *r)
{
	struct pci *p = &r->pci[--r->depth];

	if (p->named || p->bridge)
		return;
	if (p->class >> 8 == 0x02)
		add_nic(r, p, p->bus);
	else if (p->class >> 8 == 0x03 || p->class >> 8 == 0x12)
		add_gpu(r, p, p->bus);
}

/* Links whose other end is a GPU that was left out, or no GPU at all, lead nowhere. */
static void take_links(struct reader *r)
{
	struct coll_graph *g = r->g;

	for (int i = 0; i < r->links; i++) {
		const struct link *l = &r->link[i];
		const uint32_t mbps = (uint32_t)l->count * LINK_MBPS;

		for (int k = 0; k < g->gpus; k++)
			if (k != l->gpu && strcasecmp(r->gpu_bus[k], l->target) == 0)
				g->link_mbps[l->gpu][k] = mbps;
		if (l->to_switch)
			coll_rate_take(&g->gpu[l->gpu].to_switch, (uint64_t)g->gpu[l->gpu].to_switch.mbps + mbps,
			               COLL_ORIGIN_ASSUMED);
		g->link_origin = COLL_ORIGIN_ASSUMED;
	}
}

static bool open_element(struct reader *r)
{
	const char *tag = r->x.tag;

	if (r->x.depth == 1) {
		if (strcmp(tag, "topology") == 0)
			return coll_xml_fail(&r->x, "this is a file of hwloc, not of NCCL");
		return strcmp(tag, "system") == 0 || coll_xml_fail(&r->x, "<%s> where NCCL has <system>", tag);
	}
	if (strcmp(tag, "cpu") == 0)
		return open_cpu(r);
	if (strcmp(tag, "pci") == 0)
		return open_pci(r);
	if (strcmp(tag, "gpu") == 0)
		return open_gpu(r);
	if (strcmp(tag, "net") == 0)
		return open_net(r);
	if (strcmp(tag, "nvlink") == 0 || strcmp(tag, "xgmi") == 0)
		return open_link(r);
	/* <nic> only holds <net>; what later versions add does not matter here. */
	return true;
}

static bool read_all(struct reader *r)
{
	r->numa = -1;
	r->gpu = -1;
	for (;;) {
		switch (coll_xml_next(&r->x)) {
		case COLL_XML_OPEN:
			if (!open_element(r))
				return false;
			break;
		case COLL_XML_CLOSE:
			if (strcmp(r->x.tag, "pci") == 0)
				close_pci(r);
			else if (strcmp(r->x.tag, "cpu") == 0)
				r->numa = -1;
			else if (strcmp(r->x.tag, "gpu") == 0)
				r->gpu = -1;
			break;
		case COLL_XML_END:
			if (r->g->numas == 0)
				return coll_xml_fail(&r->x, "there is no <cpu>");
			take_links(r);
			coll_graph_disbelieve(r->g);
			return true;
		case COLL_XML_ERROR: return false;
		}
	}
}

struct coll_graph *coll_graph_nccl_text(const char *name, char *text, size_t len_bytes, char *why, size_t why_bytes)
{
	struct reader *r = calloc(1, sizeof(*r));
	struct coll_graph *g = coll_graph_new();
	bool ok = r && g;

	if (ok) {
		r->g = g;
		coll_xml_begin(&r->x, name, text, len_bytes, why, why_bytes);
		ok = read_all(r);
	} else {
		snprintf(why, why_bytes, "%s: out of memory", name);
	}
	free(r);
	if (ok)
		return g;
	free(g);
	return NULL;
}

struct coll_graph *coll_graph_nccl_file(const char *path, char *why, size_t why_bytes)
{
	return coll_xml_graph(path, coll_graph_nccl_text, why, why_bytes);
}
