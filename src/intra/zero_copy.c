/*
 * Long messages in buffers that all ranks map: who may touch whose buffers when.
 *
 *   1  Every rank writes into the first line of its entry which memory its buffers are (a name, or none), and reads
 * those lines of all others. 2  If a buffer that others need has no name, all ranks go the next way; all have read the
 * same lines. Else, for a set of regions not used before, each rank maps what it needs and says in its second line
 * whether it could; if one could not, all go the next way. 3  Each rank makes its passes (zero_copy_plan.c), in units
 * of at most COLL_UNIT_BYTES. 4  It says so in its third line, and returns when all have said so: then nobody reads or
 * writes its buffers any more.
 *
 * So a call has two waits, for entries and for ends.
 *
 * Failure. A rank whose call ends with an error must have its buffers to itself when it returns, whatever the others
 * do. Each rank has two words in its region: busy, while it touches memory of others, and revoked, once it has failed.
 *
 *   who makes a unit:   busy = 1; if somebody revoked, stop; the unit; busy = 0; if somebody revoked, stop
 *   who fails:          revoked = 1; wait until nobody is busy
 *
 * The stores of busy and revoked and the loads of the other that follow them are sequentially consistent: of two ranks
 * one sees what the other wrote. So either the unit is not begun, or its maker is waited for. It stores busy = 0 with
 * release after all it did, and is waited for with acquire: what was written came before. Nobody waits or sleeps while
 * busy. A unit takes less than a millisecond, if its maker runs. If busy stays, the maker was stopped or is dead; then
 * the pages that it may write are exchanged for others (part), and what it read of ours may have been anything: it
 * looks at revoked after the unit, before it says that it is done.
 */
#include "intra/zero_copy.h"

#include <sched.h>

#include "base/clock.h"
#include "base/delay.h"
#include "intra/nt_stores.h"
#include "intra/zero_copy_plan.h"
#include "reduce/copy.h"
#include "reduce/spread.h"

/* Of an entry. */
enum { LINE_ENTERED = 0, LINE_MAPPED, LINE_DONE };
/* Phases. */
enum { ENTERED = INTRA_BEGUN, MAPPING = INTRA_OWN, MAPPED, WORKING, ENDING };

/* What the first line holds. */
struct note {
	struct coll_piece piece[COLL_REACHES];
	uint32_t in_place, pad; /* of a root */
};
_Static_assert(sizeof(struct note) <= COLL_FIRST_PAYLOAD, "one line");

/* ---- Back-off ---- */

static struct intra_backoff *backoff_of(struct coll_intra *n, const struct coll_job *job)
{
	const size_t bytes = job->in.count * job->elem_bytes;

	return &n->direct.backoff[job->plan->kind][(63 - __builtin_clzll(bytes | 1)) % COLL_SIZES];
}

/* Where it was tried in vain it is tried again after 1, 2, 4 ... such calls: what is tried instead need not wait for
 * the entries of all. All ranks have come to the same conclusions in the same order. */
bool coll_intra_passes_zero_copy(void *arg, const struct coll_job *job)
{
	struct coll_intra *n = arg;
	const bool it = coll_intra_backoff_skip(backoff_of(n, job));

	n->direct.stats.passed += it;
	return it;
}

const struct coll_intra_stats *coll_intra_stats(const struct coll_intra *n)
{
	return &n->direct.stats;
}

/* ---- Lines ---- */

/* Others need this buffer of that rank. */
static bool needed(const struct coll_job *job, int owner, int which)
{
	for (int r = 0; r < job->plan->size; r++)
		if (r != owner && coll_intra_uses(job, r, owner, which))
			return true;
	return false;
}

/* The same name for all peers; none, if one of them cannot be told it. */
static struct coll_piece name(struct coll_intra *n, const char *base, size_t bytes)
{
	struct coll_piece piece = {0};

	for (int r = 0; r < n->size; r++)
		if (r != n->rank &&
		    n->peers[r].transport->shared->share(n->peers[r].link, base, bytes, &piece) != COLL_OK)
			return (struct coll_piece){0};
	return piece;
}

/* What others read of this rank's is where its results come: it names nothing, so that nobody reads it there. */
static bool overwritten(const struct coll_job *job)
{
	return job->plan->kind == COLL_KIND_ALL_TO_ALL && job->in.base == job->out.base;
}

