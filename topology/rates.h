/*
 * Rates and states of this host's NICs, as the kernel gives them: sysfs, ethtool, addresses. Needs no hwloc; without it
 * NICs are found here, and with it those that hwloc does not list (veth, bonds).
 */
#ifndef COLL_TOPOLOGY_RATES_H
#define COLL_TOPOLOGY_RATES_H

#include "topology/graph.h"

/* What is below sys (COLL_TOPOLOGY_SYS, or a test's own): NICs that are missing, rates of ports and of PCI links,
 * states. */
void coll_rates_read_sys(struct coll_graph *g, const char *sys);

/* What only the running kernel gives: addresses (a NIC without one carries no TCP), subnets as rail keys, and the rates
 * that ethtool reads where sysfs has none. */
void coll_rates_read_kernel(struct coll_graph *g);

/* What a NIC carries now, in Mb/s: an interface ("eth0") as ethtool says, a port of an RDMA device ("mlx5_0:1") as sys
 * has it. 0: nobody says, or there is none. */
uint32_t coll_rates_of_nic(const char *sys, const char *nic);

/* Whether the driver of an interface reports a constant as its rate: a veth says 10000 Mb/s whatever the path behind it
 * carries. */
bool coll_rates_are_constant(const char *nic);

#endif
