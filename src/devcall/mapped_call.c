/*
 * Direct calls: see call.h. Owns which calls go direct, their order, and how far they are. What is done for a tile:
 * tile.c; captured calls: graphs.c.
 *
 * A tile of a call, with n ranks:
 *
 *	fill      in -> own slot
 *	sync      write a number to every peer's page; wait for that number from all of them
 *	use       read the slots of all -> out, unless the guard is set: sums in rank order, copies along the ring
 *
 * Long reductions for all have two syncs: between them each rank reduces one part of the tile, and then all read the
 * parts. docs/design/direct.md says why two sets of slots suffice.
 *
 * In long calls, kernels take inputs that the records name instead of slots: what such a rank would copy to its slot is
 * not enqueued. If no slot is needed at all, the kernels of the first tile do the whole call, and those behind it find
 * nothing to do.
 */
#include "devcall/mapped_call.h"

#include "base/planted.h"
#include "devcall/mapped_mapper.h"
#include "devcall/mapped_records.h"
#include "devcall/mapped_tile.h"
#include "record/way.h"

/* Far behind every number in use. */
static const uint32_t RELEASED = (uint32_t)1 << 30;

enum { MANY = (1 << 27) + 6 };

/* ---- Which calls ---- */

bool coll_mapped_is(const struct coll_comm *comm, const struct coll_intra_op *op)
{
	return op && comm->direct && op == &comm->direct->op;
}

/* ---- Preparation ---- */

/* The longest block of all ranks, or the vector: agreed, as the lengths of all are known to all. */
static size_t span_of(const struct coll_job *job, int size)
{
	const size_t *counts = job->in.counts ? job->in.counts : job->out.counts;
	size_t most = counts ? 0 : job->in.count;

	for (int r = 0; counts && r < size; r++)
		most = counts[r] > most ? counts[r] : most;
	return most;
}

/* Bytes of a buffer of this rank, if its blocks lie one behind the other; else 0. */
static size_t extent_bytes(const struct coll_comm *comm, const struct coll_job *job, const struct coll_extent *e)
{
	const bool blocks = coll_plan_kind_is_block(job->kind) && !e->single;
	size_t count = 0;

	if (blocks && e->offsets)
		return 0;
	if (!e->counts)
		return e->count * (blocks ? (size_t)comm->size : 1) * job->elem_bytes;
	for (int r = 0; r < comm->size; r++)
		count += blocks || r == comm->rank ? e->counts[r] : 0;
	return count * job->elem_bytes;
}

/* What others read in place. Not an input that this rank writes while they may read it, nor one that it must scale. No
 * output: a rank that was stopped and goes on would write into it behind an error that has been returned. */
static void find_input(struct coll_comm *comm, const struct coll_job *job, struct coll_mapped_call *call, bool root)
{
	const enum coll_kind kind = job->kind;
	const size_t in = extent_bytes(comm, job, &job->in), out = extent_bytes(comm, job, &job->out);
	const bool overlap = job->in.base < job->out.base + out && job->out.base < job->in.base + in;
	const bool written = overlap && (kind == COLL_KIND_ALL_TO_ALL || kind == COLL_KIND_SCAN);
	const bool named = coll_mapped_reads(kind, root) && !call->in_host && !written && !coll_mapped_scales(job);
	/* A rank with host memory goes on tile by tile, and then all have to. */
	call->kept = (!overlap || planted(KEPT_IN_PLACE)) && !call->out_host;
	coll_mapper_start(coll_mapped_of(comm));
	coll_records_find(comm, job->in.base, named ? in : 0, &call->in);
}

/*
 * Whether each rank had better reduce all inputs itself, if they lie in place. It reads n S bytes and writes S, where
 * the parts of two shots cost 2 S + S / n and S + S / n; and it saves a sync. So two ranks do. Three do on one device,
 * where a sync between processes may cost as much as the memory takes for hundreds of megabytes, but not over links,
 * which then would carry 2 S to each device instead of 4 S / 3.
 */
static bool is_one_shot(const struct coll_mapped *d)
{
	return d->size == 2 || (d->size == 3 && d->one_device);
}

