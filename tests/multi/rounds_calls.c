/*
 * Calls on one communicator, blocking and on streams. Every element of every result is
 * checked; values differ by sender, receiver, place and call.
 */
#include <stdlib.h>
#include <string.h>

#include "rounds.h"

enum { STREAM_COUNT_MAX = 40000 };

static int32_t *in, *out; /* of blocking calls */
static int32_t *streams_in[PENDING_MAX], *streams_out[PENDING_MAX];

bool buffers_open(void)
{
	bool good = true;

	in = calloc(COUNT_MAX + SEATS, 2 * sizeof(*in));
	out = calloc(COUNT_MAX + SEATS, 2 * sizeof(*out));
	for (int i = 0; i < PENDING_MAX; i++) {
		streams_in[i] = calloc(STREAM_COUNT_MAX + 2 * SEATS, sizeof(*in));
		streams_out[i] = calloc(STREAM_COUNT_MAX + 2 * SEATS, sizeof(*out));
		good = good && streams_in[i] && streams_out[i];
	}
	return good && in && out;
}

void buffers_close(void)
{
	free(in);
	free(out);
	for (int i = 0; i < PENDING_MAX; i++) {
		free(streams_in[i]);
		free(streams_out[i]);
	}
}

uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

size_t count_of(int round, int phase, int call)
{
	const uint64_t r = mix(seed ^ mix((uint64_t)round << 32 | (uint64_t)(phase << 16 | call)));
	static const size_t most[4] = {4, 1000, 20000, COUNT_MAX};

	return 1 + (size_t)(r >> 8) % most[r % 4];
}

static int32_t value(int from, int to, size_t i, int call)
{
	return (int32_t)((uint32_t)(from + 1) * 1000003u + (uint32_t)to * 7919u + (uint32_t)i * 31u + (uint32_t)call);
}

static void check(bool right)
{
	if (!right)
		atomic_fetch_add(&seat->wrong, 1);
}

/* ---- Blocking ---- */

static void fill_sum(const struct crowd *c, int32_t *to, size_t count, int call)
{
	for (size_t i = 0; i < count; i++)
		to[i] = value(c->rank, 0, i, call);
}

/* From element first on. */
static bool right_sum(const struct crowd *c, const int32_t *from, size_t first, size_t count, int call)
{
	uint32_t ranks = 0;
	bool right = true;

	for (int r = 0; r < c->size; r++)
		ranks += (uint32_t)value(r, 0, 0, call);
	for (size_t i = first; i < count; i++)
		right &= (uint32_t)from[i] == ranks + (uint32_t)c->size * (uint32_t)i * 31u;
	return right;
}

static void fill_blocks(const struct crowd *c, int32_t *to, size_t count, int call)
{
	for (int r = 0; r < c->size; r++)
		for (size_t i = 0; i < count; i++)
			to[(size_t)r * count + i] = value(c->rank, r, i, call);
}

static bool right_blocks(const struct crowd *c, const int32_t *from, size_t count, int call)
{
	bool right = true;

	for (int r = 0; r < c->size; r++)
		for (size_t i = 0; i < count; i++)
			right &= from[(size_t)r * count + i] == value(r, c->rank, i, call);
	return right;
}

coll_status reduce_once(const struct crowd *c, int round, int phase, int call, bool *stop)
{
	const size_t count = count_of(round, phase, call) + 1;
	coll_status st;

	fill_sum(c, in, count, call);
	in[0] = c->rank == 0 && stop && atomic_load(&board->stop);
	st = coll_all_reduce(in, out, count, COLL_I32, COLL_SUM, c->comm, NULL);
	if (st != COLL_OK)
		return failed_on(c, st);
	check(right_sum(c, out, 1, count, call));
	if (stop)
		*stop = out[0] != 0;
	return COLL_OK;
}

