/*
 * NICs and GPUs: see hwloc_devices.h. A NIC is an interface, an RDMA device, or both where they share a PCI device.
 */
#include "topology/hwloc_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

enum { PORTS_MAX = 4 };

/* ---- What hwloc says of an object --------------------------------------- */

#if HWLOC_API_VERSION >= 0x00030000
static bool is_verbs(hwloc_obj_t o)
{
	return o->attr->osdev.types & HWLOC_OBJ_OSDEV_OPENFABRICS;
}

static bool is_interface(hwloc_obj_t o)
{
	return (o->attr->osdev.types & HWLOC_OBJ_OSDEV_NETWORK) && !is_verbs(o);
}
#else
static bool is_verbs(hwloc_obj_t o)
{
	return o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS;
}

static bool is_interface(hwloc_obj_t o)
{
	return o->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK;
}
#endif

/* usNIC devices are listed among those of verbs, and have none. */
static bool has_verbs(hwloc_obj_t o)
{
	return is_verbs(o) && o->name && strncmp(o->name, "usnic", 5) != 0;
}

static void copy_name(char *to, const char *from)
{
	snprintf(to, COLL_GRAPH_NAME_MAX, "%.*s", COLL_GRAPH_NAME_MAX - 1, from ? from : "");
}

/* The state of a port of an RDMA device: '4' is active, '1' down; 0: hwloc does not say. */
static char port_state(hwloc_obj_t o, int port)
{
	char name[16];
	const char *value;

	snprintf(name, sizeof(name), "Port%dState", port);
	value = hwloc_obj_get_info_by_name(o, name);
	return value ? value[0] : 0;
}

/* How many ports an RDMA device has, at least 1. */
static int ports_of(hwloc_obj_t o)
{
	int ports = PORTS_MAX;

	while (ports > 1 && !port_state(o, ports))
		ports--;
	return ports;
}

/* The port that an interface is of. */
static int port_of(hwloc_obj_t o)
{
	const char *text = hwloc_obj_get_info_by_name(o, "Port");
	const int port = text ? atoi(text) : 1;

	return port > 0 && port <= PORTS_MAX ? port : 1;
}

/* The prefix of the first port's GID, as a key; 0: it is unknown, or the one that all fabrics have. */
static uint32_t prefix_of(hwloc_obj_t o)
{
	const char *gid = hwloc_obj_get_info_by_name(o, "Port1GID0");

	if (!gid || strncmp(gid, "fe80:", 5) == 0)
		return 0;
	return (uint32_t)coll_hash_bytes(2, gid, strnlen(gid, 19)) | 1;
}

/* An address of 20 bytes is that of IP over InfiniBand; other fabrics give no LID. */
static bool is_infiniband(hwloc_obj_t o)
{
	const char *address = hwloc_obj_get_info_by_name(o, "Address"),
	           *lid = hwloc_obj_get_info_by_name(o, "Port1LID");

	return (address && strlen(address) == 59) || (lid && strtoul(lid, NULL, 0) != 0);
}

static uint32_t hardware_of(const struct hwloc_pcidev_attr_s *p)
{
	return (uint32_t)p->vendor_id << 16 | p->device_id;
}

/* hwloc has GB/s. */
static uint32_t pci_mbps(const struct hwloc_pcidev_attr_s *p)
{
	return p->linkspeed > 0 && p->linkspeed < 100000 ? (uint32_t)((double)p->linkspeed * 8000 + 0.5) : 0;
}

/* ---- Places ------------------------------------------------------------- */

struct where {
	short numa, package, pci_switch, pci_root;
};

static bool is_host_bridge(hwloc_obj_t o)
{
	return o->type == HWLOC_OBJ_BRIDGE && o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
}

/* The bridge right above, which is no host bridge; NULL: none. */
static hwloc_obj_t bridge_above(hwloc_obj_t o)
{
	hwloc_obj_t up = o ? o->parent : NULL;

	return up && up->type == HWLOC_OBJ_BRIDGE && !is_host_bridge(up) ? up : NULL;
}