static struct coll_mapped_tile tile_of(const struct coll_mapped *d, const struct coll_job *job,
                                       const struct coll_mapped_call *call, size_t number)
{
	const uint32_t turn = call->turn + (uint32_t)number;

	return (struct coll_mapped_tile){.d = d,
	                                 .job = job,
	                                 .call = call,
	                                 .base = &d->base,
	                                 .first = number * call->tile,
	                                 .slot = mapped_slot(d, turn, false),
	                                 .result = mapped_slot(d, turn, true)};
}

bool coll_mapped_prepare(struct coll_comm *comm, const struct coll_job *job, bool in_host, bool out_host, bool captured,
                         struct coll_mapped_call *call)
{
	const struct coll_mapped *d = coll_mapped_of(comm);
	const enum coll_kind kind = job->kind;
	const bool root = job->root == comm->rank;
	const size_t slot_bytes = captured ? mapped_graph_slot_bytes(d) : d->slot_bytes;
	const size_t span = span_of(job, comm->size);
	const size_t blocks = coll_plan_kind_is_block(kind) ? (size_t)comm->size : 1;
	/* All blocks of a tile fit in a slot, and in pinned memory. */
	const size_t room = slot_bytes / job->elem_bytes / blocks;
	/* A multiple of 64 bytes, so that blocks and parts stay aligned. */
	const size_t most = room / 64 * 64;
	const bool is_long = span * job->elem_bytes * blocks >= COLL_MAPPED_LONG_MIN;

	if (span == 0)
		return false;
	/* What the root broadcasts in place stays where it is. */
	if (kind == COLL_KIND_BROADCAST && root && job->in.base == job->out.base)
		out_host = false;
	*call = (struct coll_mapped_call){.in_host = in_host && coll_mapped_reads(kind, root),
	                                  .out_host = out_host && coll_mapped_writes(kind, root),
	                                  .syncs = is_long && kind == COLL_KIND_ALL_REDUCE ? 2 : 1};
	call->tile = span < most ? span : most;
	call->tiles = (span - 1) / call->tile + 1;
	if (is_long && !captured) {
		call->long_ = true;
		call->tail = kind != COLL_KIND_ALL_REDUCE && !planted(NO_TAIL);
		call->one_shot = kind == COLL_KIND_ALL_REDUCE && is_one_shot(d);
		find_input(comm, job, call, root);
	}
	call->stage =
	        (struct coll_run_stage){.slots = 1,
	                                .apart = 1,
	                                .ready = captured ? &coll_mapped_of(comm)->graphs.ready : &d->page->reached,
	                                .taken = &d->page->copied,
	                                .direct = true};
	return true;
}

/* Times at which all ranks wait for each other. */
static uint32_t syncs_of(const struct coll_mapped_call *call)
{
	return (uint32_t)call->tiles * call->syncs + call->tail;
}

static uint32_t last_sync(const struct coll_mapped_call *call)
{
	return call->sync + syncs_of(call);
}

void coll_mapped_assign(struct coll_comm *comm, struct coll_mapped_call *call)
{
	struct coll_mapped *d = coll_mapped_of(comm);

	call->sync = atomic_fetch_add_explicit(&d->sync, syncs_of(call), memory_order_relaxed);
	call->stage.number = atomic_fetch_add_explicit(&d->steps, 2 * (uint32_t)call->tiles, memory_order_relaxed);
	if (planted(MANY_NUMBERS))
		atomic_fetch_add_explicit(&d->steps, MANY, memory_order_relaxed);
	call->turn = d->turn;
	d->turn += (uint32_t)call->tiles;
	if (call->long_)
		coll_records_assign(d, call, last_sync(call));
}

/*
 * Of two ranks, one says that it enqueues work which reads the other's memory, and then looks whether that has left;
 * the other says that it leaves, and then looks for such work. Sequentially consistent: one of them sees the other.
 */
