/*
 * Two ranks, long messages in plain memory.
 */
#ifndef COLL_INTRA_PAIR_STREAM_H
#define COLL_INTRA_PAIR_STREAM_H

#include "intra/enter.h"

bool coll_intra_pair_stream_serves(const struct coll_intra *n, const struct coll_job *job);
coll_status coll_intra_poll_pair_stream(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s);

#endif
