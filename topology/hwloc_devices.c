/*
 * NICs and GPUs: see hwloc_devices.h. A NIC is an interface, an RDMA device, or both where they share a PCI device.
 */
#include "topology/hwloc_devices.h"

#include <string.h>

/* ---- Devices ------------------------------------------------------------ */

struct where {
	short numa, package, pci_switch, pci_root;
};

struct buses {
	int switches, roots;
};

/* The bridge right above, which is no host bridge; -1: none. */
static int bridge_above(const struct coll_hwloc_reader *r, int o)
{
	const int up = o >= 0 ? r->list[o].parent : -1;

	return up >= 0 && r->list[up].type == COLL_HWLOC_BRIDGE && !r->list[up].host_bridge ? up : -1;
}

/* Where a device is: what the PUs below the object that it hangs on agree on. A switch is the first bridge below the
 * host's own: what shares it shares its uplink. */
static struct where locate(struct coll_hwloc_reader *r, int device, struct buses *b)
{
	int at = device, top = -1, root = -1;
	struct where w = {-1, -1, -1, -1};
	bool first = true;

	for (; at >= 0 && r->list[at].type >= COLL_HWLOC_BRIDGE; at = r->list[at].parent)
		if (r->list[at].type == COLL_HWLOC_BRIDGE && r->list[at].host_bridge)
			root = at;
		else if (r->list[at].type == COLL_HWLOC_BRIDGE)
			top = at;
	w.pci_switch = coll_hwloc_number(r, top, &b->switches);
	w.pci_root = coll_hwloc_number(r, root, &b->roots);
	for (int i = 0; at >= 0 && i < r->list[at].pus; i++) {
		const short core = r->core_of[r->list[at].first_pu + i];

		if (core < 0)
			continue;
		if (first || w.numa == r->g->core[core].numa)
			w.numa = r->g->core[core].numa;
		else
			w.numa = -1;
		if (first || w.package == r->g->core[core].package)
			w.package = r->g->core[core].package;
		else
			w.package = -1;
		first = false;
	}
	return w;
}

/* The nearest PCI device above; -1: none. */
static int bus_of(const struct coll_hwloc_reader *r, int o)
{
	while (o >= 0 && r->list[o].type != COLL_HWLOC_PCI)
		o = r->list[o].type == COLL_HWLOC_OS ? r->list[o].parent : -1;
	return o;
}

static bool is_nic(const struct coll_hwloc_object *o)
{
	return o->type == COLL_HWLOC_OS && (o->os_type == COLL_HWLOC_OS_NET || o->os_type == COLL_HWLOC_OS_FABRIC);
}

/* usNIC devices are listed among those of verbs, and have none. */
static bool has_verbs(const struct coll_hwloc_object *o)
{
	return o->os_type == COLL_HWLOC_OS_FABRIC && strncmp(o->name, "usnic", 5) != 0;
}

static enum coll_nic_fabric fabric_of(const struct coll_hwloc_object *bus, const struct coll_hwloc_object *net,
                                      const struct coll_hwloc_object *verbs)
{
	enum { CLASS_ETHERNET = 0x0200, CLASS_INFINIBAND = 0x0207, CLASS_FABRIC = 0x0208 };
	enum { AMAZON = 0x1d0f, EFA = 0xefa, SLINGSHOT = 0x17db };

	if ((net && net->infiniband) || (verbs && verbs->infiniband) || (bus && bus->class == CLASS_INFINIBAND))
		return COLL_FABRIC_INFINIBAND;
	if (bus && (bus->class == CLASS_FABRIC || bus->vendor == SLINGSHOT ||
	            (bus->vendor == AMAZON && bus->device >> 4 == EFA)))
		return COLL_FABRIC_OTHER;
	return net || (bus && bus->class == CLASS_ETHERNET) ? COLL_FABRIC_ETHERNET : COLL_FABRIC_UNKNOWN;
}

/* One port, of an interface, an RDMA device, or both. */
static void add_nic(struct coll_hwloc_reader *r, int net, int verbs, int port, struct buses *b)
{
	const int any = net >= 0 ? net : verbs, bus = bus_of(r, any);
	const struct coll_hwloc_object *n = net >= 0 ? &r->list[net] : NULL, *v = verbs >= 0 ? &r->list[verbs] : NULL;
	const struct coll_hwloc_object *p = bus >= 0 ? &r->list[bus] : NULL;
	struct coll_graph_nic *nic = coll_graph_add_nic(r->g);
	struct where w;

	if (!nic)
		return;
	w = locate(r, any, b);
	nic->numa = w.numa, nic->package = w.package, nic->pci_switch = w.pci_switch, nic->pci_root = w.pci_root;
	coll_hwloc_copy_name(nic->name, r->list[any].name);
	coll_hwloc_copy_name(nic->rdma, v ? v->name : "");
	nic->port = port;
	nic->transports = (n ? COLL_NIC_TCP : 0u) | (v ? COLL_NIC_VERBS : 0u);
	nic->fabric = fabric_of(p, n, v);
	if (v && v->state[port - 1])
		nic->state = v->state[port - 1] == '4' ? COLL_NIC_UP : COLL_NIC_DOWN;
	nic->rail_key = v ? v->prefix : 0;
	if (p) {
		nic->hardware = p->vendor << 16 | p->device;
		coll_rate_take(&nic->pci, p->pci_mbps, COLL_ORIGIN_TOLD);
		coll_rate_take(&nic->rate, p->product_mbps, COLL_ORIGIN_ASSUMED);
	}
}

