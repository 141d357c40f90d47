/*
 * Payload in cells.
 */
#ifndef COLL_INTRA_EAGER_CHUNK_H
#define COLL_INTRA_EAGER_CHUNK_H

#include "base/limits.h"
#include "intra/enter.h"

/* The shortest piece; each: where every rank has a core. A rank that finds no piece yields its core, and a yield costs
 * more than 16 KiB take to copy. */
static inline size_t coll_intra_chunk_piece_min(const struct coll_intra *n, size_t each)
{
	return n->fabric.shared_cores ? COLL_EAGER_SHARED_PIECE_MIN : each;
}

/* eager_chunk.c: an epoch, and the cell that goes with it. */
coll_status coll_intra_enter_cell(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s);

/* Piece of our cell: copied and told. */
void coll_intra_fill(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s, uint32_t piece,
                     size_t at, const char *from, size_t bytes);
coll_status coll_intra_poll_eager_chunk_reduce(void *arg, const struct coll_job *job, struct coll_intra_state *s);

#endif
