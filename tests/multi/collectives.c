/*
 * Every collective through the public interface, N ranks as threads of one
 * process, over the transports named on the command line (loop shm tcp): all kinds,
 * several counts and types, in place and out of place, vector variants, pairs,
 * refused arguments. Integer data, so the oracle is exact.
 *
 * rows: instead every row of the table of algorithms, forced by COLL_ALGO, with some ranks in place and others not, and
 * small frames so that there are many tiles. Rows that keep rank order also run an operation that does not commute.
 *
 * usage: collectives TRANSPORT [rows] [RANKS...]
 */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "algos/algos.h"
#include "coll/coll.h"
#include "plain.h"

enum { RANKS_MAX = 16 };

static const char *transport;
static int nranks;
static int row = -1; /* of each kind, in the order of the table; -1: the library chooses */

struct rank {
	pthread_t thread;
	coll_comm *comm;
	int rank;
};

static const size_t counts[] = {0, 1, 2, 5, 7, 13, 64, 1009, 70001};

/* Element i of rank r's input. */
static int32_t value(int r, size_t i)
{
	return (int32_t)((uint32_t)(r + 1) * 2654435761u + (uint32_t)i * 40503u) >> 8;
}

static int32_t sum(size_t i, int upto)
{
	uint32_t s = 0;

	for (int r = 0; r < upto; r++)
		s += (uint32_t)value(r, i);
	return (int32_t)s;
}

/* Elements that are right: of a sum over the ranks below upto, or of one rank's input, from element first on. */
static bool is_sum(const int32_t *x, size_t count, size_t first, int upto)
{
	for (size_t i = 0; i < count; i++)
		if (x[i] != sum(first + i, upto))
			return false;
	return true;
}

static bool is_of(const int32_t *x, size_t count, size_t first, int rank)
{
	for (size_t i = 0; i < count; i++)
		if (x[i] != value(rank, first + i))
			return false;
	return true;
}

static void fill(int32_t *x, size_t count, int rank)
{
	for (size_t i = 0; i < count; i++)
		x[i] = value(rank, i);
}

static int32_t *filled(int rank, size_t n)
{
	int32_t *p = malloc((n + 1) * sizeof(*p));

	fill(p, n, rank);
	return p;
}

