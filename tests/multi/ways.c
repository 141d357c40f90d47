/*
 * The way a call was made is recorded, and is one that coll_comm_explain() had named: for plain buffers and for
 * those of coll_mem_alloc(), short and long, intranode and by plan, in streams, in groups and prepared. Ranks are
 * threads of this process.
 *
 * usage: ways shm on|off [PART-OF-A-TEST'S-NAME]
 */
#include "zero_copy_buffers.h"

enum { RANKS = 4, CALLS = 3 };

static const char *const kinds[] = {"all_reduce", "broadcast", "all_to_all"};
enum { ALL_REDUCE, BROADCAST, ALL_TO_ALL, KINDS };

static coll_status call(coll_comm *comm, int kind, const void *in, void *out, size_t count, coll_stream *stream)
{
	switch (kind) {
	case ALL_REDUCE: return coll_all_reduce(in, out, count, COLL_F32, COLL_SUM, comm, stream);
	case BROADCAST: return coll_broadcast(in, out, count, COLL_F32, 0, comm, stream);
	default: return coll_all_to_all(in, out, count, COLL_F32, comm, stream);
	}
}

/* ---- What is explained ---- */

/* The chain of ways between the name of the collective and the tile. */
struct chain {
	char text[800];
};

static struct chain chain_of(coll_comm *comm, int kind, size_t count)
{
	struct chain c;
	char *tile;

	OK(comm, coll_comm_explain(comm, kinds[kind], count, COLL_F32, c.text, sizeof(c.text)));
	tile = strstr(c.text, " tile=");
	CHECK(tile && strncmp(c.text, kinds[kind], strlen(kinds[kind])) == 0, "%s", c.text);
	if (tile)
		*tile = 0;
	memmove(c.text, c.text + strlen(kinds[kind]), strlen(c.text + strlen(kinds[kind])) + 1);
	return c;
}

/* As a word of its own. */
static bool names(const struct chain *c, const char *way)
{
	const size_t len = strlen(way);

	for (const char *at = strstr(c->text, way); at; at = strstr(at + 1, way))
		if (at > c->text && at[-1] == ' ' && (at[len] == 0 || strchr(" ;,", at[len])))
			return true;
	return false;
}

/* What the plan is called: the last. */
static bool is_plan(const struct chain *c, const char *way)
{
	const char *last = c->text;

	for (const char *next; (next = strstr(last, "; else ")) != NULL;)
		last = next + strlen("; else");
	return strncmp(last + 1, way, strlen(way)) == 0 && strchr(" ", last[1 + strlen(way)]);
}

/* ---- What ran ---- */

static const char *last_way(const coll_comm *comm)
{
	const char *way = coll_comm_last_way(comm);

	CHECK(way != NULL);
	return way ? way : "";
}

/* By calls of one shape that are alike, in plain memory or not. */
static const char *way_of(coll_comm *comm, int kind, size_t bytes, bool plain)
{
	const size_t all = kind == ALL_TO_ALL ? bytes * (size_t)coll_comm_size(comm) : bytes;
	const char *way = "";
	struct buffer in, out;

	take(comm, &in, all, 0, plain);
	take(comm, &out, all, 0, plain);
	for (int i = 0; i < CALLS; i++) {
		OK(comm, call(comm, kind, in.at, out.at, bytes / sizeof(float), NULL));
		/* The shortest calls are written down before they are made. */
		CHECK(i == 0 || bytes > 1024 || strcmp(way, last_way(comm)) == 0, "%zu bytes: %s, then %s", bytes, way,
		      last_way(comm));
		way = last_way(comm);
	}
	drop(comm, &in);
	drop(comm, &out);
	return way;
}

static void one_shape(coll_comm *comm, int rank, int kind, size_t bytes)
{
	const struct chain chain = chain_of(comm, kind, bytes / sizeof(float));
	const bool direct = names(&chain, "zero-copy");
	/* First, as after calls in vain some are not tried. */
	const char *mapped = way_of(comm, kind, bytes, false), *plain = way_of(comm, kind, bytes, true);
	char what[64];

	snprintf(what, sizeof(what), "rank %d of %d, %s, %zu bytes", rank, coll_comm_size(comm), kinds[kind], bytes);
	CHECK(names(&chain, mapped), "%s: %s is not in:%s", what, mapped, chain.text);
	CHECK(names(&chain, plain), "%s: %s is not in:%s", what, plain, chain.text);
	CHECK(direct == (strcmp(mapped, "zero-copy") == 0), "%s, mapped: %s", what, mapped);
	CHECK(strcmp(plain, "zero-copy") != 0, "%s, plain: %s", what, plain);
	CHECK(direct || strcmp(plain, mapped) == 0, "%s: %s and %s", what, plain, mapped);
	/* A plan in place of what is done intranode only where that is what is said of plain buffers. */
	if (!strstr(chain.text, "(no memory can be shared)"))
		CHECK(is_plan(&chain, plain), "%s: %s in:%s", what, plain, chain.text);
	else
		CHECK(!is_plan(&chain, plain), "%s: %s in:%s", what, plain, chain.text);
}

TEST_OF_RANKS(ways, the_way_that_ran_is_one_explained, 2, RANKS)
{
	static const size_t sizes[] = {8,        48,        256,       1024,    8192,   32 << 10,
	                               64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20};

	for (int kind = 0; kind < KINDS; kind++)
		for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
			one_shape(comm, rank, kind, sizes[i]);
	OK(comm, coll_barrier(comm, NULL));
	CHECK(strcmp(last_way(comm), "eager-line") == 0, "%s", last_way(comm));
}

