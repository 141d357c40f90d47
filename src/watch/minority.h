/*
 * Of two ranks whose collective calls differ, the one to be named: that which the other ranks do not agree with.
 */
#ifndef COLL_WATCH_MINORITY_H
#define COLL_WATCH_MINORITY_H

#include "control/mismatch_msg.h"
#include "core/comm.h"

/* q has shown that rank peer makes another call than this rank. False: look again, others are being asked; true:
 * *culprit is one of the two, peer if nobody can tell. */
bool coll_minority_find(struct coll_comm *comm, const struct coll_mismatch_msg *q, int peer, uint64_t now,
                        int *culprit);

#endif
