/*
 * Whether two processes are on one host, by what each says of itself. Equal ids do not prove it: they come from the
 * boot and the name of a machine, which are equal on copies of one that runs, or hidden from a container. Copies reach
 * each other at addresses of their own, even if they have others in common (an overlay, a service). So if each of two
 * has an address that the other lacks, they are on two hosts. Addresses that container tools give every host do not
 * count. A process that was told that all are on one host has no marks, and agrees with all. Both ends, and all other
 * ranks, find the same.
 */
#ifndef COLL_CONTROL_ONE_HOST_H
#define COLL_CONTROL_ONE_HOST_H

#include <stdbool.h>

#include "control/peer_info.h"

struct ifaddrs;

/* What this process says: marks of its addresses, whatever COLL_INTERFACE admits. */
void coll_one_host_mark(struct coll_peer_info *info, const struct ifaddrs *all);
/* They may try to share memory: COLL_HOST_ID divides, too. */
bool coll_one_host(const struct coll_peer_info *a, const struct coll_peer_info *b);
/* Loopback, and sockets that a name finds, are common. */
bool coll_one_network(const struct coll_peer_info *a, const struct coll_peer_info *b);
/* Cores, and if process_space is equal process ids, mean the same. */
bool coll_one_machine(const struct coll_peer_info *a, const struct coll_peer_info *b);
/* Equal names of a network namespace, on two machines. */
bool coll_copies(const struct coll_peer_info *a, const struct coll_peer_info *b);

#endif
