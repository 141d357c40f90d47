/*
 * Averages of f16, bf16 and 8-bit floats: that of equal values is that value, bit for bit, for the edges of each type
 * or every finite value; that of others is as near as coll.h says. Every collective that reduces, plain and library
 * memory, in place, ragged blocks, groups, persistent operations, counts for every way.
 *
 * usage: averages TRANSPORT every|rows RANKS...   ranks are threads; rows: each row of the table of algorithms instead
 *        averages job                             a rank of collrun; rank 0 prints the ways that its calls went
 */
#define PLAIN_OWN_MAIN
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "algos/algos.h"
#include "base/hash.h"
#include "coll/coll.h"
#include "plain.h"
#include "reduce/element.h"

enum { RANKS_MAX = 64, VALUES_MAX = 65536, WAYS_MAX = 64 };
/* Longer inputs, and elements of longer calls of one kind and another, take long and go no other way. */
enum { BYTES_MAX = 1 << 20, SOME_MAX = 70000, UNEQUAL_MAX = 1100, TOGETHER_MAX = 2500000 };

static const struct narrow {
	coll_dtype type;
	uint32_t infinity; /* the first that is not finite */
	double u, normal;  /* half a unit in the last place of 1; the smallest normal number */
} types[] = {{COLL_F16, 0x7c00, 0x1p-11, 0x1p-14},
             {COLL_BF16, 0x7f80, 0x1p-8, 0x1p-126},
             {COLL_F8E4M3, 0x7f, 0x1p-4, 0x1p-6},
             {COLL_F8E5M2, 0x7c, 0x1p-3, 0x1p-14}};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

/* Those of a type that the calls take, one after the other, again and again. */
static uint16_t values[TYPES][VALUES_MAX];
static size_t nvalues[TYPES];
static bool every;
static const char *ways[WAYS_MAX];

static bool is_half(const struct narrow *t)
{
	return coll_dtype_size(t->type) == 2;
}

static void find_values(void)
{
	for (size_t k = 0; k < TYPES; k++) {
		const struct narrow *t = &types[k];
		const uint32_t sign = is_half(t) ? 0x8000 : 0x80, one = (t->infinity + 1) / 2 & ~1u;
		/* Zero, the smallest, subnormal and normal, numbers with all bits, the largest. */
		const uint32_t edges[] = {0,
		                          1,
		                          2,
		                          3,
		                          is_half(t) ? 0x7f : 7,
		                          is_half(t) ? 0x80 : 8,
		                          0x3ff % t->infinity,
		                          0x400 % t->infinity,
		                          one,
		                          one + 1,
		                          t->infinity - 2,
		                          t->infinity - 1};

		nvalues[k] = 0;
		for (uint32_t v = 0; every && v < t->infinity; v++)
			for (int s = 0; s < 2; s++)
				values[k][nvalues[k]++] = (uint16_t)(s ? v | sign : v);
		for (size_t i = 0; !every && i < 2 * sizeof(edges) / sizeof(*edges); i++)
			values[k][nvalues[k]++] = (uint16_t)(i % 2 ? edges[i / 2] | sign : edges[i / 2]);
	}
}

static double widened(const struct narrow *t, uint16_t v)
{
	switch (t->type) {
	case COLL_F16: return (double)f16_to_f32(v);
	case COLL_BF16: return (double)bf16_to_f32(v);
	case COLL_F8E4M3: return (double)f8e4m3_to_f32((uint8_t)v);
	default: return (double)f8e5m2_to_f32((uint8_t)v);
	}
}

static void put(const struct narrow *t, void *p, size_t i, uint16_t v)
{
	if (is_half(t))
		((uint16_t *)p)[i] = v;
	else
		((uint8_t *)p)[i] = (uint8_t)v;
}

static uint16_t get(const struct narrow *t, const void *p, size_t i)
{
	return is_half(t) ? ((const uint16_t *)p)[i] : ((const uint8_t *)p)[i];
}

/* Of rank r, or of all: equal. */
static uint16_t value(size_t k, int r, size_t i, bool equal)
{
	return values[k][equal ? i % nvalues[k] : coll_mix64((uint64_t)r << 40 | i) % nvalues[k]];
}

/* ---- One call ---- */

enum what { ALL_REDUCE, IN_PLACE, REDUCE, REDUCE_SCATTER, RAGGED, GROUP, PERSISTENT, WHATS };
static const char *const names[WHATS] = {
        "all_reduce", "all_reduce in place", "reduce", "reduce_scatter", "reduce_scatterv", "group", "persistent"};

struct call {
	coll_comm *comm;
	int rank, size, root;
	enum what what;
	size_t type, count;
	bool equal;
	size_t counts[RANKS_MAX];
};

