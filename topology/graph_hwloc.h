/*
 * A graph from hwloc: of this host, of one that was saved as XML (lstopo FILE.xml), or of a description. hwloc reads
 * and judges the files. What ranks may not use (cgroups, offline) is not in the graph. Without hwloc all of it fails
 * and says so.
 */
#ifndef COLL_TOPOLOGY_GRAPH_HWLOC_H
#define COLL_TOPOLOGY_GRAPH_HWLOC_H

#include "topology/graph.h"

/* This host; rates of NICs are not in it (rates.h has them). NULL with the reason in why. free() the graph. */
struct coll_graph *coll_graph_hwloc_live(char *why, size_t why_bytes);

/* A file of hwloc; which formats it reads depends on its version. NULL with "FILE: ..." in why. */
struct coll_graph *coll_graph_hwloc_file(const char *path, char *why, size_t why_bytes);

/* A machine by hwloc's short description: "pack:2 numa:2 l3:1 core:4 pu:2". For tests. */
struct coll_graph *coll_graph_hwloc_synthetic(const char *description, char *why, size_t why_bytes);

#endif
