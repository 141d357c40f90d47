/*
 * New communicators from an old one.
 */
#ifndef COLL_COMM_SPLIT_H
#define COLL_COMM_SPLIT_H

#include "core/comm.h"

/* After the argument checks of api/. */
coll_status coll_comm_born_by_split(struct coll_comm *parent, int salt, int key, struct coll_comm **child);
coll_status coll_comm_born_as_duplicate(struct coll_comm *parent, struct coll_comm **child);
coll_status coll_comm_born_from_ranks(struct coll_comm *parent, const int *ranks, int n, struct coll_comm **child);

#endif
