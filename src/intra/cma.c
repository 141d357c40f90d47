/*
 * Blocks in plain memory, all_gather and all_to_all of two ranks, all_to_all of more that share cores: each rank has
 * its kernel copy the others' blocks from where they lie to its own result, one copy where slots and tiles take two.
 * Whether that is quicker is found out (autotune.h).
 *
 *   1  Each rank writes in a line of its entry where its input is, and whether it may read the others' memory at
 *      all. It copies its own block to its result meanwhile.
 *   2  It reads a block, in units, when it has read the line of its owner: of more ranks in the order in which they
 *      come. When it has read the lines of all, and one may not, or the results of one come where its input lies, as
 *      in an all_to_all in place (who read first would be given, or give, what has just been read), all go by slots.
 *   3  It says in another line that it has read all, or could not, and returns when all have said so: then nobody
 *      reads its buffer any more. If one could not, all go by slots, and so do the next 1, 2, 4 ... 64 calls of that
 *      kind and size: it may be this buffer alone. A rank that cannot read another at all says so in its
 *      first line, and all go by slots always.
 *
 * "Slots" are those of pair_stream.c, of more ranks the tiles of cico.c: what is tried instead, in the same epoch. What
 * was read by then is overwritten by the same. Nobody reads any more in a call that goes by slots: a rank's first step
 * there comes after its reading, and nobody ends without that step.
 *
 * Ordering. A line's payload is stored, then its word with release; the word is loaded with
 * acquire, then the payload, then the block, by a system call. What the kernel has read comes before the release
 * store that says so, and that before the acquire load after which the owner writes again.
 *
 * Failure. A rank whose call ends with an error may write its buffer again; another, if it reads at that
 * moment, must not take what it gets for the block. It is the rule of zero_copy.c: busy = 1; if revoked, stop; the
 * unit; busy = 0; if revoked, stop. A process that has died, or become another program, is told by the transport.
 */
#include "intra/cma.h"

#include "base/clock.h"
#include "intra/shape.h"
#include "reduce/copy.h"

enum { LINE_OFFER = 3, LINE_TAKEN = 4 };
enum { OFFERED = INTRA_OWN, PULLING, TAKEN, BY_SLOTS };
_Static_assert(COLL_INTRA_SIZE_MAX < 32, "ranks are bits of a word");

struct offer {
	uint64_t address;  /* of the input */
	uint32_t never;    /* this rank cannot read another's memory */
	uint32_t in_place; /* what others read lies where this rank's results come */
	uint32_t ns[COLL_TRIED_WAYS];
};
_Static_assert(sizeof(struct offer) <= COLL_FIRST_PAYLOAD, "one line");

/* ---- Blocks ---- */

/* Of a rank's input, what goes to this one; its own input counts as another's. */
static size_t offset_in(const struct coll_intra *n, const struct coll_job *job)
{
	return coll_intra_block_for(job, n->rank);
}

static char *result_of(const struct coll_job *job, int rank)
{
	return job->out.base + (size_t)rank * coll_intra_block_bytes(job);
}

static size_t unit_at(const struct coll_job *job, size_t at)
{
	const size_t left = at < coll_intra_block_bytes(job) ? coll_intra_block_bytes(job) - at : 0;

	return left < COLL_UNIT_BYTES ? left : COLL_UNIT_BYTES;
}

/* ---- Which way ---- */

static size_t size_class(const struct coll_job *job)
{
	return (63 - __builtin_clzll(coll_intra_block_bytes(job) | 1)) % COLL_SIZES;
}

static struct intra_autotune *trial_of(struct coll_intra *n, const struct coll_job *job)
{
	return &n->pull.trials[coll_intra_scatters(job)][size_class(job)];
}

/* A call takes milliseconds: it is tried less often. Agreed. */
static bool is_long(const struct coll_intra *n, const struct coll_job *job)
{
	return (size_t)n->size << size_class(job) >= COLL_CMA_LONG_BYTES;
}

