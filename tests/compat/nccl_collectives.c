/*
 * The calls of NCCL's own performance tests, in their order: creation in a group or of all devices, each collective
 * with each type and operation, in place and not, results compared on the host, then the end.
 *
 * usage: nccl_collectives processes|threads|one RANKS
 *   processes  each rank is a process; the id is made by their parent, which is no rank
 *   threads    each rank is a thread of this process
 *   one        this thread has all ranks, and makes their calls in groups
 * Memory and streams are those of the stand-in driver (COLL_CUDA_LIBRARY), or of the host without it.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reduce/element.h"
#include "tests/compat/functions.h"
#include "tests/compat/memory.h"
#include "tests/plain.h"

enum { RANKS_MAX = 8, ROOM = 1 << 20 };
static const size_t widths[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

static int size;
static ncclUniqueId id;

struct local {
	ncclComm_t comm;
	int rank;
	cudaStream_t stream;
	char *in, *out;        /* as the calls get them */
	char *host, *expected; /* host memory */
};

/* One call on all ranks. */
struct test {
	const char *name;
	ncclResult_t (*run)(const struct test *t, const struct local *l);
	/* Element i of what a rank puts in and gets; NULL: nothing. Counts in elements. */
	double (*gives)(const struct test *t, int rank, size_t i);
	double (*gets)(const struct test *t, int rank, size_t i);
	size_t in_blocks, out_blocks; /* in counts */
	bool only_root_gets;
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t op;
	int root;
	bool in_place;
	size_t in_place_in, in_place_out; /* blocks of `rank` by which in or out is moved: 1 or 0 */
};

static void must(ncclResult_t r, const char *what)
{
	CHECK(r == ncclSuccess, "%s: %d %s", what, (int)r, ncclGetLastError(NULL));
}

/* ---- Elements ----------------------------------------------------------- */

static void put(char *p, ncclDataType_t type, double v)
{
	const float f = (float)v;
	const int64_t i = (int64_t)v;
	const uint16_t half = type == ncclFloat16 ? f16_from_f32(f) : bf16_from_f32(f);
	const uint8_t byte = type == ncclFloat8e4m3 ? f8e4m3_from_f32(f) : f8e5m2_from_f32(f);

	if (type <= ncclUint64) /* little-endian, and never negative */
		memcpy(p, &i, widths[type]);
	else if (type == ncclFloat64)
		memcpy(p, &v, sizeof(v));
	else if (type == ncclFloat32)
		memcpy(p, &f, sizeof(f));
	else if (widths[type] == 2)
		memcpy(p, &half, sizeof(half));
	else
		memcpy(p, &byte, 1);
}

static bool is_integer(ncclDataType_t type)
{
	return type <= ncclUint64;
}

/* What is reduced: one rank of each element has 0 .. 3, the next one 0 or 1, the others 0 (1 for products). */
static double to_reduce(const struct test *t, int rank, size_t i)
{
	const size_t part = ((size_t)rank + i) % (size_t)size;

	if (part == 0)
		return (double)(i % 4);
	if (part == 1)
		return (double)(i / 4 % 2 + (t->op == ncclProd));
	return t->op == ncclProd;
}

/* Of a premultiplied sum; each rank has its own. */
static double factor_of(const struct test *t, int rank)
{
	return t->op > ncclAvg && rank % 2 == 0 ? 2 : 1;
}

static double reduced(const struct test *t, size_t i)
{
	double v = factor_of(t, 0) * to_reduce(t, 0, i);

	for (int r = 1; r < size; r++) {
		const double x = factor_of(t, r) * to_reduce(t, r, i);

		if (t->op == ncclProd)
			v *= x;
		else if (t->op == ncclMax)
			v = x > v ? x : v;
		else if (t->op == ncclMin)
			v = x < v ? x : v;
		else
			v += x;
	}
	if (t->op == ncclAvg)
		v = is_integer(t->type) ? trunc(v / size) : v / size;
	return v;
}

static double all_reduced(const struct test *t, int rank, size_t i)
{
	return reduced(t, i);
}

static double scattered(const struct test *t, int rank, size_t i)
{
	return reduced(t, (size_t)rank * t->count + i);
}

