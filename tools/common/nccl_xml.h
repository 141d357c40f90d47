/*
 * A graph from the XML of NCCL and RCCL: what NCCL_TOPO_FILE names and NCCL_TOPO_DUMP_FILE writes.
 */
#ifndef COLL_TOOLS_NCCL_XML_H
#define COLL_TOOLS_NCCL_XML_H

#include "topology/graph.h"

/* NULL with "FILE:LINE: ..." in why. free() the graph. */
struct coll_graph *coll_graph_nccl_file(const char *path, char *why, size_t why_bytes);

/* The same, of a text with a zero at its end, which is changed. */
struct coll_graph *coll_graph_nccl_text(const char *name, char *text, size_t len_bytes, char *why, size_t why_bytes);

#endif
