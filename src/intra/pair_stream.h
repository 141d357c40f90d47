/*
 * Two ranks, long messages in plain memory.
 */
#ifndef COLL_INTRA_PAIR_STREAM_H
#define COLL_INTRA_PAIR_STREAM_H

#include "intra/enter.h"

coll_status coll_intra_poll_pair_stream(void *arg, const struct coll_job *job, struct coll_intra_state *s);

#endif