coll_status exchange_once(const struct crowd *c, int round, int phase, int call)
{
	const size_t count = count_of(round, phase, call) / (size_t)c->size + 1;
	coll_status st;

	fill_blocks(c, in, count, call);
	st = coll_all_to_all(in, out, count, COLL_I32, c->comm, NULL);
	if (st != COLL_OK)
		return failed_on(c, st);
	check(right_blocks(c, out, count, call));
	return COLL_OK;
}

/* Every rank but the last receives before it sends: a chain of ranks that wait for one another. */
coll_status chain_once(const struct crowd *c, int round, int call)
{
	const size_t count = count_of(round, PAIRS, call);
	bool right = true;
	coll_status st = COLL_OK;

	for (size_t i = 0; i < count; i++)
		in[i] = value(c->rank, c->rank - 1, i, call);
	if (c->rank < c->size - 1) {
		st = coll_recv(out, count, COLL_I32, c->rank + 1, c->comm, NULL);
		for (size_t i = 0; st == COLL_OK && i < count; i++)
			right &= out[i] == value(c->rank + 1, c->rank, i, call);
	}
	if (st == COLL_OK && c->rank > 0)
		st = coll_send(in, count, COLL_I32, c->rank - 1, c->comm, NULL);
	check(right);
	return failed_on(c, st);
}

/* ---- On streams ---- */

static size_t stream_count(int round, int call)
{
	return 1 + count_of(round, STREAMS, call) % STREAM_COUNT_MAX;
}

/* Buffers by the low digits of the call's number. */
static void prepare(struct pending *p, const struct crowd *c, int call, size_t count, bool exchange)
{
	*p = (struct pending){.crowd = c,
	                      .call = call,
	                      .exchange = exchange,
	                      .count = count,
	                      .in = streams_in[call % PENDING_MAX],
	                      .out = streams_out[call % PENDING_MAX]};
	memset(p->out, 0xee, count * sizeof(*p->out));
}

coll_status begin_reduce(struct pending *p, const struct crowd *c, int round, int call, coll_stream *stream)
{
	prepare(p, c, call, stream_count(round, call), false);
	fill_sum(c, p->in, p->count, call);
	return coll_all_reduce(p->in, p->out, p->count, COLL_I32, COLL_SUM, c->comm, stream);
}

coll_status begin_exchange(struct pending *p, const struct crowd *c, int round, int call, coll_stream *stream)
{
	prepare(p, c, call, stream_count(round, call) / (size_t)c->size + 1, true);
	fill_blocks(c, p->in, p->count, call);
	return coll_all_to_all(p->in, p->out, p->count, COLL_I32, c->comm, stream);
}

void check_pending(const struct pending *p)
{
	check(p->exchange ? right_blocks(p->crowd, p->out, p->count, p->call)
	                  : right_sum(p->crowd, p->out, 0, p->count, p->call));
}

/* Both streams come to their end, whatever happened before. */
static coll_status finish(const struct crowd *c, coll_stream **a, coll_stream **b, coll_status st)
{
	const coll_status of_a = coll_stream_destroy(a), of_b = coll_stream_destroy(b);

	return failed_on(c, st != COLL_OK ? st : of_a != COLL_OK ? of_a : of_b);
}

/* Six calls on two streams, in flight together, one of which waits for a point in the other. */
static coll_status overlap(const struct crowd *c, int round, coll_stream *a, coll_stream *b)
{
	struct pending p[6];
	coll_event *point = NULL;
	coll_status st = coll_event_create(&point, c->comm);

	for (int i = 0; i < 6 && st == COLL_OK; i++) {
		coll_stream *s = i % 2 ? b : a;

		if (i == 2)
			st = coll_event_record(point, a);
		if (i == 3 && st == COLL_OK)
			st = coll_stream_wait_event(b, point);
		if (st == COLL_OK)
			st = i == 4 || i == 3 ? begin_exchange(&p[i], c, round, i, s)
			                      : begin_reduce(&p[i], c, round, i, s);
	}
	if (st == COLL_OK)
		st = coll_stream_wait(a, -1);
	if (st == COLL_OK)
		st = coll_stream_wait(b, -1);
	for (int i = 0; i < 6 && st == COLL_OK; i++)
		check_pending(&p[i]);
	coll_event_destroy(&point);
	return st;
}

