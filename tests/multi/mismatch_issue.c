/*
 * Making the calls of a case in one of the ways to make calls: inline, on streams, in a
 * group, as persistent operations.
 */
#include <stdlib.h>
#include <string.h>

#include "mismatch.h"
#include "plain.h"

enum { BUFFER_BYTES = 8 << 20 };

const char *const mode_names[MODES] = {"blocking",   "stream",  "two_streams", "event",       "group",  "stream_group",
                                       "persistent", "started", "odd_blocks",  "odd_streams", "pending"};

/* Of one call: calls in flight must not share buffers. */
struct place {
	char *in, *out;
	size_t sends[RANKS_MAX], expects[RANKS_MAX];
};

static struct place places[RANKS_MAX][CALLS_MAX];

static struct place *place_of(const struct caller *c, int i)
{
	struct place *p = &places[c->rank][i];

	if (!p->in) {
		p->in = calloc(1, BUFFER_BYTES);
		p->out = calloc(1, BUFFER_BYTES);
	}
	return p;
}

/* Elements from one rank to another as this rank sees it. */
static size_t length(const struct caller *c, const struct call *k, int from, int to)
{
	const struct blocks *b = &k->blocks;
	const int other = c->odd == 0 ? 1 : 0;
	const bool rooted = k->kind == COLL_GATHER || k->kind == COLL_SCATTER;

	if (c->rank != c->odd)
		return b->usual;
	if (!b->by_pairs)
		return b->odd;
	if (from == c->odd && to == other && (rooted || !b->expects))
		return b->odd;
	if (to == c->odd && from == other && (rooted || b->expects))
		return b->odd;
	return b->usual;
}

static void fill_lengths(const struct caller *c, const struct call *k, struct place *p)
{
	for (int r = 0; r < c->size; r++) {
		p->sends[r] = length(c, k, c->rank, r);
		p->expects[r] = length(c, k, r, c->rank);
	}
}

static int root_of(const struct caller *c, const struct call *k)
{
	switch (k->root) {
	case NEXT: return (c->rank + 1) % c->size;
	case BEFORE: return (c->rank + c->size - 1) % c->size;
	case ODD: return c->odd;
	case USUAL: return c->odd == 0 ? 1 : 0;
	default: return k->root;
	}
}

static coll_operation_desc description(const struct caller *c, const struct call *k, struct place *p)
{
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;

	d.kind = (coll_collective)k->kind;
	d.in = p->in;
	d.out = p->out;
	d.count = k->count;
	d.type = k->type;
	d.op = k->own_op ? c->own_op : k->op;
	d.root = root_of(c, k);
	d.ragged = k->ragged;
	fill_lengths(c, k, p);
	if (!k->ragged)
		return d;
	d.in_counts = k->kind == COLL_GATHER ? NULL : p->sends;
	d.out_counts = k->kind == COLL_SCATTER ? NULL : p->expects;
	if (k->kind == COLL_GATHER || k->kind == COLL_SCATTER)
		d.count = k->kind == COLL_GATHER ? p->sends[0] : p->expects[0];
	return d;
}

static coll_status rooted(const struct caller *c, const coll_operation_desc *d, coll_stream *s)
{
	switch ((int)d->kind) {
	case COLL_BROADCAST: return coll_broadcast(d->in, d->out, d->count, d->type, d->root, c->comm, s);
	case COLL_REDUCE: return coll_reduce(d->in, d->out, d->count, d->type, d->op, d->root, c->comm, s);
	case COLL_GATHER:
		if (d->ragged)
			return coll_gatherv(d->in, d->count, d->out, d->out_counts, NULL, d->type, d->root, c->comm, s);
		return coll_gather(d->in, d->out, d->count, d->type, d->root, c->comm, s);
	default:
		if (d->ragged)
			return coll_scatterv(d->in, d->in_counts, NULL, d->out, d->count, d->type, d->root, c->comm, s);
		return coll_scatter(d->in, d->out, d->count, d->type, d->root, c->comm, s);
	}
}

