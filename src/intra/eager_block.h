/*
 * Payload in lines and in chunks: the collectives of blocks, and all_reduce by eager_line.c and eager_chunk.c.
 */
#ifndef COLL_INTRA_EAGER_BLOCK_H
#define COLL_INTRA_EAGER_BLOCK_H

#include "intra/enter.h"

coll_status coll_intra_poll_eager_lines(void *arg, const struct coll_job *job, struct coll_intra_state *s);
coll_status coll_intra_poll_eager_chunk(void *arg, const struct coll_job *job, struct coll_intra_state *s);

#endif
