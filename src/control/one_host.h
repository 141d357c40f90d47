/*
 * Whether two processes are on one host, by what each says of itself. Equal ids do not prove it: they come from the
 * boot and the name of a machine, which are equal on copies of one, or hidden from a container. So processes of one
 * host also have an IP address in common, other than those that container tools give every host. Both ends, and all
 * other ranks, find the same.
 */
#ifndef COLL_CONTROL_ONE_HOST_H
#define COLL_CONTROL_ONE_HOST_H

#include <stdbool.h>

#include "control/peer_info.h"

struct ifaddrs;

/* What this process says: marks of its addresses, whatever COLL_INTERFACE admits. */
void coll_one_host_mark(struct coll_peer_info *info, const struct ifaddrs *all);
bool coll_one_host(const struct coll_peer_info *a, const struct coll_peer_info *b);

#endif
