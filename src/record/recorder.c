/*
 * The flight recorder's cold half: see recorder.h for the order of memory accesses.
 */
#include "record/recorder.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "plan/plan.h"

/* In one mapping: a head in the page of the first entries, the ring, and the counters. */
struct head {
	coll_recorder_sort_fn *sort; /* NULL: nothing is counted */
	const void *arg;
};
enum { HEAD_BYTES = 64, RING_BYTES = COLL_RECORDER_ENTRIES * sizeof(struct coll_entry), BATCH = 256 };
enum { MAPPED_BYTES = HEAD_BYTES + RING_BYTES + sizeof(struct coll_counts) };
static_assert(sizeof(struct head) <= HEAD_BYTES, "entries are cache lines");

static struct head *head_of(const struct coll_recorder *r)
{
	return (struct head *)(void *)((char *)r->entries - HEAD_BYTES);
}

static struct coll_counts *counts_of(const struct coll_recorder *r)
{
	return (struct coll_counts *)(void *)((char *)r->entries + RING_BYTES);
}
enum { WHERE_STEP_MAX = 0xffff, WHERE_LANE_MAX = 0xff };

/* Mapped, not allocated: pages that were never written cost nothing, and most
 * communicators do not live for a thousand operations. */
coll_status coll_recorder_open(struct coll_recorder *r)
{
	void *p = mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return COLL_ERR_MEMORY;
	r->entries = (struct coll_entry *)(void *)((char *)p + HEAD_BYTES);
	r->free_until = COLL_RECORDER_ENTRIES;
	r->counter = coll_ticks_counter();
	return COLL_OK;
}

void coll_recorder_close(struct coll_recorder *r)
{
	if (r->entries)
		munmap(head_of(r), MAPPED_BYTES);
	r->entries = NULL;
}

void coll_recorder_sort(struct coll_recorder *r, coll_recorder_sort_fn *fn, const void *arg)
{
	if (r->entries)
		*head_of(r) = (struct head){fn, arg};
}

/* ---- Writing ---- */

/* The writer's own words: a plain look at them is right. */
void coll_recorder_start(const struct coll_recorder *r, struct coll_entry *e)
{
	uint64_t since;

	if (!e)
		return;
	since = (coll_ticks(r->counter) - atomic_load_explicit(&e->begun, memory_order_relaxed)) / 16 + 1;
	since = since < (uint64_t)1 << 40 ? since : ((uint64_t)1 << 40) - 1;
	atomic_store_explicit(&e->where, since << 24, memory_order_release);
}

void coll_recorder_waits(struct coll_entry *e, int32_t peer, uint32_t step, uint32_t lane)
{
	uint64_t who, where;

	if (!e)
		return;
	who = atomic_load_explicit(&e->who, memory_order_relaxed);
	where = atomic_load_explicit(&e->where, memory_order_relaxed) >> 24 << 24;
	step = step < WHERE_STEP_MAX ? step : WHERE_STEP_MAX;
	lane = lane < WHERE_LANE_MAX ? lane : WHERE_LANE_MAX;
	atomic_store_explicit(&e->where, where | step << 8 | lane, memory_order_release);
	atomic_store_explicit(&e->who, coll_entry_who((int32_t)(who >> 32), peer), memory_order_release);
}

/* ---- Reading ---- */

static void unpack(const uint64_t w[8], struct coll_op_record *o)
{
	const uint64_t begun = w[1], finished = w[2], what = w[3], where = w[7];

	o->begun = begun;
	o->signature = (uint32_t)(what >> 32);
	o->kind = (uint8_t)(what >> 24);
	o->type = (uint8_t)(what >> 16);
	o->op = (uint8_t)(what >> 8);
	o->way = (uint8_t)what >> 1;
	o->in_stream = what & 1;
	o->count = w[4];
	o->sequence = w[5] >> 16;
	o->stream = (uint16_t)w[5];
	o->root = (int32_t)(w[6] >> 32);
	o->waits_for = (int32_t)(uint32_t)w[6];
	o->step = (uint16_t)(where >> 8);
	o->lane = (uint8_t)where;
	o->started = !o->in_stream ? begun : where >> 24 ? begun + ((where >> 24) - 1) * 16 : 0;
	o->fastpath = finished == COLL_ENTRY_QUICK;
	/* Clocks of two cores may differ by a few ticks: never before the beginning. */
	if (finished)
		o->finished = begun + (o->fastpath || finished >> 63 ? 0 : (finished >> 8) - 2);
	o->status = (uint8_t)finished;
	o->state = finished ? COLL_OP_ENDED : o->started ? COLL_OP_RUNNING : COLL_OP_QUEUED;
}

