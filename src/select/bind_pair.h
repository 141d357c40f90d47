/*
 * Binding a send or a receive.
 */
#ifndef COLL_SELECT_BIND_PAIR_H
#define COLL_SELECT_BIND_PAIR_H

#include "core/comm.h"

/* The plan of one half (0: send), pinned; its job but for the sequence number. */
coll_status coll_pair_plan(struct coll_comm *comm, int half, int peer, const struct coll_plan **plan);
/* The same plan from another cache, for who may not use the communicator's. Refuses nothing. */
coll_status coll_pair_plan_from(struct coll_comm *comm, struct coll_plan_cache *plans, int half, int peer,
                                const struct coll_plan **plan);
void coll_pair_job(const struct coll_comm *comm, const struct coll_pair *pair, int half, const struct coll_plan *plan,
                   struct coll_job *job);
void coll_pair_record(const struct coll_comm *comm, const struct coll_pair *pair, struct coll_record *record);

#endif
