/*
 * NICs and GPUs among hwloc's objects. Internal to graph_hwloc.h; needs hwloc.
 */
#ifndef COLL_TOPOLOGY_HWLOC_DEVICES_H
#define COLL_TOPOLOGY_HWLOC_DEVICES_H

#include "topology/hwloc_reader.h"

/* Cores have their places: add what devices there are. */
void coll_hwloc_add_devices(struct coll_hwloc_reader *r);

#endif
