/*
 * When small operations are run intranode: by default, on all ranks or on none, in any mixture with
 * plans. What is looked at is how many frames the plans have sent. Ranks are threads of this
 * process.
 *
 * usage: by_hand shm on|off [PART-OF-A-TEST'S-NAME]
 */
#include "async_ranks.h"
#include "call/blocking.h"
#include "engine/run.h"
#include "intra/zero_copy.h"
#include "select/bind.h"

#include "core/comm.h"

enum { N = 100, LARGE = 100000 };

static uint64_t frames(const coll_comm *comm)
{
	return coll_run_stats(comm->run)->frames_sent;
}

/* Some calls of one size, right; how many frames they took. */
static uint64_t frames_of(coll_comm *comm, int rank, size_t count, int calls)
{
	const uint64_t before = frames(comm);
	int *x = malloc(count * sizeof(*x));

	for (int i = 0; i < calls; i++) {
		fill(x, count, rank, i);
		OK(comm, coll_all_reduce(x, x, count, COLL_I32, COLL_SUM, comm, NULL));
		CHECK(wrong_sums(x, count, coll_comm_size(comm), i) == 0, "call %d", i);
	}
	free(x);
	return frames(comm) - before;
}

/* ---- By hand, or not ---- */

static void small_and_large(coll_comm *comm, int rank, void *arg)
{
	const bool *intranode = arg;
	const size_t sizes[] = {1, 2, 12, 13, 100, 166, 167, 1000, 4096, 16384};

	/* Where more than two ranks have a core each, up to 512 bytes. */
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		CHECK((frames_of(comm, rank, sizes[i], 20) == 0) ==
		              (*intranode && (comm->facts.oversubscribed || coll_comm_size(comm) == 2 ||
		                              sizes[i] * sizeof(int) <= 512)),
		      "%zu elements", sizes[i]);
	/* Longer ones go from slot to slot between two ranks, by tiles among more. */
	CHECK((frames_of(comm, rank, 16385, 2) == 0) == *intranode);
	CHECK((frames_of(comm, rank, LARGE, 2) == 0) == *intranode);
	for (int i = 0; i < 20; i++)
		OK(comm, coll_barrier(comm, NULL));
}

static void with(const char *setting, bool intranode)
{
	further[0] = setting;
	for (int n = 2; n <= RANKS_MAX; n++)
		run_ranks(n, small_and_large, &intranode);
	further[0] = NULL;
}

TEST(intranode, by_default)
{
	with("COLL_INTRA_BYTES=64K", true);
	with("COLL_ALGO=auto", true);
	with("COLL_ALGO=broadcast:binomial", true);
}

/* ---- Long messages ---- */

static bool wrong_block(const int *x, size_t count, int a, int b)
{
	for (size_t i = 0; i < count; i++)
		if (x[i] != a * 1000 + b + (int)i)
			return true;
	return false;
}

static void fill_block(int *x, size_t count, int a, int b)
{
	for (size_t i = 0; i < count; i++)
		x[i] = a * 1000 + b + (int)i;
}

/* in, out: of all ranks' blocks; every other call is in place. */
static void gather_blocks(coll_comm *comm, int *in, int *out, size_t count, int call)
{
	const int rank = coll_comm_rank(comm);
	int *mine = (call + rank) % 2 ? out + (size_t)rank * count : in;

	fill_block(mine, count, call, rank);
	OK(comm, coll_all_gather(mine, out, count, COLL_I32, comm, NULL));
	for (int r = 0; r < coll_comm_size(comm); r++)
		CHECK(!wrong_block(out + (size_t)r * count, count, call, r), "call %d, block %d", call, r);
}

static void exchange_blocks(coll_comm *comm, int *in, int *out, size_t count, int call)
{
	const int size = coll_comm_size(comm), rank = coll_comm_rank(comm);
	int *from = (call + rank) % 2 ? out : in;

	for (int r = 0; r < size; r++)
		fill_block(from + (size_t)r * count, count, call + rank, r);
	OK(comm, coll_all_to_all(from, out, count, COLL_I32, comm, NULL));
	for (int r = 0; r < size; r++)
		CHECK(!wrong_block(out + (size_t)r * count, count, call + r, rank), "call %d, block %d", call, r);
}

static void send_block(coll_comm *comm, int *in, int *out, size_t count, int call)
{
	const int root = call % coll_comm_size(comm), rank = coll_comm_rank(comm);
	int *from = call % 3 ? in : out;

	memset(out, 0, count * sizeof(*out));
	if (rank == root)
		fill_block(from, count, call, root);
	OK(comm, coll_broadcast(rank == root ? from : out, out, count, COLL_I32, root, comm, NULL));
	CHECK(!wrong_block(out, count, call, root), "call %d", call);
}