/* Elements of the input, of the result, and before it. */
static void extents(struct call *c, size_t *in, size_t *out, size_t *before)
{
	*in = *out = c->count;
	*before = 0;
	if (c->what == REDUCE_SCATTER) {
		*in = c->count * (size_t)c->size;
		*before = c->count * (size_t)c->rank;
	}
	if (c->what == RAGGED) {
		*in = 0;
		for (int r = 0; r < c->size; r++) {
			c->counts[r] = r % 3 == 1 ? 0 : c->count + (size_t)r;
			*before += r < c->rank ? c->counts[r] : 0;
			*in += c->counts[r];
		}
		*out = c->counts[c->rank];
	}
	if (c->what == REDUCE && c->rank != c->root)
		*out = 0;
}

static coll_status grouped(const struct call *c, const void *in, void *out)
{
	const size_t half = c->count / 2, at = half * coll_dtype_size(types[c->type].type);
	coll_status st = coll_group_begin(), end;

	if (st == COLL_OK)
		st = coll_all_reduce(in, out, half, types[c->type].type, COLL_AVG, c->comm, NULL);
	if (st == COLL_OK)
		st = coll_all_reduce((const char *)in + at, (char *)out + at, c->count - half, types[c->type].type,
		                     COLL_AVG, c->comm, NULL);
	end = coll_group_end();
	return st ? st : end;
}

static coll_status persistent(const struct call *c, const void *in, void *out)
{
	const coll_operation_desc desc = {.struct_size = sizeof(desc),
	                                  .kind = COLL_ALL_REDUCE,
	                                  .in = in,
	                                  .out = out,
	                                  .count = c->count,
	                                  .type = types[c->type].type,
	                                  .op = COLL_AVG};
	coll_operation *op = NULL;
	coll_status st = coll_operation_prepare(&op, &desc, c->comm);

	for (int i = 0; i < 2 && st == COLL_OK; i++) {
		st = coll_operation_start(op, NULL);
		if (st == COLL_OK)
			st = coll_operation_wait(op, -1);
	}
	coll_operation_destroy(&op);
	return st;
}

static coll_status issue(struct call *c, const void *in, void *out)
{
	const coll_dtype type = types[c->type].type;

	switch (c->what) {
	case ALL_REDUCE:
	case IN_PLACE: return coll_all_reduce(in, out, c->count, type, COLL_AVG, c->comm, NULL);
	case REDUCE: return coll_reduce(in, out, c->count, type, COLL_AVG, c->root, c->comm, NULL);
	case REDUCE_SCATTER: return coll_reduce_scatter(in, out, c->count, type, COLL_AVG, c->comm, NULL);
	case RAGGED: return coll_reduce_scatterv(in, out, c->counts, NULL, type, COLL_AVG, c->comm, NULL);
	case GROUP: return grouped(c, in, out);
	default: return persistent(c, in, out);
	}
}

/* Within the bound of coll.h, of at most size roundings. */
static bool is_near(const struct call *c, size_t i, uint16_t got)
{
	const struct narrow *t = &types[c->type];
	double mean = 0, magnitude = 0;

	for (int r = 0; r < c->size; r++) {
		const double x = widened(t, value(c->type, r, i, false));

		mean += x / c->size;
		magnitude += fabs(x) / c->size;
	}
	return fabs(widened(t, got) - mean) <= expm1((c->size + 1) * log1p(t->u)) * (magnitude + t->normal);
}

static void check(const struct call *c, const void *out, size_t n, size_t before)
{
	const struct narrow *t = &types[c->type];

	for (size_t i = 0; i < n; i++) {
		const uint16_t got = get(t, out, i), first = value(c->type, 0, before + i, c->equal);

		if (c->equal ? got == first : is_near(c, before + i, got))
			continue;
		CHECK(false, "rank %d of %d: %s %s of %zu by %s: element %zu is %04x; rank 0 has %04x, %s", c->rank,
		      c->size, coll_dtype_name(t->type), names[c->what], c->count, coll_comm_last_way(c->comm), i, got,
		      first, c->equal ? "as all" : "others have others");
		return;
	}
}

static void note_way(const struct call *c)
{
	const char *way = coll_comm_last_way(c->comm);

	for (int i = 0; way && c->rank == 0 && i < WAYS_MAX; i++) {
		if (!ways[i])
			ways[i] = way;
		if (strcmp(ways[i], way) == 0)
			return;
	}
}

