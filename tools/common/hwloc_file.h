/*
 * A file of hwloc as a graph, also where libhwloc crashes on it.
 */
#ifndef COLL_TOOLS_HWLOC_FILE_H
#define COLL_TOOLS_HWLOC_FILE_H

#include <stddef.h>

struct coll_graph;

/* As coll_graph_hwloc_file(). */
struct coll_graph *coll_hwloc_file(const char *path, char *why, size_t why_bytes);

#endif