/* Of one tile, of some, of a part of one behind some, and sums between them, with ranks that come late. */
TEST_OF_RANKS(intranode, long_blocks, 3, RANKS_MAX)
{
	const size_t counts[] = {16385, 32768, 32769, 100000};
	const bool intranode = comm->facts.oversubscribed;
	const uint64_t sent = frames(comm);
	int *in = malloc(RANKS_MAX * counts[3] * sizeof(*in)), *out = malloc(RANKS_MAX * counts[3] * sizeof(*out));

	for (int i = 0; i < 48; i++) {
		const size_t count = counts[i / 4 % 4];

		if (i % 8 == 5 && rank == i / 8 % coll_comm_size(comm))
			usleep(2000);
		switch ((i + i / 4) % 4) {
		case 0: gather_blocks(comm, in, out, count, i); break;
		case 1: exchange_blocks(comm, in, out, count, i); break;
		case 2: send_block(comm, in, out, count, i); break;
		default: frames_of(comm, rank, count, 1); break;
		}
	}
	/* A core each: sums alone. */
	CHECK((frames(comm) == sent) == intranode, "%d ranks", coll_comm_size(comm));
	CHECK(coll_intra_stats(comm->intra)->tiles > 0);
	free(in);
	free(out);
}

TEST(intranode, forbidden)
{
	with("COLL_INTRA=0", false);
	with("COLL_INTRA_BYTES=0", false);
	with("COLL_ALGO=all_reduce:ring", false);
}

/* A rank that cannot share memory: here one whose transport is wrapped. */
TEST(intranode, one_rank_cannot)
{
	with("COLL_HOOK=delay:us=1,every=1000000,rank=1", false);
}

/* ---- Beside plans ---- */

TEST_OF_RANKS(intranode, beside_plans, 2, RANKS_MAX)
{
	const int size = coll_comm_size(comm);
	int all[RANKS_MAX], y[2];

	for (int round = 0; round < 50; round++) {
		frames_of(comm, rank, round % 3 ? N : LARGE, 1);
		y[0] = round;
		OK(comm, coll_broadcast(y, y, 1, COLL_I32, round % size, comm, NULL));
		OK(comm, coll_all_gather(&rank, all, 1, COLL_I32, comm, NULL));
		OK(comm, coll_scan(&rank, &y[1], 1, COLL_I32, COLL_SUM, comm, NULL));
		CHECK(y[0] == round && y[1] == triangle(rank + 1), "round %d", round);
		for (int r = 0; r < size; r++)
			CHECK(all[r] == r, "round %d", round);
	}
}

/* A root runs ahead of its readers, but not by more than there is room for. */
TEST_OF_RANKS(intranode, rooted, 2, RANKS_MAX)
{
	enum { CALLS = 200 };
	int *x = malloc(2000 * sizeof(*x));

	for (int i = 0; i < CALLS; i++) {
		const size_t count = i % 7 == 3 ? 2000 : i % 2 ? 1 : N;

		if (rank != 0 && i % 50 == 10)
			usleep(2000);
		fill(x, count, i, 0);
		if (rank != i / 10 % 2)
			memset(x, 0, count * sizeof(*x));
		OK(comm, coll_broadcast(x, x, count, COLL_I32, i / 10 % 2, comm, NULL));
		CHECK(x[0] == i && x[count - 1] == i + (int)count - 1, "call %d", i);
	}
	free(x);
}

/* Every root in turn, or the same one for long, between calls of other kinds: nothing of it is sent in frames. The
 * shortest way, and the one that goes on elsewhere when a rank is late. */
TEST_OF_RANKS(intranode, roots_by_hand, 2, RANKS_MAX)
{
	enum { CALLS = 3000 };
	enum { SIZES = 10, MOST = 8192 };
	const size_t sizes[SIZES] = {1, 12, 13, 100, 166, 167, 256, 517, 3001, MOST};
	const int size = coll_comm_size(comm);
	const uint64_t before = frames(comm);
	int *x = malloc(MOST * sizeof(*x)), sum;

	for (int i = 0; i < CALLS; i++) {
		const int root = i % 1000 < 500 ? i % size : i / 1000 % size;
		const size_t count = sizes[i / 7 % SIZES];

		if (i % 500 == 77 && rank == i / 500 % size)
			usleep(1000);
		for (size_t k = 0; k < count; k++)
			x[k] = rank == root ? i + (int)k : -1;
		OK(comm, coll_broadcast(rank == root || i % 2 ? x : NULL, x, count, COLL_I32, root, comm, NULL));
		for (size_t k = 0; k < count; k++)
			CHECK(x[k] == i + (int)k, "call %d, element %zu of %zu: %d", i, k, count, x[k]);
		if (i % 11 == 0) {
			sum = rank;
			OK(comm, coll_all_reduce(&sum, &sum, 1, COLL_I32, COLL_SUM, comm, NULL));
			CHECK(sum == triangle(size), "call %d: %d", i, sum);
		}
		if (i % 13 == 0)
			OK(comm, coll_barrier(comm, NULL));
	}
	CHECK(frames(comm) == before, "%d ranks", size);
	/* The shortest way is open, whether each rank has a core or not. */
	for (int i = 0; i < 2 * size; i++)
		OK(comm, coll_broadcast(x, x, 1, COLL_I32, i % size, comm, NULL));
	for (int root = 0; root < size; root++)
		CHECK(comm->fastpath[coll_fastpath_place(COLL_KIND_BROADCAST, root)].memo, "%d ranks, root %d", size,
		      root);
	free(x);
}

