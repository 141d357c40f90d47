/*
 * Direct calls in graphs: see graphs.h. Owns what a launch does for them, and the words of their syncs.
 *
 * For each sync of a call, numbers taken modulo the slots:
 *
 *	stream   wait `go` has CLEAR | [full = id and COPY | wait `go` has COPIED] | fill, full = id
 *	         | wait `go` has TAKEN | use, full = 0 | [wait `go` has CLEAR]
 *	host     ... copies the input, go = COPIED ... sees id, and that all ranks do: go = TAKEN
 *	         ... sees 0, copies the output; sees that all ranks have left: go = CLEAR
 *
 * What is in brackets is there if this rank has host memory. Of two syncs of one tile, the first has no use of its own:
 * the part that this rank reduces is what the second one fills.
 */
#include "devcall/mapped_graphs.h"

#include "base/planted.h"
#include "devcall/mapped_tile.h"
#include "record/way.h"

enum { CLEAR = 1, COPIED = 2, TAKEN = 4, RELEASED = CLEAR | COPIED | TAKEN };
enum { SLOTS = COLL_MAPPED_GRAPH_SLOTS };

static uint32_t syncs_of(const struct coll_mapped_call *call)
{
	return (uint32_t)call->tiles * call->syncs;
}

static struct coll_mapped_tile tile_of(const struct coll_mapped *d, const struct coll_job *job,
                                       const struct coll_mapped_call *call, size_t number)
{
	const uint32_t sync = call->turn + (uint32_t)number * call->syncs;

	return (struct coll_mapped_tile){.d = d,
	                                 .job = job,
	                                 .call = call,
	                                 .base = &d->graphs.base,
	                                 .first = number * call->tile,
	                                 .slot = mapped_graph_slot(d, sync),
	                                 .result = mapped_graph_slot(d, sync + 1)};
}

/* ---- Captures ---- */

void coll_mapped_graphs_open(struct coll_comm *comm, const struct coll_mapped_ring *ring)
{
	struct coll_mapped *d = coll_mapped_of(comm);

	if (!d || !d->facts.on)
		return;
	for (int i = 0; i < SLOTS; i++)
		atomic_store_explicit(&ring->words->go[i], CLEAR, memory_order_relaxed);
	d->graphs = (struct mapped_graphs){.words = ring->words,
	                                   .words_at = ring->words_at,
	                                   .base = {.in = ring->in,
	                                            .out = ring->out,
	                                            .in_at = ring->in_at,
	                                            .out_at = ring->out_at,
	                                            .guard = {ring->guard_at, mapped_gate(d, true)}},
	                                   .ready = 1,
	                                   .op = {.poll = coll_mapped_graph_poll,
	                                          .where = coll_mapped_graph_where,
	                                          .arg = d,
	                                          .way = COLL_WAY_DEVICE_DIRECT}};
}

uint32_t coll_mapped_graph_assign(struct coll_mapped_call *call, uint32_t sync)
{
	call->turn = sync;
	return sync + syncs_of(call);
}

static uint64_t at(const struct coll_mapped *d, const _Atomic uint32_t *words, uint32_t sync)
{
	return d->graphs.words_at + (uint64_t)((const char *)&words[sync % SLOTS] - (const char *)d->graphs.words);
}

static coll_status put_wait(const struct coll_mapped_tile *t, coll_device_stream s, uint32_t sync, uint32_t bit)
{
	return t->d->device->table->wait_bit(t->d->device, s, at(t->d, t->d->graphs.words->go, sync), bit);
}

static coll_status put_full(const struct coll_mapped_tile *t, coll_device_stream s, uint32_t sync, uint32_t value)
{
	return t->d->device->table->gather(t->d->device, s, NULL, 0, at(t->d, t->d->graphs.words->full, sync), value);
}

/* This rank comes to a sync, and goes on when all have come. */
static coll_status put_sync(const struct coll_mapped_tile *t, coll_device_stream s, uint32_t sync)
{
	const coll_status st = put_full(t, s, sync, t->call->id);

	return st == COLL_OK ? put_wait(t, s, sync, TAKEN) : st;
}

static coll_status put_begin(const struct coll_mapped_tile *t, coll_device_stream s, uint32_t sync)
{
	coll_status st = put_wait(t, s, sync, CLEAR);

	if (st == COLL_OK && t->call->in_host) {
		st = put_full(t, s, sync, t->call->id | COLL_MAPPED_COPY);
		if (st == COLL_OK)
			st = put_wait(t, s, sync, COPIED);
	}
	if (st == COLL_OK)
		st = coll_mapped_put_fill(t, s);
	return st == COLL_OK ? put_sync(t, s, sync) : st;
}