/* ---- Named outright ---- */

struct expected {
	int size, kind;
	size_t bytes;
	const char *plain;
};

static void is_expected(coll_comm *comm, int rank, void *arg)
{
	const struct expected *e = arg;
	const char *way = way_of(comm, e->kind, e->bytes, true);

	CHECK(strcmp(way, e->plain) == 0, "rank %d of %d, %s, %zu bytes: %s, not %s", rank, e->size, kinds[e->kind],
	      e->bytes, way, e->plain);
}

static void each_expected(const struct expected *e, size_t n, const char *setting)
{
	further[0] = setting;
	for (size_t i = 0; i < n; i++) {
		struct expected one = e[i];

		run_ranks(one.size, is_expected, &one);
	}
	further[0] = NULL;
}

TEST(ways, plain_buffers_go_as_the_table_says)
{
	static const struct expected cached[] = {
	        {2, ALL_REDUCE, 8, "eager-line"},        {3, ALL_REDUCE, 400, "eager-lines"},
	        {2, ALL_REDUCE, 4096, "pair-swap"},      {2, BROADCAST, 48, "eager-bcast"},
	        {2, BROADCAST, 8192, "wide-bcast"},      {2, ALL_TO_ALL, 8, "eager-lines"},
	        {4, ALL_TO_ALL, 4096, "eager-chunk"},    {2, ALL_REDUCE, 1 << 20, "pair-stream"},
	        {2, ALL_TO_ALL, 1 << 20, "pair-stream"}, {2, BROADCAST, 1 << 20, "pair-bcast"},
	        {3, ALL_REDUCE, 1 << 20, "cico"},        {4, ALL_REDUCE, 4 << 20, "cico"},
	};
	const char *cma_read = kernel_reads() ? "cma" : "pair-stream";
	const struct expected cma[] = {{2, ALL_TO_ALL, 1 << 20, cma_read}, {2, ALL_REDUCE, 1 << 20, "pair-stream"}};

	each_expected(cached, sizeof(cached) / sizeof(*cached), "COLL_SHM_COPY=cached");
	each_expected(cma, sizeof(cma) / sizeof(*cma), "COLL_SHM_COPY=cma");
}

TEST(ways, plans_go_by_the_algorithms_name)
{
	static const struct expected ring[] = {{3, ALL_REDUCE, 8, "ring"}, {2, ALL_REDUCE, 1 << 20, "ring"}};
	static const struct expected tree[] = {{3, BROADCAST, 1 << 20, "tree"}};

	each_expected(ring, 2, "COLL_ALGO=all_reduce:ring");
	each_expected(tree, 1, "COLL_ALGO=broadcast:tree");
	each_expected(ring, 0, NULL);
}

/* ---- However the call is issued ---- */

static void is_on_record(coll_comm *comm, int rank, const char *issued, const char *want)
{
	CHECK(strcmp(last_way(comm), want) == 0, "rank %d, %s: %s, not %s", rank, issued, last_way(comm), want);
}

TEST_OF_RANKS(ways, however_it_is_issued, 2, 2)
{
	enum { SMALL = 256, LARGE = 1 << 18 };
	float *x = calloc(LARGE, sizeof(*x)), *y = calloc(LARGE, sizeof(*y));
	const int peer = !rank;
	coll_operation_desc desc = COLL_OPERATION_DESC_INIT;
	coll_operation *op;
	coll_stream *s;

	OK(comm, coll_stream_create(&s, comm));
	OK(comm, coll_all_reduce(x, y, LARGE, COLL_F32, COLL_SUM, comm, NULL));
	is_on_record(comm, rank, "blocking", "pair-stream");
	OK(comm, coll_all_reduce(x, y, SMALL, COLL_F32, COLL_SUM, comm, s));
	OK(comm, coll_stream_wait(s, -1));
	is_on_record(comm, rank, "in a stream", "pair-swap");
	OK(comm, coll_group_begin());
	OK(comm, coll_all_reduce(x, y, SMALL, COLL_F32, COLL_SUM, comm, NULL));
	OK(comm, coll_all_reduce(x + SMALL, y + SMALL, SMALL, COLL_F32, COLL_SUM, comm, NULL));
	OK(comm, coll_group_end());
	is_on_record(comm, rank, "in a group", "pair-swap");
	OK(comm, coll_send_recv(x, SMALL, peer, y, SMALL, peer, COLL_F32, comm, NULL));
	is_on_record(comm, rank, "a message", "send-recv");
	desc.in = x;
	desc.out = y;
	desc.count = LARGE;
	OK(comm, coll_operation_prepare(&op, &desc, comm));
	OK(comm, coll_operation_start(op, NULL));
	OK(comm, coll_operation_wait(op, -1));
	is_on_record(comm, rank, "prepared", "pair-stream");
	OK(comm, coll_operation_start(op, s));
	OK(comm, coll_operation_wait(op, -1));
	is_on_record(comm, rank, "prepared, in a stream", "pair-stream");
	OK(comm, coll_operation_destroy(&op));
	OK(comm, coll_stream_destroy(&s));
	free(x);
	free(y);
}

/* ---- None ---- */

static void without_a_call(coll_comm *comm, int rank, void *arg)
{
	CHECK(coll_comm_last_way(comm) == NULL, "rank %d: %s", rank, coll_comm_last_way(comm));
}

TEST(ways, none_is_on_record)
{
	CHECK(coll_comm_last_way(NULL) == NULL);
	run_ranks(2, without_a_call, NULL);
}

ASYNC_PROGRAM(ways)