static coll_status enter(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	struct intra_zero_copy *d = &n->direct;
	struct note note = {.in_place = job->in.base == job->out.base};
	coll_status st = coll_intra_enter_as(n, s, false);

	if (st != COLL_OK)
		return st;
	d->loaned = false;
	d->written = NULL;
	for (int which = 0; which < COLL_REACHES; which++) {
		char *base = which == COLL_REACH_IN ? job->in.base : job->out.base;

		if (needed(job, n->rank, which) && !overwritten(job))
			note.piece[which] = name(n, base, coll_intra_reach_bytes(job, which));
		d->reach[n->rank][which] = (struct intra_reach){.piece = note.piece[which], .at = base};
		d->loaned |= note.piece[which].region != 0;
	}
	if (note.piece[COLL_REACH_OUT].region) {
		d->written = job->out.base;
		d->written_bytes = coll_intra_reach_bytes(job, COLL_REACH_OUT);
	}
	d->root_in_place = note.in_place;
	memcpy(n->mine->entries[s->epoch % COLL_DEPTH].lines[LINE_ENTERED].payload, &note, sizeof(note));
	coll_intra_publish(n, job, s);
	s->entered = true;
	coll_intra_nudge(n);
	return COLL_OK;
}

/* What all others have told, from rank s->done on; every one of them is `what`, or it is *other. */
static coll_status await_reports(struct coll_intra *n, struct coll_intra_state *s, int line, uint32_t what, bool *other)
{
	for (; s->done < (uint32_t)n->size; s->done++) {
		uint64_t word;

		if (s->done == (uint32_t)n->rank)
			continue;
		word = atomic_load_explicit(&n->peers[s->done].region->entries[s->epoch % COLL_DEPTH].lines[line].word,
		                            memory_order_acquire);
		if (word == coll_intra_word(s->epoch, what))
			continue;
		if ((uint32_t)(word >> 32) != s->epoch || (uint32_t)word == 0) {
			s->pending = s->done;
			return coll_intra_idle_loaned(n, s);
		}
		*other = true;
	}
	s->done = 0;
	return COLL_OK;
}

static coll_status await_entries(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	for (; s->done < (uint32_t)n->size; s->done++) {
		const struct intra_line *line;
		struct note note;
		coll_status st;

		if (s->done == (uint32_t)n->rank)
			continue;
		line = &n->peers[s->done].region->entries[s->epoch % COLL_DEPTH].lines[LINE_ENTERED];
		st = coll_intra_check(job, s, line, true);
		s->pending = s->done;
		if (st != COLL_OK)
			return st == COLL_AGAIN ? coll_intra_idle_loaned(n, s) : st;
		memcpy(&note, line->payload, sizeof(note));
		for (int which = 0; which < COLL_REACHES; which++)
			n->direct.reach[s->done][which] = (struct intra_reach){.piece = note.piece[which]};
		if (s->done == (uint32_t)job->plan->root)
			n->direct.root_in_place = note.in_place;
	}
	s->done = 0;
	s->events++;
	n->all = s->epoch;
	return COLL_OK;
}

/* ---- Agreement ---- */

/* Whether some result, as it lies at its owner, does not fill its first and last page. */
static bool ragged(const struct coll_intra *n, const struct coll_job *job)
{
	const size_t bytes = coll_intra_reach_bytes(job, COLL_REACH_OUT);
	uint64_t odd = bytes;

	for (int r = 0; r < n->size; r++)
		odd |= n->direct.reach[r][COLL_REACH_OUT].piece.offset;
	return job->plan->kind == COLL_KIND_ALL_REDUCE && odd % n->page_bytes != 0;
}

/* Their first and last pages need a place, and bytes between them; by agreed facts. */
static bool too_ragged(const struct coll_intra *n, const struct coll_job *job)
{
	return ragged(n, job) &&
	       (n->page_bytes > COLL_EDGE_MAX || coll_intra_reach_bytes(job, COLL_REACH_OUT) < 2 * n->page_bytes);
}

static bool all_named(const struct coll_intra *n, const struct coll_job *job)
{
	for (int r = 0; r < n->size; r++)
		for (int which = 0; which < COLL_REACHES; which++)
			if (coll_intra_requires(job, which) && needed(job, r, which) &&
			    !n->direct.reach[r][which].piece.region)
				return false;
	return true;
}

/* Whether one of the agreed sets has all regions of this call. */
static bool agreed(const struct coll_intra *n)
{
	bool has = false;

	for (unsigned i = 0; i < COLL_AGREED && i < n->direct.nagreed && !has; i++) {
		has = true;
		for (int r = 0; r < n->size; r++)
			for (int which = 0; which < COLL_REACHES; which++) {
				const uint32_t region = n->direct.reach[r][which].piece.region;

				has &= !region || n->direct.agreed[i][r][which] == region;
			}
	}
	return has;
}