static struct intra_backoff *backoff_of(struct coll_intra *n, const struct coll_job *job)
{
	return &n->pull.backoff[coll_intra_scatters(job)][size_class(job)];
}

/* Where the setting says that the kernel reads. */
static enum intra_copy forced(const struct coll_intra *n, const struct coll_job *job)
{
	const size_t bytes = 2 * (size_t)n->size * coll_intra_block_bytes(job);

	return n->fabric.nt && coll_nt_by_size(n->fabric.nt, bytes) ? COLL_CMA_STREAMED : COLL_PULL;
}

/* This rank and the others have entered the epoch, or do. */
static void choose(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	s->trial = true;
	n->pull.settles = false;
	n->pull.may = !n->pull.never && !coll_intra_backoff_skip(backoff_of(n, job));
	if (n->fabric.way == COLL_INTRA_AUTO) {
		n->pull.way =
		        coll_intra_autotune_begin(trial_of(n, job), is_long(n, job), n->pull.may, &n->pull.settles);
		n->pull.since_ns = coll_clock_ns();
	} else {
		n->pull.way = forced(n, job);
	}
	if (!n->pull.settles && !(coll_intra_cmas(n->pull.way) && n->pull.may))
		s->phase = BY_SLOTS;
}

void coll_intra_cma_ended(struct coll_intra *n, const struct coll_job *job)
{
	if (n->fabric.way == COLL_INTRA_AUTO)
		coll_intra_autotune_end(trial_of(n, job), n->pull.way, coll_clock_ns() - n->pull.since_ns);
}

static void by_slots(struct coll_intra *n, struct coll_intra_state *s)
{
	n->pull.way = (enum intra_copy)(n->pull.way & 1);
	n->direct.loaned = false;
	s->phase = BY_SLOTS;
}

/* ---- The other ranks ---- */

static const struct intra_line *line_of(const struct coll_intra *n, const struct coll_intra_state *s, uint32_t rank,
                                        int line)
{
	return &n->peers[rank].region->entries[s->epoch % COLL_DEPTH].lines[line];
}

/* ---- Offers ---- */

static bool reads_all(const struct coll_intra *n)
{
	for (int r = 0; r < n->size; r++)
		if (r != n->rank && n->peers[r].transport->shared->pull(n->peers[r].link, 0, NULL, 0) != COLL_OK)
			return false;
	return true;
}

static void make_offer(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	struct offer mine = {.address = (uint64_t)(uintptr_t)job->in.base,
	                     .never = !reads_all(n),
	                     .in_place = coll_intra_scatters(job) && job->in.base == job->out.base};

	memcpy(mine.ns, trial_of(n, job)->ns, sizeof(mine.ns));
	memcpy(n->mine->entries[s->epoch % COLL_DEPTH].lines[LINE_OFFER].payload, &mine, sizeof(mine));
	n->pull.never |= mine.never;
	n->pull.apart = !mine.in_place;
	n->pull.failed = false;
	n->pull.heard = n->pull.read = 1u << n->rank;
	memcpy(n->pull.ns, mine.ns, sizeof(n->pull.ns));
	/* Who fails from here on waits for the others' units: coll_intra_revoke(). */
	n->direct.loaned = true;
	n->direct.written = NULL;
	s->phase = OFFERED;
	s->done = s->next = 0;
	coll_intra_announce(n, s, LINE_OFFER, job->signature);
}

/* The offer of a rank, which makes the same call. */
static coll_status hear_one(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, uint32_t rank)
{
	struct offer theirs;
	coll_status st = coll_intra_await(n, job, s, line_of(n, s, rank, 0), true);

	if (st == COLL_OK)
		st = coll_intra_await(n, job, s, line_of(n, s, rank, LINE_OFFER), false);
	if (st != COLL_OK)
		return st;
	memcpy(&theirs, line_of(n, s, rank, LINE_OFFER)->payload, sizeof(theirs));
	n->pull.never |= theirs.never;
	n->pull.apart &= !theirs.in_place;
	n->pull.address[rank] = theirs.address;
	n->pull.heard |= 1u << rank;
	coll_intra_autotune_receive(n->pull.ns, theirs.ns);
	s->events++;
	return COLL_OK;
}