static coll_status blocks(const struct caller *c, const coll_operation_desc *d, coll_stream *s)
{
	switch ((int)d->kind) {
	case COLL_ALL_GATHER:
		if (d->ragged)
			return coll_all_gatherv(d->in, d->out, d->out_counts, NULL, d->type, c->comm, s);
		return coll_all_gather(d->in, d->out, d->count, d->type, c->comm, s);
	case COLL_REDUCE_SCATTER:
		if (d->ragged)
			return coll_reduce_scatterv(d->in, d->out, d->in_counts, NULL, d->type, d->op, c->comm, s);
		return coll_reduce_scatter(d->in, d->out, d->count, d->type, d->op, c->comm, s);
	default:
		if (d->ragged)
			return coll_all_to_allv(d->in, d->in_counts, NULL, d->out, d->out_counts, NULL, d->type,
			                        c->comm, s);
		return coll_all_to_all(d->in, d->out, d->count, d->type, c->comm, s);
	}
}

static coll_status make_child(const struct caller *c, int kind)
{
	coll_comm *child = NULL;
	coll_status st =
	        kind == SPLIT ? coll_comm_split(c->comm, 0, c->rank, &child) : coll_comm_duplicate(c->comm, &child);

	if (st == COLL_OK)
		coll_comm_destroy(&child);
	return st;
}

static coll_status call_it(const struct caller *c, const struct call *k, int i, coll_stream *s)
{
	struct place *p = place_of(c, i);
	const coll_operation_desc d = description(c, k, p);

	switch (k->kind) {
	case SPLIT:
	case DUPLICATE: return make_child(c, k->kind);
	case SEND: return coll_send(p->in, k->count, k->type, root_of(c, k), c->comm, s);
	case RECV: return coll_recv(p->out, k->count, k->type, root_of(c, k), c->comm, s);
	case COLL_ALL_REDUCE: return coll_all_reduce(d.in, d.out, d.count, d.type, d.op, c->comm, s);
	case COLL_SCAN: return coll_scan(d.in, d.out, d.count, d.type, d.op, c->comm, s);
	case COLL_EXCLUSIVE_SCAN: return coll_exclusive_scan(d.in, d.out, d.count, d.type, d.op, c->comm, s);
	case COLL_BARRIER: return coll_barrier(c->comm, s);
	case COLL_BROADCAST:
	case COLL_REDUCE:
	case COLL_GATHER:
	case COLL_SCATTER: return rooted(c, &d, s);
	default: return blocks(c, &d, s);
	}
}

/* What is to be refused is, and is then as if it had not been. */
static coll_status as_expected(const struct call *k, coll_status st)
{
	if (!k->refused)
		return st;
	return st == COLL_ERR_ARGUMENT ? COLL_OK : COLL_ERR_INTERNAL;
}

static coll_status in_turn(const struct caller *c, const struct call *calls, int n, coll_stream **streams, int nstreams)
{
	coll_status st = COLL_OK;

	for (int i = 0; i < n && st == COLL_OK; i++)
		st = as_expected(&calls[i], call_it(c, &calls[i], i, nstreams ? streams[i % nstreams] : NULL));
	return st;
}

static coll_status on_streams(const struct caller *c, enum mode mode, const struct call *calls, int n)
{
	const int nstreams = mode == TWO_STREAMS ? 2 : 1;
	coll_stream *s[2] = {NULL, NULL};
	coll_event *event = NULL;
	coll_status st = COLL_OK, waited = COLL_OK;

	for (int i = 0; i < nstreams && st == COLL_OK; i++)
		st = coll_stream_create(&s[i], c->comm);
	if (st == COLL_OK && mode == STREAM_GROUP)
		coll_group_begin();
	if (st == COLL_OK)
		st = in_turn(c, calls, n, s, nstreams);
	if (mode == STREAM_GROUP)
		waited = coll_group_end();
	st = st ? st : waited;
	if (mode == EVENT && st == COLL_OK) {
		st = coll_event_create(&event, c->comm);
		st = st ? st : coll_event_record(event, s[0]);
		st = st ? st : coll_event_wait(event, -1);
		coll_event_destroy(&event);
	}
	for (int i = 0; i < nstreams && s[i]; i++) {
		waited = coll_stream_wait(s[i], -1);
		st = st ? st : waited;
		coll_stream_destroy(&s[i]);
	}
	return st;
}

