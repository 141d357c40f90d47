/*
 * NICs as the kernel gives them: see rates.h.
 */
#include "topology/rates.h"

#include <dirent.h>
#include <ifaddrs.h>
#include <limits.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/first_line.h"
#include "base/hash.h"
#include "base/ib_ports.h"
#include "topology/nic.h"

enum { TYPE_LOOPBACK = 772, TYPE_INFINIBAND = 32, TYPE_ETHERNET = 1 };

static bool is_there(const char *sys, const char *name, const char *file)
{
	char path[PATH_MAX];

	return snprintf(path, sizeof(path), "%s/class/net/%s/%s", sys, name, file) < (int)sizeof(path) &&
	       access(path, F_OK) == 0;
}

static int read_number(const char *sys, const char *name, const char *file)
{
	char text[32];

	return coll_first_line(text, sizeof(text), "%s/class/net/%s/%s", sys, name, file) ? atoi(text) : -1;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strverscmp((*a)->d_name, (*b)->d_name);
}

static int visible(const struct dirent *e)
{
	return e->d_name[0] != '.';
}

/* What is in a directory of sys, by name; how many. free_list() it. */
static int list(const char *sys, const char *below, struct dirent ***names)
{
	char path[PATH_MAX];
	int n;

	*names = NULL;
	if (snprintf(path, sizeof(path), "%s/%s", sys, below) >= (int)sizeof(path))
		return 0;
	n = scandir(path, names, visible, by_name);
	return n > 0 ? n : 0;
}

static void free_list(struct dirent **names, int n)
{
	for (int i = 0; i < n; i++)
		free(names[i]);
	free(names);
}

/* The graph's NUMA nodes and packages are numbered densely. */
static void take_node(const struct coll_graph *g, struct coll_graph_nic *nic, int node)
{
	for (int i = 0; i < g->numas && node >= 0; i++)
		if (g->numa[i].node == node) {
			nic->numa = (short)i;
			nic->package = g->numa[i].package;
		}
}

static void copy_name(char *to, const char *from)
{
	snprintf(to, COLL_GRAPH_NAME_MAX, "%.*s", COLL_GRAPH_NAME_MAX - 1, from);
}

/* ---- Interfaces --------------------------------------------------------- */

/* A virtual function of a card that is here as well shares its port; one that is alone, in a guest, does not. */
static bool is_part_of_another(const char *sys, const char *name)
{
	return is_there(sys, name, "device/physfn");
}

static void remove_nic(struct coll_graph *g, int i)
{
	memmove(&g->nic[i], &g->nic[i + 1], (size_t)(--g->nics - i) * sizeof(g->nic[0]));
}

static void read_interface(struct coll_graph *g, const char *sys, const char *name)
{
	const int type = read_number(sys, name, "type"), speed = read_number(sys, name, "speed");
	int i = coll_graph_find_nic(g, name);
	char text[64];
	struct coll_graph_nic *n = i < 0 ? NULL : &g->nic[i];

	if (type == TYPE_LOOPBACK || is_part_of_another(sys, name)) {
		if (n)
			remove_nic(g, i);
		return;
	}
	if (!n) {
		n = coll_graph_add_nic(g);
		if (!n)
			return;
		copy_name(n->name, name);
		take_node(g, n, coll_topology_nic_node(sys, name));
		n->transports = COLL_NIC_TCP;
		n->made = !is_there(sys, name, "device");
		n->fabric = type == TYPE_INFINIBAND ? COLL_FABRIC_INFINIBAND
		            : type == TYPE_ETHERNET ? COLL_FABRIC_ETHERNET
		                                    : COLL_FABRIC_UNKNOWN;
	}
	/* What a bond or a bridge has taken sends for it. */
	if (is_there(sys, name, "master"))
		n->transports &= ~(unsigned)COLL_NIC_TCP;
	if (coll_first_line(text, sizeof(text), "%s/class/net/%s/operstate", sys, name))
		n->state = strcmp(text, "up") == 0        ? COLL_NIC_UP
		           : strcmp(text, "unknown") == 0 ? COLL_NIC_UNKNOWN
		                                          : COLL_NIC_DOWN;
	/* -1 where nobody says, as in guests; of a link that is down it means nothing, and of software it is a
	 * constant. */
	if (speed > 0 && n->state != COLL_NIC_DOWN)
		coll_rate_take(&n->rate, (uint64_t)speed, n->made ? COLL_ORIGIN_ASSUMED : COLL_ORIGIN_TOLD);
}

/* What the bus can carry, and not what it runs at: idle links train down. */
static void read_link(struct coll_rate *rate, const char *device)
{
	char speed[64], width[16];
	uint32_t mbps;

	if (!coll_first_line(speed, sizeof(speed), "%s/max_link_speed", device) ||
	    !coll_first_line(width, sizeof(width), "%s/max_link_width", device))
		return;
	mbps = coll_pci_mbps(speed, atoi(width));
	if (mbps)
		*rate = (struct coll_rate){mbps, COLL_ORIGIN_TOLD};
}

