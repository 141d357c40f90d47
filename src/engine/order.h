/*
 * The operation before.
 */
#ifndef COLL_ENGINE_ORDER_H
#define COLL_ENGINE_ORDER_H

#include "engine/engine.h"

/*
 * Between a start or restart and the first poll: this operation comes after another
 * one of the same fabric that may still run (what job.after does; NULL: nothing). The
 * two may be of different plans, lanes and windows, they have scratch of their own,
 * and one thread polls both, in any order.
 *
 *  - Lane l of window w does not begin before `after` has left it (coll_run_left()):
 *    so every channel carries the frames of `after` first.
 *  - This run retires only when `after` has retired: operations end in order.
 *  - When `after` ends with an error, or is cancelled, this run ends with the same
 *    status at its next poll, and touches no channel in that poll.
 *
 * `after` may be started again once it has retired, but lives until this run has
 * ended.
 */
void coll_run_follow(struct coll_run *run, const struct coll_run *after);

/* Whether a run, and all that it follows, will touch the channels of a lane and window
 * no more: every tile there has posted and received all its frames. Sends by reference
 * may still be read. */
bool coll_run_left(const struct coll_run *run, uint32_t lane, uint32_t window);

#endif
