/*
 * Where network devices are, as the kernel tells. Needs no hwloc. sys is the root of what is read: COLL_TOPOLOGY_SYS,
 * or a test's own.
 */
#ifndef COLL_TOPOLOGY_NIC_H
#define COLL_TOPOLOGY_NIC_H

#define COLL_TOPOLOGY_SYS "/sys"

/* The NUMA node of an RDMA device ("mlx5_0") or a network interface ("eth0"); for a device made of
 * software, of the interface below it. -1: unknown. */
int coll_topology_nic_node(const char *sys, const char *name);

#endif