/* Where a device is: what the cores that it is near to agree on. A switch is the first bridge below the host's own:
 * what shares it shares its uplink. */
static struct where locate(struct coll_hwloc_reader *r, hwloc_obj_t device)
{
	hwloc_obj_t at = device, top = NULL, root = NULL;
	struct where w = {-1, -1, -1, -1};
	bool first = true;

	for (; hwloc_obj_type_is_io(at->type); at = at->parent)
		if (is_host_bridge(at))
			root = at;
		else if (at->type == HWLOC_OBJ_BRIDGE)
			top = at;
	w.pci_switch = coll_hwloc_number(top, &r->switches);
	w.pci_root = coll_hwloc_number(root, &r->roots);
	for (int i = 0; i < r->g->pus; i++) {
		const struct coll_graph_core *c = &r->g->core[r->g->pu[i].core];

		if (!hwloc_bitmap_isset(at->cpuset, (unsigned)r->g->pu[i].os))
			continue;
		w.numa = first || w.numa == c->numa ? c->numa : -1;
		w.package = first || w.package == c->package ? c->package : -1;
		first = false;
	}
	return w;
}

/* The PCI device that something is part of; NULL: none. */
static hwloc_obj_t bus_of(hwloc_obj_t o)
{
	while (o && o->type == HWLOC_OBJ_OS_DEVICE)
		o = o->parent;
	return o && o->type == HWLOC_OBJ_PCI_DEVICE ? o : NULL;
}

/* ---- NICs --------------------------------------------------------------- */

static enum coll_nic_fabric fabric_of(hwloc_obj_t bus, hwloc_obj_t net, hwloc_obj_t verbs)
{
	enum { CLASS_ETHERNET = 0x0200, CLASS_INFINIBAND = 0x0207, CLASS_FABRIC = 0x0208 };
	enum { AMAZON = 0x1d0f, EFA = 0xefa, SLINGSHOT = 0x17db };
	const struct hwloc_pcidev_attr_s *p = bus ? &bus->attr->pcidev : NULL;

	if ((net && is_infiniband(net)) || (verbs && is_infiniband(verbs)) || (p && p->class_id == CLASS_INFINIBAND))
		return COLL_FABRIC_INFINIBAND;
	if (p && (p->class_id == CLASS_FABRIC || p->vendor_id == SLINGSHOT ||
	          (p->vendor_id == AMAZON && p->device_id >> 4 == EFA)))
		return COLL_FABRIC_OTHER;
	return net || (p && p->class_id == CLASS_ETHERNET) ? COLL_FABRIC_ETHERNET : COLL_FABRIC_UNKNOWN;
}

/* One port, of an interface, an RDMA device, or both. */
static void add_nic(struct coll_hwloc_reader *r, hwloc_obj_t net, hwloc_obj_t verbs, int port)
{
	hwloc_obj_t any = net ? net : verbs, bus = bus_of(any);
	struct coll_graph_nic *nic = coll_graph_add_nic(r->g);
	const char *product;
	struct where w;
	char state;

	if (!nic)
		return;
	w = locate(r, any);
	nic->numa = w.numa, nic->package = w.package, nic->pci_switch = w.pci_switch, nic->pci_root = w.pci_root;
	copy_name(nic->name, any->name);
	copy_name(nic->rdma, verbs ? verbs->name : "");
	nic->port = port;
	nic->transports = (net ? COLL_NIC_TCP : 0u) | (verbs ? COLL_NIC_VERBS : 0u);
	nic->fabric = fabric_of(bus, net, verbs);
	state = verbs ? port_state(verbs, port) : 0;
	if (state)
		nic->state = state == '4' ? COLL_NIC_UP : COLL_NIC_DOWN;
	nic->rail_key = verbs ? prefix_of(verbs) : 0;
	if (!bus)
		return;
	product = hwloc_obj_get_info_by_name(bus, "PCIDevice");
	nic->hardware = hardware_of(&bus->attr->pcidev);
	coll_rate_take(&nic->pci, pci_mbps(&bus->attr->pcidev), COLL_ORIGIN_TOLD);
	coll_rate_take(&nic->rate, product ? coll_rate_in_name(product) : 0, COLL_ORIGIN_ASSUMED);
}

