/*
 * The flight recorder: what is written is read, a hung operation stays on record, and
 * readers that race with writers get whole entries or none. The racing half is why this
 * is a plain program: run it under ThreadSanitizer.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "base/hash.h"
#include "plan/plan.h"
#include "record/recorder.h"

#include "tests/plain.h"

enum { N = COLL_RECORDER_ENTRIES, WRITERS = 3, ROUNDS = 60000 };

static const uint64_t COMM = 0x1234;

static struct coll_entry *begin(struct coll_recorder *r, uint64_t sequence)
{
	return coll_recorder_begin(
	        r, sequence,
	        coll_entry_what((uint32_t)sequence, COLL_KIND_ALL_REDUCE, COLL_F32, COLL_SUM, COLL_WAY_UNKNOWN, false),
	        sequence * 3, (int32_t)(sequence % 7), 0);
}

TEST(recorder, what_is_written_is_read)
{
	struct coll_recorder r = {0};
	struct coll_op_record o;
	struct coll_entry *e;

	REQUIRE(coll_recorder_open(&r) == COLL_OK);
	CHECK(!coll_recorder_read(&r, 0, COMM, &o));
	e = coll_recorder_begin(&r, 12, coll_entry_what(77, COLL_KIND_BROADCAST, COLL_BF16, 0, 0, true), 99, 3, 5);
	REQUIRE(coll_recorder_read(&r, 0, COMM, &o));
	CHECK(o.state == COLL_OP_QUEUED && o.in_stream && o.stream == 5 && o.sequence == 12 && o.count == 99);
	CHECK(o.signature == 77 && o.kind == COLL_KIND_BROADCAST && o.type == COLL_BF16 && o.root == 3);
	CHECK(o.comm == COMM && o.waits_for == -1 && o.started == 0 && o.finished == 0);
	coll_recorder_start(&r, e);
	REQUIRE(coll_recorder_read(&r, 0, COMM, &o));
	CHECK(o.state == COLL_OP_RUNNING && o.started + 16 >= o.begun);
	coll_recorder_waits(e, 4, 1000, 2);
	coll_recorder_waits(e, 6, 70000, 2);
	REQUIRE(coll_recorder_read(&r, 0, COMM, &o));
	CHECK(o.waits_for == 6 && o.step == 65535 && o.lane == 2 && o.root == 3 && o.state == COLL_OP_RUNNING);
	coll_recorder_end(&r, e, COLL_ERR_PEER_DEAD);
	REQUIRE(coll_recorder_read(&r, 0, COMM, &o));
	CHECK(o.state == COLL_OP_ENDED && o.status == COLL_ERR_PEER_DEAD && o.finished >= o.begun);
	coll_recorder_close(&r);
}

TEST(recorder, the_way_changes_and_nothing_else)
{
	struct coll_recorder r = {0};
	struct coll_op_record o;
	struct coll_entry *e;

	REQUIRE(coll_recorder_open(&r) == COLL_OK);
	for (int in_stream = 0; in_stream < 2; in_stream++) {
		e = coll_recorder_begin(
		        &r, 12, coll_entry_what(0xfffffff7, COLL_KIND_SCAN, COLL_BF16, 255, COLL_WAY_CICO, in_stream),
		        99, 3, 5);
		for (unsigned way = 0; way <= COLL_WAY_MAX + 1; way++) {
			const unsigned written = way == 0 ? COLL_WAY_CICO : way - 1;

			if (way > 0)
				coll_recorder_way(e, (uint8_t)written);
			REQUIRE(coll_recorder_read(&r, (uint64_t)in_stream, COMM, &o));
			CHECK(o.way == written && o.in_stream == in_stream, "way %u: %u", written, o.way);
			CHECK(o.signature == 0xfffffff7 && o.kind == COLL_KIND_SCAN && o.type == COLL_BF16 &&
			      o.op == 255);
		}
		coll_recorder_waits(e, 1, 2, 3);
		coll_recorder_end(&r, e, COLL_OK);
		REQUIRE(coll_recorder_read(&r, (uint64_t)in_stream, COMM, &o));
		CHECK(o.way == COLL_WAY_MAX && o.state == COLL_OP_ENDED && o.waits_for == 1);
	}
	coll_recorder_way(NULL, 1);
	coll_recorder_close(&r);
}

TEST(recorder, newest_thousand_stay_in_order)
{
	struct coll_op_record *o = calloc(COLL_RECORDER_SHOWN, sizeof(*o));
	struct coll_recorder r = {0};
	size_t n;

	REQUIRE(o && coll_recorder_open(&r) == COLL_OK);
	for (uint64_t s = 1; s <= 5000; s++)
		coll_recorder_end(&r, begin(&r, s), COLL_OK);
	n = coll_recorder_copy(&r, COMM, o, COLL_RECORDER_SHOWN);
	CHECK(n == COLL_RECORDER_SHOWN, "%zu", n);
	for (size_t i = 0; i < n; i++)
		CHECK(o[i].sequence == 4001 + i && o[i].count == 3 * (4001 + i), "%zu", i);
	CHECK(coll_recorder_find(&r, COMM, 4500, o) && o->signature == 4500);
	CHECK(coll_recorder_find(&r, COMM, 5000, o) && o->count == 15000);
	CHECK(!coll_recorder_find(&r, COMM, 3000, o));
	CHECK(!coll_recorder_find(&r, COMM, 5001, o));
	coll_recorder_close(&r);
	free(o);
}

TEST(recorder, hung_operation_stays_on_record)
{
	struct coll_op_record *o = calloc(COLL_RECORDER_SHOWN, sizeof(*o));
	struct coll_recorder r = {0};
	struct coll_entry *hung;
	size_t n;

	REQUIRE(o && coll_recorder_open(&r) == COLL_OK);
	hung = begin(&r, 1);
	coll_recorder_waits(hung, 2, 1, 0);
	for (uint64_t s = 2; s <= 3 * N; s++)
		coll_recorder_end(&r, begin(&r, s), COLL_OK);
	CHECK(r.lost == 2, "%u", r.lost);
	n = coll_recorder_copy(&r, COMM, o, COLL_RECORDER_SHOWN);
	CHECK(n == COLL_RECORDER_SHOWN && o[0].sequence == 1 && o[0].state == COLL_OP_RUNNING && o[0].waits_for == 2);
	CHECK(o[n - 1].sequence == 3 * N);
	/* Its entry is its own until it ends, and free afterwards. */
	coll_recorder_end(&r, hung, COLL_OK);
	CHECK(begin(&r, 4 * N) == hung);
	coll_recorder_close(&r);
	free(o);
}