bool coll_mapped_claim(struct coll_comm *comm, const struct coll_mapped_call *last)
{
	struct coll_mapped *d = coll_mapped_of(comm);
	const uint32_t before = atomic_exchange(&d->page->enqueued, last_sync(last));

	for (int r = 0; r < d->size; r++)
		if (r != d->rank && atomic_load(&d->peers[r].page->left)) {
			atomic_store(&d->page->enqueued, before);
			return false;
		}
	return true;
}

/* ---- Enqueueing ---- */

/* A step of host copies: the stream says that it has come here, and waits until the step is done. */
static coll_status put_step(const struct coll_mapped_tile *t, coll_device_stream s, uint32_t step)
{
	const struct mapped_page *page = t->d->page;
	const struct coll_device_word reached = {mapped_word(page, t->d->page_at, &page->reached), step + 1};
	const struct coll_device_word copied = {mapped_word(page, t->d->page_at, &page->copied), step + 1};

	return t->d->device->table->exchange(t->d->device, s, &reached, 1, &copied, 1);
}

static uint32_t step_of(const struct coll_mapped_call *call, size_t tile, bool out)
{
	return call->stage.number + 2 * (uint32_t)tile + out;
}

static coll_status put_fill(const struct coll_mapped_tile *t, coll_device_stream s, size_t number)
{
	const coll_status st = coll_mapped_copies(t->call) ? put_step(t, s, step_of(t->call, number, false)) : COLL_OK;

	return st == COLL_OK ? coll_mapped_put_fill(t, s) : st;
}

static coll_status put_use(const struct coll_mapped_tile *t, coll_device_stream s, size_t number)
{
	const coll_status st = coll_mapped_put_use(t, s);

	return st == COLL_OK && coll_mapped_copies(t->call) ? put_step(t, s, step_of(t->call, number, true)) : st;
}

/* What a stream waits for in front of a segment: all others have signalled the end of the one before. */
static int waits_of(const struct coll_mapped *d, uint32_t number, struct coll_device_word *waits)
{
	int n = 0;

	for (int r = 0; r < d->size; r++)
		if (r != d->rank)
			waits[n++] = (struct coll_device_word){mapped_word(d->page, d->page_at, &d->page->from[r].sync),
			                                       number};
	return n;
}

/* What the kernels of a call find in its records, behind its first sync. */
static coll_status put_look(const struct coll_mapped *d, const struct coll_job *job,
                            const struct coll_mapped_call *call, coll_device_stream s)
{
	const enum coll_kind kind = job->kind;
	const uint32_t all = ((uint32_t)1 << d->size) - 1;
	struct coll_kernel_look_args a = {.found = mapped_found(d),
	                                  .bases = mapped_word(d->page, d->page_at, d->page->bases),
	                                  .number = call->number,
	                                  .nranks = (uint32_t)d->size,
	                                  .needed = coll_mapped_reads(kind, false) ? all : (uint32_t)1 << job->root,
	                                  .may_whole =
	                                          call->one_shot || (call->syncs == 1 && !coll_mapped_copies(call)),
	                                  .kept = call->one_shot};

	for (int r = 0; r < d->size; r++)
		a.record[r] = mapped_word(d->peers[r].page, d->peers[r].page_at,
		                          &d->peers[r].page->records[call->number % MAPPED_RECORDS]);
	return d->device->table->look(d->device, s, &a);
}

/* The same words as put_sync(), by a kernel: it knows whether the whole call is done by now. */
static coll_status put_signal(const struct coll_mapped *d, const struct coll_mapped_call *call, uint32_t number,
                              coll_device_stream s)
{
	struct coll_kernel_signal_args a = {.state = mapped_word(d->page, d->page_at, &d->page->guard),
	                                    .found = mapped_found(d),
	                                    .value = number,
	                                    .jump = last_sync(call)};

	a.word[a.nwords++] = mapped_word(d->page, d->page_at, &d->page->signalled);
	for (int r = 0; r < d->size; r++)
		if (r != d->rank)
			a.word[a.nwords++] = mapped_word(d->peers[r].page, d->peers[r].page_at,
			                                 &d->peers[r].page->from[d->rank].sync);
	return d->device->table->signal(d->device, s, &a);
}

