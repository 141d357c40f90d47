/*
 * Long messages of plain buffers among ranks of one host, by tiles: each rank copies what others need to an
 * area of its own, and takes what it needs from theirs.
 *
 * An all_reduce has three things to do with each tile:
 *
 *   stage    tile k      own input -> own area, but for the rank's own slice
 *   reduce   tile k - 1  slice r of all inputs -> own result, and own result area
 *   gather   tile k - 2  the other ranks' result areas -> own result
 *
 * which is step k. Where nothing is reduced (all_gather, all_to_all, broadcast: a tile is a strip of each block) it has
 * two:
 *
 *   stage    tile k      own blocks -> own result area
 *   gather   tile k - 1  the other ranks' result areas -> own result
 *
 * A step begins when every rank has made the one before: one wait for each tile. The areas of an even and an
 * odd tile are apart; those for results are counted on from operation to operation. So what a step reads was written
 * in the step before, and what it overwrites was read in the step before, or earlier: both are over on every rank.
 * Between operations: whoever ends one knows that all have made its last step but one. So nobody reads staged
 * inputs any more, nor any result area but the last one written, and the first step of the next operation
 * writes inputs, or the other result area. Its second one begins when all have made the first, and so have left the
 * operation before.
 *
 * Only their owner writes or reads the caller's buffers: a call may fail at any moment.
 *
 * Ordering: a step's bytes are written before `steps` is stored with release, and what is read
 * in a step comes before it, too; all of them are loaded with acquire.
 */
#include "intra/cico.h"

#include "intra/cma.h"
#include "intra/nt_stores.h"
#include "intra/shape.h"
#include "reduce/copy.h"
#include "reduce/spread.h"

enum { LINE = COLL_LINE_BYTES, STAGE = 0, RESULT = 2 };

static bool reduces(const struct coll_job *job)
{
	return job->plan->kind == COLL_KIND_ALL_REDUCE;
}

/* Of the vector, or of each block; whole lines. */
static size_t tile_bytes(const struct coll_job *job)
{
	switch (job->plan->kind) {
	case COLL_KIND_ALL_REDUCE: return COLL_TILE_BYTES;
	case COLL_KIND_ALL_TO_ALL: return COLL_TILE_BYTES / (size_t)job->plan->size & ~(size_t)(LINE - 1);
	default: return COLL_STRIP_BYTES;
	}
}

struct tile {
	size_t at, bytes;
	size_t first, end; /* our slice, from the tile's beginning */
};

/* Where rank r's slice of so many bytes begins. */
static size_t slice_at(size_t bytes, int size, int r)
{
	const size_t lines = (bytes + LINE - 1) / LINE, at = lines * (size_t)r / (size_t)size * LINE;

	return at < bytes ? at : bytes;
}

static struct tile tile_at(const struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s,
                           uint32_t k)
{
	const size_t all = coll_intra_block_bytes(job), at = k * s->piece;
	struct tile t = {.at = at, .bytes = all - at < s->piece ? all - at : s->piece};

	t.first = slice_at(t.bytes, n->size, n->rank);
	t.end = slice_at(t.bytes, n->size, n->rank + 1);
	return t;
}

/* Where results of tile k of a rank lie for others. */
static char *results(const struct coll_intra *n, const struct intra_region *region, const struct coll_intra_state *s,
                     uint32_t k)
{
	return coll_intra_cico_area(n, region, RESULT + (s->cell + k) % 2);
}

/* ---- All-reduce ---- */

static void stage(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s, uint32_t k)
{
	const struct tile t = tile_at(n, job, s, k);
	char *area = coll_intra_cico_area(n, n->mine, STAGE + k % 2);
	const char *in = job->in.base + t.at;

	coll_reduce_copy(area, in, t.first);
	coll_reduce_copy(area + t.end, in + t.end, t.bytes - t.end);
}

static void reduce(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s, uint32_t k)
{
	const struct tile t = tile_at(n, job, s, k);
	const char *src[COLL_INTRA_SIZE_MAX];
	char *dst[2] = {job->out.base + t.at + t.first, results(n, n->mine, s, k) + t.first};

	for (int r = 0; r < n->size; r++)
		src[r] = r == n->rank ? job->in.base + t.at + t.first
		                      : coll_intra_cico_area(n, n->peers[r].region, STAGE + k % 2) + t.first;
	coll_reduce_spread(job->reduction, dst, 2, src, n->size, false, t.end - t.first);
}

/* To the caller's memory. */
static void store(const struct coll_intra *n, char *to, const char *from, size_t bytes)
{
	if (n->nt.choice.stream)
		coll_reduce_stream(to, from, bytes);
	else
		coll_reduce_copy(to, from, bytes);
}

static void gather(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s, uint32_t k)
{
	const struct tile t = tile_at(n, job, s, k);
	const uint64_t since_ns = coll_intra_nt_since(n);

	for (int i = 1; i < n->size; i++) {
		const int r = (n->rank + i) % n->size;
		const size_t first = slice_at(t.bytes, n->size, r), end = slice_at(t.bytes, n->size, r + 1);
		const char *from = results(n, n->peers[r].region, s, k) + first;

		store(n, job->out.base + t.at + first, from, end - first);
	}
	if (n->nt.choice.stream)
		coll_reduce_fence();
	coll_intra_nt_until(n, since_ns);
}

/* ---- Blocks ---- */

/* A rank's area has a strip for each other rank, or the same for all. */
static size_t strip_at(const struct coll_job *job, const struct coll_intra_state *s, int reader)
{
	return job->plan->kind == COLL_KIND_ALL_TO_ALL ? (size_t)reader * s->piece : 0;
}

