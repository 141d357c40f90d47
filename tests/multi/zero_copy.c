/*
 * Long messages in buffers that all ranks map: right results, wherever the buffers begin, in
 * place or not; each byte read once and written once; all ranks or none. Ranks are threads of this
 * process. What becomes of the buffers when a call fails is in zero_copy_failures.c.
 *
 * usage: direct shm on|off [PART-OF-A-TEST'S-NAME]
 */
#include "intra/zero_copy.h"
#include "engine/run.h"
#include "zero_copy_buffers.h"

static uint64_t frames(const coll_comm *comm)
{
	return coll_run_stats(comm->run)->frames_sent;
}

/* ---- One call of each kind ---- */

struct shape {
	enum coll_kind kind;
	size_t count, shift; /* bytes by which a rank's buffers are off a page, times its rank + 1 */
	int in_place;        /* bits by rank */
	int plain;           /* bits by rank */
	int root;
};

static int value(int rank, size_t block, size_t i)
{
	return (int)(i * 7 + block * 1000003u + (size_t)rank * 77777u);
}

static bool scatters(enum coll_kind kind)
{
	return kind == COLL_KIND_REDUCE_SCATTER || kind == COLL_KIND_ALL_TO_ALL;
}

static bool gathers(enum coll_kind kind)
{
	return kind == COLL_KIND_ALL_GATHER || kind == COLL_KIND_ALL_TO_ALL;
}

/* What the block of a result holds at first; *step: by how much each element is more than the one before. */
static unsigned expected(const struct shape *s, int size, int rank, size_t block, unsigned *step)
{
	unsigned sum = 0;

	*step = 7;
	switch (s->kind) {
	case COLL_KIND_ALL_REDUCE:
	case COLL_KIND_REDUCE_SCATTER:
		*step *= (unsigned)size;
		for (int r = 0; r < size; r++)
			sum += (unsigned)value(r, s->kind == COLL_KIND_REDUCE_SCATTER ? (size_t)rank : 0, 0);
		return sum;
	case COLL_KIND_BROADCAST: return (unsigned)value(s->root, 0, 0);
	case COLL_KIND_ALL_GATHER: return (unsigned)value((int)block, 0, 0);
	default: return (unsigned)value((int)block, (size_t)rank, 0); /* all_to_all */
	}
}

static coll_status call(coll_comm *comm, const struct shape *s, const void *in, void *out)
{
	switch (s->kind) {
	case COLL_KIND_ALL_REDUCE: return coll_all_reduce(in, out, s->count, COLL_I32, COLL_SUM, comm, NULL);
	case COLL_KIND_REDUCE_SCATTER: return coll_reduce_scatter(in, out, s->count, COLL_I32, COLL_SUM, comm, NULL);
	case COLL_KIND_BROADCAST: return coll_broadcast(in, out, s->count, COLL_I32, s->root, comm, NULL);
	case COLL_KIND_ALL_GATHER: return coll_all_gather(in, out, s->count, COLL_I32, comm, NULL);
	default: return coll_all_to_all(in, out, s->count, COLL_I32, comm, NULL);
	}
}

/* in place: the whole input is the result, or one is a block of the other */
static char *shared_with(const struct shape *s, int rank, char *in, char *out)
{
	const size_t block = s->count * sizeof(int);

	if (s->kind == COLL_KIND_ALL_GATHER)
		return out + (size_t)rank * block;
	return out;
}

static void once(coll_comm *comm, int rank, const struct shape *s)
{
	const int size = coll_comm_size(comm);
	const size_t block = s->count * sizeof(int), shift = s->shift * (size_t)(rank + 1) % PAGE;
	const bool in_place = s->in_place >> rank & 1;
	const size_t in_blocks = scatters(s->kind) ? (size_t)size : 1, out_blocks = gathers(s->kind) ? (size_t)size : 1;
	struct buffer a, b;
	char *in, *out;
	size_t wrong = 0;

	take(comm, &a, block * in_blocks, shift, s->plain >> rank & 1);
	take(comm, &b, block * out_blocks, shift, s->plain >> rank & 1);
	in = a.at;
	out = b.at;
	if (in_place && s->kind == COLL_KIND_REDUCE_SCATTER)
		out = in + (size_t)rank * block;
	else if (in_place)
		in = shared_with(s, rank, in, out);
	for (int round = 0; round < 3; round++) {
		for (size_t k = 0; k < in_blocks; k++)
			for (size_t i = 0; i < s->count; i++)
				((int *)(void *)in)[k * s->count + i] = value(rank, k, i);
		OK(comm, call(comm, s, in, out));
		for (size_t k = 0; k < out_blocks; k++) {
			const int *x = (const int *)(void *)out + k * s->count;
			unsigned step, wanted = expected(s, size, rank, k, &step);

			for (size_t i = 0; i < s->count; i++, wanted += step)
				wrong += (unsigned)x[i] != wanted;
		}
	}
	CHECK(wrong == 0, "rank %d of %d, kind %d, %zu elements, shift %zu: %zu are wrong", rank, size, s->kind,
	      s->count, s->shift, wrong);
	drop(comm, &a);
	drop(comm, &b);
}

