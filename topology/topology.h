/*
 * Where this process runs and what is near it. Answers about the local host only;
 * what does not depend on hwloc works without it, the rest says so.
 */
#ifndef COLL_TOPOLOGY_TOPOLOGY_H
#define COLL_TOPOLOGY_TOPOLOGY_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* CPU numbers up to this; machines beyond it are bound by nobody but their
 * owners. */
enum { COLL_CPUS_MAX = CPU_SETSIZE };

/* Cores (not hardware threads) that this process may use: its affinity, and the
 * CPU quota of its container, rounded up. At least 1. Cheap: no hwloc. */
int coll_topology_cores(void);

/* Bytes of the last data cache of a CPU, whose directory is e.g. /sys/devices/system/cpu/cpu0, and how
 * many CPUs share it; 0: not told. */
size_t coll_topology_cache_of(const char *cpu, int *sharers);

/* Bytes of one last cache of the CPUs that are used, and how many they have, as told below cpus
 * (/sys/devices/system/cpu). 32 MiB and one where nothing is told. */
size_t coll_topology_caches(const char *cpus, const cpu_set_t *used, int *count);

/* Whether the functions below know anything. */
bool coll_topology_known(void);

/* "package 0, NUMA node 0, cores 0-1" of this process; without hwloc its CPUs.
 * False (and "" in buf) when not even those can be read. */
bool coll_topology_describe(char *buf, size_t len_bytes);

/* The host as an indented list: packages, NUMA nodes, caches, cores, network and
 * other devices; cores this process may use are marked *. False without hwloc. */
bool coll_topology_draw(char *buf, size_t len_bytes);

enum coll_topology_bind { COLL_BIND_NONE, COLL_BIND_CORE, COLL_BIND_NUMA };

/* "core" ... ; false for an unknown name. */
bool coll_topology_bind_named(const char *name, enum coll_topology_bind *kind);

/*
 * The CPUs for rank local_rank of local_size on this host, among those that the
 * caller may use. core: one core each, neighbours in rank on neighbouring cores;
 * with more ranks than cores they share, evenly. numa: all cores of one NUMA node,
 * nodes filled in blocks of ranks. False with a reason in why.
 */
bool coll_topology_place(enum coll_topology_bind kind, int local_rank, int local_size, cpu_set_t *set, char *why,
                         size_t why_bytes);

/* "0-3,8" */
void coll_topology_cpus_text(const cpu_set_t *set, char *buf, size_t len_bytes);

#endif