/* Where the block from a rank lies in the result. */
static size_t block_from(const struct coll_job *job, int r)
{
	return job->plan->kind == COLL_KIND_BROADCAST ? 0 : (size_t)r * coll_intra_block_bytes(job);
}

static bool has_blocks(const struct coll_job *job, int r)
{
	return job->plan->kind != COLL_KIND_BROADCAST || job->plan->root == r;
}

static void stage_blocks(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s, uint32_t k)
{
	const struct tile t = tile_at(n, job, s, k);
	const bool scatters = coll_intra_scatters(job);
	char *area = results(n, n->mine, s, k);

	if (!has_blocks(job, n->rank))
		return;
	if (!scatters)
		coll_reduce_copy(area, job->in.base + t.at, t.bytes);
	for (int r = 0; scatters && r < n->size; r++)
		if (r != n->rank)
			coll_reduce_copy(area + strip_at(job, s, r), job->in.base + coll_intra_block_for(job, r) + t.at,
			                 t.bytes);
}

static void gather_blocks(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s,
                          uint32_t k)
{
	const struct tile t = tile_at(n, job, s, k);
	const uint64_t since_ns = coll_intra_nt_since(n);

	for (int i = 0; i < n->size; i++) {
		const int r = (n->rank + i) % n->size;
		char *to;
		const char *from;

		/* Who has none may have no memory either: nothing is added to NULL. */
		if (!has_blocks(job, r))
			continue;
		to = job->out.base + block_from(job, r) + t.at;
		from = r == n->rank ? job->in.base + coll_intra_block_for(job, r) + t.at
		                    : results(n, n->peers[r].region, s, k) + strip_at(job, s, n->rank);
		if (to != from)
			store(n, to, from, t.bytes);
	}
	if (n->nt.choice.stream)
		coll_reduce_fence();
	coll_intra_nt_until(n, since_ns);
}

/* ---- A call ---- */

/* Equal tiles, of whole lines. */
static void cut(const struct coll_job *job, struct coll_intra_state *s)
{
	const size_t bytes = coll_intra_block_bytes(job);
	const size_t tiles = (bytes + tile_bytes(job) - 1) / tile_bytes(job);

	s->piece = ((bytes + tiles - 1) / tiles + LINE - 1) & ~(size_t)(LINE - 1);
	s->pieces = (uint32_t)((bytes + s->piece - 1) / s->piece);
}

static void begin(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	s->way = COLL_WAY_CICO;
	s->phase = INTRA_OWN;
	s->done = s->next = 0;
	cut(job, s);
	s->cell = n->tiles;
	n->tiles += s->pieces;
	coll_intra_nt_slots(n, s, coll_intra_touched_bytes(job, false), reduces(job) && job->in.base == job->out.base);
}

/* Every rank has made this one's last step; in the first, it makes the same call. */
static coll_status await_steps(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	for (; s->done < (uint32_t)n->size; s->done++) {
		const struct intra_region *region = n->peers[s->done].region;
		uint64_t word;
		coll_status st;

		if (s->done == (uint32_t)n->rank)
			continue;
		s->pending = s->done;
		if (s->next == 1) {
			st = coll_intra_check(job, s, &region->entries[s->epoch % COLL_DEPTH].lines[0], true);
			if (st != COLL_OK)
				return st == COLL_AGAIN ? coll_intra_idle(n, s) : st;
		}
		/* Of a later epoch: it has made them all. */
		word = atomic_load_explicit(&region->steps, memory_order_acquire);
		if (word < (n->epoch << COLL_STEP_BITS | s->next))
			return coll_intra_idle(n, s);
	}
	s->done = 0;
	if (s->next == 1)
		n->all = s->epoch;
	return COLL_OK;
}

static uint32_t steps_of(const struct coll_job *job, const struct coll_intra_state *s)
{
	return s->pieces + (reduces(job) ? 2 : 1);
}

static void step_reduce(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s)
{
	const uint32_t k = s->next;

	if (k >= 2)
		gather(n, job, s, k - 2);
	if (k >= 1 && k - 1 < s->pieces)
		reduce(n, job, s, k - 1);
	if (k < s->pieces)
		stage(n, job, s, k);
}

/* In place: the strips of a tile are gathered after they were staged. */
static void step_blocks(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s)
{
	const uint32_t k = s->next;

	if (k >= 1)
		gather_blocks(n, job, s, k - 1);
	if (k < s->pieces)
		stage_blocks(n, job, s, k);
}

static void step(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	if (reduces(job))
		step_reduce(n, job, s);
	else
		step_blocks(n, job, s);
	s->next++;
	s->events++;
	if (s->next < steps_of(job, s)) { /* nobody waits for the last one */
		atomic_store_explicit(&n->mine->steps, n->epoch << COLL_STEP_BITS | s->next, memory_order_release);
		coll_intra_nudge(n);
	}
}

/* A step at a time: whoever polls looks at other things in between. */
coll_status coll_intra_poll_cico(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_intra *n = arg;
	coll_status st;

	if (s->phase != INTRA_OWN) {
		st = coll_intra_enter_once(n, job, s);
		if (st != COLL_OK)
			return coll_intra_not_yet(n, s, st);
		begin(n, job, s); /* readers are told with the first step */
	}
	if (s->next > 0) {
		st = await_steps(n, job, s);
		if (st != COLL_OK)
			return st;
	}
	step(n, job, s);
	if (s->next < steps_of(job, s))
		return COLL_AGAIN;
	n->direct.stats.tiles += s->pieces;
	coll_intra_nt_end(n);
	if (s->trial)
		coll_intra_cma_ended(n, job);
	return COLL_OK;
}
