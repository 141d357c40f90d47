/*
 * Send and receive between pairs.
 */
#ifndef COLL_CALL_PAIR_H
#define COLL_CALL_PAIR_H

#include "core/comm.h"

coll_status coll_comm_pair(struct coll_comm *comm, const struct coll_pair *pair);

/* The plan of one half (0: send), pinned; its job but for the sequence number. */
coll_status coll_pair_plan(struct coll_comm *comm, int half, int peer, const struct coll_plan **plan);
void coll_pair_job(const struct coll_comm *comm, const struct coll_pair *pair, int half, const struct coll_plan *plan,
                   struct coll_job *job);
void coll_pair_record(const struct coll_comm *comm, const struct coll_pair *pair, struct coll_record *record);

#endif