static coll_status put_middle(const struct coll_mapped_tile *t, coll_device_stream s, uint32_t sync)
{
	coll_status st = put_wait(t, s, sync + 1, CLEAR);

	if (st == COLL_OK)
		st = coll_mapped_put_part(t, s);
	if (st == COLL_OK)
		st = put_full(t, s, sync, 0);
	return st == COLL_OK ? put_sync(t, s, sync + 1) : st;
}

static coll_status put_end(const struct coll_mapped_tile *t, coll_device_stream s, uint32_t sync)
{
	coll_status st = coll_mapped_put_use(t, s);

	if (st == COLL_OK)
		st = put_full(t, s, sync, 0);
	return st == COLL_OK && t->call->out_host ? put_wait(t, s, sync, CLEAR) : st;
}

coll_status coll_mapped_graph_put(const struct coll_comm *comm, const struct coll_job *job,
                                  const struct coll_mapped_call *call, coll_device_stream stream)
{
	uint32_t sync = call->turn;
	coll_status st = COLL_OK;

	for (size_t i = 0; i < call->tiles && st == COLL_OK; i++, sync++) {
		const struct coll_mapped_tile t = tile_of(coll_mapped_of(comm), job, call, i);

		st = put_begin(&t, stream, sync);
		if (st == COLL_OK && call->syncs == 2)
			st = put_middle(&t, stream, sync++);
		if (st == COLL_OK)
			st = put_end(&t, stream, sync);
	}
	return st;
}

/* ---- Launches ---- */

/* Acquire: what the device stored before it is seen. */
static uint32_t full(const struct coll_mapped *d, uint32_t sync)
{
	return atomic_load_explicit(&d->graphs.words->full[sync % SLOTS], memory_order_acquire);
}

/* Release: behind what the host has copied, and behind what other ranks have said. */
static void let_go(struct coll_mapped *d, uint32_t sync, uint32_t bits)
{
	atomic_store_explicit(&d->graphs.words->go[sync % SLOTS], bits, memory_order_release);
}

/* A rank that has not come to a sync; -1: none. */
static int not_come(const struct coll_mapped *d, uint32_t number)
{
	for (int r = 0; r < d->size; r++)
		if (r != d->rank && !mapped_is_past(&d->peers[r].page->graph_come, number))
			return r;
	return -1;
}

/* A rank that has not left it; -1: none. */
static int not_left(const struct coll_mapped *d, uint32_t number)
{
	for (int r = 0; r < d->size; r++)
		if (r != d->rank && !mapped_is_past(&d->peers[r].page->graph_left, number))
			return r;
	return -1;
}

/* A rank that has not come to the next sync that this rank has come to, or has not left the one that this rank has
 * left; -1: none. */
static int awaited(const struct coll_mapped *d)
{
	const struct mapped_graphs *g = &d->graphs;
	const int r = g->given < g->come ? not_come(d, g->sync + g->given + 1) : -1;

	return r < 0 && g->clear < g->left ? not_left(d, g->sync + g->clear + 1) : r;
}

/* Release: it is there before anything else of the call. */
static void begin(struct coll_mapped *d, const struct coll_job *job)
{
	struct mapped_graphs *g = &d->graphs;

	g->come = g->given = g->left = g->clear = 0;
	g->copied = false;
	atomic_store_explicit(&d->page->graph_calls[job->sequence % MAPPED_GRAPH_CALLS],
	                      (uint64_t)(uint32_t)job->sequence << 32 | job->signature, memory_order_release);
}

/* A rank that has come to a different call; -1: none that is known. Those that have come have said which it is. */
static int differs(const struct coll_mapped *d, const struct coll_job *job, struct coll_intra_state *s)
{
	for (int r = 0; r < d->size; r++) {
		const uint64_t theirs = atomic_load_explicit(
		        &d->peers[r].page->graph_calls[job->sequence % MAPPED_GRAPH_CALLS], memory_order_acquire);

		if ((uint32_t)(theirs >> 32) != (uint32_t)job->sequence || (uint32_t)theirs == job->signature)
			continue;
		s->bad_frame = (struct coll_frame){.sequence = job->sequence, .signature = (uint32_t)theirs};
		return r;
	}
	return -1;
}

/* The device comes to a sync, when it has left the last one in the same slot. */
static bool come(struct coll_mapped *d, const struct coll_job *job, const struct coll_mapped_call *call)
{
	struct mapped_graphs *g = &d->graphs;
	const uint32_t sync = call->turn + g->come, seen = g->come < g->left + SLOTS ? full(d, sync) : 0;

	if (g->come == syncs_of(call))
		return false;
	if (seen == (call->id | COLL_MAPPED_COPY) && !g->copied) {
		const struct coll_mapped_tile t = tile_of(d, job, call, g->come / call->syncs);

		coll_mapped_copy_host(&t, false);
		g->copied = true;
		let_go(d, sync, COPIED);
		return true;
	}
	if (seen != call->id)
		return false;
	g->copied = false;
	g->come++;
	atomic_store_explicit(&d->page->graph_come, g->sync + g->come, memory_order_release);
	return true;
}

