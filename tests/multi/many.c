/*
 * Many ranks on one host, more than it has cores: all collectives, what a root may do before its
 * readers have come, communicators of communicators, the same bits everywhere, calls that differ. Started by collrun.
 * More than 256 ranks make fewer calls.
 *
 * usage: many             a few seconds
 *        many SECONDS [SEED]  random calls for so long, with the rates of their kinds
 */
#define PLAIN_OWN_MAIN
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "coll/coll.h"
#include "plain.h"
#include "tests/seconds.h"

enum { RANKS_MAX = 1024, MORE = 256, KINDS = 9 };
enum kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, GATHER, SCATTER, BARRIER };

static const char *const kind_names[KINDS] = {"all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter",
                                              "all_to_all", "gather", "scatter",   "barrier"};

static coll_comm *world;
static int me, size;

/* Element i of rank r's input in a round: small, so that sums are exact in every order and type. */
static int32_t value(int r, size_t i, unsigned round)
{
	return (int32_t)(((uint32_t)r * 2654435761u + (uint32_t)i * 40503u + round * 97u) >> 16 & 0xffff);
}

static int32_t sum(int n, size_t i, unsigned round)
{
	int32_t s = 0;

	for (int r = 0; r < n; r++)
		s += value(r, i, round);
	return s;
}

struct call {
	enum kind kind;
	size_t count;
	int root;
	bool in_place;
	unsigned round;
};

static bool ok(coll_comm *comm, coll_status st, const struct call *c)
{
	CHECK(st == COLL_OK, "rank %d, %s of %zu, root %d, round %u: %s", me, kind_names[c->kind], c->count, c->root,
	      c->round, coll_last_error(comm)->message);
	return st == COLL_OK;
}

static coll_status issue(coll_comm *comm, const struct call *c, const int32_t *in, int32_t *out, coll_stream *s)
{
	switch (c->kind) {
	case ALL_REDUCE: return coll_all_reduce(in, out, c->count, COLL_I32, COLL_SUM, comm, s);
	case REDUCE: return coll_reduce(in, out, c->count, COLL_I32, COLL_SUM, c->root, comm, s);
	case BROADCAST: return coll_broadcast(in, out, c->count, COLL_I32, c->root, comm, s);
	case ALL_GATHER: return coll_all_gather(in, out, c->count, COLL_I32, comm, s);
	case REDUCE_SCATTER: return coll_reduce_scatter(in, out, c->count, COLL_I32, COLL_SUM, comm, s);
	case ALL_TO_ALL: return coll_all_to_all(in, out, c->count, COLL_I32, comm, s);
	case GATHER: return coll_gather(in, out, c->count, COLL_I32, c->root, comm, s);
	case SCATTER: return coll_scatter(in, out, c->count, COLL_I32, c->root, comm, s);
	default: return coll_barrier(comm, s);
	}
}

/* Blocks of a rank's input and output. */
static size_t blocks_in(const struct call *c, int n)
{
	return c->kind == REDUCE_SCATTER || c->kind == ALL_TO_ALL || c->kind == SCATTER ? (size_t)n : 1;
}
static size_t blocks_out(const struct call *c, int n)
{
	return c->kind == ALL_GATHER || c->kind == ALL_TO_ALL || c->kind == GATHER ? (size_t)n : 1;
}

static int32_t expected(const struct call *c, int r, int n, size_t i)
{
	const size_t count = c->count;

	switch (c->kind) {
	case ALL_REDUCE:
	case REDUCE: return sum(n, i, c->round);
	case BROADCAST: return value(c->root, i, c->round);
	case REDUCE_SCATTER: return sum(n, (size_t)r * count + i, c->round);
	case ALL_TO_ALL: return value((int)(i / count), (size_t)r * count + i % count, c->round);
	case SCATTER: return value(c->root, (size_t)r * count + i, c->round);
	default: return value((int)(i / count), i % count, c->round);
	}
}

static bool gets(const struct call *c, int r)
{
	return c->kind != BARRIER && ((c->kind != REDUCE && c->kind != GATHER) || c->root == r);
}

/* One memory, where the kind has input and output in one place; else two. */
static void place(const struct call *c, int r, int n, int32_t *mem, int32_t **in, int32_t **out)
{
	const size_t count = c->count;

	*in = mem;
	*out = c->in_place ? mem : mem + blocks_in(c, n) * count;
	if (c->in_place && (c->kind == ALL_GATHER || (c->kind == GATHER && c->root == r)))
		*in = mem + (size_t)r * count;
	if (c->in_place && (c->kind == REDUCE_SCATTER || (c->kind == SCATTER && c->root == r)))
		*out = mem + (size_t)r * count;
}

