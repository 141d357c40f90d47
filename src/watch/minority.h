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

/* The sender of a frame of another call makes the same call as this rank: it may have passed on what a rank sent that
 * does not. *other: that rank, whose call the text has, -1: nobody says so; *culprit: who differs from most. False: not
 * known yet. */
bool coll_minority_behind(struct coll_comm *comm, const struct coll_mismatch_msg *q, int sender, uint64_t now,
                          int *other, int *culprit, char text[400]);

#endif