/* What is copied. */
static double own(const struct test *t, int rank, size_t i)
{
	return (double)((i * 7 + (size_t)rank * 3) % 5);
}

static double of_root(const struct test *t, int rank, size_t i)
{
	return own(t, t->root, i);
}

static double of_all(const struct test *t, int rank, size_t i)
{
	return own(t, (int)(i / t->count), i % t->count);
}

static double of_root_here(const struct test *t, int rank, size_t i)
{
	return own(t, t->root, (size_t)rank * t->count + i);
}

static double exchanged(const struct test *t, int rank, size_t i)
{
	return own(t, (int)(i / t->count), (size_t)rank * t->count + i % t->count);
}

static double of_the_one_before(const struct test *t, int rank, size_t i)
{
	return own(t, (rank + size - 1) % size, i);
}

/* ---- Calls ----------------------------------------------------------------- */

static char *in_of(const struct test *t, const struct local *l)
{
	if (!t->in_place)
		return l->in;
	return l->out + t->in_place_in * (size_t)l->rank * t->count * widths[t->type];
}

static char *out_of(const struct test *t, const struct local *l)
{
	return l->out + (t->in_place ? t->in_place_out * (size_t)l->rank * t->count * widths[t->type] : 0);
}

#define RUN(name, call)                                                       \
	static ncclResult_t name(const struct test *t, const struct local *l) \
	{                                                                     \
		char *in = in_of(t, l), *out = out_of(t, l);                  \
		return call;                                                  \
	}

RUN(all_reduce, ncclAllReduce(in, out, t->count, t->type, t->op, l->comm, l->stream))
RUN(reduce, ncclReduce(in, l->rank == t->root ? out : NULL, t->count, t->type, t->op, t->root, l->comm, l->stream))
RUN(reduce_scatter, ncclReduceScatter(in, out, t->count, t->type, t->op, l->comm, l->stream))
RUN(broadcast, ncclBroadcast(in, out, t->count, t->type, t->root, l->comm, l->stream))
/* Always in place. */
RUN(bcast, ncclBcast(l->rank == t->root ? in : out, t->count, t->type, t->root, l->comm, l->stream))
RUN(all_gather, ncclAllGather(in, out, t->count, t->type, l->comm, l->stream))
RUN(all_to_all, ncclAlltoAll(in, out, t->count, t->type, l->comm, l->stream))
RUN(gather, ncclGather(in, l->rank == t->root ? out : NULL, t->count, t->type, t->root, l->comm, l->stream))
RUN(scatter, ncclScatter(l->rank == t->root ? in : NULL, out, t->count, t->type, t->root, l->comm, l->stream))

static ncclResult_t ring(const struct test *t, const struct local *l)
{
	must(ncclGroupStart(), "group");
	must(ncclSend(l->in, t->count, t->type, (l->rank + 1) % size, l->comm, l->stream), "send");
	must(ncclRecv(l->out, t->count, t->type, (l->rank + size - 1) % size, l->comm, l->stream), "recv");
	return ncclGroupEnd();
}

/* To all, itself included. */
static ncclResult_t all_pairs(const struct test *t, const struct local *l)
{
	const size_t block = t->count * widths[t->type];

	must(ncclGroupStart(), "group");
	for (int r = 0; r < size; r++) {
		must(ncclSend(l->in + (size_t)r * block, t->count, t->type, r, l->comm, l->stream), "send");
		must(ncclRecv(l->out + (size_t)r * block, t->count, t->type, r, l->comm, l->stream), "recv");
	}
	return ncclGroupEnd();
}

/* The same in many messages: about as many calls in one group as it takes. */
static ncclResult_t all_pieces(const struct test *t, const struct local *l)
{
	const size_t most = 60 / (size_t)size, piece = t->count / most + 1, width = widths[t->type];

	must(ncclGroupStart(), "group");
	for (int r = 0; r < size; r++)
		for (size_t i = 0; i < t->count; i += piece) {
			const size_t n = t->count - i < piece ? t->count - i : piece,
			             at = ((size_t)r * t->count + i) * width;

			must(ncclSend(l->in + at, n, t->type, r, l->comm, l->stream), "send");
			must(ncclRecv(l->out + at, n, t->type, r, l->comm, l->stream), "recv");
		}
	return ncclGroupEnd();
}