bool coll_recorder_read(const struct coll_recorder *r, uint64_t index, uint64_t comm, struct coll_op_record *record)
{
	const struct coll_entry *e = &r->entries[index % COLL_RECORDER_ENTRIES];
	uint64_t w[8];

	w[0] = atomic_load_explicit(&e->version, memory_order_acquire);
	if (w[0] != index * 2 + 2)
		return false;
	/* First: if the operation has ended, all it wrote before is seen below. */
	w[2] = atomic_load_explicit(&e->finished, memory_order_acquire);
	w[1] = atomic_load_explicit(&e->begun, memory_order_relaxed);
	w[4] = atomic_load_explicit(&e->count, memory_order_relaxed);
	w[5] = atomic_load_explicit(&e->sequence, memory_order_relaxed);
	w[6] = atomic_load_explicit(&e->who, memory_order_acquire);
	w[7] = atomic_load_explicit(&e->where, memory_order_relaxed);
	w[3] = atomic_load_explicit(&e->what, memory_order_relaxed);
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&e->version, memory_order_relaxed) != w[0])
		return false;
	*record = (struct coll_op_record){.comm = comm, .index = index};
	unpack(w, record);
	return true;
}

size_t coll_recorder_copy(const struct coll_recorder *r, uint64_t comm, struct coll_op_record *records, size_t max)
{
	const uint64_t top = atomic_load_explicit(&r->next, memory_order_relaxed);
	uint64_t first = top > COLL_RECORDER_ENTRIES ? top - COLL_RECORDER_ENTRIES : 0;
	size_t n = 0;

	/* Operations that are still under way stay, whatever their number. */
	for (size_t i = 0; first > 0 && i < COLL_RECORDER_ENTRIES && n < max; i++) {
		const uint64_t v = atomic_load_explicit(&r->entries[i].version, memory_order_relaxed);

		n += v >= 2 && v % 2 == 0 && v / 2 <= first && coll_recorder_read(r, v / 2 - 1, comm, &records[n]);
	}
	if (top - first > max - n)
		first = top - (max - n);
	for (uint64_t i = first; r->entries && i < top; i++)
		n += coll_recorder_read(r, i, comm, &records[n]);
	return n;
}

bool coll_recorder_find(const struct coll_recorder *r, uint64_t comm, uint64_t sequence, struct coll_op_record *record)
{
	const uint64_t top = atomic_load_explicit(&r->next, memory_order_relaxed);
	const size_t used = top < COLL_RECORDER_ENTRIES ? (size_t)top : COLL_RECORDER_ENTRIES;

	for (size_t i = 0; r->entries && i < used; i++) {
		const uint64_t v = atomic_load_explicit(&r->entries[i].version, memory_order_relaxed);
		const uint64_t s = atomic_load_explicit(&r->entries[i].sequence, memory_order_relaxed) >> 16;

		if (v >= 2 && s == sequence && coll_recorder_read(r, v / 2 - 1, comm, record) &&
		    record->sequence == sequence && record->kind != COLL_KIND_SEND_RECV)
			return true;
	}
	return false;
}

void coll_op_record_call(const struct coll_op_record *op, struct coll_record *call)
{
	*call = (struct coll_record){.comm = op->comm,
	                             .sequence = op->sequence,
	                             .count = op->count,
	                             .signature = op->signature,
	                             .active = op->state != COLL_OP_ENDED,
	                             .kind = op->kind,
	                             .type = op->type,
	                             .op = op->op,
	                             .root = op->root,
	                             .waits_for = op->waits_for};
}

/* ---- Counters ---- */

/* Operations that follow each other and are counted alike: calls of a loop. Each costs four loads and a few compares.
 */
struct alike {
	uint64_t what, count, root;
	uint64_t calls, ticks;
};

