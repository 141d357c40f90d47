/*
 * The collectives of blocks: what each rank writes, who reads which part of it, and what
 * becomes of that. Blocks of all_to_all and reduce_scatter lie one behind the other, as in the
 * caller's memory; a rank's own is not written to a cell.
 */
#include "intra/eager_block.h"

#include "intra/eager_chunk.h"
#include "intra/eager_line.h"
#include "intra/enter.h"
#include "intra/shape.h"
#include "reduce/copy.h"

enum { PIECES = 8 };

static bool reduces(const struct coll_job *job)
{
	return job->plan->kind == COLL_KIND_REDUCE_SCATTER;
}

/* Blocks that a rank's payload has. */
static uint32_t blocks(const struct coll_intra *n, const struct coll_job *job)
{
	return coll_intra_scatters(job) ? (uint32_t)n->size : 1;
}

/* The block of ours that stays here. */
static const char *own_block(const struct coll_intra *n, const struct coll_job *job)
{
	return job->in.base + coll_intra_block_for(job, n->rank);
}

/* Where a block from rank r goes, of kinds that do not reduce. */
static char *destination(const struct coll_job *job, int r)
{
	return job->out.base + (size_t)r * coll_intra_block_bytes(job);
}

/* What comes from ourselves; before anything of others does, since they may be in place. */
static void copy_own(const struct coll_intra *n, const struct coll_job *job)
{
	if (!reduces(job))
		coll_reduce_copy(destination(job, n->rank), own_block(n, job), coll_intra_block_bytes(job));
}

/* Part of our block, reduced with the same of all others; theirs[r] is where it lies. */
static void reduce_part(const struct coll_intra *n, const struct coll_job *job, const char *const *theirs, size_t at,
                        size_t bytes)
{
	const void *src[COLL_INTRA_SIZE_MAX];

	for (int r = 0; r < n->size; r++)
		src[r] = r == n->rank ? own_block(n, job) + at : theirs[r] + at;
	coll_reduce_run(job->reduction, job->out.base + at, src, n->size, -1, true, bytes / job->elem_bytes);
}

/* ---- In lines ---- */

/*
 * All_gather: the block lies in the entry as a vector does. The others: one block for each other rank,
 * in lines of its own and in the order of ranks, so that a reader looks at its own lines only.
 */
static uint32_t first_line(const struct coll_job *job, uint32_t writer, uint32_t reader)
{
	return coll_intra_scatters(job) ? (reader - (reader > writer)) * coll_intra_lines(coll_intra_block_bytes(job))
	                                : 0;
}

static void pack_all(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const size_t bytes = coll_intra_block_bytes(job);

	if (!coll_intra_scatters(job))
		coll_intra_pack(n, job, s, 0, job->in.base, bytes);
	for (uint32_t r = 0; coll_intra_scatters(job) && r < (uint32_t)n->size; r++)
		if (r != (uint32_t)n->rank)
			coll_intra_pack(n, job, s, first_line(job, (uint32_t)n->rank, r), job->in.base + r * bytes,
			                bytes);
	coll_intra_nudge(n);
}

static coll_status poll_lines(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	const char *theirs[COLL_INTRA_SIZE_MAX];
	struct coll_intra *n = arg;
	const size_t bytes = coll_intra_block_bytes(job);
	coll_status st;

	if (s->phase == INTRA_NEW) {
		s->way = COLL_WAY_EAGER_LINES;
		st = coll_intra_enter(n, s);
		if (unlikely(st != COLL_OK))
			return coll_intra_not_yet(n, s, st);
		pack_all(n, job, s);
		copy_own(n, job);
	}
	for (; s->done < (uint32_t)n->size; s->done++) {
		char *to = reduces(job) ? n->unpacked + s->done * COLL_ENTRY_PAYLOAD : destination(job, (int)s->done);

		if ((int)s->done == n->rank)
			continue;
		st = coll_intra_unpack(n, job, s, s->done, first_line(job, s->done, (uint32_t)n->rank), to, bytes);
		if (st != COLL_OK)
			return coll_intra_not_yet(n, s, st);
	}
	for (int r = 0; reduces(job) && r < n->size; r++)
		theirs[r] = n->unpacked + r * COLL_ENTRY_PAYLOAD;
	if (reduces(job))
		reduce_part(n, job, theirs, 0, bytes);
	coll_intra_entered_all(n, s);
	return COLL_OK;
}