/* ---- Running ------------------------------------------------------------------ */

static void fill(const struct test *t, const struct local *l)
{
	const size_t width = widths[t->type], in = t->in_blocks * t->count;

	memset(l->host, 0x55, ROOM);
	write_to(l->out, l->host, ROOM, l->stream);
	for (size_t i = 0; i < in; i++)
		put(l->host + i * width, t->type, t->gives(t, l->rank, i));
	write_to(in_of(t, l), l->host, in * width, l->stream);
	wait_stream(l->stream);
}

static void compare(const struct test *t, const struct local *l)
{
	const size_t width = widths[t->type], out = t->out_blocks * t->count;
	size_t wrong = 0;

	if (t->only_root_gets && l->rank != t->root) {
		wait_stream(l->stream);
		return;
	}
	read_from(l->host, out_of(t, l), out * width, l->stream);
	for (size_t i = 0; i < out; i++) {
		put(l->expected, t->type, t->gets(t, l->rank, i));
		wrong += memcmp(l->expected, l->host + i * width, width) != 0;
	}
	CHECK(wrong == 0, "%s type %d op %d count %zu root %d%s: rank %d has %zu wrong", t->name, (int)t->type,
	      (int)t->op, t->count, t->root, t->in_place ? " in place" : "", l->rank, wrong);
}

static void run(const struct test *t, const struct local *l, int n)
{
	for (int i = 0; i < n; i++)
		fill(t, &l[i]);
	must(ncclGroupStart(), "group");
	for (int i = 0; i < n; i++)
		must(t->run(t, &l[i]), t->name);
	must(ncclGroupEnd(), t->name);
	for (int i = 0; i < n; i++) {
		ncclResult_t e = ncclInternalError;

		compare(t, &l[i]);
		CHECK(ncclCommGetAsyncError(l[i].comm, &e) == ncclSuccess && e == ncclSuccess);
	}
}

static void both_places(struct test t, const struct local *l, int n, size_t in, size_t out)
{
	run(&t, l, n);
	t.in_place = true;
	t.in_place_in = in;
	t.in_place_out = out;
	run(&t, l, n);
}

static void reductions(const struct local *l, int n, struct test t)
{
	const size_t all = (size_t)size;

	t.gives = to_reduce;
	t.name = "all_reduce", t.run = all_reduce, t.gets = all_reduced, t.in_blocks = t.out_blocks = 1;
	both_places(t, l, n, 0, 0);
	t.name = "reduce", t.run = reduce, t.only_root_gets = true;
	both_places(t, l, n, 0, 0);
	t.name = "reduce_scatter", t.run = reduce_scatter, t.gets = scattered, t.in_blocks = all,
	t.only_root_gets = false;
	both_places(t, l, n, 0, 1);
}

static void copies(const struct local *l, int n, struct test t)
{
	const size_t all = (size_t)size;

	t.gives = own;
	t.name = "broadcast", t.run = broadcast, t.gets = of_root, t.in_blocks = t.out_blocks = 1;
	both_places(t, l, n, 0, 0);
	t.name = "bcast", t.run = bcast, t.in_place = true;
	run(&t, l, n);
	t.in_place = false;
	t.name = "all_gather", t.run = all_gather, t.gets = of_all, t.out_blocks = all;
	both_places(t, l, n, 1, 0);
	t.name = "gather", t.run = gather, t.only_root_gets = true;
	run(&t, l, n);
	t.name = "scatter", t.run = scatter, t.gets = of_root_here, t.only_root_gets = false, t.in_blocks = all,
	t.out_blocks = 1;
	run(&t, l, n);
	t.name = "all_to_all", t.run = all_to_all, t.gets = exchanged, t.out_blocks = all;
	run(&t, l, n);
	t.name = "all_pairs", t.run = all_pairs;
	run(&t, l, n);
	t.name = "all_pieces", t.run = all_pieces;
	run(&t, l, n);
	t.name = "ring", t.run = ring, t.gets = of_the_one_before, t.in_blocks = t.out_blocks = 1;
	run(&t, l, n);
}