/* Which is lost when the place is taken over by another call. */
enum { MARK = 1 << 30 };

static struct coll_memo *remembered(coll_comm *comm, size_t count, int root)
{
	const struct coll_call c = {.kind = COLL_KIND_BROADCAST, .count = count, .type = COLL_I32, .root = root};
	struct coll_memo *m = NULL;

	OK(comm, coll_call_remember(comm, &c, &m));
	return m;
}

/* Roots in turn: what was found for one is not lost to another, whatever is remembered of other shapes. */
static void each_root(coll_comm *comm, int rank, void *arg)
{
	for (size_t count = 1; count < 300; count++) {
		for (int root = 0; root < RANKS_MAX; root++)
			remembered(comm, count, root)->scratch_bytes += MARK;
		for (int root = 0; root < RANKS_MAX; root++) {
			struct coll_memo *m = remembered(comm, count, root);

			CHECK(m->scratch_bytes >= MARK, "%zu elements, root %d", count, root);
			m->scratch_bytes %= MARK;
		}
	}
}

/* Two shapes in turn do not chase each other away, with places full of others that do not come again. */
static void two_shapes(coll_comm *comm, int rank, void *arg)
{
	enum { ONCE = 500, SHAPES = 300 };

	for (size_t count = 1; count <= ONCE; count++)
		remembered(comm, 100000 + count, 0);
	for (size_t count = 1; count <= SHAPES; count++) {
		remembered(comm, 1, 0);
		remembered(comm, 1 + count, 0);
		remembered(comm, 1, 0)->scratch_bytes += MARK;
		remembered(comm, 1 + count, 0)->scratch_bytes += MARK;
		for (int i = 0; i < 2; i++) {
			struct coll_memo *m = remembered(comm, i ? 1 + count : 1, 0);

			CHECK(m->scratch_bytes >= MARK, "shape %d of %zu", i, count);
			m->scratch_bytes %= MARK;
		}
	}
}

TEST(intranode, roots_are_remembered)
{
	run_ranks(RANKS_MAX, each_root, NULL);
	run_ranks(2, two_shapes, NULL);
}

/* After lengths that only two know the next call in which all hear from all is a plan's. */
TEST_OF_RANKS(intranode, strays_are_looked_for, 2, RANKS_MAX)
{
	size_t counts[RANKS_MAX];
	int in[RANKS_MAX], out[RANKS_MAX];

	for (int r = 0; r < RANKS_MAX; r++)
		counts[r] = 1, in[r] = rank;
	CHECK(frames_of(comm, rank, N, 3) == 0);
	for (int i = 0; i < 3; i++) {
		OK(comm, coll_all_to_allv(in, counts, NULL, out, counts, NULL, COLL_I32, comm, NULL));
		CHECK(frames_of(comm, rank, N, 1) > 0);
		CHECK(frames_of(comm, rank, N, 3) == 0);
	}
}

/* More communicators than a transport has places for: a region needs its place only until all ranks map it. */
TEST_OF_RANKS(intranode, more_communicators_than_places, 2, 2)
{
	enum { COMMS = 300 };
	coll_comm *c[COMMS];
	int plans = 0;

	for (int i = 0; i < COMMS; i++) {
		OK(comm, coll_comm_duplicate(comm, &c[i]));
		plans += frames_of(c[i], rank, N, 2) > 0;
	}
	CHECK(plans == 0, "%d of %d go by plans", plans, COMMS);
	for (int i = 0; i < COMMS; i++)
		OK(comm, coll_comm_destroy(&c[i]));
	OK(comm, coll_comm_duplicate(comm, &c[0]));
	CHECK(frames_of(c[0], rank, N, 2) == 0);
	OK(comm, coll_comm_destroy(&c[0]));
}

ASYNC_PROGRAM(intranode)
