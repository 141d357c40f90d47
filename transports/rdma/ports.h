/*
 * The RDMA devices of this machine as /sys shows them: ports, GIDs, NUMA nodes and how
 * far these are from each other. Needs no library, so it answers where verbs cannot.
 */
#ifndef COLL_TRANSPORTS_RDMA_PORTS_H
#define COLL_TRANSPORTS_RDMA_PORTS_H

#include <stdbool.h>
#include <stddef.h>

/* The root of what is below; tests have their own. */
#define COLL_RDMA_SYS "/sys"

struct coll_rdma_port {
	char device[64];
	unsigned number;
	bool active;
	char state[24], layer[24], rate[40];
	int node; /* of the device; -1: unknown */
};

struct coll_rdma_gid {
	char text[48], type[24], interface[24];
};

enum { COLL_RDMA_PORTS_MAX = 64, COLL_RDMA_NEAR = 10 };

/* In order of their names; how many. */
int coll_rdma_ports_list(const char *sys, struct coll_rdma_port *ports, int max);
/* False: the port has no such GID. */
bool coll_rdma_ports_gid(const char *sys, const struct coll_rdma_port *port, int index, struct coll_rdma_gid *gid);
/* The NUMA node of a device, or, for one made of software, of the network device below it; -1: unknown. */
int coll_rdma_ports_node(const char *sys, const char *device);
/* Between two NUMA nodes by the kernel's table: 10 is near. So is what is not known. */
int coll_rdma_ports_distance(const char *sys, int from, int to);
/* The NUMA node on which the calling thread runs, and where its memory comes from. */
int coll_rdma_ports_here(void);

#endif
