/*
 * Fabric.
 */
#ifndef COLL_CORE_FABRIC_H
#define COLL_CORE_FABRIC_H

#include "core/comm.h"

coll_status coll_comm_fabric_init(struct coll_comm *comm, struct coll_comm_fabric *f, uint16_t lane_base);
void coll_comm_fabric_close(struct coll_comm_fabric *f);

/* The rank whose link is broken: likely, if its link is broken or if none is. */
int coll_comm_broken(struct coll_comm *comm, int likely);
enum coll_link_end coll_comm_link_end(struct coll_comm *comm, int rank);

#endif
