/*
 * The local host for people and launchers: drawn, described, and its CPUs dealt out to ranks. Asks hwloc; without it
 * the functions say so.
 */
#ifndef COLL_TOOLS_HOST_H
#define COLL_TOOLS_HOST_H

#include "topology/topology.h"

enum coll_topology_bind { COLL_BIND_NONE, COLL_BIND_CORE, COLL_BIND_NUMA };

/* "core" ... ; false for an unknown name. */
bool coll_topology_bind_named(const char *name, enum coll_topology_bind *kind);

/* "0-3,8" */
void coll_topology_cpus_text(const cpu_set_t *set, char *buf, size_t len_bytes);

/* Whether the functions below know anything. */
bool coll_topology_known(void);

/* The host as an indented list: packages, NUMA nodes, caches, cores, network and
 * other devices; cores this process may use are marked *. False without hwloc. */
bool coll_topology_draw(char *buf, size_t len_bytes);

/*
 * The CPUs for rank local_rank of local_size on this host, among those that the
 * caller may use. core: one core each, neighbours in rank on neighbouring cores;
 * with more ranks than cores they share, evenly. numa: all cores of one NUMA node,
 * nodes filled in blocks of ranks. False with a reason in why.
 */
bool coll_topology_place(enum coll_topology_bind kind, int local_rank, int local_size, cpu_set_t *set, char *why,
                         size_t why_bytes);

#endif