static void make(coll_comm *comm, const struct call *c)
{
	const int r = coll_comm_rank(comm), n = coll_comm_size(comm);
	const size_t in_all = blocks_in(c, n) * c->count, out_all = blocks_out(c, n) * c->count;
	int32_t *mem = malloc((in_all + out_all + 1) * sizeof(*mem)), *in, *out;
	size_t wrong = 0;

	place(c, r, n, mem, &in, &out);
	if (!c->in_place)
		memset(out, 0xee, out_all * sizeof(*out));
	for (size_t i = 0; i < in_all; i++)
		in[i] = value(r, i, c->round);
	if (ok(comm, issue(comm, c, in, out, NULL), c) && gets(c, r)) {
		for (size_t i = 0; i < out_all; i++)
			wrong += out[i] != expected(c, r, n, i);
		CHECK(wrong == 0, "rank %d: %s of %zu, root %d, round %u: %zu wrong", r, kind_names[c->kind], c->count,
		      c->root, c->round, wrong);
	}
	free(mem);
}

/* ---- All collectives ---- */

static void every_kind(void)
{
	/* Lines, cells; one turn of the central buffer, several, more than may be ahead. */
	const size_t counts[] = {1, 3, 12, 13, 100, 1021, 4096, 4097, 20000, 50000};
	unsigned round = 0;

	for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
		for (int kind = 0; kind < KINDS && (size <= MORE || counts[k] <= 100 || counts[k] == 4097); kind++) {
			struct call c = {.kind = (enum kind)kind, .root = (int)(k * 5 + (size_t)kind) % size};

			c.count = blocks_in(&c, size) * blocks_out(&c, size) > 1 && counts[k] > 4096 ? counts[k] / 20
			                                                                             : counts[k];
			for (int in_place = 0; in_place < 2; in_place++) {
				c.in_place = in_place;
				c.round = round++;
				make(world, &c);
			}
		}
	}
}

/* ---- Roots that do not wait ---- */

static void storms(void)
{
	const enum kind kinds[] = {BROADCAST, REDUCE, GATHER, SCATTER};

	for (unsigned i = 0; i<240; i += size> MORE ? 4 : 1) {
		const struct call c = {.kind = kinds[i / 30 % 4],
		                       .count = i % 7 == 3 ? 5000 : 1 + i % 40,
		                       .root = (int)(i < 120 ? i / 10 : i) % size,
		                       .round = i};

		if (i % 60 == 20 && (unsigned)me == i / 60)
			usleep(3000);
		make(world, &c);
	}
}

/* ---- Communicators of communicators ---- */

static void halves(void)
{
	coll_comm *half = NULL;

	CHECK(coll_comm_split(world, me % 2, me, &half) == COLL_OK, "%s", coll_last_error(world)->message);
	for (unsigned i = 0; half && i < 36; i++) {
		const struct call c = {.kind = (enum kind)(i % KINDS),
		                       .count = 1 + i * 37,
		                       .root = (int)i % (size / 2),
		                       .in_place = i / KINDS % 2,
		                       .round = i};

		make(i % 3 ? half : world, &c);
	}
	CHECK(coll_comm_destroy(&half) == COLL_OK);
}

/* ---- On a stream ---- */

static void on_a_stream(void)
{
	enum { CALLS = 12, COUNT = 3000 };
	coll_stream *s = NULL;
	int32_t *in = malloc(CALLS * COUNT * sizeof(*in)), *out = malloc(CALLS * COUNT * sizeof(*out));
	size_t wrong = 0;

	CHECK(coll_stream_create(&s, world) == COLL_OK);
	for (unsigned i = 0; i < CALLS; i++) {
		const struct call c = {.kind = i % 2 ? BROADCAST : ALL_REDUCE, .count = COUNT, .root = 1, .round = i};

		for (size_t k = 0; k < COUNT; k++)
			in[i * COUNT + k] = value(me, k, i);
		ok(world, issue(world, &c, in + i * COUNT, out + i * COUNT, s), &c);
	}
	CHECK(coll_stream_wait(s, 60000) == COLL_OK, "%s", coll_last_error(world)->message);
	for (unsigned i = 0; i < CALLS; i++)
		for (size_t k = 0; k < COUNT; k++)
			wrong += out[i * COUNT + k] != (i % 2 ? value(1, k, i) : sum(size, k, i));
	CHECK(wrong == 0, "rank %d: %zu wrong", me, wrong);
	coll_stream_destroy(&s);
	free(in);
	free(out);
}

/* ---- The same bits ---- */

