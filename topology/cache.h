/*
 * The last cache before memory, as the kernel describes it.
 */
#ifndef COLL_TOPOLOGY_CACHE_H
#define COLL_TOPOLOGY_CACHE_H

#include "topology/topology.h"

/* Bytes of the last data cache of a CPU, whose directory is e.g. /sys/devices/system/cpu/cpu0, and how
 * many CPUs share it; 0: unknown. */
size_t coll_topology_cache_of(const char *cpu, int *sharers);

/* Bytes of one last-level cache of the CPUs that are used, and the number of such caches, from the files below cpus
 * (/sys/devices/system/cpu). 32 MiB and 1 if these files are missing. */
size_t coll_topology_caches(const char *cpus, const cpu_set_t *used, int *count);

#endif
