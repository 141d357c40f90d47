/*
 * The shape of a call: what follows from its job and nothing else; private to src/intra.
 */
#ifndef COLL_INTRA_SHAPE_H
#define COLL_INTRA_SHAPE_H

#include "engine/engine.h"
#include "intra/region.h"

/* Kinds whose input has a block for each rank: of every rank, or of the root. */
static inline bool coll_intra_scatters(const struct coll_job *job)
{
	const enum coll_kind kind = job->plan->kind;

	return kind == COLL_KIND_ALL_TO_ALL || kind == COLL_KIND_REDUCE_SCATTER || kind == COLL_KIND_SCATTER;
}

/* Of the vector, or of a block. */
static inline size_t coll_intra_block_bytes(const struct coll_job *job)
{
	return job->in.count * job->elem_bytes;
}

/* Where the block of a rank's input lies that goes to `reader`. */
static inline size_t coll_intra_block_for(const struct coll_job *job, int reader)
{
	return coll_intra_scatters(job) ? (size_t)reader * coll_intra_block_bytes(job) : 0;
}

/* So many pieces or fewer: whole lines, so that no two of them share one, and none shorter than `least`. */
static inline size_t coll_intra_piece_bytes(size_t bytes, size_t pieces, size_t least)
{
	const size_t piece = (bytes + pieces - 1) / pieces;

	return piece < least ? least : (piece + COLL_LINE_BYTES - 1) & ~(size_t)(COLL_LINE_BYTES - 1);
}

/* Memory that one rank's caller gives to the call. in_place: input and result overlap. */
static inline size_t coll_intra_touched_bytes(const struct coll_job *job, bool in_place)
{
	const enum coll_kind kind = job->plan->kind;
	const size_t block = coll_intra_block_bytes(job), all = block * (size_t)job->plan->size;
	const size_t out = kind == COLL_KIND_ALL_GATHER || kind == COLL_KIND_ALL_TO_ALL ? all : block;
	const size_t in = kind == COLL_KIND_BROADCAST ? 0 : coll_intra_scatters(job) ? all : block;

	if (in_place)
		return in > out ? in : out;
	return out + in;
}

#endif
