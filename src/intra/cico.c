/*
 * Long messages of plain buffers among ranks of one host, by tiles: each rank copies what others need to slots of its
 * own region, and takes what it needs from theirs.
 *
 * An all_reduce has three things to do with each tile:
 *
 *   stage    own input -> own slot, but for the rank's own slice
 *   reduce   slice r of all inputs -> own result, and own slice of the own slot
 *   gather   the other ranks' slices, from their slots -> own result
 *
 * Where nothing is reduced (all_gather, all_to_all, broadcast: a tile is a strip of each block) it has two: stage and
 * gather. Ranks in step stage tile k, reduce tile k - 1 and gather tile k - 2 in one step, in few slots, which stay in
 * the caches. A rank that others keep waiting does what there is to do; or else it stages further tiles, into slots
 * that ahead.h owns, as far as there are any.
 *
 * Each rank counts what it has staged, reduced and gathered, over all operations. A tile is reduced when all have
 * staged it, and gathered when all have reduced it. Its slot is free again when all have gathered it, in this operation
 * or a later one; nobody waits for that at the end.
 *
 * Only their owner writes or reads the caller's buffers: a call may fail at any moment. In place, a tile is gathered
 * after it was staged.
 *
 * Ordering: what is written of a tile, with the number of its slot, comes before the count that says so, which is
 * stored with release, and what is read of it before the count that says that it was read; counts are loaded with
 * acquire. cico_model_test.c explores it.
 */
#include "intra/cico.h"

#include "intra/ahead.h"
#include "intra/cma.h"
#include "intra/nt_stores.h"
#include "intra/shape.h"
#include "reduce/copy.h"
#include "reduce/spread.h"

enum { LINE = COLL_LINE_BYTES, IN_STEP = 3, STEPS_IN_CROWD = 16 };

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

/* Of all operations before this one. */
static uint64_t before(const struct coll_intra *n, const struct coll_intra_state *s)
{
	return n->tiles - s->pieces;
}

/* The slot in which that rank has tile k. */
static char *slot_of(const struct coll_intra *n, const struct coll_intra_state *s, int rank, uint32_t k)
{
	return coll_ahead_slot(n, rank, *coll_ahead_entry(n, rank, before(n, s) + k));
}

/* ---- All-reduce ---- */

static void stage(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s, uint32_t k)
{
	const struct tile t = tile_at(n, job, s, k);
	char *area = slot_of(n, s, n->rank, k);
	const char *in = job->in.base + t.at;

	coll_reduce_copy(area, in, t.first);
	coll_reduce_copy(area + t.end, in + t.end, t.bytes - t.end);
}

