/*
 * The RDMA devices of this machine as /sys/class/infiniband shows them: ports, rates, GIDs, places. The only reader of
 * it. Needs no library, so it answers where verbs cannot. sys is the root of what is read: COLL_IB_SYS, or a test's
 * own.
 */
#ifndef COLL_BASE_IB_PORTS_H
#define COLL_BASE_IB_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COLL_IB_SYS "/sys"

struct coll_ib_port {
	char device[64];
	unsigned number;
	bool active;
	char state[24], layer[24],
	        rate[40]; /* "ACTIVE", "InfiniBand" or "Ethernet", "100 Gb/sec (4X EDR)"; "": unknown */
	uint32_t mbps;    /* the rate as a number; 0: unknown */
};

struct coll_ib_gid {
	char text[48], type[24], interface[24];
};

enum { COLL_IB_PORTS_MAX = 64 };

/* In order of their names; how many. */
int coll_ib_ports_list(const char *sys, struct coll_ib_port *ports, int max);
/* False: there is no such port. */
bool coll_ib_port_read(const char *sys, const char *device, unsigned number, struct coll_ib_port *port);
/* False: the port has no such GID. */
bool coll_ib_port_gid(const char *sys, const struct coll_ib_port *port, int index, struct coll_ib_gid *gid);

/* The interface below a device that is made of software. False: it is none. */
bool coll_ib_parent(const char *sys, const char *device, char *name, size_t cap);
/* The NUMA node of a device; -1: unknown, or made of software. */
int coll_ib_node(const char *sys, const char *device);
/* Of the PCI device of a device; false: too long. */
bool coll_ib_pci_path(const char *sys, const char *device, char *path, size_t cap);

#endif
