/*
 * The flight recorder: the last 1000 operations of a rank, for later diagnosis.
 * Each communicator owns a ring of entries, written by the threads that start
 * and run its operations; when the communicator is destroyed, its newest entries move to the
 * context's history. Readers (the service thread, a dump) merge them by time.
 *
 * Nothing here allocates, locks or makes a system call between begin and end.
 *
 * Writers. One thread at a time uses a communicator, so one thread at a time makes
 * entries (begin). The thread that runs the operation, perhaps another one, changes the
 * entry (start, waits, end); it got the operation after begin, which orders the two.
 * An entry has one writer at any time. An entry that is still in use when the ring wraps
 * around to it is kept: the new operation is not recorded but counted as lost, so
 * that a hung operation stays recorded.
 *
 * Counters. What an entry says of an ended operation is added to the counters before the entry is used again: for a
 * batch of entries at once, by the thread that begins. So the shortest calls pay nothing for them. `free_until` is the
 * number of the first operation whose entry has not been counted; all entries from `next` up to it are free. A reader
 * of the counters adds the entries that are not free: see coll_recorder_totals().
 *
 * Readers, and why they are correct. An entry is eight atomic words. The first one is
 * its version: the operation's number on the ring doubled, odd while begin writes.
 *   begin   version = odd, relaxed; release fence; the other words, relaxed;
 *           version = even, release.
 *   reader  version, acquire; the other words, relaxed; acquire fence; version again,
 *           relaxed: equal and even, or the copy is discarded.
 * If the reader saw a word of a later begin, the release fence before that word and the
 * reader's acquire fence make the odd version visible to its second look, which then
 * differs. If the first look saw the even version, its release store made all words of
 * that begin visible. Words that change after begin (way, started, finished, waits) change by
 * single stores, each of which leaves the entry consistent. They are release stores,
 * and readers use acquire loads in the opposite order. So a reader that sees the end of an operation sees
 * its start and its way; one that sees the rank waited for sees the step and the way so far.
 *
 * The way of an operation may be undecided until it has run: it can depend on buffers and on trials. So
 * the word `what` is written at begin with the way as far as it is decided. The entry's writer changes it by
 * coll_recorder_way(), before it stores the end or a wait. Only
 * the seven bits of the way change: whichever value of the word a reader gets, the rest of it is right.
 * The way of the shortest calls is fixed beforehand, so they write the word once.
 * The writer of such a call reads back none of its stores.
 */
#ifndef COLL_RECORD_RECORDER_H
#define COLL_RECORD_RECORDER_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/guards.h"
#include "base/ticks.h"
#include "coll/coll.h"
#include "record/record.h"
#include "record/way.h"

enum { COLL_RECORDER_ENTRIES = 1024, COLL_RECORDER_SHOWN = 1000 };

/* One cache line. */
struct coll_entry {
	_Alignas(64) _Atomic uint64_t version;
	_Atomic uint64_t begun;    /* ticks; of queueing when in a stream */
	_Atomic uint64_t finished; /* 0: not yet; else (ticks since begun) + 2 in 56 bits, status in 8 */
	_Atomic uint64_t what;     /* signature, 32 bits; kind, type, op; way, 7; 0: blocking or 1: in a stream */
	_Atomic uint64_t count;
	_Atomic uint64_t sequence; /* 48 bits; number of the stream, 16 bits */
	_Atomic uint64_t who;      /* root, rank waited for */
	_Atomic uint64_t where;    /* started: ticks since begun / 16 + 1, 40 bits; step, 16; lane, 8 */
};
static_assert(sizeof(struct coll_entry) == 64, "an entry is a cache line");

/* In `finished`: ended well, too soon to be measured. */
#define COLL_ENTRY_QUICK ((uint64_t)1 << 8 | COLL_OK)

/* The ring of one communicator. */
struct coll_recorder {
	struct coll_entry *entries; /* COLL_RECORDER_ENTRIES; NULL: records nothing */
	_Atomic uint64_t next;      /* operations begun; written by the thread that begins */
	uint64_t free_until;        /* of the thread that begins */
	_Atomic uint32_t lost;      /* went unrecorded */
	bool counter;               /* see coll_ticks() */
};

