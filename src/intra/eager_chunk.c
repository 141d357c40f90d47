/*
 * Payload in cells: every rank copies its own vector, piece by piece, and reads the
 * others' where it lies, in one pass over all of them. Two cells in turn, so no operation
 * ends with waiting for readers.
 */
#include "intra/eager_chunk.h"

#include "intra/enter.h"
#include "intra/shape.h"

enum { PIECES = 8, AHEAD = 2 };

/* Agreed: of the length, and of whether ranks share cores. */
static size_t piece_elements(const struct coll_intra *n, size_t count, size_t elem_bytes)
{
	const size_t least = coll_intra_chunk_piece_min(n, COLL_EAGER_PIECE_MIN);

	return coll_intra_piece_bytes(count * elem_bytes, PIECES, least) / elem_bytes;
}

coll_status coll_intra_enter_cell(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const uint32_t cell = (uint32_t)(n->cells % COLL_CELLS);
	coll_status st;

	s->way = COLL_WAY_EAGER_CHUNK;
	/* Longer ago, and the epoch of an entry says as much. */
	if (n->cells >= COLL_CELLS && n->epoch - n->cell_turn[cell] < COLL_DEPTH) {
		st = coll_intra_entered(n, (uint32_t)n->cell_turn[cell] + 1, &s->pending);
		if (st != COLL_OK)
			return st;
	}
	st = coll_intra_enter(n, s);
	if (st != COLL_OK)
		return st;
	n->cell_turn[cell] = n->epoch;
	n->cells++;
	s->cell = cell;
	coll_intra_publish(n, job, s);
	return COLL_OK;
}

void coll_intra_fill(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s, uint32_t piece,
                     size_t at, const char *from, size_t bytes)
{
	memcpy(coll_intra_cell(n, n->mine, s->cell) + at, from, bytes);
	coll_intra_flag(job, s, &n->mine->flags[s->cell].pieces[piece]);
	coll_intra_nudge(n);
}

/* Copy the next piece of our own. */
static void copy_piece(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, size_t piece)
{
	const size_t first = s->next * piece, left = job->in.count - first, at = first * job->elem_bytes;

	coll_intra_fill(n, job, s, s->next, at, job->in.base + at, (left < piece ? left : piece) * job->elem_bytes);
	s->next++;
	s->events++;
}

/* Whether piece s->done of everybody is there. */
static coll_status await_piece(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	for (uint32_t r = 0; r < (uint32_t)n->size; r++) {
		const coll_status st = r == (uint32_t)n->rank ? COLL_OK : coll_intra_filled(n, job, s, r, s->done);

		if (st != COLL_OK)
			return st;
	}
	return COLL_OK;
}

static void reduce_piece(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, size_t piece)
{
	const void *src[COLL_INTRA_SIZE_MAX];
	const size_t first = s->done * piece, left = job->in.count - first, at = first * job->elem_bytes;

	for (int r = 0; r < n->size; r++)
		src[r] = r == n->rank ? job->in.base + at : coll_intra_cell(n, n->peers[r].region, s->cell) + at;
	coll_reduce_run(job->reduction, job->out.base + at, src, n->size, -1, true, left < piece ? left : piece);
	s->done++;
	s->events++;
}

static coll_status begin(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const coll_status st = coll_intra_enter_cell(n, job, s);

	if (st != COLL_OK)
		return st;
	s->piece = piece_elements(n, job->in.count, job->elem_bytes);
	s->pieces = job->in.count <= s->piece ? 1 : (uint32_t)((job->in.count - 1) / s->piece + 1);
	return COLL_OK;
}

coll_status coll_intra_poll_eager_chunk_reduce(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_intra *n = arg;
	coll_status st = s->phase == INTRA_NEW ? begin(n, job, s) : COLL_OK;
	size_t piece;
	uint32_t pieces;

	if (st != COLL_OK)
		return coll_intra_not_yet(n, s, st);
	piece = s->piece;
	pieces = s->pieces;
	while (s->done < pieces) {
		/* In place, a piece is overwritten when it is reduced: it was copied before. */
		if (s->next == s->done || (s->next < pieces && s->next < s->done + AHEAD)) {
			copy_piece(n, job, s, piece);
			continue;
		}
		st = await_piece(n, job, s);
		if (st == COLL_OK)
			reduce_piece(n, job, s, piece);
		else if (st == COLL_AGAIN && s->next < pieces)
			copy_piece(n, job, s, piece);
		else
			return coll_intra_not_yet(n, s, st);
	}
	n->all = s->epoch;
	return COLL_OK;
}