static coll_status in_a_group(const struct caller *c, const struct call *calls, int n)
{
	coll_status st, waited;

	coll_group_begin();
	st = in_turn(c, calls, n, NULL, 0);
	waited = coll_group_end();
	return st ? st : waited;
}

static bool preparable(const struct call *k)
{
	return k->kind < SEND;
}

static coll_status prepare(const struct caller *c, const struct call *k, int i, coll_operation **op)
{
	const coll_operation_desc d = description(c, k, place_of(c, i));

	return as_expected(k, coll_operation_prepare(op, &d, c->comm));
}

/* Each prepared, started and waited for. */
static coll_status persistent(const struct caller *c, const struct call *calls, int n)
{
	coll_operation *op = NULL;
	coll_status st = COLL_OK, waited;

	for (int i = 0; i < n && st == COLL_OK; i++) {
		if (!preparable(&calls[i])) {
			st = call_it(c, &calls[i], i, NULL);
			continue;
		}
		st = prepare(c, &calls[i], i, &op);
		if (st == COLL_OK && op)
			st = coll_operation_start(op, NULL);
		if (st == COLL_OK && op)
			st = coll_operation_wait(op, -1);
		waited = coll_operation_destroy(&op);
		st = st ? st : waited;
	}
	return st;
}

/* All prepared in the order of most, if it is only the order that differs, then all
 * started in this rank's order, then all waited for. */
static coll_status started(const struct caller *c, const struct call *calls, int n, bool turned)
{
	coll_operation *ops[CALLS_MAX] = {NULL};
	coll_status st = COLL_OK, waited;

	for (int i = 0; i < n && st == COLL_OK; i++)
		if (preparable(&calls[i]))
			st = prepare(c, &calls[turned ? n - 1 - i : i], i, &ops[i]);
		else
			st = call_it(c, &calls[i], i, NULL);
	for (int i = 0; i < n && st == COLL_OK; i++)
		if (ops[turned ? n - 1 - i : i])
			st = coll_operation_start(ops[turned ? n - 1 - i : i], NULL);
	for (int i = 0; i < n; i++) {
		waited = ops[i] ? coll_operation_wait(ops[i], -1) : COLL_OK;
		st = st ? st : waited;
		coll_operation_destroy(&ops[i]);
	}
	return st;
}

/* A message to come, for which nobody waits. */
static coll_status pending(const struct caller *c, const struct call *calls, int n)
{
	static float room[8];
	coll_stream *s = NULL;
	coll_status st = coll_stream_create(&s, c->comm);

	if (st == COLL_OK)
		st = coll_recv(room, 8, COLL_F32, (c->rank + 1) % c->size, c->comm, s);
	if (st == COLL_OK)
		st = in_turn(c, calls, n, NULL, 0);
	return st; /* the stream goes with the process: it is not complete if all went well */
}

coll_status mismatch_issue(const struct caller *c, enum mode mode, const struct call *calls, int n, bool turned)
{
	if (mode == ODD_BLOCKS)
		mode = c->rank == c->odd ? BLOCKING : STREAM;
	if (mode == ODD_STREAMS)
		mode = c->rank == c->odd ? STREAM : BLOCKING;
	switch (mode) {
	case BLOCKING: return in_turn(c, calls, n, NULL, 0);
	case GROUP: return in_a_group(c, calls, n);
	case PERSISTENT: return persistent(c, calls, n);
	case PENDING: return pending(c, calls, n);
	case STARTED: return started(c, calls, n, turned);
	default: return on_streams(c, mode, calls, n);
	}
}
