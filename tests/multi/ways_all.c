/*
 * Every collective, in plain memory and in that of coll_mem_alloc(), at the edges of every threshold: the results are
 * right, and the way on record, on every rank, is the first of the chain that coll_comm_explain() names whose condition
 * holds. Of a row that is tried by the clock the next one is right, too. Started by collrun: tests/multi/ways_all.py.
 *
 * usage: ways_all quick|full
 *   quick: powers of 8 and the rows' own edges, without the bytes beside them
 */
#define PLAIN_OWN_MAIN
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/limits.h"
#include "coll/coll.h"
#include "plain.h"

enum { KINDS = 11, CALLS = 2, LENGTHS_MAX = 256, ROWS_MAX = 8, WRONG_MAX = 20 };
enum kind {
	ALL_REDUCE,
	REDUCE,
	BROADCAST,
	ALL_GATHER,
	REDUCE_SCATTER,
	ALL_TO_ALL,
	GATHER,
	SCATTER,
	SCAN,
	EXCLUSIVE_SCAN,
	BARRIER
};
/* PLAIN first would keep some calls from being tried in LIBRARY memory: see the back-off in ways.md. */
enum memory { LIBRARY, PLAIN, IN_PLACE, MEMORIES };

static const char *const kinds[KINDS] = {"all_reduce",     "reduce",         "broadcast", "all_gather",
                                         "reduce_scatter", "all_to_all",     "gather",    "scatter",
                                         "scan",           "exclusive_scan", "barrier"};
static const char *const memories[MEMORIES] = {"library", "plain", "library, in place"};

static coll_comm *comm;
static int me, size, wrong;
static bool by_clock;
static uint64_t ways_seen; /* a hash of all ways, equal on all ranks */

struct call {
	enum kind kind;
	enum memory memory;
	size_t bytes; /* of the vector, or of a block */
	int root;
	unsigned round;
};

#define COMPLAIN(c, format, ...)                                                                            \
	do {                                                                                                \
		if (wrong++ < WRONG_MAX)                                                                    \
			CHECK(false, "rank %d of %d, %s of %zu bytes, %s, root %d: " format, me, size,      \
			      kinds[(c)->kind], (c)->bytes, memories[(c)->memory], (c)->root, __VA_ARGS__); \
	} while (0)

/* ---- What is sent, and what comes of it ---- */

static uint8_t value(int rank, size_t i, unsigned round)
{
	return (uint8_t)(rank * 37 + (int)(i % 251) * 11 + (int)(i >> 8) + (int)round * 5);
}

static uint8_t sum(int ranks, size_t i, unsigned round)
{
	uint8_t s = 0;

	for (int r = 0; r < ranks; r++)
		s = (uint8_t)(s + value(r, i, round));
	return s;
}

static bool has_blocks(enum kind kind, bool input)
{
	return input ? kind == REDUCE_SCATTER || kind == ALL_TO_ALL || kind == SCATTER
	             : kind == ALL_GATHER || kind == ALL_TO_ALL || kind == GATHER;
}

static size_t length(const struct call *c, bool input)
{
	if (c->kind == BARRIER)
		return 0;
	return c->bytes * (has_blocks(c->kind, input) ? (size_t)size : 1);
}

static uint8_t expected(const struct call *c, size_t i)
{
	const size_t in_block = c->bytes ? i % c->bytes : 0;
	const int block = c->bytes ? (int)(i / c->bytes) : 0;

	switch (c->kind) {
	case ALL_REDUCE:
	case REDUCE: return sum(size, i, c->round);
	case BROADCAST: return value(c->root, i, c->round);
	case ALL_GATHER:
	case GATHER: return value(block, in_block, c->round);
	case REDUCE_SCATTER: return sum(size, (size_t)me * c->bytes + i, c->round);
	case ALL_TO_ALL: return value(block, (size_t)me * c->bytes + in_block, c->round);
	case SCATTER: return value(c->root, (size_t)me * c->bytes + i, c->round);
	case EXCLUSIVE_SCAN: return sum(me, i, c->round);
	default: return sum(me + 1, i, c->round);
	}
}

static coll_status issue(const struct call *c, const void *in, void *out)
{
	const coll_dtype u8 = COLL_U8;
	const coll_op op = COLL_SUM;

	switch (c->kind) {
	case ALL_REDUCE: return coll_all_reduce(in, out, c->bytes, u8, op, comm, NULL);
	case REDUCE: return coll_reduce(in, out, c->bytes, u8, op, c->root, comm, NULL);
	case BROADCAST: return coll_broadcast(in, out, c->bytes, u8, c->root, comm, NULL);
	case ALL_GATHER: return coll_all_gather(in, out, c->bytes, u8, comm, NULL);
	case REDUCE_SCATTER: return coll_reduce_scatter(in, out, c->bytes, u8, op, comm, NULL);
	case ALL_TO_ALL: return coll_all_to_all(in, out, c->bytes, u8, comm, NULL);
	case GATHER: return coll_gather(in, out, c->bytes, u8, c->root, comm, NULL);
	case SCATTER: return coll_scatter(in, out, c->bytes, u8, c->root, comm, NULL);
	case SCAN: return coll_scan(in, out, c->bytes, u8, op, comm, NULL);
	case EXCLUSIVE_SCAN: return coll_exclusive_scan(in, out, c->bytes, u8, op, comm, NULL);
	default: return coll_barrier(comm, NULL);
	}
}

