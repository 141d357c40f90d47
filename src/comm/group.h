/*
 * Groups: communicators that their members make alone.
 */
#ifndef COLL_COMM_GROUP_H
#define COLL_COMM_GROUP_H

#include "core/comm.h"

/* parent is usable, and child is not NULL. */
coll_status coll_comm_group_create(struct coll_comm *parent, const int *ranks, int n, uint64_t tag,
                                   struct coll_comm **child);

/* This rank refuses the call with st. If it does so because parent has failed, the other members, which may wait for
 * this rank, get the reason. */
void coll_comm_group_decline(const struct coll_comm *parent, const int *ranks, int n, uint64_t tag, coll_status st);

#endif
