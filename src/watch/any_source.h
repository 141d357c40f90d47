/*
 * A wait for a message of any rank ends when no other rank can send one any more: all have died, left or destroyed the
 * communicator. While one can, there is a warning and no limit.
 */
#ifndef COLL_WATCH_ANY_SOURCE_H
#define COLL_WATCH_ANY_SOURCE_H

#include "watch/watchdog.h"

/* Whether a rank can send nothing more on the communicator: it has destroyed it or is about to, has left, or is dead.
 * Asks it, so that a later look knows. */
bool coll_rank_is_through(struct coll_comm *comm, const struct coll_record *mine, int rank);

/* As coll_comm_inspect(). */
coll_status coll_any_source_inspect(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                                    uint64_t now_ns);

#endif
