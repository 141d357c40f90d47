/*
 * A graph from hwloc: of this host, or of one that was saved as XML (lstopo FILE.xml). The XML is read by the library's
 * own reader, also that which hwloc makes of this host: a damaged file is an error with its line, and files can be read
 * where the library was built without hwloc. What ranks may not use (cgroups, offline) is not in the graph.
 */
#ifndef COLL_TOPOLOGY_GRAPH_HWLOC_H
#define COLL_TOPOLOGY_GRAPH_HWLOC_H

#include "topology/graph.h"

/* This host; rates of NICs are not in it (rates.h has them). NULL with the reason in why. free() the graph. */
struct coll_graph *coll_graph_hwloc_live(char *why, size_t why_bytes);

/* A file in format 2 of hwloc. NULL with "FILE:LINE: ..." in why. */
struct coll_graph *coll_graph_hwloc_file(const char *path, char *why, size_t why_bytes);

/* The same, of a text with a zero at its end, which is changed. */
struct coll_graph *coll_graph_hwloc_text(const char *name, char *text, size_t len_bytes, char *why, size_t why_bytes);

/* A machine by hwloc's short description: "pack:2 numa:2 l3:1 core:4 pu:2". For tests. */
struct coll_graph *coll_graph_hwloc_synthetic(const char *description, char *why, size_t why_bytes);

#endif