/* What a reader gets. */
enum coll_op_state { COLL_OP_QUEUED, COLL_OP_RUNNING, COLL_OP_ENDED };

struct coll_op_record {
	uint64_t comm;
	uint64_t index; /* number on the ring, from 0 */
	uint64_t sequence;
	uint64_t count;
	uint32_t signature;
	uint8_t kind, type;
	uint8_t op;  /* of send_recv: enum coll_record_message; signature and root as there */
	uint8_t way; /* record/way.h */
	bool in_stream;
	uint16_t stream;
	int32_t root;
	int32_t waits_for; /* rank, -1: no long wait */
	uint16_t step;     /* where it waits */
	uint8_t lane;
	uint8_t status; /* ended */
	bool fastpath;  /* ended too soon to be measured */
	enum coll_op_state state;
	uint64_t begun, started, finished; /* ticks; 0: not yet */
};

/* What operations of one way and one group add up to. */
struct coll_count {
	uint64_t calls, bytes, ticks;
};
enum { COLL_RECORDER_GROUPS = 8 };
struct coll_counts {
	struct coll_count of[COLL_RECORDER_GROUPS][COLL_WAY_MAX + 1];
};

/* Says where an operation is counted: its group, below COLL_RECORDER_GROUPS (-1: nowhere), and its bytes, by kind,
 * type, count and way; of gather, scatter and messages by root, too. Called once for operations alike, in the thread
 * that begins them. */
typedef int coll_recorder_sort_fn(const void *arg, const struct coll_op_record *op, uint64_t *bytes);

coll_status coll_recorder_open(struct coll_recorder *r);
/* Of an open recorder that has recorded nothing: operations are counted. */
void coll_recorder_sort(struct coll_recorder *r, coll_recorder_sort_fn *fn, const void *arg);
void coll_recorder_close(struct coll_recorder *r);

/* ---- Writing ---- */

/* Count and free the entries from that of operation `index` on, some of them. False: that one is still in use, and the
 * new operation, which is not recorded, is counted. */
bool coll_recorder_make_room(struct coll_recorder *r, uint64_t index, uint64_t what, uint64_t count, int32_t root);

static inline uint64_t coll_entry_what(uint32_t signature, uint8_t kind, uint8_t type, uint8_t op, uint8_t way,
                                       bool in_stream)
{
	return (uint64_t)signature << 32 | (uint64_t)kind << 24 | (uint64_t)type << 16 | (uint64_t)op << 8 |
	       (uint64_t)(way & COLL_WAY_MAX) << 1 | in_stream;
}

static inline uint64_t coll_entry_who(int32_t root, int32_t waits_for)
{
	return (uint64_t)(uint32_t)root << 32 | (uint32_t)waits_for;
}

/* The next entry, written. */
static inline struct coll_entry *coll_recorder_take(struct coll_recorder *r, uint64_t sequence, uint64_t what,
                                                    uint64_t count, int32_t root, uint16_t stream, uint64_t finished)
{
	const uint64_t index = atomic_load_explicit(&r->next, memory_order_relaxed);
	struct coll_entry *e;
	uint64_t now;

	if (!COLL_GUARDS || __builtin_expect(!r->entries, false))
		return NULL;
	now = coll_ticks(r->counter); /* before all these stores: behind them it takes 10 ns longer */
	e = &r->entries[index % COLL_RECORDER_ENTRIES];
	atomic_store_explicit(&r->next, index + 1, memory_order_relaxed);
	if (__builtin_expect(index >= r->free_until, false) && !coll_recorder_make_room(r, index, what, count, root))
		return NULL;
	atomic_store_explicit(&e->version, index * 2 + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&e->begun, now, memory_order_relaxed);
	atomic_store_explicit(&e->finished, finished, memory_order_relaxed);
	atomic_store_explicit(&e->what, what, memory_order_relaxed);
	atomic_store_explicit(&e->count, count, memory_order_relaxed);
	atomic_store_explicit(&e->sequence, sequence << 16 | stream, memory_order_relaxed);
	atomic_store_explicit(&e->who, coll_entry_who(root, -1), memory_order_relaxed);
	atomic_store_explicit(&e->where, 0, memory_order_relaxed);
	atomic_store_explicit(&e->version, index * 2 + 2, memory_order_release);
	return e;
}