/* The first of its kind on a PCI device; NULL: none, or no PCI device. */
static hwloc_obj_t first_on(struct coll_hwloc_reader *r, hwloc_obj_t bus, bool (*is)(hwloc_obj_t))
{
	hwloc_obj_t o = NULL;

	while (bus && (o = hwloc_get_next_osdev(r->t, o)))
		if (is(o) && bus_of(o) == bus)
			return o;
	return NULL;
}

static void add_nics(struct coll_hwloc_reader *r)
{
	for (hwloc_obj_t o = hwloc_get_next_osdev(r->t, NULL); o; o = hwloc_get_next_osdev(r->t, o)) {
		if (is_interface(o))
			add_nic(r, o, first_on(r, bus_of(o), has_verbs), port_of(o));
		else if (has_verbs(o) && !first_on(r, bus_of(o), is_interface))
			for (int port = 1, ports = ports_of(o); port <= ports; port++)
				add_nic(r, NULL, o, port);
	}
}

/* ---- GPUs --------------------------------------------------------------- */

/* How good a name of a GPU is, by the libraries that compute on it; 0: it is none of theirs. */
static int gpu_name(const char *name)
{
	static const char *const known[] = {"opencl", "ze", "cuda", "rsmi", "nvml"};

	for (int i = 0; name && i < 5; i++)
		if (strncmp(name, known[i], strlen(known[i])) == 0)
			return i + 1;
	return 0;
}

/* A display of a vendor that makes GPUs for computing, or anything that such a library names. */
static bool is_gpu(const struct hwloc_pcidev_attr_s *p, bool named)
{
	enum { DISPLAY = 0x03, ACCELERATOR = 0x12, NVIDIA = 0x10de, AMD = 0x1002 };

	return named || ((p->class_id >> 8 == DISPLAY || p->class_id >> 8 == ACCELERATOR) &&
	                 (p->vendor_id == NVIDIA || p->vendor_id == AMD));
}

static void add_gpu(struct coll_hwloc_reader *r, hwloc_obj_t o)
{
	const struct hwloc_pcidev_attr_s *p = &o->attr->pcidev;
	struct coll_graph_gpu *gpu;
	const char *name = NULL;
	char bus[COLL_GRAPH_NAME_MAX];
	struct where w;

	for (hwloc_obj_t d = o->io_first_child; d; d = d->next_sibling)
		if (d->type == HWLOC_OBJ_OS_DEVICE && gpu_name(d->name) > gpu_name(name))
			name = d->name;
	if (!is_gpu(p, name != NULL) || !(gpu = coll_graph_add_gpu(r->g)))
		return;
	coll_hwloc_number(o, &r->gpus);
	w = locate(r, o);
	gpu->numa = w.numa, gpu->package = w.package, gpu->pci_switch = w.pci_switch, gpu->pci_root = w.pci_root;
	snprintf(bus, sizeof(bus), "%04x:%02x:%02x.%01x", p->domain, p->bus, p->dev, p->func);
	copy_name(gpu->name, name ? name : bus);
	gpu->hardware = hardware_of(p);
	coll_rate_take(&gpu->pci, pci_mbps(p), COLL_ORIGIN_TOLD);
	gpu->address = coll_pci_address(bus);
}

static void add_gpus(struct coll_hwloc_reader *r)
{
	hwloc_obj_t o = NULL;

	while ((o = hwloc_get_next_pcidev(r->t, o)))
		add_gpu(r, o);
	/* Above a device's own port stands the port that its switch has towards the host; on a port of the host there
	 * is none. */
	while ((o = hwloc_get_next_pcidev(r->t, o)))
		if (coll_hwloc_numbered(o) >= 0)
			r->g->gpu[coll_hwloc_numbered(o)].pci_near =
			        coll_hwloc_number(bridge_above(bridge_above(o)), &r->switches);
}

void coll_hwloc_add_devices(struct coll_hwloc_reader *r)
{
	add_nics(r);
	add_gpus(r);
}