static void read_buses(struct coll_graph *g, const char *sys)
{
	char device[PATH_MAX];

	for (int i = 0; i < g->nics; i++) {
		struct coll_graph_nic *n = &g->nic[i];

		if (!*n->rdma || !coll_ib_pci_path(sys, n->rdma, device, sizeof(device)))
			snprintf(device, sizeof(device), "%s/class/net/%s/device", sys, n->name);
		read_link(&n->pci, device);
	}
	for (int i = 0; i < g->gpus; i++) {
		const uint64_t a = g->gpu[i].address;

		snprintf(device, sizeof(device), "%s/bus/pci/devices/%04x:%02x:%02x.%x", sys, (unsigned)(a >> 16),
		         (unsigned)(a >> 8 & 0xff), (unsigned)(a >> 3 & 31), (unsigned)(a & 7));
		read_link(&g->gpu[i].pci, device);
	}
}

/* ---- RDMA devices ------------------------------------------------------- */

/* The NIC of an RDMA device: by its name, by the interface that it has or is made on, or a new one. */
static struct coll_graph_nic *nic_of_device(struct coll_graph *g, const char *sys, const struct coll_ib_port *p,
                                            const char *interface)
{
	const int port = (int)p->number;
	struct coll_graph_nic *n;

	for (int i = 0; i < g->nics; i++)
		if (strcmp(g->nic[i].rdma, p->device) == 0 && g->nic[i].port == port)
			return &g->nic[i];
	if (interface[0]) {
		const int i = coll_graph_find_nic(g, interface);

		if (i >= 0 && !g->nic[i].rdma[0]) {
			n = &g->nic[i];
			copy_name(n->rdma, p->device);
			n->port = (short)port;
			n->transports |= COLL_NIC_VERBS;
			return n;
		}
	}
	n = coll_graph_add_nic(g);
	if (!n)
		return NULL;
	copy_name(n->name, p->device);
	copy_name(n->rdma, p->device);
	n->port = (short)port;
	n->transports = COLL_NIC_VERBS;
	take_node(g, n, coll_topology_nic_node(sys, p->device));
	return n;
}

static void read_port(struct coll_graph *g, const char *sys, const struct coll_ib_port *p)
{
	char interface[64];
	struct coll_ib_gid gid;
	const bool has_gid = coll_ib_port_gid(sys, p, 0, &gid);
	struct coll_graph_nic *n;

	if (!coll_ib_parent(sys, p->device, interface, sizeof(interface)))
		snprintf(interface, sizeof(interface), "%s", gid.interface);
	n = nic_of_device(g, sys, p, interface);
	if (!n)
		return;
	if (p->state[0])
		n->state = p->active ? COLL_NIC_UP : COLL_NIC_DOWN;
	if (p->layer[0])
		n->fabric = strcmp(p->layer, "InfiniBand") == 0 ? COLL_FABRIC_INFINIBAND : COLL_FABRIC_ETHERNET;
	if (n->state == COLL_NIC_UP && n->rate.origin < COLL_ORIGIN_TOLD && p->mbps > 0)
		coll_rate_take(&n->rate, p->mbps, COLL_ORIGIN_TOLD);
	/* Most fabrics keep the prefix that all have: it tells nothing. */
	if (n->rail_key == 0 && has_gid && strlen(gid.text) >= 19 && strncmp(gid.text, "fe80:", 5) != 0 &&
	    strncmp(gid.text, "0000:", 5) != 0)
		n->rail_key = (uint32_t)coll_hash_bytes(2, gid.text, 19) | 1;
}

void coll_rates_read_sys(struct coll_graph *g, const char *sys)
{
	struct coll_ib_port *ports = calloc(COLL_IB_PORTS_MAX, sizeof(*ports));
	struct dirent **names;
	int n = list(sys, "class/net", &names);

	for (int i = 0; i < n; i++)
		read_interface(g, sys, names[i]->d_name);
	free_list(names, n);
	n = ports ? coll_ib_ports_list(sys, ports, COLL_IB_PORTS_MAX) : 0;
	for (int i = 0; i < n; i++)
		read_port(g, sys, &ports[i]);
	free(ports);
	read_buses(g, sys);
	coll_graph_disbelieve(g);
}

/* ---- The running kernel ------------------------------------------------- */