/* Tell all others that this rank has come to the end of a segment. waits: and wait for all of them. */
static coll_status put_sync(const struct coll_mapped *d, const struct coll_mapped_call *call, size_t segment,
                            bool waits, coll_device_stream s)
{
	const uint32_t number = call->sync + (uint32_t)segment + 1;
	struct coll_device_word words[COLL_MAPPED_RANKS_MAX + 1], awaited[COLL_MAPPED_RANKS_MAX];
	coll_status st;
	int n = 0;

	if (call->long_ && segment > 0) {
		st = put_signal(d, call, number, s);
		return st == COLL_OK && waits ? d->device->table->exchange(d->device, s, NULL, 0, awaited,
		                                                           waits_of(d, number, awaited))
		                              : st;
	}
	words[n++] = (struct coll_device_word){mapped_word(d->page, d->page_at, &d->page->signalled), number};
	if (segment == 0 && !call->in_host && !call->out_host)
		words[n++] = (struct coll_device_word){mapped_word(d->page, d->page_at, &d->page->reached),
		                                       call->stage.number + 1};
	for (int r = 0; r < d->size; r++) {
		const struct mapped_peer *p = &d->peers[r];

		if (r != d->rank)
			words[n++] = (struct coll_device_word){
			        mapped_word(p->page, p->page_at, &p->page->from[d->rank].sync), number};
	}
	return d->device->table->exchange(d->device, s, words, n, awaited, waits ? waits_of(d, number, awaited) : 0);
}

static coll_status put_end(const struct coll_mapped *d, const struct coll_mapped_call *call,
                           struct coll_device_word ended, coll_device_stream s)
{
	const struct coll_device_word words[2] = {
	        {mapped_word(d->page, d->page_at, &d->page->finished), last_sync(call)}, ended};

	return d->device->table->exchange(d->device, s, words, 2, NULL, 0);
}

int coll_mapped_left_word(const struct coll_comm *comm, struct coll_device_word *word)
{
	const struct coll_mapped *d = coll_mapped_of(comm);

	if (!d || !d->facts.on)
		return 0;
	*word = (struct coll_device_word){mapped_word(d->page, d->page_at, &d->page->finished),
	                                  atomic_load(&d->page->enqueued)};
	return 1;
}

/* Others compare it with theirs. Release: it is there before anything of the call. */
static void publish(struct coll_mapped *d, const struct coll_job *job)
{
	atomic_store_explicit(&d->page->calls[job->sequence % MAPPED_CALLS],
	                      (uint64_t)(uint32_t)job->sequence << 32 | job->signature, memory_order_release);
}

size_t coll_mapped_segments(const struct coll_mapped_call *call)
{
	return syncs_of(call) + 1;
}

bool coll_mapped_has_come(const struct coll_comm *comm, const struct coll_mapped_call *call, size_t segment)
{
	const struct coll_mapped *d = coll_mapped_of(comm);

	for (int r = 0; r < d->size && segment > 0; r++)
		if (r != d->rank && !mapped_is_past(&d->page->from[r].sync, call->sync + (uint32_t)segment))
			return false;
	return true;
}

coll_status coll_mapped_put_wait(const struct coll_comm *comm, const struct coll_mapped_call *call, size_t segment,
                                 coll_device_stream stream)
{
	const struct coll_mapped *d = coll_mapped_of(comm);
	struct coll_device_word waits[COLL_MAPPED_RANKS_MAX];

	if (segment == 0)
		return COLL_OK;
	return d->device->table->exchange(d->device, stream, NULL, 0, waits,
	                                  waits_of(d, call->sync + (uint32_t)segment, waits));
}