/*
 * Of two ranks, one says that its device reads the other's memory, and then looks whether that has left; the other says
 * that it leaves, and then looks for such devices. Sequentially consistent: one of them sees the other.
 */
static bool give(struct coll_mapped *d, const struct coll_mapped_call *call)
{
	struct mapped_graphs *g = &d->graphs;

	atomic_store(&d->page->graph_given, g->sync + g->given + 1);
	for (int r = 0; r < d->size; r++)
		if (r != d->rank && atomic_load(&d->peers[r].page->left)) {
			atomic_store(&d->page->graph_given, g->sync + g->given);
			return false;
		}
	let_go(d, call->turn + g->given++, TAKEN);
	return true;
}

static bool leave(struct coll_mapped *d, const struct coll_job *job, const struct coll_mapped_call *call)
{
	struct mapped_graphs *g = &d->graphs;

	if (g->left == g->given || full(d, call->turn + g->left) != 0)
		return false;
	if ((g->left + 1) % call->syncs == 0) {
		const struct coll_mapped_tile t = tile_of(d, job, call, g->left / call->syncs);

		coll_mapped_copy_host(&t, true);
	}
	g->left++;
	atomic_store_explicit(&d->page->graph_left, g->sync + g->left, memory_order_release);
	return true;
}

static bool clear(struct coll_mapped *d, const struct coll_mapped_call *call)
{
	struct mapped_graphs *g = &d->graphs;

	if (g->clear == g->left || (not_left(d, g->sync + g->clear + 1) >= 0 && !planted(EARLY_CLEAR)))
		return false;
	let_go(d, call->turn + g->clear++, CLEAR);
	return true;
}

coll_status coll_mapped_graph_poll(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_mapped *d = arg;
	struct mapped_graphs *g = &d->graphs;
	const struct coll_mapped_call *call = (const struct coll_mapped_call *)(const void *)job->stage;
	bool all;
	int other;

	s->way = COLL_WAY_DEVICE_DIRECT;
	if (s->phase == 0)
		begin(d, job);
	s->phase = 1;
	s->events += leave(d, job, call);
	s->events += clear(d, call);
	s->events += come(d, job, call);
	all = g->given < g->come && (not_come(d, g->sync + g->given + 1) < 0 || planted(EARLY_TAKEN));
	/* Behind it: who has come has said to which call. */
	other = differs(d, job, s);
	if (other >= 0) {
		s->pending = (uint32_t)other + 1;
		return COLL_ERR_MISMATCH;
	}
	if (all)
		s->events += give(d, call);
	if (g->clear < syncs_of(call))
		return COLL_AGAIN;
	g->sync += g->clear;
	g->come = g->given = g->left = g->clear = 0;
	return COLL_OK;
}

void coll_mapped_graph_where(void *arg, const struct coll_job *job, const struct coll_intra_state *s,
                             struct coll_run_where *where)
{
	const struct coll_mapped *d = arg;

	(void)job;
	where->peer = s->pending ? (int)s->pending - 1 : awaited(d);
	where->frame = s->bad_frame;
}

bool coll_mapped_graph_waits_for_stream(const struct coll_comm *comm)
{
	return awaited(coll_mapped_of(comm)) < 0;
}

uint32_t coll_mapped_graph_reached(const struct coll_comm *comm)
{
	const struct coll_mapped *d = coll_mapped_of(comm);
	uint32_t id = 0;

	for (uint32_t i = 0; d && d->graphs.words && i < SLOTS && !id; i++)
		id = full(d, i) & ~COLL_MAPPED_COPY;
	return id;
}

const struct coll_intra_op *coll_mapped_graph_op(const struct coll_comm *comm)
{
	return &coll_mapped_of(comm)->graphs.op;
}

/* ---- End ---- */

void coll_mapped_graphs_release(struct coll_comm *comm)
{
	struct coll_mapped *d = coll_mapped_of(comm);

	for (uint32_t i = 0; d && d->graphs.words && i < SLOTS; i++)
		let_go(d, i, RELEASED);
}

/* Behind the release: kernels that start from now on leave all memory alone, so only those that run already matter. */
bool coll_mapped_graphs_have_left(struct coll_mapped *d)
{
	const struct mapped_graphs *g = d ? &d->graphs : NULL;

	if (!g || !g->words)
		return true;
	if (g->given != g->left && (full(d, 0) != 0 || full(d, 1) != 0))
		return false;
	atomic_store(&d->page->graph_left, atomic_load(&d->page->graph_given));
	return true;
}
