/*
 * Operations by way of the central buffer: what each rank writes to its cell in an epoch, and what it takes from
 * the cells of others when the epoch is done. A call is cut in pieces that fill a cell, one epoch each.
 */
#include "intra/central_move.h"

#include "intra/central.h"
#include "intra/central_epoch.h"
#include "intra/shape.h"
#include "reduce/copy.h"

enum { LINK_EVERY = 64 }; /* polls: where ranks share a core there is a turn of all between two of them */

/* Whose epochs it waits for. */
enum waits_for { NOBODY, EVERYBODY, THE_ROOT };

static enum coll_kind kind_of(const struct coll_job *job)
{
	return job->plan->kind;
}

static bool is_root(const struct coll_intra *n, const struct coll_job *job)
{
	return job->plan->root == n->rank;
}

static bool sends(const struct coll_intra *n, const struct coll_job *job)
{
	return is_root(n, job) && (kind_of(job) == COLL_KIND_BROADCAST || kind_of(job) == COLL_KIND_SCATTER);
}

static bool writes(const struct coll_intra *n, const struct coll_job *job)
{
	switch (kind_of(job)) {
	case COLL_KIND_BARRIER: return false;
	case COLL_KIND_BROADCAST:
	case COLL_KIND_SCATTER: return is_root(n, job);
	default: return true;
	}
}

static enum waits_for waits_for(const struct coll_intra *n, const struct coll_job *job)
{
	switch (kind_of(job)) {
	case COLL_KIND_BROADCAST:
	case COLL_KIND_SCATTER: return is_root(n, job) ? NOBODY : THE_ROOT;
	case COLL_KIND_REDUCE:
	case COLL_KIND_GATHER: return is_root(n, job) ? EVERYBODY : NOBODY;
	default: return EVERYBODY;
	}
}

/* How much of a block goes in an epoch: agreed. Whole lines, if that many fit. */
static size_t turn_bytes(const struct coll_intra *n, const struct coll_job *job)
{
	const size_t each = n->central.cell_bytes / (size_t)n->size;

	if (!coll_intra_scatters(job))
		return n->central.cell_bytes;
	return each & ~(size_t)((each < COLL_LINE_BYTES ? COLL_CENTRAL_BLOCK_MIN : COLL_LINE_BYTES) - 1);
}

/* A piece of the call. */
struct piece {
	uint32_t epoch;
	size_t at, bytes; /* of each block */
	bool is_short;    /* in lines */
};

static struct piece piece_at(const struct coll_job *job, const struct coll_intra_state *s, uint32_t i)
{
	const size_t bytes = coll_intra_block_bytes(job), at = i * s->piece;

	return (struct piece){.epoch = s->epoch + i,
	                      .at = at,
	                      .bytes = bytes - at < s->piece ? bytes - at : s->piece,
	                      .is_short = bytes <= COLL_FIRST_PAYLOAD && !coll_intra_scatters(job)};
}

/* ---- To our cell ---- */

static void copy_in(struct coll_intra *n, const struct coll_job *job, const struct piece *p)
{
	const size_t block = coll_intra_block_bytes(job);

	if (p->is_short) {
		coll_intra_copy_part(coll_central_round(n, p->epoch)->lines[n->rank].payload, job->in.base, p->bytes);
		return;
	}
	if (!coll_intra_scatters(job)) {
		coll_reduce_copy(coll_central_cell(n, p->epoch, (uint32_t)n->rank), job->in.base + p->at, p->bytes);
		return;
	}
	for (int r = 0; r < n->size; r++)
		if (r != n->rank)
			coll_reduce_copy(coll_central_cell(n, p->epoch, (uint32_t)n->rank) +
			                         (size_t)r * turn_bytes(n, job),
			                 job->in.base + (size_t)r * block + p->at, p->bytes);
}

static void enter(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const struct piece p = piece_at(job, s, s->next);
	const struct central_part part = {.count = p.bytes / job->elem_bytes,
	                                  .reduces = kind_of(job) == COLL_KIND_ALL_REDUCE ||
	                                             kind_of(job) == COLL_KIND_REDUCE,
	                                  .is_short = p.is_short};

	if (writes(n, job))
		copy_in(n, job, &p);
	if (!coll_central_arrive(n, job, p.epoch, &part) && sends(n, job))
		coll_central_nudge(n);
	s->next++;
	s->events++;
}

/* ---- From the cells of others ---- */

/* Where a piece of ours lies that rank r has written. */
static const char *from(const struct coll_intra *n, const struct coll_job *job, const struct piece *p, int r)
{
	if (p->is_short)
		return coll_central_round(n, p->epoch)->lines[r].payload;
	return coll_central_cell(n, p->epoch, (uint32_t)r) +
	       (coll_intra_scatters(job) ? (size_t)n->rank * turn_bytes(n, job) : 0);
}

static void copy_out(char *to, const char *at, const struct piece *p)
{
	if (to == at)
		return;
	if (p->is_short)
		coll_intra_copy_part(to, at, p->bytes);
	else
		coll_reduce_copy(to, at, p->bytes);
}

static void take_result(const struct coll_intra *n, const struct coll_job *job, const struct piece *p)
{
	const char *result = coll_central_cell(n, p->epoch, (uint32_t)n->size + coll_central_groups(n->size));

	copy_out(job->out.base + p->at, p->is_short ? coll_central_round(n, p->epoch)->done.payload : result, p);
}