static void remember(struct coll_intra *n)
{
	const unsigned i = n->direct.nagreed % COLL_AGREED;

	for (int r = 0; r < n->size; r++)
		for (int which = 0; which < COLL_REACHES; which++)
			n->direct.agreed[i][r][which] = n->direct.reach[r][which].piece.region;
	n->direct.nagreed = i + 1 == COLL_AGREED ? 2 * COLL_AGREED : n->direct.nagreed + 1;
}

static void leave_all(struct coll_intra *n)
{
	for (int r = 0; r < n->size; r++)
		for (int which = 0; which < COLL_REACHES; which++) {
			struct intra_reach *reach = &n->direct.reach[r][which];

			if (reach->hold)
				n->peers[r].transport->shared->leave(n->peers[r].link, reach->hold);
			reach->hold = NULL;
		}
	n->direct.loaned = false;
}

/* Map what this rank is going to use. AGAIN: some of it is on its way; UNSUPPORTED: it never will be. */
static coll_status reach_all(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	for (int r = 0; r < n->size; r++)
		for (int which = 0; which < COLL_REACHES; which++) {
			struct intra_reach *reach = &n->direct.reach[r][which];
			coll_status st;
			void *at;

			if (r == n->rank || reach->hold || !coll_intra_uses(job, n->rank, r, which))
				continue;
			if (!reach->piece.region && !coll_intra_requires(job, which))
				continue;
			st = n->peers[r].transport->shared->reach(
			        n->peers[r].link, &reach->piece, coll_intra_reach_bytes(job, which), &at, &reach->hold);
			s->pending = (uint32_t)r;
			if (st != COLL_OK)
				return st;
			reach->at = at;
		}
	return COLL_OK;
}

/* All ranks say so. */
static coll_status decline(struct coll_intra *n, const struct coll_job *job)
{
	leave_all(n);
	coll_intra_backoff_result(backoff_of(n, job), false);
	n->direct.stats.declined++;
	return COLL_ERR_UNSUPPORTED;
}

static coll_status begin_work(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	coll_intra_backoff_result(backoff_of(n, job), true);
	n->direct.stats.direct++;
	s->way = COLL_WAY_ZERO_COPY;
	n->direct.edges = ragged(n, job);
	coll_intra_nt_direct(n, job);
	s->committed = true;
	s->phase = WORKING;
	s->next = s->piece = 0;
	return COLL_OK;
}

/* After all entries have been read. */
static coll_status decide(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	coll_status st;

	if (!all_named(n, job) || too_ragged(n, job))
		return decline(n, job);
	if (!agreed(n)) {
		s->phase = MAPPING;
		return COLL_OK;
	}
	/* All have mapped these once, and their owners have not freed what they name in a call. */
	st = reach_all(n, job, s);
	if (st == COLL_OK)
		return begin_work(n, job, s);
	return st == COLL_AGAIN || st == COLL_ERR_UNSUPPORTED ? COLL_ERR_CORRUPT : st;
}

static coll_status map(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	const coll_status st = reach_all(n, job, s);

	if (st == COLL_AGAIN)
		return coll_intra_idle_loaned(n, s);
	if (st != COLL_OK && st != COLL_ERR_UNSUPPORTED)
		return st;
	coll_intra_announce(n, s, LINE_MAPPED, st == COLL_OK ? INTRA_GOOD : INTRA_BAD);
	s->phase = MAPPED;
	s->cell = st != COLL_OK; /* somebody could not */
	s->events++;
	return COLL_OK;
}

static coll_status await_maps(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	bool bad = false;
	const coll_status st = await_reports(n, s, LINE_MAPPED, INTRA_GOOD, &bad);

	s->cell |= bad;
	if (st != COLL_OK)
		return st;
	if (s->cell)
		return decline(n, job);
	remember(n);
	return begin_work(n, job, s);
}

/* ---- Work ---- */

/* Somebody has failed. */
static bool anybody_revoked(const struct coll_intra *n, struct coll_intra_state *s)
{
	uint32_t r = 0;

	while (r < (uint32_t)n->size && (r == (uint32_t)n->rank || !coll_intra_is_revoked(n, r)))
		r++;
	if (r < (uint32_t)n->size)
		s->pending = r;
	return r < (uint32_t)n->size;
}