/* A factor on the host, and one in device memory that the stream writes just before the call. */
static void premultiplied(const struct local *l, int n, ncclDataType_t type, ncclScalarResidence_t where)
{
	ncclRedOp_t op = ncclSum;
	struct test t = {.name = "premultiplied",
	                 .run = all_reduce,
	                 .gives = to_reduce,
	                 .gets = all_reduced,
	                 .in_blocks = 1,
	                 .out_blocks = 1,
	                 .count = 1000,
	                 .type = type};
	char factor[8];

	for (int i = 0; i < n; i++) {
		put(factor, type, l[i].rank % 2 == 0 ? 2 : 1);
		if (where == ncclScalarDevice)
			write_to(l[i].in + ROOM / 2, factor, widths[type], l[i].stream);
		must(ncclRedOpCreatePreMulSum(&op, where == ncclScalarDevice ? l[i].in + ROOM / 2 : factor, type, where,
		                              l[i].comm),
		     "op");
		/* Each rank has a value of its own. */
		fill(&t, &l[i]);
	}
	t.op = op;
	must(ncclGroupStart(), "group");
	for (int i = 0; i < n; i++) {
		/* The operation of this communicator has the same place in each of them. */
		const ncclRedOp_t mine = (ncclRedOp_t)((int)op - 64 * (n - 1 - i));

		must(ncclAllReduce(l[i].in, l[i].out, t.count, type, mine, l[i].comm, l[i].stream), "premultiplied");
	}
	must(ncclGroupEnd(), "premultiplied");
	for (int i = 0; i < n; i++) {
		compare(&t, &l[i]);
		must(ncclRedOpDestroy((ncclRedOp_t)((int)op - 64 * (n - 1 - i)), l[i].comm), "op");
	}
}

/* More calls than the library takes in one group. */
static void many_together(const struct local *l, int n)
{
	enum { CALLS = 70, COUNT = 50 };
	const struct test t = {.name = "many together",
	                       .gives = to_reduce,
	                       .gets = all_reduced,
	                       .in_blocks = 1,
	                       .out_blocks = 1,
	                       .count = (size_t)CALLS * COUNT,
	                       .type = ncclFloat32};

	for (int i = 0; i < n; i++)
		fill(&t, &l[i]);
	must(ncclGroupStart(), "group");
	for (int c = 0; c < CALLS; c++)
		for (int i = 0; i < n; i++)
			must(ncclAllReduce(l[i].in + (size_t)c * COUNT * 4, l[i].out + (size_t)c * COUNT * 4, COUNT,
			                   ncclFloat32, ncclSum, l[i].comm, l[i].stream),
			     "many");
	must(ncclGroupEnd(), "many together");
	for (int i = 0; i < n; i++)
		compare(&t, &l[i]);
}

static void all_calls(const struct local *l, int n)
{
	for (int type = 0; type < ncclNumTypes; type++) {
		for (int op = 0; op < ncclNumOps; op++)
			reductions(l, n,
			           (struct test){.count = 37,
			                         .type = (ncclDataType_t)type,
			                         .op = (ncclRedOp_t)op,
			                         .root = op % size});
		copies(l, n, (struct test){.count = 21, .type = (ncclDataType_t)type, .root = type % size});
		if (type >= ncclFloat16)
			for (int where = 0; where < 2; where++)
				premultiplied(l, n, (ncclDataType_t)type, (ncclScalarResidence_t)where);
	}
	/* Nothing, one element, and several tiles. */
	for (int i = 0; i < 3; i++) {
		const size_t counts[] = {0, 1, (size_t)(ROOM / 2) / 4 / (size_t)size - 3};

		reductions(l, n,
		           (struct test){.count = counts[i], .type = ncclFloat32, .op = ncclSum, .root = size - 1});
		copies(l, n, (struct test){.count = counts[i], .type = ncclFloat32, .root = size - 1});
	}
	many_together(l, n);
}

/* ---- Ranks -------------------------------------------------------------------------- */

static void begin(struct local *l, int rank)
{
	l->rank = rank;
	use_device(rank % devices());
	l->stream = make_stream();
	must(ncclMemAlloc((void **)&l->in, ROOM), "alloc");
	must(ncclMemAlloc((void **)&l->out, ROOM), "alloc");
	l->host = malloc(ROOM);
	l->expected = malloc(8);
}

