/*
 * Every row of the table of algorithms, forced by COLL_ALGO, through the public
 * interface: N ranks as threads of one process, several counts and roots, with
 * some ranks in place and others not, small frames so that there are many tiles.
 * Rows that keep rank order also run an operation that does not commute. Integer
 * data, so the oracle is exact.
 *
 * usage: rows TRANSPORT [RANKS...]
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
static const size_t counts[] = {0, 1, 2, 5, 17, 1000, 20011};
enum { COUNTS = sizeof(counts) / sizeof(counts[0]) };

/* One call of one rank. in has room for size blocks, out too. */
struct call {
	const struct coll_algo *algo;
	coll_comm *comm;
	int rank;
	int root;
	size_t count;
	bool in_place;
	bool ordered;
	coll_op op;
	uint64_t *in;
	uint64_t *out;
	uint64_t *want;
};

/* ---- Data and oracle ---- */

/* Element i of a rank's input: the map x -> ax + b modulo 2^32, packed. */
static uint64_t value(int rank, size_t i)
{
	uint32_t a = (uint32_t)rank * 2654435761u + (uint32_t)i * 40503u + 1;
	uint32_t b = (uint32_t)rank * 977u + (uint32_t)i * 13u + 7;

	return (uint64_t)(a | 1) << 32 | b;
}

/* left after right: associative, not commutative. */
static uint64_t compose(uint64_t left, uint64_t right)
{
	uint32_t la = (uint32_t)(left >> 32), lb = (uint32_t)left;
	uint32_t ra = (uint32_t)(right >> 32), rb = (uint32_t)right;

	return (uint64_t)(la * ra) << 32 | (uint32_t)(la * rb + lb);
}

static void compose_all(void *arg, const void *left, void *inout, size_t count, coll_dtype type)
{
	const uint64_t *l = left;
	uint64_t *io = inout;

	for (size_t i = 0; i < count; i++)
		io[i] = compose(l[i], io[i]);
}

/* Element i of ranks 0 .. end-1 combined. */
static uint64_t combined(const struct call *c, int end, size_t i)
{
	uint64_t sum = value(0, i);

	for (int r = 1; r < end; r++)
		sum = c->ordered ? compose(sum, value(r, i)) : sum + value(r, i);
	return sum;
}

static void fill(uint64_t *to, int rank, size_t first, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] = value(rank, first + i);
}

static void assess(const struct call *c, coll_status status, const uint64_t *got, size_t count)
{
	CHECK(status == COLL_OK, "%s %s n=%d rank=%d count=%zu: %s", coll_plan_kind_name(c->algo->kind), c->algo->name,
	      nranks, c->rank, c->count, coll_last_error(c->comm)->message);
	CHECK(status != COLL_OK || count == 0 || memcmp(got, c->want, count * 8) == 0,
	      "wrong: %s %s n=%d rank=%d root=%d count=%zu in_place=%d ordered=%d", coll_plan_kind_name(c->algo->kind),
	      c->algo->name, nranks, c->rank, c->root, c->count, c->in_place, c->ordered);
}

/* ---- One collective each ---- */

static void vector_reduction(struct call *c)
{
	const bool has_out = c->algo->kind != COLL_KIND_REDUCE || c->rank == c->root;
	const int end = c->algo->kind == COLL_KIND_SCAN ? c->rank + 1 : nranks;
	uint64_t *in = c->in_place && has_out ? c->out : c->in;
	coll_status status;

	fill(in, c->rank, 0, c->count);
	for (size_t i = 0; i < c->count; i++)
		c->want[i] = combined(c, end, i);
	if (c->algo->kind == COLL_KIND_ALL_REDUCE)
		status = coll_all_reduce(in, c->out, c->count, COLL_U64, c->op, c->comm, NULL);
	else if (c->algo->kind == COLL_KIND_SCAN)
		status = coll_scan(in, c->out, c->count, COLL_U64, c->op, c->comm, NULL);
	else
		status = coll_reduce(in, has_out ? c->out : NULL, c->count, COLL_U64, c->op, c->root, c->comm, NULL);
	assess(c, status, c->out, has_out ? c->count : 0);
}

static void broadcast(struct call *c)
{
	const bool root = c->rank == c->root;
	uint64_t *in = c->in_place ? c->out : c->in;

	if (root)
		fill(in, c->rank, 0, c->count);
	fill(c->want, c->root, 0, c->count);
	assess(c, coll_broadcast(root ? in : NULL, c->out, c->count, COLL_U64, c->root, c->comm, NULL), c->out,
	       c->count);
}

static void gathering(struct call *c)
{
	const bool has_out = c->algo->kind == COLL_KIND_ALL_GATHER || c->rank == c->root;
	uint64_t *in = c->in_place && has_out ? c->out + (size_t)c->rank * c->count : c->in;
	coll_status status;

	fill(in, c->rank, 0, c->count);
	for (int r = 0; r < nranks; r++)
		fill(c->want + (size_t)r * c->count, r, 0, c->count);
	if (c->algo->kind == COLL_KIND_ALL_GATHER)
		status = coll_all_gather(in, c->out, c->count, COLL_U64, c->comm, NULL);
	else
		status = coll_gather(in, has_out ? c->out : NULL, c->count, COLL_U64, c->root, c->comm, NULL);
	assess(c, status, c->out, has_out ? (size_t)nranks * c->count : 0);
}

