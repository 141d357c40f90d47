/*
 * New communicators from an existing one.
 */
#ifndef COLL_COMM_SPLIT_H
#define COLL_COMM_SPLIT_H

#include "core/comm.h"

/* The arguments have passed the checks of api/. */
coll_status coll_comm_split_by_colour(struct coll_comm *parent, int colour, int key, struct coll_comm **child);
coll_status coll_comm_split_duplicate(struct coll_comm *parent, struct coll_comm **child);
coll_status coll_comm_split_from_ranks(struct coll_comm *parent, const int *ranks, int n, struct coll_comm **child);

#endif
