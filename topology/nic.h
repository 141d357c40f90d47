/*
 * Where network devices are, and how far from each other NUMA nodes are, as the kernel tells.
 * Needs no hwloc. sys is the root of what is read: COLL_TOPOLOGY_SYS, or a test's own.
 */
#ifndef COLL_TOPOLOGY_NIC_H
#define COLL_TOPOLOGY_NIC_H

#include <stdbool.h>

#define COLL_TOPOLOGY_SYS "/sys"

/* Distance between what is near, by the kernel's convention. */
enum { COLL_TOPOLOGY_NEAR = 10 };

/* The NUMA node of an RDMA device ("mlx5_0") or a network interface ("eth0"); for a device made of
 * software, of the interface below it. -1: unknown. */
int coll_topology_nic_node(const char *sys, const char *name);

/* Between two NUMA nodes by the kernel's table. What is not known is near. */
int coll_topology_distance(const char *sys, int from, int to);

/* Where a device is: its node, -1 if unknown, and how much farther than near it is from the node on which the
 * calling thread runs, where its memory comes from; 0 if unknown. False: there is no such device. */
bool coll_topology_nic_facts(const char *sys, const char *name, int *node, int *distance);

#endif
