/*
 * Payload in cells.
 */
#ifndef COLL_INTRA_EAGER_CHUNK_H
#define COLL_INTRA_EAGER_CHUNK_H

#include "intra/enter.h"

/* eager_chunk.c: a turn, and the cell that goes with it. */
coll_status coll_intra_enter_cell(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s);

/* Piece of our cell: copied and told. */
void coll_intra_fill(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s, uint32_t piece,
                     size_t at, const char *from, size_t bytes);
coll_status coll_intra_poll_eager_chunk_reduce(void *arg, const struct coll_job *job, struct coll_intra_state *s);

#endif