static bool is_all(const struct coll_intra *n, uint32_t ranks)
{
	return ranks == (1u << n->size) - 1;
}

/* All that have come. */
static coll_status hear(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	for (uint32_t r = 0; r < (uint32_t)n->size; r++) {
		const coll_status st = n->pull.heard >> r & 1 ? COLL_OK : hear_one(n, job, s, r);

		if (st == COLL_OK)
			continue;
		s->pending = r;
		if (st != COLL_AGAIN)
			return st;
	}
	return COLL_OK;
}

/* Whether blocks are read, as far as the lines go that have come. */
static bool pulls(const struct coll_intra *n)
{
	return coll_intra_cmas(n->pull.way) && n->pull.may && !n->pull.never && n->pull.apart;
}

/* All lines have come. */
static void decide(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	n->pull.may &= !n->pull.never;
	/* What copy_own() has stored past the caches: the way it goes on may have no fence. */
	if (coll_intra_streams(n->pull.way))
		coll_reduce_fence();
	if (n->pull.settles)
		n->pull.way = coll_intra_autotune_settle(trial_of(n, job), n->pull.ns, n->pull.may);
	n->pull.settles = false;
	if (pulls(n))
		s->phase = PULLING;
	else
		by_slots(n, s);
}

/* ---- Units ---- */

/* What goes from our own input to our own result: a unit. False: there is no more. */
static bool copy_own(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const size_t at = (size_t)s->next * COLL_UNIT_BYTES, bytes = unit_at(job, at);
	const char *from = job->in.base + offset_in(n, job) + at;
	char *to = result_of(job, n->rank) + at;

	if (bytes == 0 || to == from || !coll_intra_cmas(n->pull.way))
		return false;
	if (coll_intra_streams(n->pull.way))
		coll_reduce_stream(to, from, bytes);
	else
		coll_reduce_copy(to, from, bytes);
	s->next++;
	s->events++;
	return true;
}

/* Of a rank's block. */
static coll_status pull(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, uint32_t rank)
{
	const size_t at = (size_t)s->done * COLL_UNIT_BYTES, bytes = unit_at(job, at);
	struct intra_peer *p = &n->peers[rank];
	coll_status st = COLL_ERR_ABORTED;

	s->pending = rank;
	/* Sequentially consistent, as zero_copy.c has it: of two ranks one sees what the other wrote. */
	atomic_store(&n->mine->busy, 1);
	if (!coll_intra_is_revoked(n, rank))
		st = p->transport->shared->pull(p->link, n->pull.address[rank] + offset_in(n, job) + at,
		                                result_of(job, (int)rank) + at, bytes);
	coll_intra_after_reading();
	atomic_store_explicit(&n->mine->busy, 0, memory_order_release);
	if (coll_intra_is_revoked(n, rank))
		return COLL_ERR_ABORTED;
	if (st != COLL_OK)
		return st;
	s->way = COLL_WAY_CMA; /* unless all go by slots after all */
	s->done++;
	s->events++;
	return COLL_OK;
}

/* The rank whose block is being read, s->cell; or the next one whose line has come and whose block is not read yet. */
static bool find_block(const struct coll_intra *n, struct coll_intra_state *s)
{
	if (s->done > 0)
		return true;
	for (int k = 1; k < n->size; k++) {
		s->cell = (uint32_t)((n->rank + k) % n->size);
		if ((n->pull.heard & ~n->pull.read) >> s->cell & 1)
			return true;
	}
	return false;
}

/* A unit of a block that may be read. False: there is none. */
static bool pull_next(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s, coll_status *st)
{
	if (n->pull.settles || n->pull.failed || !pulls(n) || !find_block(n, s))
		return false;
	*st = pull(n, job, s, s->cell);
	if (*st == COLL_ERR_UNSUPPORTED) {
		n->pull.failed = true;
		*st = COLL_OK;
	}
	if (unit_at(job, (size_t)s->done * COLL_UNIT_BYTES) == 0) {
		n->pull.read |= 1u << s->cell;
		s->done = 0;
	}
	return true;
}