/* An operation is handed in: run at once (stream 0), or put in a stream (number >= 1)
 * and started later. The entry is the operation's until its end; NULL: not recorded,
 * which the other functions accept. */
static inline struct coll_entry *coll_recorder_begin(struct coll_recorder *r, uint64_t sequence, uint64_t what,
                                                     uint64_t count, int32_t root, uint16_t stream)
{
	return coll_recorder_take(r, sequence, what, count, root, stream, 0);
}

/* The same of a small call that is likely to end at once: written as ended, so that nothing
 * is left to do when it does. */
static inline struct coll_entry *coll_recorder_fastpath(struct coll_recorder *r, uint64_t sequence, uint64_t what,
                                                        uint64_t count, int32_t root)
{
	return coll_recorder_take(r, sequence, what, count, root, 0, COLL_ENTRY_QUICK);
}

/* It has not ended at once. */
static inline void coll_recorder_resume(struct coll_entry *e)
{
	if (COLL_GUARDS && e)
		atomic_store_explicit(&e->finished, 0, memory_order_release);
}

/* An operation of a stream starts to run. */
void coll_recorder_start(const struct coll_recorder *r, struct coll_entry *e);

/* The way it goes, as far as that is known now: see above. */
static inline void coll_recorder_way(struct coll_entry *e, uint8_t way)
{
	const uint64_t bits = (uint64_t)COLL_WAY_MAX << 1;
	uint64_t what;

	if (!COLL_GUARDS || !e)
		return;
	what = atomic_load_explicit(&e->what, memory_order_relaxed); /* the writer's own word */
	if ((what & bits) != (uint64_t)way << 1)
		atomic_store_explicit(&e->what, (what & ~bits) | (uint64_t)way << 1, memory_order_release);
}

/* It has not moved for a while: whom it waits for, and where. */
void coll_recorder_waits(struct coll_entry *e, int32_t peer, uint32_t step, uint32_t lane);

/* Its end. The entry must not be touched afterwards. */
static inline void coll_recorder_end(const struct coll_recorder *r, struct coll_entry *e, coll_status status)
{
	if (!COLL_GUARDS || !e)
		return;
	atomic_store_explicit(&e->finished,
	                      (coll_ticks(r->counter) - atomic_load_explicit(&e->begun, memory_order_relaxed) + 2)
	                                      << 8 |
	                              (uint8_t)status,
	                      memory_order_release);
}

/* The same of a small call that ended well in its first polls: how long it took is not
 * measured. */
static inline void coll_recorder_end_quick(struct coll_entry *e)
{
	if (COLL_GUARDS && e)
		atomic_store_explicit(&e->finished, COLL_ENTRY_QUICK, memory_order_release);
}

/* ---- Reading, any thread ---- */

/* Operation number index of the ring; false: overwritten, not there, or being written.
 * comm is copied into the record. */
bool coll_recorder_read(const struct coll_recorder *r, uint64_t index, uint64_t comm, struct coll_op_record *record);

/* Copy the newest operations, at most max, oldest first; returns how many. */
size_t coll_recorder_copy(const struct coll_recorder *r, uint64_t comm, struct coll_op_record *records, size_t max);

/* The collective call of this sequence number, if it is still on record. */
bool coll_recorder_find(const struct coll_recorder *r, uint64_t comm, uint64_t sequence, struct coll_op_record *record);

/* Add all operations that have ended to *counts, which the caller has set to zero. Of the thread that begins. */
void coll_recorder_totals(const struct coll_recorder *r, struct coll_counts *counts);

/* The newest operations of each communicator that was destroyed. Used with the lock of the
 * context's communicators held. */
struct coll_history {
	struct coll_op_record *records; /* COLL_RECORDER_SHOWN, allocated with the first */
	size_t next;                    /* kept so far */
};
void coll_history_keep(struct coll_history *a, const struct coll_recorder *r, uint64_t comm);
void coll_history_close(struct coll_history *a);

/* The same as a call record: what a rank did in a call that it may have left behind. */
void coll_op_record_call(const struct coll_op_record *op, struct coll_record *call);

#endif