#define OK(call)                                                                                    \
	do {                                                                                        \
		coll_status st_ = (call);                                                           \
		CHECK(st_ == COLL_OK, "rank %d: %s: %s", r, #call, coll_last_error(comm)->message); \
		if (st_ != COLL_OK)                                                                 \
			goto out;                                                                   \
	} while (0)

/* Values with ties among the ranks; the index is that of the rank. */
static coll_f64_i32 pair_of(int rank, size_t i)
{
	coll_f64_i32 p;

	memset(&p, rank, sizeof(p));
	p.value = (double)((value(rank, i) % 3 + 3) % 3);
	p.index = rank;
	return p;
}

/* Whether x is what the ranks [0, n) give. */
static bool is_pair(const coll_f64_i32 *x, size_t count, size_t first, int n, bool max)
{
	for (size_t i = 0; i < count; i++) {
		coll_f64_i32 best = pair_of(0, first + i);

		for (int r = 1; r < n; r++) {
			const coll_f64_i32 p = pair_of(r, first + i);

			if (max ? p.value > best.value : p.value < best.value)
				best = p;
		}
		if (x[i].value != best.value || x[i].index != best.index)
			return false;
	}
	return true;
}

/* MINLOC and MAXLOC wherever MIN and MAX are. */
static void located(coll_comm *comm, int r, int n, size_t count)
{
	const size_t all = count * (size_t)n;
	coll_f64_i32 *in = malloc((all + 1) * sizeof(*in)), *out = malloc((all + 1) * sizeof(*out));

	for (size_t i = 0; i < all; i++)
		in[i] = pair_of(r, i);
	for (int max = 0; max < 2; max++) {
		const coll_op op = max ? COLL_MAXLOC : COLL_MINLOC;
		const int root = n - 1;

		OK(coll_all_reduce(in, out, all, COLL_F64_I32, op, comm, NULL));
		CHECK(is_pair(out, all, 0, n, max), "all_reduce of pairs, rank %d count %zu", r, all);
		OK(coll_reduce(in, out, count, COLL_F64_I32, op, root, comm, NULL));
		CHECK(r != root || is_pair(out, count, 0, n, max), "reduce of pairs, count %zu", count);
		OK(coll_reduce_scatter(in, out, count, COLL_F64_I32, op, comm, NULL));
		CHECK(is_pair(out, count, (size_t)r * count, n, max), "reduce_scatter of pairs, rank %d count %zu", r,
		      count);
		OK(coll_scan(in, out, count, COLL_F64_I32, op, comm, NULL));
		CHECK(is_pair(out, count, 0, r + 1, max), "scan of pairs, rank %d count %zu", r, count);
		OK(coll_exclusive_scan(in, out, count, COLL_F64_I32, op, comm, NULL));
		CHECK(r == 0 || is_pair(out, count, 0, r, max), "exclusive_scan of pairs, rank %d count %zu", r, count);
	}
	CHECK(coll_all_reduce(in, out, all, COLL_F64_I32, COLL_SUM, comm, NULL) == COLL_ERR_ARGUMENT &&
	              strstr(coll_last_error(comm)->message, "operation sum is not defined on f64_i32"),
	      "%s", coll_last_error(comm)->message);
out:
	free(out);
	free(in);
}

static void vectors(coll_comm *comm, int r, int n, size_t count, bool in_place)
{
	int32_t *in = filled(r, count), *out = in_place ? in : malloc((count + 1) * 4);
	int root = (int)(count % (size_t)n);

	OK(coll_all_reduce(in, out, count, COLL_I32, COLL_SUM, comm, NULL));
	CHECK(is_sum(out, count, 0, n), "all_reduce rank %d count %zu", r, count);
	fill(in, count, r);
	OK(coll_scan(in, out, count, COLL_I32, COLL_SUM, comm, NULL));
	CHECK(is_sum(out, count, 0, r + 1), "scan rank %d count %zu", r, count);
	fill(in, count, r);
	if (!in_place)
		fill(out, count, 77);
	OK(coll_exclusive_scan(in, out, count, COLL_I32, COLL_SUM, comm, NULL));
	CHECK(r > 0 ? is_sum(out, count, 0, r) : is_of(out, count, 0, in_place ? 0 : 77),
	      "exclusive_scan rank %d count %zu", r, count);
	fill(in, count, r);
	OK(coll_reduce(in, r == root ? out : NULL, count, COLL_I32, COLL_SUM, root, comm, NULL));
	CHECK(r != root || is_sum(out, count, 0, n), "reduce rank %d count %zu", r, count);
	fill(in, count, r);
	OK(coll_broadcast(r == root ? in : NULL, out, count, COLL_I32, root, comm, NULL));
	CHECK(is_of(out, count, 0, root), "broadcast rank %d count %zu", r, count);
out:
	if (!in_place)
		free(out);
	free(in);
}

static void blocks(coll_comm *comm, int r, int n, size_t count, bool in_place)
{
	size_t all = (size_t)n * count;
	int32_t *big = filled(r, all), *big2 = malloc((all + 1) * 4), *one = filled(r, count), *in;
	int root = (int)((count + 1) % (size_t)n);

	/* all_gather */
	in = in_place ? big2 + (size_t)r * count : one;
	memcpy(in, one, count * 4);
	OK(coll_all_gather(in, big2, count, COLL_I32, comm, NULL));
	for (int b = 0; b < n; b++)
		CHECK(is_of(big2 + (size_t)b * count, count, 0, b), "all_gather rank %d count %zu", r, count);
	/* reduce_scatter */
	in = in_place ? big + (size_t)r * count : one;
	OK(coll_reduce_scatter(big, in, count, COLL_I32, COLL_SUM, comm, NULL));
	CHECK(is_sum(in, count, (size_t)r * count, n), "reduce_scatter rank %d count %zu", r, count);
	/* all_to_all */
	fill(big, all, r);
	in = in_place ? big : big2;
	OK(coll_all_to_all(big, in, count, COLL_I32, comm, NULL));
	for (int b = 0; b < n; b++)
		CHECK(is_of(in + (size_t)b * count, count, (size_t)r * count, b), "all_to_all rank %d count %zu", r,
		      count);
	/* gather, then scatter back */
	fill(one, count, r);
	in = in_place && r == root ? big + (size_t)r * count : one;
	memcpy(in, one, count * 4);
	OK(coll_gather(in, r == root ? big : NULL, count, COLL_I32, root, comm, NULL));
	for (int b = 0; r == root && b < n; b++)
		CHECK(is_of(big + (size_t)b * count, count, 0, b), "gather rank %d count %zu", r, count);
	memset(one, 0, count * 4);
	in = in_place && r == root ? big + (size_t)r * count : one;
	OK(coll_scatter(r == root ? big : NULL, in, count, COLL_I32, root, comm, NULL));
	CHECK(is_of(in, count, 0, r), "scatter rank %d count %zu", r, count);
	OK(coll_barrier(comm, NULL));
out:
	free(big);
	free(big2);
	free(one);
}

/* Block b of an uneven layout has (b * 37 + seed) % 23 elements, with gaps. */
static void ragged(coll_comm *comm, int r, int n, size_t seed)
{
	size_t len[RANKS_MAX], off[RANKS_MAX], at = 0, root = seed % (size_t)n;
	int32_t *all, *one, *two, *from;

	for (int b = 0; b < n; b++) {
		len[b] = ((size_t)b * 37 + seed) % 23 * (seed > 50 ? 997 : 1);
		off[b] = at;
		at += len[b] + (size_t)b % 3;
	}
	all = calloc(at + 1, 4);
	one = filled(r, len[r]);
	two = calloc(len[r] + 1, 4);
	from = filled(r, at);
	OK(coll_all_gatherv(one, all, len, off, COLL_I32, comm, NULL));
	for (int b = 0; b < n; b++)
		CHECK(is_of(all + off[b], len[b], 0, b), "all_gatherv rank %d block %d", r, b);
	OK(coll_reduce_scatterv(from, two, len, off, COLL_I32, COLL_SUM, comm, NULL));
	CHECK(is_sum(two, len[r], off[r], n), "reduce_scatterv rank %d", r);
	memset(all, 0, at * 4);
	OK(coll_gatherv(one, len[r], all, (size_t)r == root ? len : NULL, off, COLL_I32, (int)root, comm, NULL));
	for (int b = 0; (size_t)r == root && b < n; b++)
		CHECK(is_of(all + off[b], len[b], 0, b), "gatherv rank %d block %d", r, b);
	memset(two, 0, len[r] * 4);
	OK(coll_scatterv(all, (size_t)r == root ? len : NULL, off, two, len[r], COLL_I32, (int)root, comm, NULL));
	CHECK(is_of(two, len[r], 0, r), "scatterv rank %d", r);
out:
	free(all);
	free(one);
	free(two);
	free(from);
}

/* Rank r sends (2 r + d) % 5 elements (times a factor) to d. */
static void pairwise(coll_comm *comm, int r, int n, size_t seed)
{
	size_t len[RANKS_MAX], off[RANKS_MAX], in_len[RANKS_MAX], in_off[RANKS_MAX];
	int32_t *all, *from;

	for (size_t b = 0, a = 0, c = 0; b < (size_t)n; b++) {
		in_len[b] = ((size_t)r * 2 + b) % 5 * (seed + 1);
		len[b] = (b * 2 + (size_t)r) % 5 * (seed + 1);
		in_off[b] = a;
		off[b] = c;
		a += in_len[b];
		c += len[b];
	}
	from = filled(r, in_off[n - 1] + in_len[n - 1]);
	all = calloc(off[n - 1] + len[n - 1] + 1, 4);
	for (int b = 0; b < n; b++)
		fill(from + in_off[b], in_len[b], r * n + b);
	OK(coll_all_to_allv(from, in_len, in_off, all, len, off, COLL_I32, comm, NULL));
	for (int b = 0; b < n; b++)
		CHECK(is_of(all + off[b], len[b], 0, b * n + r), "all_to_allv rank %d from %d", r, b);
out:
	free(all);
	free(from);
}

static void pairs(coll_comm *comm, int r, int n)
{
	enum { COUNT = 40000 };
	int32_t *a = filled(r, COUNT), *b = calloc(COUNT, 4);
	int next = (r + 1) % n, prev = (r + n - 1) % n;

	for (int i = 0; i < 5; i++) {
		memset(b, 0, COUNT * 4);
		OK(coll_send_recv(a, COUNT - (size_t)i, next, b, COUNT - (size_t)i, prev, COLL_I32, comm, NULL));
		CHECK(b[100] == value(prev, 100) && b[COUNT - 10] == value(prev, COUNT - 10), "send_recv rank %d", r);
	}
	if (n > 1 && r < 2) {
		for (int i = 0; i < 20; i++) {
			a[0] = i;
			if (r == 0)
				OK(coll_send(a, 1 + (size_t)i * 50, COLL_I32, 1, comm, NULL));
			else
				OK(coll_recv(b, 1 + (size_t)i * 50, COLL_I32, 0, comm, NULL));
			CHECK(r == 0 || b[0] == i, "recv %d", i);
		}
	}
out:
	free(a);
	free(b);
}

static void refused(coll_comm *comm, int r, int n)
{
	int32_t a[8] = {0};
	float f = 0;

	CHECK(coll_all_reduce(NULL, a, 1, COLL_I32, COLL_SUM, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_all_reduce(a, NULL, 1, COLL_I32, COLL_SUM, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_all_reduce(a, a + 1, 4, COLL_I32, COLL_SUM, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_all_reduce(a, a, SIZE_MAX / 2, COLL_I32, COLL_SUM, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_all_reduce(a, a, 1, (coll_dtype)99, COLL_SUM, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_all_reduce(a, a, 1, COLL_I32, 55, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_all_reduce(&f, &f, 1, COLL_F32, COLL_BXOR, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_broadcast(a, a, 1, COLL_I32, n, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_broadcast(a, a, 1, COLL_I32, -1, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_send(a, 1, COLL_I32, r, comm, NULL) == COLL_ERR_ARGUMENT);
	CHECK(coll_all_reduce(a, a, 1, COLL_I32, COLL_SUM, NULL, NULL) == COLL_ERR_ARGUMENT);
	CHECK(strstr(coll_last_error(comm)->message, "sends to itself") != NULL);
}

static void keep_left(void *arg, const void *left, void *inout, size_t count, coll_dtype type)
{
	/* Composition of x -> (a, b): not commutative. Pairs packed in 64 bits. */
	const int64_t *l = left;
	int64_t *io = inout;

	for (size_t i = 0; i < count; i++) {
		int64_t la = l[i] >> 32, lb = (int32_t)l[i], ra = io[i] >> 32, rb = (int32_t)io[i];

		io[i] = (int64_t)(int32_t)(la * ra) << 32 | (uint32_t)(int32_t)(la * rb + lb);
	}
}

static int64_t affine(int r, size_t i)
{
	return (int64_t)(r % 3 + 2) << 32 | (uint32_t)(r * 7 + (int)(i % 11));
}

/* Element i of the ranks below `upto`, combined in their order. */
static int64_t composed(size_t i, int upto)
{
	int64_t all = affine(upto - 1, i);

	for (int k = upto - 2; k >= 0; k--) {
		const int64_t left = affine(k, i);

		keep_left(NULL, &left, &all, 1, COLL_I64);
	}
	return all;
}

/* The row of a kind that is forced, or NULL: the library chooses. */
static const struct coll_algo *forced(enum coll_kind kind)
{
	int n = 0;

	for (size_t i = 0; i < coll_algos_count && row >= 0; i++)
		if (coll_algos[i].kind == kind && coll_algos[i].cost && n++ == row) /* others: tests/multi/layouts.py */
			return &coll_algos[i];
	return NULL;
}

static bool keeps_order(enum coll_kind kind)
{
	const struct coll_algo *a = forced(kind);

	return !a || a->flags & COLL_ALGO_ORDERED;
}

static void is_composed(const char *call, const int64_t *got, size_t count, size_t first, int upto, int r)
{
	for (size_t i = 0; i < count; i++)
		if (got[i] != composed(first + i, upto)) {
			CHECK(got[i] == composed(first + i, upto), "%s in order, rank %d at %zu", call, r, i);
			break;
		}
}

/* Reductions by an operation that does not commute. */
static void ordered(coll_comm *comm, int r, int n, size_t count)
{
	const int root = (int)count % n;
	int64_t *in = malloc((size_t)n * count * 8), *out = malloc(count * 8);
	coll_op op;

	for (size_t i = 0; i < (size_t)n * count; i++)
		in[i] = affine(r, i);
	OK(coll_op_create(&op, comm, keep_left, NULL, 0));
	if (keeps_order(COLL_KIND_ALL_REDUCE)) {
		OK(coll_all_reduce(in, out, count, COLL_I64, op, comm, NULL));
		is_composed("all_reduce", out, count, 0, n, r);
	}
	if (keeps_order(COLL_KIND_SCAN)) {
		OK(coll_scan(in, out, count, COLL_I64, op, comm, NULL));
		is_composed("scan", out, count, 0, r + 1, r);
	}
	if (keeps_order(COLL_KIND_EXCLUSIVE_SCAN)) {
		OK(coll_exclusive_scan(in, r ? out : NULL, count, COLL_I64, op, comm, NULL));
		is_composed("exclusive_scan", out, r ? count : 0, 0, r, r);
	}
	if (keeps_order(COLL_KIND_REDUCE)) {
		OK(coll_reduce(in, r == root ? out : NULL, count, COLL_I64, op, root, comm, NULL));
		is_composed("reduce", out, r == root ? count : 0, 0, n, r);
	}
	if (keeps_order(COLL_KIND_REDUCE_SCATTER)) {
		OK(coll_reduce_scatter(in, out, count, COLL_I64, op, comm, NULL));
		is_composed("reduce_scatter", out, count, (size_t)r * count, n, r);
	}
	OK(coll_op_destroy(&op, comm));
out:
	free(in);
	free(out);
}

static void scaled(coll_comm *comm, int r, int n)
{
	enum { COUNT = 3000 };
	double scale = 0.5, *d = malloc(COUNT * 8);
	coll_op half;

	OK(coll_op_create_premul_sum(&half, comm, &scale, COLL_F64));
	for (size_t i = 0; i < COUNT; i++)
		d[i] = r + (double)i;
	OK(coll_all_reduce(d, d, COUNT, COLL_F64, half, comm, NULL));
	CHECK(d[10] == 0.5 * (n * 10.0 + n * (n - 1) / 2.0), "premultiplied sum %g", d[10]);
	for (size_t i = 0; i < COUNT; i++)
		d[i] = r + (double)i;
	OK(coll_all_reduce(d, d, COUNT, COLL_F64, COLL_AVG, comm, NULL));
	CHECK(d[10] == (n * 10.0 + n * (n - 1) / 2.0) / n, "average %g", d[10]);
	OK(coll_op_destroy(&half, comm));
out:
	free(d);
}

static void memory(coll_comm *comm, int r)
{
	enum { COUNT = 100000 };
	int32_t *p = NULL, *q = malloc(COUNT * 4);
	char why[64];

	OK(coll_mem_alloc(comm, (void **)&p, COUNT * 4));
	CHECK(p && p[0] == 0 && p[COUNT - 1] == 0 && (uintptr_t)p % 64 == 0, "coll_mem_alloc");
	OK(coll_mem_register(comm, q, COUNT * 4));
	fill(p, COUNT, r);
	OK(coll_all_reduce(p, q, COUNT, COLL_I32, COLL_SUM, comm, NULL));
	CHECK(q[COUNT - 1] == sum(COUNT - 1, coll_comm_size(comm)), "library memory");
	OK(coll_mem_deregister(comm, q));
	CHECK(coll_mem_register(comm, q, SIZE_MAX) == COLL_ERR_ARGUMENT, "more than there is");
	CHECK(coll_mem_register(comm, q, SIZE_MAX / 2) == COLL_ERR_ARGUMENT, "more than there is");
	CHECK(coll_comm_explain(comm, "all_reduce", SIZE_MAX, COLL_F32, why, sizeof(why)) == COLL_ERR_ARGUMENT,
	      "overflows");
	CHECK(coll_barrier(NULL, NULL) == COLL_ERR_ARGUMENT &&
	      strstr(coll_last_error(NULL)->message, "communicator is NULL"));
	CHECK(coll_mem_deregister(comm, q) == COLL_ERR_ARGUMENT, "not registered");
	CHECK(coll_mem_free(comm, q) == COLL_ERR_ARGUMENT, "foreign memory");
	OK(coll_mem_free(comm, p));
out:
	free(q);
}

static void *run_rank(void *arg)
{
	struct rank *me = arg;
	coll_comm *comm = me->comm;
	int r = me->rank, n = coll_comm_size(comm);

	CHECK(coll_comm_rank(comm) == r && n == nranks, "rank and size");
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
		for (int turn = 0; turn < (row < 0 ? 2 : 1); turn++) {
			const bool in_place = row < 0 ? turn : (r + (int)c) % 3 == 0;

			vectors(comm, r, n, counts[c], in_place);
			blocks(comm, r, n, counts[c] > 10000 ? counts[c] / (size_t)n : counts[c], in_place);
		}
	located(comm, r, n, 1);
	located(comm, r, n, 1000);
	located(comm, r, n, 30000);
	ordered(comm, r, n, 17);
	ordered(comm, r, n, row < 0 ? 3000 : 4001);
	for (size_t seed = 0; row < 0 && seed < 60; seed += 7) {
		ragged(comm, r, n, seed);
		pairwise(comm, r, n, seed);
	}
	if (row < 0) {
		pairs(comm, r, n);
		refused(comm, r, n);
		scaled(comm, r, n);
		memory(comm, r);
	}
	CHECK(coll_comm_destroy(&me->comm) == COLL_OK && me->comm == NULL, "destroy");
	return NULL;
}

/* COLL_ALGO=KIND:NAME,...; how many kinds have such a row. */
static int force(char *text, size_t len)
{
	int n = 0;
	size_t at = (size_t)snprintf(text, len, "COLL_ALGO=");

	for (int kind = 0; kind < COLL_KIND_COUNT; kind++) {
		const struct coll_algo *a = forced((enum coll_kind)kind);

		if (a && at < len)
			at += (size_t)snprintf(text + at, len - at, "%s%s:%s", n++ > 0 ? "," : "",
			                       coll_plan_kind_name(a->kind), a->name);
	}
	return n;
}

static void everything(void)
{
	char setting[64], algos[1024];
	const char *settings[] = {setting,
	                          "COLL_TIMEOUT_MS=20000",
	                          "COLL_ARRIVAL_TIMEOUT_MS=60000",
	                          "COLL_VERIFY=1",
	                          NULL,
	                          "COLL_SLOT_BYTES=4096",
	                          NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	struct rank ranks[RANKS_MAX];
	coll_comm *comms[RANKS_MAX];

	snprintf(setting, sizeof(setting), "COLL_TRANSPORTS=%s", transport);
	if (force(algos, sizeof(algos)) > 0)
		settings[4] = algos;
	cfg.settings = settings;
	REQUIRE(coll_comm_create_all(comms, nranks, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	for (int r = 0; r < nranks; r++) {
		ranks[r] = (struct rank){.comm = comms[r], .rank = r};
		pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]);
	}
	for (int r = 0; r < nranks; r++)
		pthread_join(ranks[r].thread, NULL);
}

static void of_size(int n, bool rows)
{
	char algos[1024];

	nranks = n;
	if (!rows)
		PLAIN_RUN(everything);
	for (row = 0; rows && force(algos, sizeof(algos)) > 0; row++)
		plain_run(algos, "", everything);
	row = -1;
}

PROGRAM(collectives, "TRANSPORT [rows] [RANKS...]")
{
	static const int sizes[] = {1, 2, 3, 4, 5, 8}, of_rows[] = {1, 2, 3, 4, 5, 7};
	const bool rows = argc > 2 && strcmp(argv[2], "rows") == 0;

	if (argc < 2)
		return -1;
	transport = argv[1];
	for (int i = 2 + rows; i < argc; i++)
		of_size(atoi(argv[i]), rows);
	for (size_t i = 0; argc == 2 + rows && i < sizeof(sizes) / sizeof(sizes[0]); i++)
		of_size(rows ? of_rows[i] : sizes[i], rows);
	return argc;
}
