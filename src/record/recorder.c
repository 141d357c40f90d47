/*
 * The flight recorder's cold half: see recorder.h for the order of memory accesses.
 */
#include "record/recorder.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "plan/plan.h"

enum { RING_BYTES = COLL_RECORDER_ENTRIES * sizeof(struct coll_entry) };
enum { WHERE_STEP_MAX = 0xffff, WHERE_LANE_MAX = 0xff };

/* Mapped, not allocated: pages that were never written cost nothing, and most
 * communicators do not live for a thousand operations. */
coll_status coll_recorder_open(struct coll_recorder *r)
{
	void *p = mmap(NULL, RING_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return COLL_ERR_MEMORY;
	r->entries = p;
	r->counter = coll_ticks_counter();
	return COLL_OK;
}

void coll_recorder_close(struct coll_recorder *r)
{
	if (r->entries)
		munmap(r->entries, RING_BYTES);
	r->entries = NULL;
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