static void scattering(struct call *c)
{
	const bool reduces = c->algo->kind == COLL_KIND_REDUCE_SCATTER;
	const bool has_in = reduces || c->rank == c->root;
	const size_t first = (size_t)c->rank * c->count;
	uint64_t *out = c->in_place && has_in ? c->in + first : c->out;
	coll_status status;

	if (has_in)
		fill(c->in, c->rank, 0, (size_t)nranks * c->count);
	for (size_t i = 0; i < c->count; i++)
		c->want[i] = reduces ? combined(c, nranks, first + i) : value(c->root, first + i);
	if (reduces)
		status = coll_reduce_scatter(c->in, out, c->count, COLL_U64, c->op, c->comm, NULL);
	else
		status = coll_scatter(has_in ? c->in : NULL, out, c->count, COLL_U64, c->root, c->comm, NULL);
	assess(c, status, out, c->count);
}

static void all_to_all(struct call *c)
{
	uint64_t *in = c->in_place ? c->out : c->in;

	fill(in, c->rank, 0, (size_t)nranks * c->count);
	for (int r = 0; r < nranks; r++)
		fill(c->want + (size_t)r * c->count, r, (size_t)c->rank * c->count, c->count);
	assess(c, coll_all_to_all(in, c->out, c->count, COLL_U64, c->comm, NULL), c->out, (size_t)nranks * c->count);
}

static void run_call(struct call *c)
{
	switch (c->algo->kind) {
	case COLL_KIND_ALL_REDUCE:
	case COLL_KIND_SCAN:
	case COLL_KIND_REDUCE: vector_reduction(c); break;
	case COLL_KIND_BROADCAST: broadcast(c); break;
	case COLL_KIND_ALL_GATHER:
	case COLL_KIND_GATHER: gathering(c); break;
	case COLL_KIND_REDUCE_SCATTER:
	case COLL_KIND_SCATTER: scattering(c); break;
	case COLL_KIND_ALL_TO_ALL: all_to_all(c); break;
	default: assess(c, coll_barrier(c->comm, NULL), NULL, 0); break;
	}
}

/* ---- Ranks ---- */

struct rank {
	pthread_t thread;
	const struct coll_algo *algo;
	coll_comm *comm;
	int rank;
};

static void *run_rank(void *arg)
{
	struct rank *me = arg;
	const size_t room = (size_t)nranks * counts[COUNTS - 1] * 8;
	struct call c = {.algo = me->algo, .comm = me->comm, .rank = me->rank};
	coll_op own = COLL_SUM;

	c.in = malloc(room);
	c.out = malloc(room);
	c.want = malloc(room);
	CHECK(coll_op_create(&own, c.comm, compose_all, NULL, 0) == COLL_OK);
	for (size_t i = 0; i < COUNTS; i++) {
		c.count = counts[i];
		c.root = (int)(i % (size_t)nranks);
		c.in_place = (i + (size_t)c.rank) % 3 == 0;
		c.ordered = false;
		c.op = COLL_SUM;
		run_call(&c);
		if (!coll_plan_kind_reduces(c.algo->kind) || !(c.algo->flags & COLL_ALGO_ORDERED))
			continue;
		c.ordered = true;
		c.op = own;
		run_call(&c);
	}
	free(c.in);
	free(c.out);
	free(c.want);
	CHECK(coll_comm_destroy(&me->comm) == COLL_OK);
	return NULL;
}

static const struct coll_algo *row;

static void run_row(void)
{
	char algo[80], opened[80];
	const char *settings[] = {algo, opened, "COLL_SLOT_BYTES=4096", "COLL_VERIFY=1", NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	struct rank ranks[RANKS_MAX];
	coll_comm *comms[RANKS_MAX];

	snprintf(algo, sizeof(algo), "COLL_ALGO=%s:%s", coll_plan_kind_name(row->kind), row->name);
	snprintf(opened, sizeof(opened), "COLL_TRANSPORTS=%s", transport);
	cfg.settings = settings;
	REQUIRE(coll_comm_create_all(comms, nranks, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	for (int r = 0; r < nranks; r++) {
		ranks[r] = (struct rank){.algo = row, .comm = comms[r], .rank = r};
		pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]);
	}
	for (int r = 0; r < nranks; r++)
		pthread_join(ranks[r].thread, NULL);
}

static void run_rows(void)
{
	for (size_t i = 0; i < coll_algos_count; i++) {
		row = &coll_algos[i];
		if (!row->cost)
			continue; /* needs several hosts: tests/multi/layouts.py */
		plain_run(coll_plan_kind_name(row->kind), row->name, run_row);
	}
}

PROGRAM(rows, "TRANSPORT [RANKS...]")
{
	static const int sizes[] = {1, 2, 3, 4, 5, 7};

	transport = argc > 1 ? argv[1] : "loop";
	for (int i = 2; i < argc; i++) {
		nranks = atoi(argv[i]);
		if (nranks < 1 || nranks > RANKS_MAX)
			return -1;
		run_rows();
	}
	for (size_t i = 0; argc < 3 && i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		nranks = sizes[i];
		run_rows();
	}
	return argc;
}
