/*
 * The calls of one round: a seeded mix, the same on all ranks, blocking, on streams, in
 * groups or persistent, every result checked. They go on until one of them fails, which
 * must be by the abort, and tell who aborted and why. How long that took counts from the
 * abort, or from the beginning of a call that began later.
 */
#include "abort.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"

enum { SLOW_MS = 30 };

/* ---- One call and its end ---- */

/* A call that began at entered_ns has returned. */
static void account(struct abort_rank *me, uint64_t entered_ns)
{
	const uint64_t now = coll_clock_ns(), abort_ns = atomic_load(&me->round->begun_ns);
	uint64_t from = entered_ns > abort_ns ? entered_ns : abort_ns, most;

	if (abort_ns == 0 || now <= abort_ns)
		return;
	if (entered_ns < abort_ns)
		atomic_fetch_add(&me->round->pending, 1);
	most = atomic_load(&me->round->took_ns);
	while (now - from > most && !atomic_compare_exchange_weak(&me->round->took_ns, &most, now - from)) {
	}
	if (now - from > SLOW_MS * UINT64_C(1000000))
		fprintf(stderr,
		        "     slow: %s, %d ranks, by %s, round %d (manner %d, aborter %d): rank %d took %.1f ms: %s\n",
		        job.transport, job.size, job.by_thread ? "a thread" : "the caller", me->number,
		        (int)me->plan.manner, me->plan.aborter, me->rank, (double)(now - from) / 1e6,
		        coll_last_error(me->comm)->message);
}

/* What every rank must be told. */
static void look_at_error(struct abort_rank *me, coll_status st)
{
	const coll_error *e = coll_last_error(me->comm);
	char reason[64];

	me->over = true;
	snprintf(reason, sizeof(reason), "enough of round %d", me->number);
	if (st != COLL_ERR_ABORTED || e->status != st)
		abort_fail(me, "not aborted but", e->message);
	else if (e->rank != me->plan.aborter || !strstr(e->message, reason) ||
	         !strstr(e->message, "aborted the communicator"))
		abort_fail(me, "told something else:", e->message);
}

/* False: the round is over for this rank. */
static bool ended(struct abort_rank *me, coll_status st, uint64_t entered_ns)
{
	account(me, entered_ns);
	if (st != COLL_OK)
		look_at_error(me, st);
	return st == COLL_OK;
}

/* ---- Calls ---- */

enum kind { REDUCE, EXCHANGE, SPREAD, RING, MEET, KINDS };

struct draw {
	enum kind kind;
	size_t count; /* elements in and out, at most ABORT_COUNT_MAX */
	int call;
};

/* Equal on all ranks: half of the calls are tiny, the others up to 1 MiB. */
static struct draw draw(const struct abort_rank *me, int call)
{
	static const enum kind kinds[8] = {REDUCE, REDUCE, REDUCE, EXCHANGE, EXCHANGE, SPREAD, RING, MEET};
	const uint64_t r = coll_mix64(me->plan.seed + (uint64_t)call);
	const size_t most = r >> 60 < 8 ? 16 : r >> 60 < 14 ? 20000 : ABORT_COUNT_MAX;
	struct draw d = {.kind = kinds[r % 8], .count = 1 + (r >> 8) % most, .call = call};

	if (d.kind == EXCHANGE)
		d.count = (d.count / (size_t)job.size + 1) * (size_t)job.size -
		          (d.count + 4 > ABORT_COUNT_MAX ? (size_t)job.size : 0);
	return d;
}

static int32_t value(int from, int to, size_t i, int call)
{
	return (int32_t)((uint32_t)(from + 1) * 1000003u + (uint32_t)to * 7919u + (uint32_t)i * 31u + (uint32_t)call);
}

static void fill(const struct abort_rank *me, const struct draw *d, int32_t *in)
{
	const size_t block = d->count / (size_t)job.size;

	for (size_t i = 0; i < d->count; i++)
		in[i] = d->kind == EXCHANGE ? value(me->rank, (int)(i / block), i % block, d->call)
		                            : value(me->rank, 0, i, d->call);
}

static coll_status begin(const struct abort_rank *me, const struct draw *d, const int32_t *in, int32_t *out,
                         coll_stream *s)
{
	const int next = (me->rank + 1) % job.size, before = (me->rank + job.size - 1) % job.size;

	switch (d->kind) {
	case REDUCE: return coll_all_reduce(in, out, d->count, COLL_I32, COLL_SUM, me->comm, s);
	case EXCHANGE: return coll_all_to_all(in, out, d->count / (size_t)job.size, COLL_I32, me->comm, s);
	case SPREAD: return coll_broadcast(in, out, d->count, COLL_I32, d->call % job.size, me->comm, s);
	case RING: return coll_send_recv(in, d->count, next, out, d->count, before, COLL_I32, me->comm, s);
	default: return coll_barrier(me->comm, s);
	}
}