/* Nothing is left to read. */
static void finish(struct coll_intra *n, struct coll_intra_state *s)
{
	if (coll_intra_streams(n->pull.way))
		coll_reduce_fence();
	coll_intra_announce(n, s, LINE_TAKEN, n->pull.failed ? INTRA_BAD : INTRA_GOOD);
	s->phase = TAKEN;
	s->done = 0;
}

/* OFFERED and PULLING. OK: something is done. */
static coll_status work(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	coll_status st = COLL_OK;

	if (copy_own(n, job, s))
		return COLL_OK;
	if (s->phase == OFFERED) {
		st = hear(n, job, s);
		if (st != COLL_OK)
			return st;
		if (is_all(n, n->pull.heard))
			decide(n, job, s);
		/* It is to be read after all. */
		if (s->phase == PULLING && copy_own(n, job, s))
			return COLL_OK;
	}
	if (s->phase == BY_SLOTS)
		return COLL_OK;
	if (pull_next(n, job, s, &st)) {
		if (st == COLL_OK && s->phase == PULLING && is_all(n, n->pull.read))
			finish(n, s);
		return st;
	}
	if (s->phase == OFFERED)
		return coll_intra_idle_loaned(n, s);
	finish(n, s);
	return COLL_OK;
}

/* ---- The end ---- */

static coll_status await_taken(struct coll_intra *n, struct coll_intra_state *s)
{
	const struct intra_line *line = line_of(n, s, s->done, LINE_TAKEN);
	uint64_t word = atomic_load_explicit(&line->word, memory_order_acquire);

	for (int left = coll_intra_looks(n, s); left > 0 && (uint32_t)(word >> 32) != s->epoch; left--) {
		coll_cpu_relax();
		word = atomic_load_explicit(&line->word, memory_order_acquire);
	}
	s->pending = s->done;
	/* Turn 0 once in a while is that of a line that was never written, which says neither. */
	if (word != coll_intra_word(s->epoch, INTRA_GOOD) && word != coll_intra_word(s->epoch, INTRA_BAD))
		return coll_intra_idle_loaned(n, s);
	n->pull.failed |= (uint32_t)word == INTRA_BAD;
	return COLL_OK;
}

static coll_status end(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	for (; s->done < (uint32_t)n->size; s->done++) {
		const coll_status st = s->done == (uint32_t)n->rank ? COLL_OK : await_taken(n, s);

		if (st != COLL_OK)
			return st;
	}
	coll_intra_backoff_result(backoff_of(n, job), !n->pull.failed);
	if (n->pull.failed) {
		s->events++;
		by_slots(n, s);
		return COLL_OK;
	}
	n->direct.loaned = false;
	n->direct.stats.cma_read += (size_t)(n->size - 1) * coll_intra_block_bytes(job);
	coll_intra_cma_ended(n, job);
	coll_intra_entered_all(n, s);
	return COLL_OK;
}

/* Readers are told with the offer, or with the first chunk or step of what is tried instead. */
static coll_status begin(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const coll_status st = coll_intra_enter_once(n, job, s);

	if (st != COLL_OK)
		return coll_intra_not_yet(n, s, st);
	choose(n, job, s);
	if (s->phase != BY_SLOTS)
		make_offer(n, job, s);
	return COLL_OK;
}

/* A unit at a time: whoever polls looks at other things in between. */
coll_status coll_intra_poll_cma(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_intra *n = arg;
	coll_status st = s->phase == INTRA_NEW ? begin(n, job, s) : COLL_OK;

	if (st == COLL_OK && (s->phase == OFFERED || s->phase == PULLING)) {
		st = work(n, job, s);
		if (st == COLL_OK && s->phase != TAKEN)
			st = COLL_AGAIN;
	}
	if (st == COLL_OK && s->phase == TAKEN)
		st = end(n, job, s);
	return s->phase == BY_SLOTS ? COLL_ERR_UNSUPPORTED : st;
}