/* A ring of messages and small sums, in a group. */
static coll_status grouped(const struct crowd *c, int round, coll_stream *a)
{
	const int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
	const size_t count = stream_count(round, 8);
	struct pending p[2];
	bool right = true;
	coll_status st, end;

	for (size_t i = 0; i < count; i++)
		streams_in[2][i] = value(c->rank, next, i, 8);
	coll_group_begin();
	st = coll_send(streams_in[2], count, COLL_I32, next, c->comm, a);
	if (st == COLL_OK)
		st = coll_recv(streams_out[2], count, COLL_I32, before, c->comm, a);
	for (int i = 0; i < 2 && st == COLL_OK; i++)
		st = begin_reduce(&p[i], c, round, 16 + i, a);
	end = coll_group_end();
	st = st != COLL_OK ? st : end;
	if (st == COLL_OK)
		st = coll_stream_wait(a, -1);
	for (size_t i = 0; i < count && st == COLL_OK; i++)
		right &= streams_out[2][i] == value(before, c->rank, i, 8);
	check(right);
	for (int i = 0; i < 2 && st == COLL_OK; i++)
		check_pending(&p[i]);
	return st;
}

/* One operation, started three times: on a stream, and waited for inline. */
static coll_status persistent(const struct crowd *c, int round, coll_stream *a)
{
	coll_operation_desc desc = COLL_OPERATION_DESC_INIT;
	coll_operation *op = NULL;
	struct pending p;
	coll_status st;

	prepare(&p, c, 24, stream_count(round, 24), false);
	desc.kind = COLL_ALL_REDUCE;
	desc.in = p.in;
	desc.out = p.out;
	desc.count = p.count;
	desc.type = COLL_I32;
	desc.op = COLL_SUM;
	st = coll_operation_prepare(&op, &desc, c->comm);
	for (int i = 0; i < 3 && st == COLL_OK; i++) {
		p.call = 24 + i;
		fill_sum(c, p.in, p.count, p.call);
		st = coll_operation_start(op, i % 2 ? NULL : a);
		if (st == COLL_OK)
			st = coll_operation_wait(op, -1);
		if (st == COLL_OK)
			check_pending(&p);
	}
	coll_operation_destroy(&op);
	return st;
}

/* Calls on a stream, advanced intranode, with a blocking call behind them. */
static coll_status intranode(const struct crowd *c, int round, coll_stream *a)
{
	struct pending p[2];
	coll_status st = begin_exchange(&p[0], c, round, 32, a);

	if (st == COLL_OK)
		st = begin_reduce(&p[1], c, round, 33, a);
	for (int i = 0; i < 50 && st == COLL_OK && coll_stream_query(a) == COLL_AGAIN; i++)
		coll_progress(c->comm);
	if (st == COLL_OK)
		st = reduce_once(c, round, STREAMS, 40, NULL);
	if (st == COLL_OK)
		st = coll_stream_wait(a, -1);
	for (int i = 0; i < 2 && st == COLL_OK; i++)
		check_pending(&p[i]);
	return st;
}

coll_status streams_once(const struct crowd *world, int round, int call)
{
	coll_stream *a = NULL, *b = NULL;
	coll_status st = coll_stream_create(&a, world->comm);

	if (st == COLL_OK)
		st = coll_stream_create(&b, world->comm);
	if (st == COLL_OK)
		st = call == 0   ? overlap(world, round, a, b)
		     : call == 1 ? grouped(world, round, a)
		     : call == 2 ? persistent(world, round, b)
		                 : intranode(world, round, a);
	return finish(world, &a, &b, st);
}
