/*
 * What the files that ask hwloc share while one machine is read. Internal to graph_hwloc.h; needs hwloc.
 */
#ifndef COLL_TOPOLOGY_HWLOC_READER_H
#define COLL_TOPOLOGY_HWLOC_READER_H

#include <hwloc.h>

#include "topology/graph.h"

struct coll_hwloc_reader {
	hwloc_topology_t t;
	struct coll_graph *g;
	int switches, roots, gpus; /* so far */
};

/* The number that it has; -1: none yet. */
static inline int coll_hwloc_numbered(const struct hwloc_obj *o)
{
	return (int)(intptr_t)o->userdata - 1;
}

/* A dense number for an object, in the order in which it is asked for; -1 for none. It is kept in the object's
 * userdata. */
static inline short coll_hwloc_number(hwloc_obj_t o, int *count)
{
	if (!o)
		return -1;
	if (!o->userdata)
		o->userdata = (void *)(intptr_t)(*count += 1);
	return (short)coll_hwloc_numbered(o);
}

#endif