static void the_same_bits(void)
{
	const size_t counts[] = {3, 6, 700, 9000};
	double *x = malloc(9000 * sizeof(*x));
	uint64_t hash = 1469598103934665603u, all[RANKS_MAX];

	for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
		for (int again = 0; again < 3; again++) {
			uint64_t h = 1469598103934665603u;

			for (size_t i = 0; i < counts[k]; i++)
				x[i] = (value(me, i, 7) - 32000) * 1e-3 * (1 + (double)(i % 17) * 1e11);
			CHECK(coll_all_reduce(x, x, counts[k], COLL_F64, COLL_SUM, world, NULL) == COLL_OK);
			for (size_t i = 0; i < counts[k]; i++) {
				uint64_t bits;

				memcpy(&bits, &x[i], sizeof(bits));
				h = (h ^ bits) * 1099511628211u;
			}
			/* From call to call, too, whoever was the last to come. */
			CHECK(again == 0 || h == hash, "%zu elements", counts[k]);
			hash = h;
		}
		CHECK(coll_all_gather(&hash, all, 1, COLL_U64, world, NULL) == COLL_OK);
		for (int r = 0; r < size; r++)
			CHECK(all[r] == hash, "%zu elements, rank %d and rank %d", counts[k], me, r);
	}
	free(x);
}

/* ---- Calls that differ ---- */

static void one_differs_in(enum kind kind, enum kind odd_kind, size_t count, size_t odd_count)
{
	const bool odd = me == size / 2;
	const struct call c = {.kind = odd ? odd_kind : kind, .count = odd ? odd_count : count};
	int32_t *mem = calloc(2 * (count + odd_count) * (size_t)size, sizeof(*mem));
	coll_comm *comm = NULL;
	coll_status st;

	CHECK(coll_comm_duplicate(world, &comm) == COLL_OK, "%s", coll_last_error(world)->message);
	st = issue(comm, &c, mem, mem + (count + odd_count) * (size_t)size, NULL);
	CHECK(st == COLL_ERR_MISMATCH, "rank %d: %s", me, coll_status_string(st));
	CHECK(coll_last_error(comm)->status == COLL_ERR_MISMATCH && strstr(coll_last_error(comm)->message, "rank"));
	coll_comm_destroy(&comm);
	free(mem);
}

static void one_differs(void)
{
	one_differs_in(ALL_REDUCE, ALL_REDUCE, 5, 6);
	one_differs_in(ALL_REDUCE, ALL_REDUCE, 5000, 5001);
	one_differs_in(ALL_GATHER, ALL_TO_ALL, 100, 100);
	one_differs_in(BARRIER, ALL_REDUCE, 1, 1);
}

/* ---- Campaign ---- */

static uint64_t next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static struct call random_call(uint64_t *state, unsigned round)
{
	struct call c = {.kind = (enum kind)(next(state) % KINDS),
	                 .root = (int)(next(state) % (uint64_t)size),
	                 .in_place = next(state) % 2,
	                 .round = round};

	c.count = 1 + next(state) % ((size_t)1 << next(state) % 15);
	if (blocks_in(&c, size) * blocks_out(&c, size) > 1)
		c.count = 1 + c.count / 16;
	return c;
}

/* Rank 0 has the clock: all stop behind the same call. */
static void campaign(double seconds, uint64_t seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15u | 1;
	double spent[KINDS] = {0};
	unsigned calls[KINDS] = {0}, round = 0;
	const double begun = now_s();
	int32_t more = 1;

	while (more) {
		for (int i = 0; i < 100; i++) {
			const struct call c = random_call(&state, round++);
			const double before = now_s();

			make(world, &c);
			spent[c.kind] += now_s() - before;
			calls[c.kind]++;
		}
		more = now_s() - begun < seconds;
		CHECK(coll_broadcast(&more, &more, 1, COLL_I32, 0, world, NULL) == COLL_OK, "%s",
		      coll_last_error(world)->message);
		if (atomic_load(&plain_failures))
			break;
	}
	for (int k = 0; me == 0 && k < KINDS; k++)
		printf("%-14s %6u calls, %8.0f us each with making and checking of data\n", kind_names[k], calls[k],
		       calls[k] ? spent[k] / calls[k] * 1e6 : 0);
}

static double campaign_s;
static uint64_t campaign_seed;

static void random_calls(void)
{
	campaign(campaign_s, campaign_seed);
}

int main(int argc, char **argv)
{
	if (coll_comm_create(&world, NULL) != COLL_OK) {
		fprintf(stderr, "create: %s\n", coll_last_error(NULL)->message);
		return 1;
	}
	me = coll_comm_rank(world);
	size = coll_comm_size(world);
	if (argc > 1) {
		campaign_s = atof(argv[1]);
		campaign_seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
		CHECK(coll_broadcast(&campaign_seed, &campaign_seed, 1, COLL_U64, 0, world, NULL) == COLL_OK);
		if (me == 0)
			printf("%d ranks, seed %llu\n", size, (unsigned long long)campaign_seed);
		PLAIN_RUN(random_calls);
	} else {
		PLAIN_RUN(every_kind);
		PLAIN_RUN(storms);
		PLAIN_RUN(halves);
		PLAIN_RUN(on_a_stream);
		PLAIN_RUN(the_same_bits);
		PLAIN_RUN(one_differs);
	}
	CHECK(coll_comm_destroy(&world) == COLL_OK);
	if (me == 0 || plain_failed)
		return plain_summary();
	return 0;
}