/* ---- Counters ---- */

/* By the parity of the sequence number; multiples of 100 do not count. */
static int by_parity(const void *arg, const struct coll_op_record *o, uint64_t *bytes)
{
	CHECK(arg == &COMM && o->state == COLL_OP_ENDED);
	*bytes = o->count;
	return o->count % 300 == 0 ? -1 : (int)(o->count % 2);
}

TEST(recorder, every_operation_that_has_ended_is_counted_once)
{
	struct coll_counts *c = calloc(1, sizeof(*c));
	struct coll_recorder r = {0};
	uint64_t calls[2] = {0}, bytes[2] = {0};

	REQUIRE(c && coll_recorder_open(&r) == COLL_OK);
	coll_recorder_sort(&r, by_parity, &COMM);
	for (uint64_t s = 2; s <= 5000; s++) {
		coll_recorder_end(&r, begin(&r, s), COLL_OK);
		calls[s % 2] += s % 100 != 0;
		bytes[s % 2] += s % 100 != 0 ? s * 3 : 0;
		if (s % 191 && s < 4990)
			continue;
		*c = (struct coll_counts){0};
		coll_recorder_totals(&r, c);
		for (int g = 0; g < 2; g++)
			CHECK(c->of[g][COLL_WAY_UNKNOWN].calls == calls[g] &&
			              c->of[g][COLL_WAY_UNKNOWN].bytes == bytes[g],
			      "%d: %d", (int)s, (int)c->of[g][COLL_WAY_UNKNOWN].calls);
	}
	coll_recorder_close(&r);
	free(c);
}

/* Some are still under way when the ring has gone round: they are counted when they have ended, and those that had no
 * entry at once. */
static int by_way(const void *arg, const struct coll_op_record *o, uint64_t *bytes)
{
	*bytes = 1;
	return 7;
}

