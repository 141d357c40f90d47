/*
 * Blocks in plain memory: by slots, or read by the kernel; private to src/native.
 */
#ifndef COLL_NATIVE_PULL_H
#define COLL_NATIVE_PULL_H

#include "intra/enter.h"

/* Phases behind NATIVE_TILES: of pair_stream.c and cico.c, and of cma.c from NATIVE_PULL_NEW on. */
enum { NATIVE_SLOTS_NEW = NATIVE_TILES + 1, NATIVE_PULL_NEW };

/* Whether such a call has several ways: n->pull.way says then how it goes. */
bool coll_native_pull_serves(const struct coll_native *n, const struct coll_job *job);
/* In all phases but NATIVE_TILES, and of all calls. It may come to NATIVE_SLOTS_NEW, on all ranks, whatever it
 * says. */
coll_status coll_native_poll_pull(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s);
/* A call by slots has ended well. */
void coll_native_pull_ended(struct coll_native *n, const struct coll_job *job);

#endif