/* ---- The chain of a call ---- */

struct chain {
	char text[800];
	const char *row[ROWS_MAX];
	int rows;
};

/* "all_reduce zero-copy if ...; else ring (plain buffers) tile=..." */
static bool read_chain(const struct call *c, struct chain *chain)
{
	const size_t count = c->kind == BARRIER ? 1 : c->bytes;
	char *at, *tile;

	if (coll_comm_explain(comm, kinds[c->kind], count, COLL_U8, chain->text, sizeof(chain->text)) != COLL_OK)
		return false;
	tile = strstr(chain->text, " tile=");
	if (!tile)
		return false;
	*tile = 0;
	at = chain->text + strlen(kinds[c->kind]) + 1;
	for (chain->rows = 0; at && chain->rows < ROWS_MAX; chain->rows++) {
		char *next = strstr(at, "; else ");

		chain->row[chain->rows] = at;
		if (next)
			*next = 0;
		at = next ? next + strlen("; else ") : NULL;
	}
	return true;
}

static bool is_named(const char *row, const char *way)
{
	const size_t len = strlen(way);

	return strncmp(row, way, len) == 0 && strchr(" ", row[len]);
}

/* Whether the buffers of this call meet the condition of a row; *or_next: a clock may decide otherwise. */
static bool holds(const struct call *c, const char *row, bool *or_next)
{
	const bool overwritten = c->kind == ALL_TO_ALL && c->memory == IN_PLACE;

	*or_next = false;
	if (strstr(row, "mapped by every rank"))
		return c->memory != PLAIN && !overwritten;
	if (strstr(row, "may read the others' memory")) {
		*or_next = by_clock;
		return !overwritten;
	}
	return true;
}

/* The first row whose condition holds; of one tried by the clock the next one, too. */
static bool is_right(const struct call *c, const struct chain *chain, const char *way)
{
	for (int i = 0; i < chain->rows; i++) {
		bool or_next;

		if (!holds(c, chain->row[i], &or_next))
			continue;
		if (is_named(chain->row[i], way))
			return true;
		if (!or_next)
			return false;
	}
	return false;
}

static void check_way(const struct call *c)
{
	const char *way = coll_comm_last_way(comm);
	struct chain chain;

	if (!way || !read_chain(c, &chain)) {
		COMPLAIN(c, "%s", way ? "cannot be explained" : "no way on record");
		return;
	}
	ways_seen = coll_mix64(ways_seen ^ coll_hash_bytes(0, way, strlen(way)));
	if (!is_right(c, &chain, way))
		COMPLAIN(c, "it went %s, and the chain begins %s; then %s; then %s", way, chain.row[0],
		         chain.rows > 1 ? chain.row[1] : "nothing", chain.rows > 2 ? chain.row[2] : "nothing");
}

/* ---- Calls ---- */

static uint8_t *get(enum memory memory, size_t bytes)
{
	void *p = NULL;

	if (memory == PLAIN)
		return malloc(bytes + 1);
	return coll_mem_alloc(comm, &p, bytes + 1) == COLL_OK ? p : NULL;
}

static void put(enum memory memory, uint8_t *p)
{
	if (memory == PLAIN)
		free(p);
	else
		coll_mem_free(comm, p);
}

static bool has_result(const struct call *c)
{
	if (c->kind == EXCLUSIVE_SCAN)
		return me > 0;
	return (c->kind != REDUCE && c->kind != GATHER) || me == c->root;
}

static void one_call(const struct call *c, uint8_t *in, uint8_t *out)
{
	const size_t in_bytes = length(c, true), out_bytes = length(c, false);
	coll_status st;

	for (size_t i = 0; i < in_bytes; i++)
		in[i] = value(me, i, c->round);
	if (in != out)
		memset(out, 0x5a, out_bytes + 1);
	out[out_bytes] = 0x5a;
	st = issue(c, in, out);
	if (st != COLL_OK) {
		COMPLAIN(c, "%s", coll_last_error(comm)->message);
		return;
	}
	check_way(c);
	if (c->kind == BARRIER || !has_result(c))
		return;
	for (size_t i = 0; i < out_bytes; i++)
		if (out[i] != expected(c, i)) {
			COMPLAIN(c, "byte %zu is %u, not %u, by %s", i, out[i], expected(c, i),
			         coll_comm_last_way(comm));
			break;
		}
	if (out[out_bytes] != 0x5a)
		COMPLAIN(c, "%s", "a byte behind the result");
}