/* Of an IPv4 or IPv6 address and its mask; 0: another family, or an address of the link alone. */
static uint32_t subnet_key(const struct ifaddrs *a)
{
	unsigned char bytes[34] = {0};
	size_t n;

	if (!a->ifa_addr || !a->ifa_netmask)
		return 0;
	if (a->ifa_addr->sa_family == AF_INET) {
		n = 4;
		memcpy(bytes, &((struct sockaddr_in *)(void *)a->ifa_addr)->sin_addr, n);
		memcpy(bytes + n, &((struct sockaddr_in *)(void *)a->ifa_netmask)->sin_addr, n);
	} else if (a->ifa_addr->sa_family == AF_INET6) {
		n = 16;
		memcpy(bytes, &((struct sockaddr_in6 *)(void *)a->ifa_addr)->sin6_addr, n);
		memcpy(bytes + n, &((struct sockaddr_in6 *)(void *)a->ifa_netmask)->sin6_addr, n);
		if (bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80)
			return 0;
	} else {
		return 0;
	}
	for (size_t i = 0; i < n; i++)
		bytes[i] &= bytes[n + i];
	return (uint32_t)coll_hash_bytes(1, bytes, 2 * n) | 1;
}

/* Of a socket: what is mounted at /sys may be of another network namespace. */
static uint32_t ethtool_mbps(const char *name)
{
	struct ethtool_cmd cmd = {.cmd = ETHTOOL_GSET};
	struct ifreq request = {.ifr_data = (char *)&cmd};
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint32_t mbps = 0;

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%.15s", name);
	/* Not ethtool_cmd_speed(), which shifts an unknown speed into the sign. */
	if (fd >= 0 && ioctl(fd, SIOCETHTOOL, &request) == 0)
		mbps = (uint32_t)cmd.speed_hi << 16 | cmd.speed;
	if (fd >= 0)
		close(fd);
	return mbps == (uint32_t)SPEED_UNKNOWN ? 0 : mbps;
}

uint32_t coll_rates_of_nic(const char *sys, const char *nic)
{
	const char *number = strrchr(nic, ':');
	struct coll_ib_port port;
	char device[64];

	if (!number)
		return ethtool_mbps(nic);
	snprintf(device, sizeof(device), "%.*s", (int)(number - nic), nic);
	return coll_ib_port_read(sys, device, (unsigned)atoi(number + 1), &port) ? port.mbps : 0;
}

bool coll_rates_are_constant(const char *nic)
{
	static const char *const drivers[] = {"veth", "tun", "vmxnet3"};
	struct ethtool_drvinfo info = {.cmd = ETHTOOL_GDRVINFO};
	struct ifreq request = {.ifr_data = (char *)&info};
	const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool constant = false;

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%.15s", nic);
	if (fd >= 0 && ioctl(fd, SIOCETHTOOL, &request) == 0)
		for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++)
			constant = constant || strcmp(info.driver, drivers[i]) == 0;
	if (fd >= 0)
		close(fd);
	return constant;
}

static bool is_listed(const struct ifaddrs *all, const char *name)
{
	for (; all; all = all->ifa_next)
		if (strcmp(all->ifa_name, name) == 0)
			return true;
	return false;
}

void coll_rates_read_kernel(struct coll_graph *g)
{
	struct ifaddrs *all = NULL;
	bool *addressed = calloc(COLL_GRAPH_NICS_MAX, sizeof(*addressed));

	if (!addressed || getifaddrs(&all) < 0) {
		free(addressed);
		return;
	}
	/* Where sysfs is not that of this network namespace, interfaces are missing. */
	for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
		struct coll_graph_nic *n = NULL;
		int i = coll_graph_find_nic(g, a->ifa_name);

		if (a->ifa_flags & IFF_LOOPBACK)
			continue;
		if (i < 0 && subnet_key(a) && (n = coll_graph_add_nic(g))) {
			i = g->nics - 1;
			copy_name(n->name, a->ifa_name);
			n->made = true;
			n->fabric = COLL_FABRIC_ETHERNET;
			n->transports = COLL_NIC_TCP;
		}
		if (i < 0)
			continue;
		n = &g->nic[i];
		if (!(a->ifa_flags & IFF_UP) || !(a->ifa_flags & IFF_RUNNING))
			n->state = COLL_NIC_DOWN;
		else if (n->state == COLL_NIC_UNKNOWN)
			n->state = COLL_NIC_UP;
		/* The first subnet: IPv4 addresses come first. */
		if (subnet_key(a) && !addressed[i])
			n->rail_key = subnet_key(a);
		addressed[i] = addressed[i] || subnet_key(a);
		if (n->rate.origin < COLL_ORIGIN_TOLD && n->state == COLL_NIC_UP)
			coll_rate_take(&n->rate, ethtool_mbps(a->ifa_name),
			               n->made ? COLL_ORIGIN_ASSUMED : COLL_ORIGIN_TOLD);
	}
	for (int i = 0; i < g->nics; i++)
		if (!addressed[i])
			g->nic[i].transports &= ~(unsigned)COLL_NIC_TCP;
	/* sysfs may be that of another network namespace: its interfaces are not ours. */
	for (int i = g->nics - 1; i >= 0; i--)
		if (!(g->nic[i].transports & COLL_NIC_VERBS) && !is_listed(all, g->nic[i].name))
			remove_nic(g, i);
	freeifaddrs(all);
	free(addressed);
	coll_graph_disbelieve(g);
}