static void make(struct coll_intra *n, const struct coll_job *job, const struct intra_pass *whole, size_t at,
                 size_t bytes)
{
	const uint64_t since_ns = coll_intra_nt_since(n);
	const bool stream = n->nt.choice.stream;
	struct intra_pass p = *whole;

	for (int i = 0; i < p.nsrc; i++)
		p.src[i] += at;
	for (int i = 0; i < p.ndst; i++)
		p.dst[i] += at;
	if (job->reduction)
		coll_reduce_spread(job->reduction, p.dst, p.ndst, p.src, p.nsrc, stream, bytes);
	else if (stream)
		coll_reduce_stream(p.dst[0], p.src[0], bytes);
	else
		coll_reduce_copy(p.dst[0], p.src[0], bytes);
	if (stream)
		coll_reduce_fence();
	coll_intra_nt_until(n, since_ns);
	n->direct.stats.bytes_streamed += stream ? bytes * (size_t)p.ndst : 0;
	n->direct.stats.bytes_read += bytes * (size_t)p.nsrc;
	n->direct.stats.bytes_written += bytes * (size_t)p.ndst;
}

static size_t unit_of(const struct coll_intra *n, const struct intra_pass *p, size_t left)
{
	size_t unit = COLL_UNIT_BYTES / (size_t)(p->ndst > p->nsrc ? p->ndst : p->nsrc) & ~(n->page_bytes - 1);

	unit = unit < COLL_UNIT_MIN ? COLL_UNIT_MIN : unit;
	return unit < left ? unit : left;
}

/* One unit. s->next: the pass, s->piece: how far it is made. */
static coll_status work(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	struct intra_pass p;
	size_t unit;

	if (!coll_intra_pass(n, job, s->next, &p)) {
		coll_intra_announce(n, s, LINE_DONE, INTRA_GOOD);
		s->phase = ENDING;
		return COLL_OK;
	}
	unit = unit_of(n, &p, p.bytes - s->piece);
	if (unit > 0) {
		atomic_store(&n->mine->busy, 1);
		if (!anybody_revoked(n, s))
			make(n, job, &p, s->piece, unit);
		coll_intra_after_reading();
		atomic_store_explicit(&n->mine->busy, 0, memory_order_release);
		if (anybody_revoked(n, s))
			return COLL_ERR_ABORTED;
	}
	s->piece += unit;
	s->events++;
	if (s->piece == p.bytes) {
		s->piece = 0;
		s->next++;
	}
	return COLL_OK;
}

static coll_status await_ends(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s)
{
	bool other = false;
	const coll_status st = await_reports(n, s, LINE_DONE, INTRA_GOOD, &other);

	if (st != COLL_OK)
		return st;
	coll_intra_nt_end(n);
	coll_intra_finish_edges(n, job);
	leave_all(n);
	s->events++;
	return COLL_OK;
}

/* A unit at a time: whoever polls looks at other things in between. */
coll_status coll_intra_poll_zero_copy(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_intra *n = arg;
	const uint32_t events = s->events;
	coll_status st = COLL_OK;

	while (st == COLL_OK) {
		switch (s->phase) {
		case INTRA_NEW: st = enter(n, job, s); break;
		case ENTERED:
			st = await_entries(n, job, s);
			st = st == COLL_OK ? decide(n, job, s) : st;
			break;
		case MAPPING: st = map(n, job, s); break;
		case MAPPED: st = await_maps(n, job, s); break;
		case WORKING:
			st = work(n, job, s);
			if (st == COLL_OK && s->phase == WORKING && s->piece && s->events != events)
				return COLL_AGAIN;
			break;
		default: return await_ends(n, job, s);
		}
	}
	return st;
}

/* ---- The end of a communicator that has failed ---- */

static bool anybody_busy(const struct coll_intra *n)
{
	for (int r = 0; r < n->size; r++)
		if (n->peers[r].region && atomic_load(&n->peers[r].region->busy))
			return true;
	return false;
}

/* Whole pages of what peers may write: the rest they do not. */
static void part(struct coll_intra *n)
{
	struct intra_zero_copy *d = &n->direct;
	const uintptr_t first = ((uintptr_t)d->written + n->page_bytes - 1) & ~(uintptr_t)(n->page_bytes - 1);
	const uintptr_t end = ((uintptr_t)d->written + d->written_bytes) & ~(uintptr_t)(n->page_bytes - 1);
	const int peer = !n->rank;

	if (!d->written || end <= first)
		return;
	n->peers[peer].transport->shared->part(n->peers[peer].link, (void *)first, end - first);
	d->stats.parted += end - first;
}

void coll_intra_revoke(struct coll_intra *n)
{
	const uint64_t since_ns = coll_clock_ns();

	if (!n || !n->mine)
		return;
	atomic_store(&n->mine->revoked, 1);
	if (!n->direct.loaned)
		return;
	while (anybody_busy(n) && coll_clock_ns() - since_ns < COLL_DELAY_NS(ZERO_COPY_UNIT))
		sched_yield();
	if (anybody_busy(n))
		part(n);
	leave_all(n);
}