TEST(recorder, late_ends_count_too)
{
	struct coll_counts *c = calloc(1, sizeof(*c));
	struct coll_recorder r = {0};
	struct coll_entry *hung[5];
	uint64_t last = 5000 - 5;

	REQUIRE(c && coll_recorder_open(&r) == COLL_OK);
	coll_recorder_sort(&r, by_way, NULL);
	for (uint64_t s = 1; s <= 5000; s++) {
		struct coll_entry *e = begin(&r, s);

		if (s >= 300 && s < 305)
			hung[s - 300] = e;
		else
			coll_recorder_end(&r, e, COLL_OK);
		if (s == 2500) {
			coll_recorder_way(hung[1], 9);
			coll_recorder_end(&r, hung[1], COLL_OK);
			last++;
		}
	}
	coll_recorder_totals(&r, c);
	CHECK(r.lost > 0 && c->of[7][9].calls == 1);
	CHECK(c->of[7][0].calls + c->of[7][9].calls == last, "%d", (int)c->of[7][0].calls);
	for (int i = 0; i < 5; i++)
		if (i != 1)
			coll_recorder_end(&r, hung[i], COLL_OK);
	for (uint64_t s = 5001; s <= 8000; s++)
		coll_recorder_end(&r, begin(&r, s), COLL_OK);
	*c = (struct coll_counts){0};
	coll_recorder_totals(&r, c);
	CHECK(c->of[7][0].calls == 7999 && c->of[7][9].calls == 1 && c->of[7][0].bytes == 7999);
	coll_recorder_close(&r);
	free(c);
}

TEST(recorder, without_memory_nothing_is_recorded)
{
	struct coll_recorder r = {0};
	struct coll_op_record o;
	struct coll_entry *e = begin(&r, 1);

	CHECK(!e);
	coll_recorder_start(&r, e);
	coll_recorder_waits(e, 1, 1, 1);
	coll_recorder_end(&r, e, COLL_OK);
	CHECK(coll_recorder_copy(&r, COMM, &o, 1) == 0 && !coll_recorder_find(&r, COMM, 1, &o));
}

TEST(recorder, history_keeps_the_last_of_each)
{
	struct coll_history a = {0};
	struct coll_recorder r = {0};

	REQUIRE(coll_recorder_open(&r) == COLL_OK);
	coll_history_keep(&a, &r, 1);
	CHECK(a.next == 0 && !a.records);
	for (uint64_t s = 1; s <= 100; s++)
		coll_recorder_end(&r, begin(&r, s), COLL_OK);
	for (uint64_t c = 1; c <= 50; c++)
		coll_history_keep(&a, &r, c);
	CHECK(a.next == 50 * 64);
	for (size_t i = a.next - COLL_RECORDER_SHOWN; i < a.next; i++) {
		const struct coll_op_record *o = &a.records[i % COLL_RECORDER_SHOWN];

		CHECK(o->comm == i / 64 + 1 && o->sequence == 37 + i % 64);
	}
	coll_history_close(&a);
	coll_recorder_close(&r);
}

TEST(recorder, stamps_are_calendar_time)
{
	const bool counter = coll_ticks_counter();
	struct coll_moment first, middle, last;
	struct timespec ms = {.tv_nsec = 5000000};
	int64_t off;

	coll_moment_take(&first, counter);
	nanosleep(&ms, NULL);
	coll_moment_take(&middle, counter);
	nanosleep(&ms, NULL);
	coll_moment_take(&last, counter);
	off = (int64_t)(coll_ticks_real_ns(&first, &last, middle.ticks) - middle.real_ns);
	CHECK(off > -1000000 && off < 1000000, "%lld ns", (long long)off);
	CHECK(coll_ticks_real_ns(&first, &last, last.ticks) == last.real_ns);
}

/* ---- Racing ---- */

/* Every word of an operation follows from its sequence number. */
static bool whole(const struct coll_op_record *o)
{
	const uint64_t s = o->sequence;

	return o->count == s * 3 && o->signature == (uint32_t)s && o->root == (int32_t)(s % 7) && o->index + 1 == s &&
	       (o->state != COLL_OP_ENDED || (o->status == s % 40 && o->waits_for == (int32_t)(s % 5))) &&
	       (o->way == s % 128 || (o->way == COLL_WAY_UNKNOWN && o->waits_for == -1)) &&
	       (o->waits_for == -1 || (o->waits_for == (int32_t)(s % 5) && o->step == s % 1000));
}

struct race {
	struct coll_recorder rings[WRITERS];
	atomic_int left;
	atomic_ullong read;
};

