/*
 * Two ranks, blocks in plain memory: by slots, or read by the kernel; private to src/native.
 */
#ifndef COLL_NATIVE_PULL_H
#define COLL_NATIVE_PULL_H

#include "native/enter.h"

/* Phases behind NATIVE_TILES: of shuttle.c, and of pull.c from NATIVE_PULL_NEW on. */
enum { NATIVE_SLOTS_NEW = NATIVE_TILES + 1, NATIVE_PULL_NEW };

/* This rank and the other have entered the turn, or do: the phase to go on with. */
void coll_native_pull_choose(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s);
/* From NATIVE_PULL_NEW on. It may come to NATIVE_SLOTS_NEW, on both ranks. */
coll_status coll_native_poll_pull(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s);
/* The call has ended well. */
void coll_native_pull_ended(struct coll_native *n, const struct coll_job *job);

#endif
