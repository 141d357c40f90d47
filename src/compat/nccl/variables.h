/*
 * NCCL's variables of the environment: those that name interfaces and devices become settings of the library, and
 * NCCL_DEBUG has lines of its kind printed.
 */
#ifndef COLL_COMPAT_NCCL_VARIABLES_H
#define COLL_COMPAT_NCCL_VARIABLES_H

#include <ifaddrs.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/ib_ports.h"
#include "compat/nccl/abi.h"

/* Read the variables, once for the process, before anything is created. An error, at each call: a variable that nothing
 * here fits. */
ncclResult_t nccl_variables(const char *function);

/* NCCL_SOCKET_IFNAME as COLL_INTERFACE. Names are prefixes, or whole behind '='; '^' in front excludes. Empty: every
 * interface is admitted. False: none fits, or there is no room for the names. */
bool nccl_interfaces(const char *variable, const struct ifaddrs *all, char *names, size_t names_bytes);
/* NCCL_IB_HCA as COLL_RDMA_DEVICE, of n ports. As above; ":1" behind a name is a port. */
bool nccl_devices(const char *variable, const struct coll_ib_port *ports, int n, char *names, size_t names_bytes);

#endif