static void *write_many(void *arg)
{
	struct coll_recorder *r = arg;

	for (uint64_t s = 1; s <= ROUNDS; s++) {
		struct coll_entry *e = begin(r, s);

		coll_recorder_way(e, (uint8_t)(s % 128));
		coll_recorder_waits(e, (int32_t)(s % 5), (uint32_t)(s % 1000), 0);
		coll_recorder_end(r, e, (coll_status)(s % 40));
	}
	return NULL;
}

static void *read_many(void *arg)
{
	struct race *race = arg;
	struct coll_op_record *o = calloc(COLL_RECORDER_SHOWN, sizeof(*o)), near;

	while (atomic_load(&race->left) > 0)
		for (int w = 0; w < WRITERS; w++) {
			const struct coll_recorder *r = &race->rings[w];
			const uint64_t top = atomic_load(&r->next);
			const size_t n = coll_recorder_copy(r, COMM, o, COLL_RECORDER_SHOWN);

			/* Where the writer is most likely to be. */
			for (int i = 0; i < 5000; i++)
				if (coll_recorder_read(r, atomic_load(&r->next) - 1, COMM, &near))
					CHECK(whole(&near), "sequence %llu", (unsigned long long)near.sequence);
			atomic_fetch_add(&race->read, n);
			for (size_t i = 0; i < n; i++)
				CHECK(whole(&o[i]), "sequence %llu", (unsigned long long)o[i].sequence);
			if (top > 0 && coll_recorder_find(r, COMM, top, o))
				CHECK(o->sequence == top && whole(o));
		}
	free(o);
	return NULL;
}

TEST(recorder, readers_get_whole_entries_or_none)
{
	static struct race race;
	pthread_t writers[WRITERS], readers[2];

	atomic_store(&race.left, 1);
	for (int w = 0; w < WRITERS; w++)
		REQUIRE(coll_recorder_open(&race.rings[w]) == COLL_OK);
	for (int i = 0; i < 2; i++)
		pthread_create(&readers[i], NULL, read_many, &race);
	for (int w = 0; w < WRITERS; w++)
		pthread_create(&writers[w], NULL, write_many, &race.rings[w]);
	for (int w = 0; w < WRITERS; w++)
		pthread_join(writers[w], NULL);
	/* At least one whole reading of full rings. */
	while (atomic_load(&race.read) < COLL_RECORDER_SHOWN)
		sched_yield();
	atomic_store(&race.left, 0);
	for (int i = 0; i < 2; i++)
		pthread_join(readers[i], NULL);
	for (int w = 0; w < WRITERS; w++) {
		CHECK(race.rings[w].lost == 0);
		coll_recorder_close(&race.rings[w]);
	}
}

/* The thread that queues and the one that runs: the entry changes hands. */
struct belt {
	struct coll_recorder ring;
	struct coll_entry *_Atomic slot[64];
};

static void *run_queued(void *arg)
{
	struct belt *b = arg;

	for (uint64_t s = 1; s <= ROUNDS; s++) {
		struct coll_entry *e;

		while (!(e = atomic_load_explicit(&b->slot[s % 64], memory_order_acquire)))
			sched_yield();
		atomic_store_explicit(&b->slot[s % 64], NULL, memory_order_release);
		coll_recorder_start(&b->ring, e);
		coll_recorder_way(e, (uint8_t)(s % 128));
		coll_recorder_waits(e, (int32_t)(s % 5), (uint32_t)(s % 1000), 0);
		coll_recorder_end(&b->ring, e, (coll_status)(s % 40));
	}
	return NULL;
}

TEST(recorder, an_entry_changes_hands)
{
	static struct belt b;
	struct coll_op_record o;
	pthread_t runner;

	REQUIRE(coll_recorder_open(&b.ring) == COLL_OK);
	pthread_create(&runner, NULL, run_queued, &b);
	for (uint64_t s = 1; s <= ROUNDS; s++) {
		struct coll_entry *e = begin(&b.ring, s);

		REQUIRE(e);
		while (atomic_load_explicit(&b.slot[s % 64], memory_order_acquire))
			sched_yield();
		atomic_store_explicit(&b.slot[s % 64], e, memory_order_release);
	}
	pthread_join(runner, NULL);
	CHECK(coll_recorder_find(&b.ring, COMM, ROUNDS, &o) && whole(&o) && o.state == COLL_OP_ENDED);
	coll_recorder_close(&b.ring);
}
