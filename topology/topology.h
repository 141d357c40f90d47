/*
 * Where this process runs and what is near it. Answers about the local host only;
 * what does not depend on hwloc works without it, the rest says so.
 */
#ifndef COLL_TOPOLOGY_TOPOLOGY_H
#define COLL_TOPOLOGY_TOPOLOGY_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* CPU numbers up to this; the library does not bind ranks to CPUs beyond it. */
enum { COLL_CPUS_MAX = CPU_SETSIZE };

/* Cores (not hardware threads) that this process may use: its affinity, and the
 * CPU quota of its container, rounded up. At least 1. Cheap: no hwloc. */
int coll_topology_cores(void);

#endif