/* The RDMA device of the same PCI device, for an interface; -1: none. */
static int verbs_beside(const struct coll_hwloc_reader *r, int net)
{
	const int bus = bus_of(r, net);

	for (int i = bus + 1; bus >= 0 && i < r->count && r->list[i].parent >= bus; i++)
		if (is_nic(&r->list[i]) && has_verbs(&r->list[i]) && bus_of(r, i) == bus)
			return i;
	return -1;
}

static bool has_interface(const struct coll_hwloc_reader *r, int verbs)
{
	const int bus = bus_of(r, verbs);

	for (int i = 0; bus >= 0 && i < r->count; i++)
		if (is_nic(&r->list[i]) && r->list[i].os_type == COLL_HWLOC_OS_NET && bus_of(r, i) == bus)
			return true;
	return false;
}

static void add_nics(struct coll_hwloc_reader *r, struct buses *b)
{
	for (int i = 0; i < r->count; i++) {
		const struct coll_hwloc_object *o = &r->list[i];

		if (is_nic(o) && o->os_type == COLL_HWLOC_OS_NET)
			add_nic(r, i, verbs_beside(r, i), o->port, b);
		else if (is_nic(o) && has_verbs(o) && !has_interface(r, i))
			for (int port = 1; port <= (o->ports ? o->ports : 1); port++)
				add_nic(r, -1, i, port, b);
	}
}

/* The name of a GPU, by the libraries that compute on it; 0: none of them. */
static int gpu_name(const char *name)
{
	static const char *const known[] = {"opencl", "ze", "cuda", "rsmi", "nvml"};

	for (int i = 0; i < 5; i++)
		if (strncmp(name, known[i], strlen(known[i])) == 0)
			return i + 1;
	return 0;
}

/* A display of a vendor that makes GPUs for computing, or anything that such a library names. */
static bool is_gpu(const struct coll_hwloc_object *o, int best)
{
	enum { DISPLAY = 0x03, VGA = 0x0300, ACCELERATOR = 0x12, NVIDIA = 0x10de, AMD = 0x1002 };

	if (o->type != COLL_HWLOC_PCI)
		return false;
	return best > 0 || ((o->class >> 8 == DISPLAY || o->class >> 8 == ACCELERATOR) &&
	                    (o->vendor == NVIDIA || o->vendor == AMD));
}

static void add_gpus(struct coll_hwloc_reader *r, struct buses *b)
{
	for (int i = 0; i < r->count; i++) {
		struct coll_hwloc_object *o = &r->list[i];
		struct coll_graph_gpu *gpu;
		struct where w;
		int best = 0;

		if (o->type != COLL_HWLOC_PCI)
			continue;
		for (int k = i + 1; k < r->count && r->list[k].parent >= i; k++)
			if (r->list[k].parent == i && r->list[k].type == COLL_HWLOC_OS &&
			    gpu_name(r->list[k].name) > best) {
				best = gpu_name(r->list[k].name);
				coll_hwloc_copy_name(o->name, r->list[k].name);
			}
		if (!is_gpu(o, best) || !(gpu = coll_graph_add_gpu(r->g)))
			continue;
		w = locate(r, i, b);
		gpu->numa = w.numa, gpu->package = w.package, gpu->pci_switch = w.pci_switch,
		gpu->pci_root = w.pci_root;
		coll_hwloc_copy_name(gpu->name, o->name);
		gpu->hardware = o->vendor << 16 | o->device;
		coll_rate_take(&gpu->pci, o->pci_mbps, COLL_ORIGIN_TOLD);
		gpu->address = o->address;
		o->index = r->g->gpus - 1;
	}
	/* Above a device's own port stands the port that its switch has towards the host; on a port of the host there
	 * is none. */
	for (int i = 0; i < r->count; i++)
		if (r->list[i].type == COLL_HWLOC_PCI && r->list[i].index >= 0)
			r->g->gpu[r->list[i].index].pci_near =
			        coll_hwloc_number(r, bridge_above(r, bridge_above(r, i)), &b->switches);
}

void coll_hwloc_add_devices(struct coll_hwloc_reader *r)
{
	struct buses buses = {0, 0};

	add_nics(r, &buses);
	add_gpus(r, &buses);
}
