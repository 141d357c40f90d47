/*
 * An all_reduce of plain buffers among ranks of one host, by tiles: of each, every rank copies its
 * own part for others to its area, reduces one slice of all ranks' into its result area, and
 * copies the other slices from there. A rank's own slice is never staged.
 *
 * Step k of an operation does the three things for three tiles:
 *
 *   stage    tile k      own input -> own area
 *   reduce   tile k - 1  slice r of all inputs -> own result, and own result area
 *   gather   tile k - 2  the other ranks' result areas -> own result
 *
 * and begins when every rank has made step k - 1: one wait for each tile. The areas of an even
 * and an odd tile are apart. So what a step reads was written in the step before, and
 * what it overwrites was read in the step before, or earlier: both are over on every rank.
 * Between operations: whoever ends one knows that all have reduced its last tile, so the first tile
 * of the next may be staged; its results are written in step 1, when all have made step 0, and so have
 * left the operation before.
 *
 * Only their owner writes or reads the caller's buffers: a call may fail at any moment.
 *
 * Ordering: a step's bytes are written before `steps` is stored with release, and what is read
 * in a step comes before it, too; all of them are loaded with acquire.
 */
#include "native/enter.h"

enum { LINE = COLL_LINE_BYTES, STAGE = 0, RESULT = 2, LEAST_BYTES = 64 << 10 };

bool coll_native_tiles_serve(const struct coll_job *job)
{
	const size_t bytes = job->in.count * job->elem_bytes;

	return job->plan->kind == COLL_KIND_ALL_REDUCE && job->plan->size > 2 && bytes >= LEAST_BYTES &&
	       bytes / COLL_TILE_BYTES < (1 << COLL_STEP_BITS) - 4;
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

static struct tile tile_at(const struct coll_native *n, const struct coll_job *job, const struct coll_hand_state *s,
                           uint32_t k)
{
	const size_t all = job->in.count * job->elem_bytes, at = k * s->piece;
	struct tile t = {.at = at, .bytes = all - at < s->piece ? all - at : s->piece};

	t.first = slice_at(t.bytes, n->size, n->rank);
	t.end = slice_at(t.bytes, n->size, n->rank + 1);
	return t;
}

static void stage(struct coll_native *n, const struct coll_job *job, const struct coll_hand_state *s, uint32_t k)
{
	const struct tile t = tile_at(n, job, s, k);
	char *area = coll_native_tile_area(n, n->mine, STAGE + k % 2);
	const char *in = job->in.base + t.at;

	coll_reduce_copy(area, in, t.first);
	coll_reduce_copy(area + t.end, in + t.end, t.bytes - t.end);
}

static void reduce(struct coll_native *n, const struct coll_job *job, const struct coll_hand_state *s, uint32_t k)
{
	const struct tile t = tile_at(n, job, s, k);
	const char *src[COLL_NATIVE_SIZE_MAX];
	char *dst[2] = {job->out.base + t.at + t.first, coll_native_tile_area(n, n->mine, RESULT + k % 2) + t.first};

	for (int r = 0; r < n->size; r++)
		src[r] = r == n->rank ? job->in.base + t.at + t.first
		                      : coll_native_tile_area(n, n->peers[r].region, STAGE + k % 2) + t.first;
	coll_reduce_spread(job->reduction, dst, 2, src, n->size, false, t.end - t.first);
}

static void gather(struct coll_native *n, const struct coll_job *job, const struct coll_hand_state *s, uint32_t k)
{
	const struct tile t = tile_at(n, job, s, k);
	const uint64_t since_ns = coll_native_stores_since(n);
	const bool stream = n->stores.choice.stream;

	for (int i = 1; i < n->size; i++) {
		const int r = (n->rank + i) % n->size;
		const size_t first = slice_at(t.bytes, n->size, r), end = slice_at(t.bytes, n->size, r + 1);
		const char *from = coll_native_tile_area(n, n->peers[r].region, RESULT + k % 2) + first;

		if (stream)
			coll_reduce_stream(job->out.base + t.at + first, from, end - first);
		else
			coll_reduce_copy(job->out.base + t.at + first, from, end - first);
	}
	if (stream)
		coll_reduce_fence();
	coll_native_stores_until(n, since_ns);
}

/* Equal tiles, of whole lines. */
static void cut(const struct coll_job *job, struct coll_hand_state *s)
{
	const size_t bytes = job->in.count * job->elem_bytes;
	const size_t tiles = (bytes + COLL_TILE_BYTES - 1) / COLL_TILE_BYTES;

	s->piece = ((bytes + tiles - 1) / tiles + LINE - 1) & ~(size_t)(LINE - 1);
	s->pieces = (uint32_t)((bytes + s->piece - 1) / s->piece);
}

static coll_status enter(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	const coll_status st = coll_native_enter_as(n, s, true);

	if (st == COLL_OK)
		coll_native_publish(n, job, s);
	return st; /* readers are told with the first step */
}

static void begin(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	s->committed = true;
	s->phase = NATIVE_TILES;
	s->done = s->next = 0;
	cut(job, s);
	if (job->in.base == job->out.base)
		coll_native_stores_none(n);
	else
		coll_native_stores_begin(n, COLL_STORES_STAGED, 2 * job->in.count * job->elem_bytes);
}

/* Every rank has made this one's last step; in the first, it makes the same call. */
static coll_status await_steps(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	for (; s->done < (uint32_t)n->size; s->done++) {
		const struct native_region *region = n->peers[s->done].region;
		uint64_t word;
		coll_status st;

		if (s->done == (uint32_t)n->rank)
			continue;
		s->pending = s->done;
		if (s->next == 1) {
			st = coll_native_check(job, s, &region->entries[s->turn % COLL_DEPTH].lines[0], true);
			if (st != COLL_OK)
				return st == COLL_AGAIN ? coll_native_idle(n, s) : st;
		}
		/* Of a later turn: it has made them all. */
		word = atomic_load_explicit(&region->steps, memory_order_acquire);
		if (word < (n->turn << COLL_STEP_BITS | s->next))
			return coll_native_idle(n, s);
	}
	s->done = 0;
	if (s->next == 1)
		n->all = s->turn;
	return COLL_OK;
}

static void step(struct coll_native *n, const struct coll_job *job, struct coll_hand_state *s)
{
	const uint32_t k = s->next;

	if (k >= 2)
		gather(n, job, s, k - 2);
	if (k >= 1 && k - 1 < s->pieces)
		reduce(n, job, s, k - 1);
	if (k < s->pieces)
		stage(n, job, s, k);
	s->next++;
	s->events++;
	if (k <= s->pieces) { /* nobody waits for the last one */
		atomic_store_explicit(&n->mine->steps, n->turn << COLL_STEP_BITS | s->next, memory_order_release);
		coll_native_nudge(n);
	}
}

/* A step at a time: whoever polls looks at other things in between. */
coll_status coll_native_poll_tiles(void *arg, const struct coll_job *job, struct coll_hand_state *s)
{
	struct coll_native *n = arg;
	coll_status st;

	if (s->phase == NATIVE_TILES_NEW) {
		st = enter(n, job, s);
		if (st != COLL_OK)
			return st;
	}
	if (s->phase != NATIVE_TILES)
		begin(n, job, s);
	if (s->next > 0) {
		st = await_steps(n, job, s);
		if (st != COLL_OK)
			return st;
	}
	step(n, job, s);
	if (s->next < s->pieces + 2)
		return COLL_AGAIN;
	coll_native_stores_end(n);
	return COLL_OK;
}
