/*
 * The RDMA devices of this machine as /sys shows them: ports and GIDs. Needs no library, so
 * it answers where verbs cannot. Where a device is the environment says (coll_transport_env).
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
};

struct coll_rdma_gid {
	char text[48], type[24], interface[24];
};

enum { COLL_RDMA_PORTS_MAX = 64 };

/* In order of their names; how many. */
int coll_rdma_ports_list(const char *sys, struct coll_rdma_port *ports, int max);
/* False: the port has no such GID. */
bool coll_rdma_ports_gid(const char *sys, const struct coll_rdma_port *port, int index, struct coll_rdma_gid *gid);

#endif