static void reduce(struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s, uint32_t k)
{
	const struct tile t = tile_at(n, job, s, k);
	const char *src[COLL_INTRA_SIZE_MAX];
	char *dst[2] = {job->out.base + t.at + t.first, slot_of(n, s, n->rank, k) + t.first};

	for (int r = 0; r < n->size; r++)
		src[r] = r == n->rank ? job->in.base + t.at + t.first : slot_of(n, s, r, k) + t.first;
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
		const char *from = slot_of(n, s, r, k) + first;

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
	char *area = slot_of(n, s, n->rank, k);

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
		                    : slot_of(n, s, r, k) + strip_at(job, s, n->rank);
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

/* Nobody reads the first so many tiles any more. */
static void give_back(struct coll_intra *n, uint64_t tiles)
{
	for (; n->tiles_free < tiles; n->tiles_free++)
		coll_ahead_give(n, n->tiles_free);
}

static void begin(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	uint64_t read = n->tiles;

	for (int r = 0; r < n->size; r++)
		if (r != n->rank) {
			const uint64_t gathered =
			        atomic_load_explicit(&n->peers[r].region->gathered, memory_order_acquire);

			read = gathered < read ? gathered : read;
		}
	give_back(n, read);
	coll_ahead_end(n);
	s->way = COLL_WAY_CICO;
	s->phase = INTRA_OWN;
	s->done = s->next = s->taken = 0;
	cut(job, s);
	n->tiles += s->pieces;
	coll_intra_nt_slots(n, s, coll_intra_touched_bytes(job, false), reduces(job) && job->in.base == job->out.base);
}

/* The least of what the other ranks have made, of the tiles of this operation. */
struct made {
	uint32_t staged, reduced;
};

static uint32_t least(uint32_t so_far, const _Atomic uint64_t *count, uint64_t first)
{
	const uint64_t made = atomic_load_explicit(count, memory_order_acquire), here = made < first ? 0 : made - first;

	return here < so_far ? (uint32_t)here : so_far;
}

/* Also gives back slots that all have read. s->pending: who keeps this rank waiting, in front of all others. */
static coll_status look(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, struct made *m)
{
	const uint64_t first = before(n, s);
	uint64_t read = n->tiles;

	*m = (struct made){s->pieces, s->pieces};
	for (int r = 0; r < n->size; r++) {
		const struct intra_region *theirs = n->peers[r].region;
		const struct made so_far = *m;
		uint64_t gathered;

		if (r == n->rank)
			continue;
		/* Before anything of another is touched, it is known to make the same call. */
		if (s->done == 0 && s->taken == 0) {
			const coll_status st =
			        coll_intra_check(job, s, &theirs->entries[s->epoch % COLL_DEPTH].lines[0], true);

			if (st != COLL_OK) {
				s->pending = (uint32_t)r;
				*m = (struct made){0};
				return st;
			}
		}
		m->staged = least(m->staged, &theirs->steps, first);
		m->reduced = least(m->reduced, &theirs->joined, first);
		gathered = atomic_load_explicit(&theirs->gathered, memory_order_acquire);
		read = gathered < read ? gathered : read;
		if (m->staged < so_far.staged || m->reduced < so_far.reduced)
			s->pending = (uint32_t)r;
	}
	give_back(n, read);
	n->all = s->epoch;
	return COLL_OK;
}

/* What is made in one step. */
struct turn {
	bool gathers, reduces, stages;
};

/* How many tiles may be staged that not all have gathered. Ranks that share cores wait for each other all the time:
 * they stay in the caches unless others want the cores, too. */
static uint32_t room(const struct coll_intra *n)
{
	return n->alone || coll_intra_is_crowded(n) ? coll_ahead_slots(n) : IN_STEP + 1;
}

/* What may be made now; late: ranks in step would find more. Of operations before some slots may be in use, too. */
static struct turn plan(const struct coll_intra *n, const struct coll_job *job, const struct coll_intra_state *s,
                        const struct made *m, bool *late)
{
	const uint32_t behind = reduces(job) ? 2 : 1, in_use = (uint32_t)(before(n, s) + s->next - n->tiles_free);
	const bool all = s->next == s->pieces;
	const bool gather = s->taken < s->pieces && (s->taken + behind <= s->next || all);
	const bool reduce = reduces(job) && s->done < s->pieces && (s->done < s->next || all);
	const uint32_t ready = reduces(job) ? m->reduced : m->staged;
	struct turn t = {.gathers = s->taken < s->next && s->taken < ready,
	                 .reduces = reduces(job) && s->done < s->next && s->done < m->staged};

	t.stages = !all && in_use < IN_STEP;
	*late = (gather && !t.gathers) || (reduce && !t.reduces) || !(t.gathers || t.reduces || t.stages);
	if (*late)
		t.stages = !t.gathers && !t.reduces && !all && in_use < room(n);
	else
		t = (struct turn){t.gathers && gather, t.reduces && reduce, t.stages};
	return t;
}

/* The same, after a look for what ranks in step wait for. */
static coll_status look_around(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s,
                               struct turn *t)
{
	int left = coll_intra_looks(n, s);
	struct made m;
	bool late;

	for (;; left--) {
		const coll_status st = look(n, job, s, &m);

		if (st != COLL_OK && st != COLL_AGAIN)
			return st;
		*t = plan(n, job, s, &m, &late);
		if (!late || left <= 0)
			return t->gathers || t->reduces || t->stages ? COLL_OK : COLL_AGAIN;
		coll_cpu_relax();
	}
}

static bool is_over(const struct coll_job *job, const struct coll_intra_state *s)
{
	return s->taken == s->pieces && (s->done == s->pieces || !reduces(job));
}

static void publish(_Atomic uint64_t *count, uint64_t made)
{
	atomic_store_explicit(count, made, memory_order_release);
}

static void step(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, const struct turn *t)
{
	const uint64_t first = before(n, s);

	if (t->gathers) {
		if (reduces(job))
			gather(n, job, s, s->taken);
		else
			gather_blocks(n, job, s, s->taken);
		s->taken++;
	}
	if (t->reduces)
		reduce(n, job, s, s->done++);
	if (t->stages) {
		coll_ahead_take(n, first + s->next);
		if (reduces(job))
			stage(n, job, s, s->next);
		else
			stage_blocks(n, job, s, s->next);
		s->next++;
	}
	s->events++;
	if (t->gathers)
		publish(&n->mine->gathered, first + s->taken);
	if (t->reduces)
		publish(&n->mine->joined, first + s->done);
	if (t->stages)
		publish(&n->mine->steps, first + s->next);
}

/* A step at a time, for whoever polls looks at other things in between; more where the turns of ranks come seldom. */
coll_status coll_intra_poll_cico(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_intra *n = arg;
	coll_status st = COLL_OK;
	struct turn t = {0};
	bool tells = false;

	if (s->phase != INTRA_OWN) {
		st = coll_intra_enter_once(n, job, s);
		if (st != COLL_OK)
			return coll_intra_not_yet(n, s, st);
		begin(n, job, s);
		tells = true;
	}
	for (int left = coll_intra_is_crowded(n) ? STEPS_IN_CROWD : 1; left > 0 && !is_over(job, s); left--) {
		st = look_around(n, job, s, &t);
		if (st != COLL_OK)
			break;
		step(n, job, s, &t);
		tells = true;
	}
	if (tells)
		coll_intra_nudge(n);
	if (st != COLL_OK)
		return coll_intra_not_yet(n, s, st);
	if (!is_over(job, s))
		return COLL_AGAIN;
	n->direct.stats.tiles += s->pieces;
	coll_intra_nt_end(n);
	if (s->trial)
		coll_intra_cma_ended(n, job);
	return COLL_OK;
}
