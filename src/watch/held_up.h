/*
 * What holds this process up, for ranks of other hosts that are asked who holds the job up (inspect/job_state.h).
 */
#ifndef COLL_WATCH_HELD_UP_H
#define COLL_WATCH_HELD_UP_H

#include "context/context.h"
#include "control/mismatch_msg.h"

/* Answer COLL_ABOUT_JOB and COLL_ABOUT_SLOW (see mismatch_msg.h) here, every other question by coll_mismatch_answer().
 * Any thread. */
bool coll_held_up_answer(void *ctx, int process, const struct coll_mismatch_msg *q, struct coll_answer *a);

#endif