coll_status coll_mapped_put(struct coll_comm *comm, const struct coll_job *job, const struct coll_mapped_call *call,
                            size_t segment, bool waits, struct coll_device_word ended, coll_device_stream stream)
{
	struct coll_mapped *d = coll_mapped_of(comm);
	const size_t tiled = call->tiles * call->syncs;
	coll_status st = COLL_OK;

	if (segment == 0) {
		publish(d, job);
		coll_records_publish(d, call);
	}
	if (segment == 1 && call->long_)
		st = put_look(d, job, call, stream);
	if (segment > 0 && segment <= tiled && st == COLL_OK) {
		const size_t number = (segment - 1) / call->syncs;
		const struct coll_mapped_tile t = tile_of(d, job, call, number);

		st = segment % call->syncs == 0 ? put_use(&t, stream, number) : coll_mapped_put_part(&t, stream);
	}
	if (st == COLL_OK && segment == syncs_of(call))
		return put_end(d, call, ended, stream);
	if (st == COLL_OK && segment % call->syncs == 0 && segment < tiled) {
		const struct coll_mapped_tile t = tile_of(d, job, call, segment / call->syncs);

		st = put_fill(&t, stream, segment / call->syncs);
	}
	return st == COLL_OK ? put_sync(d, call, segment, waits, stream) : st;
}

/* ---- Progress ---- */

/* A rank whose sign this rank's stream waits for; -1: none. */
static int awaited(const struct coll_mapped *d)
{
	const uint32_t mine = atomic_load_explicit(&d->page->signalled, memory_order_acquire);

	for (int r = 0; r < d->size; r++)
		if (r != d->rank && !mapped_is_past(&d->page->from[r].sync, mine))
			return r;
	return -1;
}

bool coll_mapped_waits_for_stream(const struct coll_comm *comm, const struct coll_mapped_call *call)
{
	const struct coll_mapped *d = coll_mapped_of(comm);

	return !coll_stage_is_ready(&call->stage, 0) || mapped_is_past(&d->page->finished, last_sync(call)) ||
	       awaited(d) < 0;
}

/* s->done counts the steps of host copies. */
bool coll_mapped_copy(struct coll_mapped *d, const struct coll_job *job, const struct coll_mapped_call *call,
                      struct coll_intra_state *s)
{
	const uint32_t steps = coll_mapped_copies(call) ? 2 * (uint32_t)call->tiles : 0, before = s->done;

	while (s->done < steps) {
		const uint32_t step = call->stage.number + s->done;
		const struct coll_mapped_tile t = tile_of(d, job, call, s->done / 2);

		if (!mapped_is_past(&d->page->reached, step + 1))
			break;
		coll_mapped_copy_host(&t, s->done % 2);
		/* Release: behind all that was copied. */
		atomic_store_explicit(&d->page->copied, step + 1, memory_order_release);
		s->done++;
		s->events++;
	}
	return s->done != before;
}

/* A rank that has made a different call; -1: none that is known. */
static int differs(const struct coll_mapped *d, const struct coll_job *job, struct coll_intra_state *s)
{
	for (int r = 0; r < d->size; r++) {
		const uint64_t theirs = atomic_load_explicit(&d->peers[r].page->calls[job->sequence % MAPPED_CALLS],
		                                             memory_order_acquire);

		if ((uint32_t)(theirs >> 32) != (uint32_t)job->sequence || (uint32_t)theirs == job->signature)
			continue;
		s->bad_frame = (struct coll_frame){.sequence = job->sequence, .signature = (uint32_t)theirs};
		return r;
	}
	return -1;
}

/* Whether a rank that has failed may have made the call stale: its stream signals behind a fill that its guard has
 * stopped, or it has given memory back to its user which was read after that. This rank is going to hear of the
 * failure. Acquire: what the device has ended came behind the guard of that rank, if its fill did. */
static bool is_stale(const struct coll_mapped *d, const struct coll_mapped_call *call)
{
	bool stale = false;

	for (int r = 0; r < d->size; r++) {
		const struct mapped_page *page = d->peers[r].page;

		if (r == d->rank || !atomic_load_explicit(&page->guard, memory_order_acquire))
			continue;
		stale |= !mapped_is_past(&page->sound, last_sync(call)) || (call->long_ && atomic_load(&page->revoked));
	}
	return stale;
}