static void calls_of(enum kind kind, enum memory memory, size_t bytes)
{
	struct call c = {.kind = kind, .memory = memory, .bytes = bytes};
	const size_t longest = length(&c, true) > length(&c, false) ? length(&c, true) : length(&c, false);
	uint8_t *in = get(memory, longest), *out = memory == IN_PLACE ? in : get(memory, longest);

	if (!in || !out) {
		COMPLAIN(&c, "%s", "no memory");
		exit(plain_summary());
	}
	for (int i = 0; i < CALLS; i++) {
		c.round++;
		c.root = (int)(c.round % (unsigned)size);
		one_call(&c, in, out);
	}
	if (out != in)
		put(memory, out);
	put(memory, in);
}

/* ---- Lengths ---- */

static size_t lengths[LENGTHS_MAX];
static size_t nlengths;

static void add(size_t bytes)
{
	bool known = bytes == 0 || bytes > (size_t)8 << 20 || (size > 4 && bytes * (size_t)size > (size_t)8 << 20);

	for (size_t i = 0; i < nlengths && !known; i++)
		known = lengths[i] == bytes;
	if (!known && nlengths < LENGTHS_MAX)
		lengths[nlengths++] = bytes;
}

static void add_edge(size_t bytes, bool full)
{
	add(bytes);
	if (full)
		add(bytes - 1);
	add(bytes + 1);
}

/* Thresholds, and the lengths of blocks of which all together meet one. */
static void find_lengths(bool full)
{
	static const size_t edges[] = {48,
	                               216, /* four lines, for each of three other ranks */
	                               664, /* twelve lines */
	                               COLL_EAGER_GATHER_MAX,
	                               COLL_EAGER_SCATTER_MAX,
	                               COLL_EAGER_ALLTOALL_MAX,
	                               COLL_ZERO_COPY_MIN,
	                               COLL_CICO_REDUCE_MIN,
	                               COLL_PAIR_BCAST_MIN,
	                               COLL_PAIR_BCAST_MAX,
	                               COLL_TILE_BYTES,
	                               COLL_STRIP_BYTES,
	                               COLL_UNIT_BYTES,
	                               COLL_PAIR_SLOT_BYTES};

	for (size_t bytes = 1; bytes <= (size_t)8 << 20; bytes *= 8)
		add(bytes);
	for (size_t i = 0; i < sizeof(edges) / sizeof(*edges); i++) {
		if (!full && edges[i] > COLL_CICO_REDUCE_MIN)
			continue;
		add_edge(edges[i], full);
		if (full)
			add_edge(edges[i] / (size_t)size, full);
	}
	add(full ? COLL_INTRA_BYTES_MAX : COLL_PAIR_BCAST_MIN);
}

/* ---- All ---- */

static bool kernel_reads(void)
{
	char from = 1, to = 0;
	struct iovec here = {&to, 1}, there = {&from, 1};

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1;
}

static void each_length(enum kind kind, enum memory memory)
{
	for (size_t i = 0; i < (kind == BARRIER ? 1 : nlengths); i++)
		calls_of(kind, memory, kind == BARRIER ? 1 : lengths[i]);
}

static void all_calls(void)
{
	for (int memory = 0; memory < MEMORIES; memory++)
		for (int kind = 0; kind < KINDS; kind++)
			/* Where a result overwrites what others read: by no row that reads inputs where they lie. */
			if (memory != IN_PLACE || kind == ALL_TO_ALL)
				each_length((enum kind)kind, (enum memory)memory);
}

static void ranks_agree(void)
{
	uint64_t *seen = calloc((size_t)size, sizeof(*seen));

	if (coll_all_gather(&ways_seen, seen, 1, COLL_U64, comm, NULL) != COLL_OK)
		CHECK(false, "rank %d: %s", me, coll_last_error(comm)->message);
	for (int r = 0; r < size; r++)
		CHECK(seen[r] == ways_seen, "rank %d went other ways than rank %d", r, me);
	free(seen);
}

static void every_call_goes_the_first_way_that_holds(void)
{
	all_calls();
	CHECK(wrong <= WRONG_MAX, "rank %d: %d wrong in all", me, wrong);
}

static void all_ranks_go_the_same_ways(void)
{
	ranks_agree();
}

int main(int argc, char **argv)
{
	const char *copy = getenv("COLL_SHM_COPY");

	if (argc != 2 || coll_comm_create(&comm, NULL) != COLL_OK) {
		fprintf(stderr, argc != 2 ? "usage: %s quick|full\n" : "%s: no communicator\n", argv[0]);
		return 64;
	}
	me = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	by_clock = !copy || strcmp(copy, "auto") == 0 || !kernel_reads();
	find_lengths(strcmp(argv[1], "full") == 0);
	PLAIN_RUN(every_call_goes_the_first_way_that_holds);
	PLAIN_RUN(all_ranks_go_the_same_ways);
	CHECK(coll_comm_destroy(&comm) == COLL_OK);
	return plain_summary();
}