static void call(struct call *c, void *in, void *out)
{
	size_t n, results, before;

	extents(c, &n, &results, &before);
	for (size_t i = 0; i < n; i++)
		put(&types[c->type], in, i, value(c->type, c->rank, i, c->equal));
	CHECK(issue(c, in, out) == COLL_OK, "rank %d: %s", c->rank, coll_last_error(c->comm)->message);
	note_way(c);
	check(c, out, results, before);
}

/* ---- All calls of a rank ---- */

static void of_count(coll_comm *comm, size_t count, bool plain)
{
	struct call c = {.comm = comm, .rank = coll_comm_rank(comm), .size = coll_comm_size(comm), .count = count};
	const size_t bytes = 2 * (count + RANKS_MAX) * (size_t)c.size;
	void *in = NULL, *out = NULL;

	if (plain) {
		in = malloc(bytes);
		out = malloc(bytes);
	} else {
		CHECK(coll_mem_alloc(comm, &in, bytes) == COLL_OK);
		CHECK(coll_mem_alloc(comm, &out, bytes) == COLL_OK);
	}
	for (; in && out && c.type < TYPES; c.type++)
		for (int what = 0; what < WHATS; what++)
			for (int equal = every || count > UNEQUAL_MAX; equal < 2; equal++) {
				c.what = (enum what)what;
				c.equal = equal;
				c.root = (int)(count % (size_t)c.size);
				if ((count <= SOME_MAX || what < REDUCE) && (what < REDUCE || bytes <= BYTES_MAX))
					call(&c, in, what == IN_PLACE ? in : out);
			}
	if (plain) {
		free(in);
		free(out);
	} else {
		coll_mem_free(comm, in);
		coll_mem_free(comm, out);
	}
}

/* For each way of shared memory; the first two for plans. */
static const size_t counts[] = {40, 5000, 1, 4, 24, 108, 332, 1100, 16000, 40000, 150000, 700000};
static size_t ncounts;

static void *rank_main(void *comm)
{
	for (size_t i = 0; every && i < TYPES; i++)
		of_count(comm, nvalues[i], true);
	for (size_t i = 0; !every && i < 2 * ncounts; i++)
		if (counts[i / 2] * (size_t)coll_comm_size(comm) <= TOGETHER_MAX)
			of_count(comm, counts[i / 2], i % 2);
	return NULL;
}

static const char *settings[] = {NULL, "COLL_TIMEOUT_MS=20000", "COLL_ARRIVAL_TIMEOUT_MS=60000", NULL, NULL};
static int nranks;

static void threads(void)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comms[RANKS_MAX];
	pthread_t thread[RANKS_MAX];

	cfg.settings = settings;
	REQUIRE(coll_comm_create_all(comms, nranks, &cfg) == COLL_OK, "%s", coll_last_error(NULL)->message);
	for (int r = 0; r < nranks; r++)
		pthread_create(&thread[r], NULL, rank_main, comms[r]);
	for (int r = 0; r < nranks; r++)
		pthread_join(thread[r], NULL);
	for (int r = 0; r < nranks; r++)
		CHECK(coll_comm_destroy(&comms[r]) == COLL_OK);
}

static void each_row(void)
{
	char text[96];

	for (size_t i = 0; i < coll_algos_count; i++) {
		const struct coll_algo *a = &coll_algos[i];

		if (!coll_plan_kind_averages(a->kind) || !a->cost)
			continue;
		snprintf(text, sizeof(text), "COLL_ALGO=%s:%s", coll_plan_kind_name(a->kind), a->name);
		settings[3] = text;
		plain_run(text, "", threads);
	}
}

static void job(void)
{
	coll_comm *comm;

	REQUIRE(coll_comm_create(&comm, NULL) == COLL_OK, "%s", coll_last_error(NULL)->message);
	rank_main(comm);
	for (int i = 0; i < WAYS_MAX && ways[i]; i++)
		printf("way %s\n", ways[i]);
	CHECK(coll_comm_destroy(&comm) == COLL_OK);
}

int main(int argc, char **argv)
{
	char transports[64];
	const bool rows = argc > 2 && strcmp(argv[2], "rows") == 0;

	if (argc < 2 || (argc < 4 && strcmp(argv[1], "job") != 0)) {
		fprintf(stderr, "usage: %s TRANSPORT every|rows RANKS... | job\n", argv[0]);
		return 64;
	}
	every = argc > 2 && !rows;
	find_values();
	ncounts = argc == 2 ? sizeof(counts) / sizeof(*counts) : 2;
	if (argc == 2)
		PLAIN_RUN(job);
	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", argv[1]);
	settings[0] = transports;
	for (int i = 3; i < argc; i++) {
		nranks = atoi(argv[i]);
		if (rows)
			each_row();
		else
			PLAIN_RUN(threads);
	}
	return plain_summary();
}