coll_status coll_mapped_poll(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	struct coll_mapped *d = arg;
	const struct coll_mapped_call *call = (const struct coll_mapped_call *)(const void *)job->stage;
	const bool ended = mapped_is_past(&d->page->finished, last_sync(call));
	uint32_t seen = 0;
	int other;

	s->way = COLL_WAY_DEVICE_DIRECT;
	coll_mapper_look(d);
	coll_mapped_copy(d, job, call, s);
	for (int r = 0; r < d->size; r++)
		seen += atomic_load_explicit(&d->page->from[r].sync, memory_order_relaxed);
	s->events += seen != s->epoch;
	s->epoch = seen;
	other = differs(d, job, s);
	if (other >= 0) {
		s->pending = (uint32_t)other + 1;
		return COLL_ERR_MISMATCH;
	}
	/* The calls before have ended, too: the word may have been idle for longer than numbers can be compared. */
	if (ended && !mapped_is_past(&d->page->copied, call->stage.number + 2 * (uint32_t)call->tiles))
		atomic_store_explicit(&d->page->copied, call->stage.number + 2 * (uint32_t)call->tiles,
		                      memory_order_release);
	return ended && !is_stale(d, call) ? COLL_OK : COLL_AGAIN;
}

void coll_mapped_where(void *arg, const struct coll_job *job, const struct coll_intra_state *s,
                       struct coll_run_where *where)
{
	const struct coll_mapped *d = arg;

	(void)job;
	where->peer = s->pending ? (int)s->pending - 1 : awaited(d);
	where->frame = s->bad_frame;
}

/* ---- Failure ---- */

void coll_mapped_release(struct coll_comm *comm)
{
	struct coll_mapped *d = coll_mapped_of(comm);

	if (!d || !d->facts.on)
		return;
	/* Before a stream goes on because of this. */
	if (!atomic_load_explicit(&d->page->guard, memory_order_relaxed)) {
		atomic_store(&d->loaned, atomic_load(&d->lends) &&
		                                 !mapped_is_past(&d->page->finished, atomic_load(&d->page->enqueued)));
		/* In front of the guard: the kernels of these have not seen it. */
		atomic_store_explicit(&d->page->sound, atomic_load_explicit(&d->page->signalled, memory_order_acquire),
		                      memory_order_relaxed);
	}
	/* The guard first: a kernel that starts because a wait has ended sees it. */
	atomic_store_explicit(&d->page->guard, 1, memory_order_release);
	for (int r = 0; r < d->size; r++)
		atomic_store_explicit(&d->page->from[r].sync, atomic_load(&d->sync) + RELEASED, memory_order_release);
	atomic_store_explicit(&d->page->copied, atomic_load(&d->steps) + RELEASED, memory_order_release);
	if (mapped_is_past(&d->page->finished, atomic_load(&d->page->enqueued)))
		atomic_store(&d->page->left, 1);
}

/* The peer's process has ended, and its kernels with it. */
static bool is_gone(const struct coll_mapped *d, const struct mapped_peer *p)
{
	/* Nothing has this key, so the answer is the state of the link. */
	const struct coll_channel_key none = coll_mapped_region_key(d, MAPPED_REGIONS, 0);
	int fd = -1;

	return p->transport && p->transport->shared->handed(p->link, &none, &fd) > COLL_AGAIN;
}

/*
 * A peer has left, or has nothing in its streams. If it enqueues something later, it sees that this rank has left: see
 * coll_mapped_claim().
 */
bool coll_mapped_is_let_go(struct coll_comm *comm, bool over)
{
	struct coll_mapped *d = coll_mapped_of(comm);
	bool used = false;

	if (!d || !d->facts.on || !atomic_load(&d->loaned))
		return true;
	coll_mapped_release(comm);
	for (int r = 0; r < d->size; r++) {
		struct mapped_page *page = d->peers[r].page;

		if (r != d->rank && !atomic_load(&page->left) &&
		    !mapped_is_past(&page->finished, atomic_load(&page->enqueued)))
			used |= !is_gone(d, &d->peers[r]);
	}
	if (used && over)
		atomic_store(&d->page->revoked, 1);
	return !used || over;
}
