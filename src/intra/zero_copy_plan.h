/*
 * What a rank moves when all buffers are mapped.
 */
#ifndef COLL_INTRA_ZERO_COPY_PLAN_H
#define COLL_INTRA_ZERO_COPY_PLAN_H

#include "intra/zero_copy.h"

/* Bytes of such a buffer. */
size_t coll_intra_reach_bytes(const struct coll_job *job, int which);

/* The k-th pass of this rank; false: there are no more. */
bool coll_intra_pass(const struct coll_intra *n, const struct coll_job *job, uint32_t k, struct intra_pass *pass);

/* All passes of all ranks are done: what is left to do with our own result. */
void coll_intra_finish_edges(const struct coll_intra *n, const struct coll_job *job);

#endif