static void check(struct abort_rank *me, const struct draw *d, const int32_t *out)
{
	const int before = (me->rank + job.size - 1) % job.size;
	const size_t block = d->count / (size_t)job.size;
	uint32_t ranks = 0;
	bool right = true;

	for (int r = 0; r < job.size; r++)
		ranks += (uint32_t)value(r, 0, 0, d->call);
	for (size_t i = 0; i < d->count; i++)
		switch (d->kind) {
		case REDUCE: right &= (uint32_t)out[i] == ranks + (uint32_t)job.size * (uint32_t)i * 31u; break;
		case EXCHANGE: right &= out[i] == value((int)(i / block), me->rank, i % block, d->call); break;
		case SPREAD: right &= out[i] == value(d->call % job.size, 0, i, d->call); break;
		case RING: right &= out[i] == value(before, 0, i, d->call); break;
		default: break;
		}
	if (!right)
		abort_fail(me, "a wrong result", "");
}

/* ---- Calls of a round, by manner, until one of them fails ---- */

/* The calling thread aborts, when it is its turn and its time. */
static void abort_if_due(struct abort_rank *me)
{
	if (!job.by_thread && me->rank == me->plan.aborter && !atomic_load(&me->round->begun_ns) &&
	    coll_clock_ns() >= me->at)
		abort_now(me);
}

static void go_on_blocking(struct abort_rank *me)
{
	for (int call = 0; !me->over; call++) {
		const struct draw d = draw(me, call);
		uint64_t entered_ns;

		fill(me, &d, me->in[0]);
		abort_if_due(me);
		entered_ns = coll_clock_ns();
		if (ended(me, begin(me, &d, me->in[0], me->out[0], NULL), entered_ns))
			check(me, &d, me->out[0]);
	}
}

/* Some at a time; the caller may abort while they are on their way. */
static void go_on_by_stream(struct abort_rank *me)
{
	coll_stream *s = NULL;

	if (coll_stream_create(&s, me->comm) != COLL_OK) {
		abort_fail(me, "no stream", "");
		me->over = true;
	}
	for (int call = 0; !me->over; call += ABORT_BATCH) {
		struct draw d[ABORT_BATCH];
		coll_status st = COLL_OK;
		uint64_t entered_ns;

		for (int i = 0; i < ABORT_BATCH; i++) {
			d[i] = draw(me, call + i);
			fill(me, &d[i], me->in[i]);
		}
		entered_ns = coll_clock_ns();
		for (int i = 0; i < ABORT_BATCH && st == COLL_OK; i++)
			st = begin(me, &d[i], me->in[i], me->out[i], s);
		abort_if_due(me);
		/* The buffers are the library's until the stream is complete, whatever a call said. */
		if (coll_stream_wait(s, -1) != COLL_OK && st == COLL_OK)
			st = coll_stream_query(s);
		if (ended(me, st, entered_ns))
			for (int i = 0; i < ABORT_BATCH; i++)
				check(me, &d[i], me->out[i]);
	}
	coll_stream_destroy(&s);
}

static void go_on_by_groups(struct abort_rank *me)
{
	for (int call = 0; !me->over; call += ABORT_BATCH) {
		struct draw d[ABORT_BATCH];
		coll_status st = COLL_OK, end;
		uint64_t entered_ns;

		for (int i = 0; i < ABORT_BATCH; i++) {
			d[i] = draw(me, call + i);
			fill(me, &d[i], me->in[i]);
		}
		abort_if_due(me);
		entered_ns = coll_clock_ns();
		coll_group_begin();
		for (int i = 0; i < ABORT_BATCH && st == COLL_OK; i++)
			st = begin(me, &d[i], me->in[i], me->out[i], NULL);
		end = coll_group_end();
		if (ended(me, st == COLL_OK ? end : st, entered_ns))
			for (int i = 0; i < ABORT_BATCH; i++)
				check(me, &d[i], me->out[i]);
	}
}

/* Started, left alone for a blocking call in between (every other time), waited for. */
static void go_on_persistently(struct abort_rank *me)
{
	const coll_operation_desc desc = {.struct_size = sizeof(desc),
	                                  .kind = COLL_ALL_REDUCE,
	                                  .in = me->in[1],
	                                  .out = me->out[1],
	                                  .count = me->plan.seed % 2 ? 8 : 30000,
	                                  .type = COLL_I32,
	                                  .op = COLL_SUM};
	struct draw mine = {.kind = REDUCE, .count = desc.count};
	coll_operation *op = NULL;
	uint64_t entered_ns = coll_clock_ns();

	ended(me, coll_operation_prepare(&op, &desc, me->comm), entered_ns);
	for (int call = 0; !me->over; call++) {
		const struct draw d = draw(me, call);
		coll_status st, between = COLL_OK;

		mine.call = call;
		fill(me, &mine, me->in[1]);
		fill(me, &d, me->in[0]);
		entered_ns = coll_clock_ns();
		st = coll_operation_start(op, NULL);
		if (st == COLL_OK && call % 2)
			between = begin(me, &d, me->in[0], me->out[0], NULL);
		abort_if_due(me);
		if (st == COLL_OK)
			st = coll_operation_wait(op, -1);
		if (st == COLL_OK)
			check(me, &mine, me->out[1]);
		if (ended(me, between == COLL_OK ? st : between, entered_ns) && call % 2)
			check(me, &d, me->out[0]);
	}
	coll_operation_destroy(&op);
}

void abort_calls(struct abort_rank *me)
{
	static void (*const go_on[MANNERS])(struct abort_rank *) = {go_on_blocking, go_on_by_stream, go_on_by_groups,
	                                                            go_on_persistently};

	go_on[me->plan.manner](me);
}