/* ---- Results ---- */

static const enum coll_kind kinds[] = {COLL_KIND_ALL_REDUCE, COLL_KIND_BROADCAST, COLL_KIND_ALL_GATHER,
                                       COLL_KIND_REDUCE_SCATTER, COLL_KIND_ALL_TO_ALL};
enum { KINDS = sizeof(kinds) / sizeof(kinds[0]) };

TEST_OF_RANKS(zero_copy, wherever_buffers_begin, 2, RANKS_MAX)
{
	static const size_t counts[] = {16400, 20000, 32771, 65537, 262144};
	static const size_t shifts[] = {0, 4, 64, 2048, 4092};
	uint64_t calls = 0;

	for (int k = 0; k < KINDS; k++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
			for (size_t f = 0; f < sizeof(shifts) / sizeof(*shifts); f++) {
				const struct shape s = {.kind = kinds[k],
				                        .count = counts[c] + (c > 1),
				                        .shift = shifts[f],
				                        .in_place = kinds[k] == COLL_KIND_ALL_TO_ALL
				                                            ? 0
				                                            : (int)(c * 5 + f * 3 + (size_t)k),
				                        .root = (int)(c + f) % coll_comm_size(comm)};

				once(comm, rank, &s);
				calls += 3;
			}
	CHECK(stats(comm).direct == calls, "%llu of %llu", (unsigned long long)stats(comm).direct,
	      (unsigned long long)calls);
	CHECK(stats(comm).declined == 0);
	CHECK(frames(comm) == 0);
}

/* What others read is overwritten by what comes from them, on any of the ranks: nobody reads it where it lies. */
static void on_what_is_sent(coll_comm *comm, int rank, void *arg)
{
	const int size = coll_comm_size(comm), all = (1 << size) - 1;

	for (int i = 0; i < 48; i++) {
		const struct shape s = {.kind = COLL_KIND_ALL_TO_ALL,
		                        .count = (size_t[]){16400, 65537, 262144}[i % 3],
		                        .shift = (size_t[]){0, 4}[i % 2],
		                        .in_place = i < 8 ? all : i % all + 1,
		                        .plain = *(const int *)arg};

		once(comm, rank, &s);
	}
	CHECK(stats(comm).direct == 0 && stats(comm).cma_read == 0);
}

TEST(zero_copy, all_to_all_in_place)
{
	for (int n = 2; n <= RANKS_MAX; n++)
		for (int i = 0; i < 2; i++)
			run_ranks(n, on_what_is_sent, &(int){i ? (1 << n) - 1 : 0});
}

/* Sums that depend on their order are the same bits everywhere. */
TEST_OF_RANKS(zero_copy, the_same_bits_on_all_ranks, 2, RANKS_MAX)
{
	enum { N = 50000 };
	const int size = coll_comm_size(comm);
	struct buffer b;
	char *all;
	float *x;
	size_t differ = 0;

	take(comm, &b, N * sizeof(float), 64, false);
	x = (float *)(void *)b.at;
	all = malloc((size_t)size * N * sizeof(float));
	for (size_t i = 0; i < N; i++)
		x[i] = (float)((double)((i * 2654435761u + (size_t)rank * 40503u) % 1000003) / 7.0 - 70000.0);
	OK(comm, coll_all_reduce(x, x, N, COLL_F32, COLL_SUM, comm, NULL));
	OK(comm, coll_all_gather(x, all, N, COLL_F32, comm, NULL));
	for (int r = 0; r < size; r++)
		differ += memcmp(all + (size_t)r * N * sizeof(float), b.at, N * sizeof(float)) != 0;
	CHECK(differ == 0);
	CHECK(stats(comm).direct > 0);
	free(all);
	drop(comm, &b);
}

/* ---- Counts ---- */

/* Each byte of input is read once, each byte of a result is written once, by somebody. */
TEST_OF_RANKS(zero_copy, each_byte_once, 2, RANKS_MAX)
{
	enum { N = 1 << 20 };
	const int size = coll_comm_size(comm);
	struct coll_intra_stats before, after;
	struct buffer a, b;
	uint64_t mine[2], sum[2];

	take(comm, &a, N, 0, false);
	take(comm, &b, N, 0, false);
	for (int i = 0; i < 4; i++) {
		before = stats(comm);
		OK(comm, coll_all_reduce(a.at, i % 2 ? a.at : b.at, N / sizeof(int), COLL_I32, COLL_SUM, comm, NULL));
		after = stats(comm);
		mine[0] = after.bytes_read - before.bytes_read;
		mine[1] = after.bytes_written - before.bytes_written;
		OK(comm, coll_all_reduce(mine, sum, 2, COLL_U64, COLL_SUM, comm, NULL));
		CHECK(sum[0] == (uint64_t)size * N && sum[1] == (uint64_t)size * N, "%llu read, %llu written",
		      (unsigned long long)sum[0], (unsigned long long)sum[1]);
	}
	drop(comm, &a);
	drop(comm, &b);
}

/* Of two ranks, root 0: what the root stores of the other's result is whole pages of its last half, if that is mapped
 * and the root has nothing to copy for itself. */
TEST_OF_RANKS(zero_copy, both_ranks_make_a_broadcast, 2, 2)
{
	enum { N = 1 << 20, SHIFT = 64 };

	for (int way = 0; way < 3; way++) {
		const bool in_place = way != 1, plain = way == 2 && rank == 1;
		const uint64_t before = stats(comm).bytes_written, direct = stats(comm).direct;
		const uint64_t root = way == 0 ? N / 2 - PAGE : way == 1 ? N : 0, other = way == 0 ? N / 2 + PAGE : N;
		struct buffer a, b;
		uint64_t wrote;

		take(comm, &a, N, SHIFT, plain);
		take(comm, &b, N, SHIFT, plain);
		memset(a.at, rank == 0 ? 3 : 4, N);
		OK(comm, coll_broadcast(a.at, in_place ? a.at : b.at, N, COLL_U8, 0, comm, NULL));
		wrote = stats(comm).bytes_written - before;
		CHECK(stats(comm).direct == direct + 1);
		CHECK(wrote == (rank == 0 ? root : other), "way %d, rank %d: %llu", way, rank,
		      (unsigned long long)wrote);
		drop(comm, &a);
		drop(comm, &b);
	}
}

/* ---- Stores ---- */

enum { VECTOR = 1 << 20 };

/* What all ranks together store past the caches in so many calls, in vectors. */
static uint64_t streamed_by(coll_comm *comm, const char *in, char *out, int calls)
{
	uint64_t before = stats(comm).bytes_streamed, mine, sum;

	for (int i = 0; i < calls; i++)
		OK(comm, coll_all_reduce(in, out, VECTOR / sizeof(int), COLL_I32, COLL_SUM, comm, NULL));
	mine = stats(comm).bytes_streamed - before;
	OK(comm, coll_all_reduce(&mine, &sum, 1, COLL_U64, COLL_SUM, comm, NULL));
	return sum / VECTOR;
}

TEST_OF_RANKS(zero_copy, stores_past_the_caches_are_tried_where_they_may_gain, 2, RANKS_MAX)
{
	const uint64_t size = (uint64_t)coll_comm_size(comm);
	struct coll_nt *s = &comm->collective.nt;
	struct buffer a, b;

	take(comm, &a, VECTOR, 0, false);
	take(comm, &b, VECTOR, 0, false);
	/* One call before the look, four of it as assumed, then at least two the other way. */
	coll_nt_init(s, (struct coll_nt_rule){VECTOR, VECTOR, 2 * VECTOR, 1.05});
	CHECK(streamed_by(comm, a.at, b.at, 5) == 5 * size);
	CHECK(streamed_by(comm, a.at, b.at, 2) == 0);
	coll_nt_init(s, (struct coll_nt_rule){VECTOR, VECTOR, VECTOR, 1.05});
	CHECK(streamed_by(comm, a.at, b.at, 10) == 10 * size, "more than all caches hold");
	CHECK(streamed_by(comm, b.at, b.at, 10) == 0, "in place the line has just been read");
	coll_nt_init(s, (struct coll_nt_rule){4 * VECTOR, 4 * VECTOR, 8 * VECTOR, 1.05});
	CHECK(streamed_by(comm, a.at, b.at, 10) == 0, "a core's own caches hold it");
	drop(comm, &a);
	drop(comm, &b);
}

/* ---- All or none ---- */

TEST_OF_RANKS(zero_copy, plain_memory_anywhere_is_a_plan, 2, RANKS_MAX)
{
	struct coll_intra_stats s;

	for (int k = 0; k < KINDS; k++) {
		const struct shape shape = {.kind = kinds[k],
		                            .count = 40000,
		                            .plain = 1 << (k % coll_comm_size(comm)),
		                            .root = k % coll_comm_size(comm)};

		for (int i = 0; i < 10; i++) /* three calls each */
			once(comm, rank, &shape);
	}
	s = stats(comm);
	CHECK(s.direct == 0, "%llu", (unsigned long long)s.direct);
	/* Of each kind: after 1, 1, 2, 4, 8 that pass. */
	CHECK(s.declined + s.passed == 30 * KINDS && s.declined == 5 * KINDS, "%llu declined, %llu passed",
	      (unsigned long long)s.declined, (unsigned long long)s.passed);
}

/* Where pages are larger: what does not fill them lies elsewhere until all is done, or the plan is run. */
TEST_OF_RANKS(zero_copy, pages_of_any_size, 2, RANKS_MAX)
{
	struct shape s = {.count = 16400};

	once(comm, rank, &s); /* the regions are there from now on */
	for (size_t page = 16 << 10; page <= 128 << 10; page *= 2) {
		const uint64_t before = stats(comm).direct;

		comm->intra->page_bytes = page;
		for (int i = 0; i < 4; i++) {
			s = (struct shape){.count = 16400 + 100000 * (size_t)(i / 2), .shift = 64, .in_place = i};
			once(comm, rank, &s);
		}
		CHECK((stats(comm).direct == before) == (page > COLL_EDGE_MAX), "pages of %zu", page);
	}
}

/* The i-th of four ways in which two ranks' plain buffers lie: in pages, and in place or not. */
static struct shape plain_pair(enum coll_kind kind, size_t count, int i)
{
	return (struct shape){
	        .kind = kind, .count = count, .shift = (size_t[]){0, 4, 64, 4092}[i], .in_place = i, .plain = 3};
}

/* Two ranks: from slot to slot, without a frame; pieces of all lengths, past the caches and not, in place by rank. */
TEST_OF_RANKS(zero_copy, two_ranks_in_plain_memory, 2, 2)
{
	static const size_t counts[] = {16385, 16400, 20000, 32771, 65537, 131072, 180225, 262145, 1 << 21};

	for (int k = 0; k < KINDS; k++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++)
			for (int i = 0; i < (counts[c] > 1 << 20 ? 2 : 4); i++) {
				struct shape s = plain_pair(kinds[k], counts[c], i);

				s.root = i / 2;
				if (kinds[k] == COLL_KIND_BROADCAST && (counts[c] < 65536 || counts[c] > 524288))
					continue;
				once(comm, rank, &s);
			}
	CHECK(stats(comm).direct == 0);
	CHECK(frames(comm) == 0);
}

/* Bytes of one block, read by the kernel or not, for the calls of all_gather and all_to_all. */
static void block_by_block(coll_comm *comm, int rank, void *arg)
{
	static const size_t counts[] = {16385, 20000, 65537, 262144, 262145, 1 << 20};
	const bool cma_read = *(const bool *)arg;
	uint64_t bytes[2] = {0};

	for (int k = 0; k < KINDS; k++)
		for (size_t c = 0; gathers(kinds[k]) && c < sizeof(counts) / sizeof(*counts); c++)
			for (int i = 0; i < 4; i++) {
				const struct shape s = plain_pair(kinds[k], counts[c], i);

				once(comm, rank, &s);
				bytes[cma_read && (kinds[k] == COLL_KIND_ALL_GATHER || i == 0)] +=
				        3 * counts[c] * sizeof(int);
			}
	CHECK(stats(comm).cma_read == bytes[1], "%llu of %llu", (unsigned long long)stats(comm).cma_read,
	      (unsigned long long)bytes[1]);
	CHECK(stats(comm).streamed_in == bytes[0], "%llu of %llu", (unsigned long long)stats(comm).streamed_in,
	      (unsigned long long)bytes[0]);
	CHECK(frames(comm) == 0);
}

/* More ranks that share cores: an all_to_all by tiles, or read by the kernel unless one of them is in place. */
static void exchanged(coll_comm *comm, int rank, void *arg)
{
	static const size_t counts[] = {16385, 20000, 65537, 262145, 600000};
	const int size = coll_comm_size(comm), in_place[] = {0, 1, 1 << (size - 1), (1 << size) - 1};
	uint64_t bytes = 0;

	if (!comm->facts.oversubscribed)
		return;
	for (int i = 0; i < 20; i++) {
		const struct shape s = {.kind = COLL_KIND_ALL_TO_ALL,
		                        .count = counts[i % 5],
		                        .shift = (size_t[]){0, 4, 64, 4092}[i % 4],
		                        .in_place = in_place[i / 5],
		                        .plain = (1 << size) - 1};

		once(comm, rank, &s);
		if (*(const bool *)arg && s.in_place == 0)
			bytes += 3 * (uint64_t)(size - 1) * s.count * sizeof(int);
	}
	CHECK(stats(comm).cma_read == bytes, "%llu of %llu", (unsigned long long)stats(comm).cma_read,
	      (unsigned long long)bytes);
	CHECK(stats(comm).tiles > 0 && frames(comm) == 0);
}

TEST(zero_copy, blocks_in_plain_memory_each_way)
{
	static const char *const ways[] = {"COLL_SHM_COPY=cached", "COLL_SHM_COPY=streamed", "COLL_SHM_COPY=cma"};

	if (!kernel_reads())
		SKIP("processes may not read memory here");
	for (int i = 0; i < 3; i++) {
		bool cma_read = i == 2;

		further[0] = ways[i];
		run_ranks(2, block_by_block, &cma_read);
		for (int n = 3; n <= RANKS_MAX; n++)
			run_ranks(n, exchanged, &cma_read);
	}
	further[0] = NULL;
}

/* As many calls of one shape as make all trials and settle a few times; each way is used, all results are right. */
static void tried(coll_comm *comm, int rank, void *arg)
{
	for (int i = 0; i < 200; i++) {
		const struct shape s = {.kind = kinds[i % 2 ? 2 : 4], .count = 20000, .in_place = i, .plain = 3};

		once(comm, rank, &s);
	}
	CHECK(stats(comm).cma_read > 0 && stats(comm).streamed_in > 0);
	CHECK(stats(comm).cma_read + stats(comm).streamed_in == 600ull * 20000 * sizeof(int));
	CHECK(frames(comm) == 0);
}

/* The same of more ranks, in calls of two lengths; sometimes one comes late. */
static void tried_by_many(coll_comm *comm, int rank, void *arg)
{
	const int size = coll_comm_size(comm);

	if (!comm->facts.oversubscribed)
		return;
	for (int i = 0; i < 120; i++) {
		const struct shape s = {.kind = COLL_KIND_ALL_TO_ALL,
		                        .count = i % 2 ? 20000 : 40000,
		                        .in_place = i % 10 == 7 ? 1 << (i % size) : 0,
		                        .plain = (1 << size) - 1};

		if (i % 7 == 0 && i / 7 % size == rank)
			usleep(1000);
		once(comm, rank, &s);
	}
	CHECK(stats(comm).cma_read > 0 && stats(comm).tiles > 0);
	CHECK(frames(comm) == 0);
}

TEST(zero_copy, the_quickest_way_is_tried_for)
{
	if (!kernel_reads())
		SKIP("processes may not read memory here");
	run_ranks(2, tried, NULL);
	for (int n = 3; n <= RANKS_MAX; n++)
		run_ranks(n, tried_by_many, NULL);
}

/* Memory that the kernel does not read, where one rank asks for it: by slots, after which 1, 2, 4 ... calls of that
 * shape are not tried, and then it is again. */
static coll_status refuses(void *link, uint64_t address, void *to, size_t len_bytes)
{
	return len_bytes ? COLL_ERR_UNSUPPORTED : COLL_OK;
}

static void unreadable(coll_comm *comm, int rank, void *arg)
{
	const struct shape s = {.kind = COLL_KIND_ALL_GATHER, .count = 20000, .plain = 3};
	struct coll_transport table;
	struct coll_transport_shared shared;
	uint64_t cma_read;

	once(comm, rank, &s);
	CHECK(stats(comm).cma_read == 3 * 20000 * sizeof(int));
	if (rank == *(const int *)arg) {
		table = *comm->intra->peers[!rank].transport;
		shared = *table.shared;
		shared.pull = refuses;
		table.shared = &shared;
		comm->intra->peers[!rank].transport = &table;
	}
	once(comm, rank, &s);
	once(comm, rank, &s); /* in vain: the first, the third and the sixth */
	CHECK(stats(comm).streamed_in == 6 * 20000 * sizeof(int), "%llu", (unsigned long long)stats(comm).streamed_in);
	CHECK(frames(comm) == 0);
	OK(comm, coll_barrier(comm, NULL));
	comm->intra->peers[!rank].transport = &comm->intra_transport->table;
	cma_read = stats(comm).cma_read;
	once(comm, rank, &s);
	once(comm, rank, &s);
	CHECK(stats(comm).streamed_in == 10 * 20000 * sizeof(int), "%llu", (unsigned long long)stats(comm).streamed_in);
	CHECK(stats(comm).cma_read == cma_read + 2 * 20000 * sizeof(int), "%llu more",
	      (unsigned long long)(stats(comm).cma_read - cma_read));
}

/* The same of more ranks, where one of them does not read one other: all results are right, by tiles, which are as many
 * as without it. */
static void unreadable_by_one(coll_comm *comm, int rank, void *arg)
{
	const int size = coll_comm_size(comm), victim = *(const int *)arg % size, peer = (victim + 1) % size;
	const struct shape s = {.kind = COLL_KIND_ALL_TO_ALL, .count = 20000, .plain = (1 << size) - 1};
	const uint64_t one = (uint64_t)(size - 1) * s.count * sizeof(int);
	struct coll_transport table;
	struct coll_transport_shared shared;

	if (!comm->facts.oversubscribed)
		return;
	once(comm, rank, &s);
	CHECK(stats(comm).cma_read == 3 * one && stats(comm).tiles == 0);
	if (rank == victim) {
		table = *comm->intra->peers[peer].transport;
		shared = *table.shared;
		shared.pull = refuses;
		table.shared = &shared;
		comm->intra->peers[peer].transport = &table;
	}
	once(comm, rank, &s);
	once(comm, rank, &s); /* in vain: the first, the third and the sixth */
	CHECK(stats(comm).cma_read == 3 * one && stats(comm).tiles > 0);
	OK(comm, coll_barrier(comm, NULL));
	if (rank == victim)
		comm->intra->peers[peer].transport = &comm->intra_transport->table;
	once(comm, rank, &s);
	once(comm, rank, &s);
	CHECK(stats(comm).cma_read == 5 * one, "%llu", (unsigned long long)stats(comm).cma_read);
	CHECK(frames(comm) == 0);
}

/* A rank that cannot read another at all says so with its offer, and nobody reads any more. */
static coll_status cannot(void *link, uint64_t address, void *to, size_t len_bytes)
{
	return COLL_ERR_UNSUPPORTED;
}

static void unable(coll_comm *comm, int rank, void *arg)
{
	const int size = coll_comm_size(comm);
	const struct shape s = {.kind = COLL_KIND_ALL_TO_ALL, .count = 20000, .plain = (1 << size) - 1};
	const uint64_t one = (uint64_t)(size - 1) * s.count * sizeof(int);
	struct coll_transport table;
	struct coll_transport_shared shared;

	if (size > 2 && !comm->facts.oversubscribed)
		return;
	once(comm, rank, &s);
	if (rank == 0) {
		table = *comm->intra->peers[1].transport;
		shared = *table.shared;
		shared.pull = cannot;
		table.shared = &shared;
		comm->intra->peers[1].transport = &table;
	}
	once(comm, rank, &s);
	OK(comm, coll_barrier(comm, NULL));
	if (rank == 0)
		comm->intra->peers[1].transport = &comm->intra_transport->table;
	once(comm, rank, &s);
	CHECK(stats(comm).cma_read == 3 * one, "%llu", (unsigned long long)stats(comm).cma_read);
	CHECK(frames(comm) == 0);
}

TEST(zero_copy, memory_that_cannot_be_pulled)
{
	if (!kernel_reads())
		SKIP("processes may not read memory here");
	further[0] = "COLL_SHM_COPY=cma";
	for (int victim = 0; victim < 2; victim++)
		run_ranks(2, unreadable, &victim);
	for (int victim = 0; victim < 3; victim++)
		for (int n = 3; n <= RANKS_MAX; n += 2)
			run_ranks(n, unreadable_by_one, &victim);
	for (int n = 2; n <= RANKS_MAX; n++)
		run_ranks(n, unable, NULL);
	further[0] = NULL;
}

TEST_OF_RANKS(zero_copy, plain_now_and_then, 2, RANKS_MAX)
{
	for (int i = 0; i < 60; i++) {
		const struct shape shape = {.kind = kinds[i % KINDS],
		                            .count = 20000,
		                            .plain = i % 3 == 0 ? 1 << (i % coll_comm_size(comm)) : 0,
		                            .shift = (size_t)(i % 2) * 512,
		                            .in_place = i};

		once(comm, rank, &shape);
	}
	CHECK(stats(comm).direct > 0 && stats(comm).declined > 0);
}

/* A rank that cannot share memory: here one whose transport is wrapped. */
static void none(coll_comm *comm, int rank, void *arg)
{
	const struct shape shape = {.count = 40000};

	once(comm, rank, &shape);
	CHECK(stats(comm).direct == 0);
	CHECK(frames(comm) > 0);
}

TEST(zero_copy, one_rank_cannot)
{
	further[0] = "COLL_HOOK=delay:us=1,every=1000000,rank=1";
	run_ranks(3, none, NULL);
	further[0] = "COLL_INTRA=0";
	run_ranks(3, none, NULL);
	further[0] = "COLL_ALGO=all_reduce:ring";
	run_ranks(3, none, NULL);
	further[0] = NULL;
}

/* More sets of regions than are remembered, again and again. */
static void many_sets(coll_comm *comm, int rank, void *arg)
{
	enum { SETS = 20, N = 17000 };
	struct buffer b[SETS];

	for (int i = 0; i < SETS; i++)
		take(comm, &b[i], N * sizeof(int), 0, false);
	for (int i = 0; i < 5 * SETS; i++) {
		int *x = (int *)(void *)b[(i * 7 + (i / SETS) * rank) % SETS].at;

		fill(x, N, rank, i);
		OK(comm, coll_all_reduce(x, x, N, COLL_I32, COLL_SUM, comm, NULL));
		CHECK(wrong_sums(x, N, coll_comm_size(comm), i) == 0, "call %d", i);
	}
	CHECK(stats(comm).direct == 5 * SETS);
	for (int i = 0; i < SETS; i++)
		drop(comm, &b[i]);
}

TEST(zero_copy, more_sets_of_regions_than_are_remembered)
{
	run_ranks(2, many_sets, NULL);
	run_ranks(3, many_sets, NULL);
}

/* ---- Behind and before other operations ---- */

TEST_OF_RANKS(zero_copy, several_in_flight, 2, RANKS_MAX)
{
	enum { OPS = 6, N = 30000 };
	const int size = coll_comm_size(comm);
	coll_stream *stream;
	struct buffer b[OPS];

	OK(comm, coll_stream_create(&stream, comm));
	for (int i = 0; i < OPS; i++)
		take(comm, &b[i], N * sizeof(int), 0, i % 3 == 2);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < OPS; i++) {
			int *x = (int *)(void *)b[i].at;

			fill(x, i == 4 ? 100 : N, rank, round + i);
			OK(comm, coll_all_reduce(x, x, i == 4 ? 100 : N, COLL_I32, COLL_SUM, comm, stream));
		}
		OK(comm, coll_stream_wait(stream, -1));
		for (int i = 0; i < OPS; i++)
			CHECK(wrong_sums((int *)(void *)b[i].at, i == 4 ? 100 : N, size, round + i) == 0,
			      "round %d operation %d", round, i);
	}
	CHECK(stats(comm).direct > 0);
	coll_stream_destroy(&stream);
	for (int i = 0; i < OPS; i++)
		drop(comm, &b[i]);
}

ASYNC_PROGRAM(zero_copy)