coll_status coll_intra_poll_eager_lines(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	return job->plan->kind == COLL_KIND_ALL_REDUCE ? coll_intra_poll_eager_lines_reduce(arg, job, s)
	                                               : poll_lines(arg, job, s);
}

/* ---- In cells ---- */

/* How a block is cut: agreed, of its length, the number of ranks and whether they share cores. */
static size_t part_bytes(const struct coll_intra *n, const struct coll_job *job)
{
	const uint32_t room = COLL_PIECES_MAX / blocks(n, job), most = room < PIECES ? room : PIECES;
	const size_t least = coll_intra_chunk_piece_min(n, COLL_EAGER_BLOCK_PIECE_MIN);

	return coll_intra_piece_bytes(coll_intra_block_bytes(job), most, least);
}

static size_t part_of(const struct coll_job *job, size_t piece, uint32_t i)
{
	const size_t left = coll_intra_block_bytes(job) - i * piece;

	return left < piece ? left : piece;
}

/* Our blocks, those first whose readers come first: of the ranks behind us. */
static void fill_next(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, size_t piece,
                      uint32_t pieces)
{
	const uint32_t i = s->next % pieces;
	const uint32_t block =
	        coll_intra_scatters(job) ? ((uint32_t)n->rank + 1 + s->next / pieces) % (uint32_t)n->size : 0;
	const size_t at = block * coll_intra_block_bytes(job) + i * piece;

	coll_intra_fill(n, job, s, block * pieces + i, at, job->in.base + at, part_of(job, piece, i));
	s->next++;
	s->events++;
}

/* Take unit s->done: of kinds that reduce a piece of all, else a piece of one. */
static coll_status take_next(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, size_t piece,
                             uint32_t pieces)
{
	const char *theirs[COLL_INTRA_SIZE_MAX];
	const uint32_t i = s->done % pieces, flag = (coll_intra_scatters(job) ? (uint32_t)n->rank * pieces : 0) + i;
	const size_t bytes = part_of(job, piece, i), at = i * piece;
	const size_t block = coll_intra_block_for(job, n->rank);
	const int from = (n->rank + 1 + (int)(s->done / pieces)) % n->size;
	const bool all = reduces(job);
	coll_status st;

	for (int r = all ? 0 : from; r < (all ? n->size : from + 1); r++) {
		theirs[r] = r == n->rank ? NULL : coll_intra_cell(n, n->peers[r].region, s->cell) + block;
		if (r == n->rank)
			continue;
		st = coll_intra_filled(n, job, s, (uint32_t)r, flag);
		if (st != COLL_OK)
			return st;
	}
	if (all)
		reduce_part(n, job, theirs, at, bytes);
	else
		memcpy(destination(job, from) + at, theirs[from] + at, bytes);
	s->done++;
	s->events++;
	return COLL_OK;
}

static coll_status poll_chunks(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_intra *n = arg;
	const size_t piece = part_bytes(n, job);
	const uint32_t pieces = (uint32_t)((coll_intra_block_bytes(job) - 1) / piece + 1);
	const uint32_t fills = coll_intra_scatters(job) ? pieces * (uint32_t)(n->size - 1) : pieces;
	const uint32_t takes = reduces(job) ? pieces : pieces * (uint32_t)(n->size - 1);
	coll_status st = s->phase == INTRA_NEW ? coll_intra_enter_cell(n, job, s) : COLL_OK;

	if (st != COLL_OK)
		return coll_intra_not_yet(n, s, st);
	if (s->next == 0)
		copy_own(n, job);
	/* All is written before anything is taken: they may be in place. */
	while (s->next < fills)
		fill_next(n, job, s, piece, pieces);
	while (s->done < takes) {
		st = take_next(n, job, s, piece, pieces);
		if (st != COLL_OK)
			return coll_intra_not_yet(n, s, st);
	}
	coll_intra_entered_all(n, s);
	return COLL_OK;
}

coll_status coll_intra_poll_eager_chunk(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	return job->plan->kind == COLL_KIND_ALL_REDUCE ? coll_intra_poll_eager_chunk_reduce(arg, job, s)
	                                               : poll_chunks(arg, job, s);
}
