/*
 * The NICs of this host as one process sees them: how far each is from its device if it has one that the graph knows,
 * else from the CPUs that it may use, by the graph of the host (host_digest.h). The graph is read when the first
 * distance is asked for: where a process has one NIC nobody asks. Rates are in rates.h.
 */
#ifndef COLL_TOPOLOGY_HOST_NICS_H
#define COLL_TOPOLOGY_HOST_NICS_H

#include "topology/graph.h"

struct coll_host_nics {
	uint64_t device; /* the address of the process's device (coll_pci_address()), set before; 0: it has none */
	bool read;
	struct coll_graph *graph; /* NULL: nothing is known */
	struct coll_place place;
};

/* As coll_lanes_crossing(), from the device or the CPUs of the calling thread. nic: "eth0", "mlx5_0", or "mlx5_0:1" for
 * a port. */
int coll_host_nics_crossing(struct coll_host_nics *n, const char *nic);
void coll_host_nics_free(struct coll_host_nics *n);

#endif