/* This rank's own block is in its own memory. */
static const char *own(const struct coll_intra *n, const struct coll_job *job, const struct piece *p)
{
	return job->in.base + coll_intra_block_for(job, n->rank) + p->at;
}

static void take_blocks(const struct coll_intra *n, const struct coll_job *job, const struct piece *p)
{
	for (int r = 0; r < n->size; r++)
		copy_out(job->out.base + (size_t)r * coll_intra_block_bytes(job) + p->at,
		         r == n->rank ? own(n, job, p) : from(n, job, p, r), p);
}

static void take_sum(const struct coll_intra *n, const struct coll_job *job, const struct piece *p)
{
	const void *src[COLL_CENTRAL_SIZE_MAX];

	for (int r = 0; r < n->size; r++)
		src[r] = r == n->rank ? own(n, job, p) : from(n, job, p, r);
	coll_reduce_run(job->reduction, job->out.base + p->at, src, n->size, -1, true, p->bytes / job->elem_bytes);
}

static void take(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const struct piece p = piece_at(job, s, s->done);
	const int root = job->plan->root;

	switch (kind_of(job)) {
	case COLL_KIND_ALL_REDUCE: take_result(n, job, &p); break;
	case COLL_KIND_REDUCE:
		if (root == n->rank)
			take_result(n, job, &p);
		break;
	case COLL_KIND_GATHER:
		if (root == n->rank)
			take_blocks(n, job, &p);
		break;
	case COLL_KIND_ALL_GATHER:
	case COLL_KIND_ALL_TO_ALL: take_blocks(n, job, &p); break;
	case COLL_KIND_REDUCE_SCATTER: take_sum(n, job, &p); break;
	case COLL_KIND_BROADCAST:
	case COLL_KIND_SCATTER:
		copy_out(job->out.base + p.at, root == n->rank ? own(n, job, &p) : from(n, job, &p, root), &p);
		break;
	default: break;
	}
	s->done++;
	s->events++;
}

/* ---- A call ---- */

static bool is_rooted(enum coll_kind kind)
{
	return kind == COLL_KIND_BROADCAST || kind == COLL_KIND_SCATTER || kind == COLL_KIND_REDUCE ||
	       kind == COLL_KIND_GATHER;
}

static void begin(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	if (is_rooted(kind_of(job)))
		coll_central_root(n, job->plan->root);
	s->piece = turn_bytes(n, job);
	s->pieces = coll_intra_block_bytes(job) <= s->piece
	                    ? 1
	                    : (uint32_t)((coll_intra_block_bytes(job) - 1) / s->piece + 1);
	s->epoch = (uint32_t)n->epoch + 1;
	n->epoch += s->pieces;
	s->committed = true;
	s->phase = INTRA_BEGUN;
	s->events++;
}

/* The piece to be taken next. */
static coll_status ready(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const uint32_t epoch = s->epoch + s->done;

	switch (waits_for(n, job)) {
	case EVERYBODY: return coll_central_done(n, job, s, epoch);
	case THE_ROOT: return coll_central_sent(n, job, s, epoch, (uint32_t)job->plan->root);
	default: return COLL_OK;
	}
}

/* Whom it waits for: of the piece to be taken, else of an epoch before. */
static uint32_t late(const struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s)
{
	if (s->done == s->next)
		return coll_central_late(n, s->epoch + s->next - COLL_CENTRAL_AHEAD);
	return waits_for(n, job) == THE_ROOT ? (uint32_t)job->plan->root : coll_central_late(n, s->epoch + s->done);
}

static coll_status idle(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const struct intra_peer *p;
	coll_status st;

	if (++s->idle % LINK_EVERY)
		return COLL_AGAIN;
	s->pending = s->phase == INTRA_BEGUN ? late(n, job, s) : s->pending;
	p = &n->peers[s->pending];
	st = p->link ? p->transport->link_status(p->link) : COLL_AGAIN;
	return st == COLL_OK ? COLL_AGAIN : st;
}

coll_status coll_intra_poll_central(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_intra *n = arg;
	coll_status st;

	if (s->phase == INTRA_NEW) {
		s->way = COLL_WAY_CENTRAL;
		st = coll_central_form(n, &s->pending);
		if (st != COLL_OK)
			return st == COLL_AGAIN ? idle(n, job, s) : st;
		begin(n, job, s);
	}
	while (s->done < s->pieces) {
		/* In place: a piece is overwritten when it is taken, and it was copied before. */
		while (s->next < s->pieces && s->next - s->done < COLL_CENTRAL_AHEAD &&
		       coll_central_may_enter(n, s->epoch + s->next) == COLL_OK)
			enter(n, job, s);
		st = s->done < s->next ? ready(n, job, s) : COLL_AGAIN;
		if (st != COLL_OK)
			return st == COLL_AGAIN ? idle(n, job, s) : st;
		take(n, job, s);
	}
	return COLL_OK;
}

void coll_intra_position_central(void *arg, const struct coll_job *job, const struct coll_intra_state *s,
                                 struct coll_run_where *where)
{
	const bool waits = s->phase == INTRA_BEGUN && s->bad_frame.signature == 0 && s->bad_frame.sequence == 0;

	where->peer = (int)(waits ? late(arg, job, s) : s->pending);
	where->frame = s->bad_frame;
}