static void finish(struct local *l)
{
	must(ncclMemFree(l->in), "free");
	must(ncclMemFree(l->out), "free");
	free(l->host);
	free(l->expected);
	free_stream(l->stream);
}

static void ask(const struct local *l)
{
	int n = 0, rank = -1, device = -2;

	must(ncclCommCount(l->comm, &n), "count");
	must(ncclCommUserRank(l->comm, &rank), "rank");
	must(ncclCommCuDevice(l->comm, &device), "device");
	CHECK(n == size && rank == l->rank && device == (on_device() ? rank % devices() : -1), "%d of %d on %d", rank,
	      n, device);
}

static void *one_rank(void *arg)
{
	struct local l = {0};

	begin(&l, (int)(intptr_t)arg);
	must(ncclGroupStart(), "group");
	must(ncclCommInitRank(&l.comm, size, id, l.rank), "init");
	must(ncclGroupEnd(), "init");
	if (l.comm) {
		void *handle = NULL;

		ask(&l);
		must(ncclCommRegister(l.comm, l.in, ROOM, &handle), "register");
		all_calls(&l, 1);
		must(ncclCommDeregister(l.comm, handle), "deregister");
		must(ncclCommFinalize(l.comm), "finalize");
		must(ncclCommDestroy(l.comm), "destroy");
	}
	finish(&l);
	return NULL;
}

/* The id is made when all ranks are forked: a sanitizer cannot work in the forks of a process that has threads. */
TEST(nccl_collectives, processes)
{
	struct {
		atomic_bool ready;
		ncclUniqueId id;
	} *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child[RANKS_MAX];

	for (int r = 0; r < size; r++) {
		child[r] = fork();
		if (child[r] == 0) {
			alarm(250);
			while (!atomic_load(&shared->ready))
				usleep(500);
			id = shared->id;
			one_rank((void *)(intptr_t)r);
			_exit(plain_failures > 0);
		}
	}
	must(ncclGetUniqueId(&shared->id), "id");
	atomic_store(&shared->ready, true);
	for (int r = 0; r < size; r++) {
		int status = 1;

		waitpid(child[r], &status, 0);
		CHECK(status == 0, "rank %d ended with wait status %d", r, status);
	}
	munmap(shared, sizeof(*shared));
}

TEST(nccl_collectives, threads)
{
	pthread_t t[RANKS_MAX];

	must(ncclGetUniqueId(&id), "id");
	for (int r = 0; r < size; r++)
		pthread_create(&t[r], NULL, one_rank, (void *)(intptr_t)r);
	for (int r = 0; r < size; r++)
		pthread_join(t[r], NULL);
}

/* Created one by one in a group, or all by one call. */
static void run_one(bool all)
{
	struct local l[RANKS_MAX] = {{0}};
	ncclComm_t comms[RANKS_MAX] = {NULL};
	int list[RANKS_MAX];

	must(ncclGetUniqueId(&id), "id");
	for (int r = 0; r < size; r++) {
		begin(&l[r], r);
		list[r] = r % devices();
	}
	if (all)
		must(ncclCommInitAll(comms, size, list), "init all");
	must(ncclGroupStart(), "group");
	for (int r = 0; r < size && !all; r++) {
		use_device(list[r]);
		must(ncclCommInitRank(&comms[r], size, id, r), "init");
	}
	must(ncclGroupEnd(), "init");
	for (int r = 0; r < size; r++) {
		l[r].comm = comms[r];
		REQUIRE(comms[r], "no communicator");
		ask(&l[r]);
	}
	all_calls(l, size);
	for (int r = 0; r < size; r++)
		must(ncclCommDestroy(comms[r]), "destroy");
	for (int r = 0; r < size; r++)
		finish(&l[r]);
}

TEST(nccl_collectives, one_in_a_group)
{
	run_one(false);
}

TEST(nccl_collectives, one_of_all)
{
	run_one(true);
}

PROGRAM(nccl_collectives, "processes|threads|one RANKS")
{
	if (argc < 3 || (size = atoi(argv[2])) < 1 || size > RANKS_MAX)
		return -1;
	find_driver();
	return 1;
}