static void count_in(const struct coll_recorder *r, struct coll_counts *counts, const struct alike *a)
{
	const struct head *h = head_of(r);
	struct coll_op_record o = {0};
	struct coll_count *c;
	uint64_t bytes = 0;
	int group;

	if (a->calls == 0 || !h->sort)
		return;
	unpack((const uint64_t[8]){0, 0, COLL_ENTRY_QUICK, a->what, a->count, 0, a->root << 32, 0}, &o);
	group = h->sort(h->arg, &o, &bytes);
	if (group < 0)
		return;
	assert(group < COLL_RECORDER_GROUPS);
	c = &counts->of[group][o.way & COLL_WAY_MAX];
	c->calls += a->calls;
	c->bytes += bytes * a->calls;
	c->ticks += a->ticks;
}

/* The root, where it says how many bytes a call has, or over which transport. Others have roots in turn. */
static uint64_t root_that_counts(const struct coll_entry *e, uint64_t what)
{
	const unsigned kind = (what >> 24) & 0xff;

	if (kind != COLL_KIND_GATHER && kind != COLL_KIND_SCATTER && kind != COLL_KIND_SEND_RECV)
		return 0;
	return atomic_load_explicit(&e->who, memory_order_relaxed) >> 32;
}

/* Ticks from the start to the end of an operation that has ended. */
static uint64_t ticks_of(const struct coll_entry *e, uint64_t finished, uint64_t what)
{
	const uint64_t ticks = finished == COLL_ENTRY_QUICK || finished >> 63 ? 0 : (finished >> 8) - 2;
	uint64_t start;

	if (!(what & 1))
		return ticks;
	start = atomic_load_explicit(&e->where, memory_order_relaxed) >> 24;
	return start > 0 && (start - 1) * 16 < ticks ? ticks - (start - 1) * 16 : 0;
}

/* Count the operations that have ended in the entries of numbers i to end-1; until the first that has not, if `first`.
 * Returns where it stopped. */
static uint64_t count_some(const struct coll_recorder *r, struct coll_counts *counts, uint64_t i, uint64_t end,
                           bool first)
{
	struct alike a = {0};

	for (; i < end; i++) {
		const struct coll_entry *e = &r->entries[i % COLL_RECORDER_ENTRIES];
		/* Acquire: the thread that ended the operation has finished with its entry. */
		const uint64_t finished = atomic_load_explicit(&e->finished, memory_order_acquire);
		/* Without the signature, which depends on the root or is a tag. */
		const uint64_t what = (uint32_t)atomic_load_explicit(&e->what, memory_order_relaxed);
		const uint64_t count = atomic_load_explicit(&e->count, memory_order_relaxed);
		const uint64_t root = root_that_counts(e, what);

		if (!finished && first)
			break;
		if (!finished)
			continue;
		if (what != a.what || count != a.count || root != a.root) {
			count_in(r, counts, &a);
			a = (struct alike){.what = what, .count = count, .root = root};
		}
		a.calls++;
		a.ticks += ticks_of(e, finished, what);
	}
	count_in(r, counts, &a);
	return i;
}

bool coll_recorder_make_room(struct coll_recorder *r, uint64_t index, uint64_t what, uint64_t count, int32_t root)
{
	r->free_until = count_some(r, counts_of(r), index, index + BATCH, true);
	if (r->free_until > index)
		return true;
	count_in(r, counts_of(r), &(struct alike){what, count, (uint32_t)root, 1, 0});
	atomic_fetch_add_explicit(&r->lost, 1, memory_order_relaxed);
	return false;
}

void coll_recorder_totals(const struct coll_recorder *r, struct coll_counts *counts)
{
	const uint64_t next = atomic_load_explicit(&r->next, memory_order_relaxed);

	if (!r->entries)
		return;
	*counts = *counts_of(r);
	/* From free_until on, one round of the ring up to `next`. */
	count_some(r, counts, r->free_until > next ? r->free_until : next, next + COLL_RECORDER_ENTRIES, false);
}

/* ---- What is gone ---- */

enum { ATTIC_EACH = 64 };

void coll_history_keep(struct coll_history *a, const struct coll_recorder *r, uint64_t comm)
{
	struct coll_op_record last[ATTIC_EACH];
	const size_t n = coll_recorder_copy(r, comm, last, ATTIC_EACH);

	if (n > 0 && !a->records)
		a->records = calloc(COLL_RECORDER_SHOWN, sizeof(*a->records));
	for (size_t i = 0; a->records && i < n; i++)
		a->records[a->next++ % COLL_RECORDER_SHOWN] = last[i];
}

void coll_history_close(struct coll_history *a)
{
	free(a->records);
	a->records = NULL;
}
