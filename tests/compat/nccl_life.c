/*
 * libnccl.so.2 beside its collectives: NCCL's own codes for wrong arguments, each with a sentence; configurations of
 * all versions; groups that fail; splits, shrinks, aborts and ends. Ranks are threads.
 *
 * usage: nccl_life [CASE]     memory and streams as in nccl_collectives
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/compat/ranks.h"

/* ---- Codes ------------------------------------------------------------------- */

static atomic_int checked;

/* The code, and a sentence that names the function. */
static void expect(ncclResult_t got, ncclResult_t want, const char *function)
{
	const char *text = ncclGetLastError(NULL);

	checked++;
	CHECK(got == want, "%s: %d instead of %d: %s", function, (int)got, (int)want, text);
	CHECK(strstr(text, function) && strlen(text) > strlen(function) + 10, "%s says: %s", function, text);
}

static void wrong_arguments(struct rank *r)
{
	cudaStream_t s = r->stream;
	const ncclResult_t bad = ncclInvalidArgument;
	ncclComm_t c = r->comm, none = NULL, other = (ncclComm_t)(void *)r;
	float *x = r->in, *y = r->out;
	ncclRedOp_t op = ncclSum;
	ncclResult_t e;
	int n;

	if (r->rank != 0)
		return;
	expect(ncclAllReduce(x, y, 1, ncclFloat32, ncclSum, none, s), bad, "ncclAllReduce");
	expect(ncclAllReduce(x, y, 1, ncclFloat32, ncclSum, other, s), bad, "ncclAllReduce");
	expect(pncclAllReduce(x, NULL, 1, ncclFloat32, ncclSum, c, s), bad, "ncclAllReduce");
	expect(ncclAllReduce(NULL, y, 1, ncclFloat32, ncclSum, c, s), bad, "ncclAllReduce");
	expect(ncclAllReduce(x, y, 1, ncclNumTypes, ncclSum, c, s), bad, "ncclAllReduce");
	expect(ncclAllReduce(x, y, 1, (ncclDataType_t)-1, ncclSum, c, s), bad, "ncclAllReduce");
	expect(ncclAllReduce(x, y, 1, ncclFloat32, ncclNumOps, c, s), bad, "ncclAllReduce");
	expect(ncclAllReduce(x, y, 1, ncclFloat32, (ncclRedOp_t)-1, c, s), bad, "ncclAllReduce");
	expect(ncclAllReduce(x, y, 1, ncclFloat32, ncclMaxRedOp, c, s), bad, "ncclAllReduce");
	expect(ncclBroadcast(x, y, 1, ncclFloat32, 2, c, s), bad, "ncclBroadcast");
	expect(ncclReduce(x, y, 1, ncclFloat32, ncclSum, -1, c, s), bad, "ncclReduce");
	expect(ncclGather(x, y, 1, ncclFloat32, 7, c, s), bad, "ncclGather");
	expect(ncclScatter(x, y, 1, ncclFloat32, 7, c, s), bad, "ncclScatter");
	expect(ncclSend(x, 1, ncclFloat32, 2, c, s), bad, "ncclSend");
	expect(ncclRecv(x, 1, ncclFloat32, -1, c, s), bad, "ncclRecv");
	expect(ncclSend(x, 1, ncclFloat32, 0, c, s), ncclInvalidUsage, "ncclSend");
	expect(ncclRecv(x, 1, ncclFloat32, 0, c, s), ncclInvalidUsage, "ncclRecv");
	expect(ncclGroupEnd(), ncclInvalidUsage, "ncclGroupEnd");
	expect(ncclGetUniqueId(NULL), bad, "ncclGetUniqueId");
	expect(ncclGetVersion(NULL), bad, "ncclGetVersion");
	expect(ncclCommCount(c, NULL), bad, "ncclCommCount");
	expect(ncclCommCount(NULL, &n), bad, "ncclCommCount");
	expect(ncclCommUserRank(NULL, &n), bad, "ncclCommUserRank");
	expect(ncclCommCuDevice(NULL, &n), bad, "ncclCommCuDevice");
	expect(ncclCommGetAsyncError(c, NULL), bad, "ncclCommGetAsyncError");
	expect(ncclCommGetAsyncError(NULL, &e), bad, "ncclCommGetAsyncError");
	expect(ncclCommInitRank(NULL, 2, id, 0), bad, "ncclCommInitRank");
	expect(ncclCommInitRank(&none, 2, id, 2), bad, "ncclCommInitRank");
	expect(ncclCommInitRank(&none, 0, id, 0), bad, "ncclCommInitRank");
	expect(ncclCommInitRankScalable(&none, 2, 0, 0, &id, NULL), bad, "ncclCommInitRankScalable");
	expect(ncclCommInitRankScalable(&none, 2, 0, 1, NULL, NULL), bad, "ncclCommInitRankScalable");
	expect(ncclCommInitAll(NULL, 1, NULL), bad, "ncclCommInitAll");
	expect(ncclCommInitAll(&none, 0, NULL), bad, "ncclCommInitAll");
	expect(ncclCommSplit(c, -2, 0, &none, NULL), bad, "ncclCommSplit");
	expect(ncclCommSplit(c, 0, 0, NULL, NULL), bad, "ncclCommSplit");
	expect(ncclCommShrink(c, (int[]){0}, 1, &none, NULL, 0), bad, "ncclCommShrink");
	expect(ncclCommShrink(c, (int[]){9}, 1, &none, NULL, 0), bad, "ncclCommShrink");
	expect(ncclCommShrink(c, (int[]){1}, 1, &none, NULL, 8), bad, "ncclCommShrink");
	expect(ncclCommShrink(c, NULL, 1, &none, NULL, 0), bad, "ncclCommShrink");
	expect(ncclRedOpCreatePreMulSum(NULL, &op, ncclFloat32, ncclScalarHostImmediate, c), bad,
	       "ncclRedOpCreatePreMulSum");
	expect(ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat32, ncclScalarHostImmediate, c), bad,
	       "ncclRedOpCreatePreMulSum");
	expect(ncclRedOpCreatePreMulSum(&op, &op, ncclInt32, ncclScalarHostImmediate, c), bad,
	       "ncclRedOpCreatePreMulSum");
	expect(ncclRedOpCreatePreMulSum(&op, &op, ncclFloat32, (ncclScalarResidence_t)2, c), bad,
	       "ncclRedOpCreatePreMulSum");
	expect(ncclRedOpDestroy(ncclMax, c), bad, "ncclRedOpDestroy");
	expect(ncclRedOpDestroy((ncclRedOp_t)77, c), bad, "ncclRedOpDestroy");
	expect(ncclMemAlloc(NULL, 1), bad, "ncclMemAlloc");
	expect(ncclMemFree(&op), bad, "ncclMemFree");
	expect(ncclCommRegister(c, NULL, 1, (void **)&none), bad, "ncclCommRegister");
	expect(ncclCommDeregister(c, &op), bad, "ncclCommDeregister");
	expect(ncclCommWindowRegister(c, x, 4, NULL, 0), bad, "ncclCommWindowRegister");
	expect(ncclCommWindowRegister(c, x, 4, (ncclWindow_t *)&none, 0x100), bad, "ncclCommWindowRegister");
	expect(ncclCommMemStats(c, (ncclCommMemStat_t)9, (uint64_t[]){0}), bad, "ncclCommMemStats");
	expect(ncclCommSuspend(c, 2), bad, "ncclCommSuspend");
	expect(ncclCommResume(c), ncclInvalidUsage, "ncclCommResume");
	expect(ncclSignal(0, 0, 0, 0, c, s), ncclInvalidUsage, "ncclSignal");
	expect(ncclCommGrow(c, 3, &id, 1, &none, NULL), ncclInvalidUsage, "ncclCommGrow");
	expect(ncclTeamWorld(c).nRanks ? ncclSuccess : ncclInvalidUsage, ncclInvalidUsage, "ncclTeamWorld");
	expect(ncclCommDestroy(other), bad, "ncclCommDestroy");
	expect(ncclCommAbort(other), bad, "ncclCommAbort");
	CHECK(!none, "a refused creation left a handle");
}

TEST(nccl_life, codes_of_wrong_arguments)
{
	checked = 0;
	run_ranks(2, wrong_arguments);
	CHECK(checked >= 55, "%d", (int)checked);
	for (int r = 0; r <= ncclNumResults; r++)
		CHECK(strlen(ncclGetErrorString((ncclResult_t)r)) > 5);
}

static void an_operation_belongs_to_its_communicator(struct rank *r)
{
	float two = 2;
	ncclComm_t child = NULL;
	ncclRedOp_t op;

	must(ncclCommSplit(r->comm, 0, r->rank, &child, NULL), "split");
	must(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat32, ncclScalarHostImmediate, r->comm), "op");
	CHECK(op >= ncclNumOps);
	CHECK(ncclAllReduce(r->in, r->out, 1, ncclFloat32, op, child, r->stream) == ncclInvalidArgument);
	CHECK(ncclAllReduce(r->in, r->out, 1, ncclFloat64, op, r->comm, r->stream) == ncclInvalidArgument);
	CHECK(ncclRedOpDestroy(op, child) == ncclInvalidArgument);
	must(ncclRedOpDestroy(op, r->comm), "op");
	CHECK(ncclRedOpDestroy(op, r->comm) == ncclInvalidArgument);
	must(ncclCommDestroy(child), "destroy");
}

/* Making one is local: ranks may have made others before, in any order. */
static void made_in_another_order(struct rank *r)
{
	const double two = 2;
	const float factor = 2;
	float got[COUNT];
	ncclRedOp_t other, op;

	if (r->rank == 0)
		must(ncclRedOpCreatePreMulSum(&other, (void *)(uintptr_t)&two, ncclFloat64, ncclScalarHostImmediate,
		                              r->comm),
		     "op");
	must(ncclRedOpCreatePreMulSum(&op, (void *)(uintptr_t)&factor, ncclFloat32, ncclScalarHostImmediate, r->comm),
	     "op");
	fill(r, (float)(r->rank + 1));
	must(ncclAllReduce(r->in, r->out, COUNT, ncclFloat32, op, r->comm, r->stream), "sum");
	read_from(got, r->out, sizeof(got), r->stream);
	CHECK(got[0] == 6 && got[COUNT - 1] == 6, "%g, %g", (double)got[0], (double)got[COUNT - 1]);
}

TEST(nccl_life, operations)
{
	run_ranks(2, an_operation_belongs_to_its_communicator);
	run_ranks(2, made_in_another_order);
}

/* ---- Configurations ------------------------------------------------------------ */

static ncclConfig_t unset(size_t size)
{
	ncclConfig_t c;

	for (size_t i = 0; i < sizeof(c) / sizeof(int); i++)
		((int *)&c)[i] = NCCL_CONFIG_UNDEF_INT;
	c.size = size;
	c.magic = NCCL_API_MAGIC;
	c.version = 23203;
	c.netName = c.commName = NULL;
	return c;
}

static ncclResult_t init_with(ncclConfig_t *config)
{
	ncclComm_t comm = NULL;
	ncclUniqueId mine;
	ncclResult_t r;

	must(ncclGetUniqueId(&mine), "id");
	r = ncclCommInitRankConfig(&comm, 1, mine, 0, config);
	CHECK((comm != NULL) == (r == ncclSuccess));
	if (comm)
		must(ncclCommDestroy(comm), "destroy");
	return r;
}

TEST(nccl_life, configurations)
{
	/* From the first version, which ends with `blocking`, to one with more than is known here. */
	const size_t sizes[] = {24, 40, 48, 56, 64, 96, sizeof(ncclConfig_t), sizeof(ncclConfig_t) + 64};
	/* Of versions whose structure ends in padding: its size and version, and where the padding is. */
	const size_t padded[][3] = {{24, 21405, offsetof(ncclConfig_t, cgaClusterSize)},
	                            {48, 21805, offsetof(ncclConfig_t, trafficClass)},
	                            {96, 23003, offsetof(ncclConfig_t, graphStreamOrdering)}};
	ncclConfig_t c;

	use_device(0);
	must(init_with(NULL), "no configuration");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct {
			ncclConfig_t c;
			char more[64];
		} long_one = {unset(sizes[i]), {0}};

		/* What lies behind the end is not read. */
		if (sizes[i] < sizeof(c))
			memset((char *)&long_one.c + sizes[i], 0x5a, sizeof(c) - sizes[i]);
		long_one.c.blocking = 0;
		must(init_with(&long_one.c), "a configuration of another size");
	}
	for (size_t i = 0; i < sizeof(padded) / sizeof(padded[0]); i++) {
		c = unset(padded[i][0]);
		c.version = (unsigned)padded[i][1];
		memset((char *)&c + padded[i][2], 0x9c, sizeof(int));
		must(init_with(&c), "a configuration with padding");
	}
	c = unset(sizeof(c));
	c.magic = 0;
	expect(init_with(&c), ncclInvalidArgument, "ncclCommInitRankConfig");
	c = unset(8);
	expect(init_with(&c), ncclInvalidArgument, "ncclCommInitRankConfig");
	c = unset(sizeof(c));
	c.blocking = 2;
	expect(init_with(&c), ncclInvalidArgument, "ncclCommInitRankConfig");
	CHECK(strstr(ncclGetLastError(NULL), "blocking"), "%s", ncclGetLastError(NULL));
	c = unset(sizeof(c));
	c.minCTAs = 8, c.maxCTAs = 4;
	expect(init_with(&c), ncclInvalidArgument, "ncclCommInitRankConfig");
	c = unset(sizeof(c));
	c.hostCftMode = 9;
	expect(init_with(&c), ncclInvalidArgument, "ncclCommInitRankConfig");
}

static void configured_call(struct rank *r)
{
	ncclCollConfig_t c = {.size = sizeof(c),
	                      .magic = NCCL_API_MAGIC,
	                      .version = 23203,
	                      .minCTAs = NCCL_CONFIG_UNDEF_INT,
	                      .maxCTAs = 4,
	                      .forceAlgSelection = 1};

	fill(r, 1);
	must(ncclAllReduceConfig(r->in, r->out, COUNT, ncclFloat32, ncclSum, r->comm, r->stream, &c),
	     "with a configuration");
	must(ncclAllReduceConfig(r->in, r->out, COUNT, ncclFloat32, ncclSum, r->comm, r->stream, NULL), "without");
	wait_stream(r->stream);
	c.magic = 1;
	expect(ncclAllReduceConfig(r->in, r->out, 1, ncclFloat32, ncclSum, r->comm, r->stream, &c), ncclInvalidArgument,
	       "ncclAllReduceConfig");
	c.magic = NCCL_API_MAGIC;
	c.algSelection = "ring";
	expect(ncclAllReduceConfig(r->in, r->out, 1, ncclFloat32, ncclSum, r->comm, r->stream, &c), ncclInvalidUsage,
	       "ncclAllReduceConfig");
	c.algSelection = NULL;
	c.launchCompletionEvent = (cudaEvent_t)(void *)r;
	expect(ncclAllReduceConfig(r->in, r->out, 1, ncclFloat32, ncclSum, r->comm, r->stream, &c), ncclInvalidUsage,
	       "ncclAllReduceConfig");
}

TEST(nccl_life, configured_calls)
{
	run_ranks(1, configured_call);
}

/* ---- Groups ----------------------------------------------------------------------- */

static void failing_group(struct rank *r)
{
	float host[COUNT];

	fill(r, 5);
	write_to(r->out, memset(host, 0, sizeof(host)), sizeof(host), r->stream);
	must(ncclGroupStart(), "group");
	must(ncclAllReduce(r->in, r->out, COUNT, ncclFloat32, ncclSum, r->comm, r->stream), "noted");
	CHECK(ncclBroadcast(r->in, r->out, COUNT, ncclFloat32, 99, r->comm, r->stream) == ncclInvalidArgument);
	must(ncclGroupStart(), "inner group");
	must(ncclGroupEnd(), "inner group");
	expect(ncclGroupEnd(), ncclInvalidArgument, "ncclBroadcast");
	read_from(host, r->out, sizeof(host), r->stream);
	CHECK(host[0] == 0, "a call of a group that failed was made");
	sum(r, r->comm);
	/* Simulated: nothing happens. */
	ncclSimInfo_t info = {sizeof(info), NCCL_SIM_MAGIC, 23203, -1.0f};

	must(ncclGroupStart(), "group");
	must(ncclAllReduce(r->in, r->out, COUNT, ncclFloat32, ncclSum, r->comm, r->stream), "noted");
	must(ncclGroupSimulateEnd(&info), "simulate");
	must(ncclGroupStart(), "group");
	info.magic = 0;
	expect(ncclGroupSimulateEnd(&info), ncclInvalidArgument, "ncclGroupSimulateEnd");
	expect(ncclGroupEnd(), ncclInvalidArgument, "ncclGroupSimulateEnd");
	sum(r, r->comm);
}

TEST(nccl_life, groups_that_fail)
{
	run_ranks(2, failing_group);
}

/* One thread creates, splits and shrinks the communicators of all ranks. */
TEST(nccl_life, one_thread_has_all)
{
	ncclComm_t comm[RANKS], half[RANKS], most[RANKS];
	struct rank r[RANKS] = {{0}};
	float host[COUNT];
	double begun;

	must(ncclGetUniqueId(&id), "id");
	must(ncclGroupStart(), "group");
	for (int i = 0; i < RANKS; i++) {
		use_device(i % devices());
		r[i].stream = make_stream();
		must(ncclMemAlloc((void **)&r[i].in, sizeof(host)), "alloc");
		must(ncclMemAlloc((void **)&r[i].out, sizeof(host)), "alloc");
		must(ncclCommInitRankScalable(&comm[i], RANKS, i, 1, &id, NULL), "init");
	}
	must(ncclGroupEnd(), "init");
	must(ncclGroupStart(), "group");
	for (int i = 0; i < RANKS; i++)
		must(ncclCommSplit(comm[i], i == 3 ? NCCL_SPLIT_NOCOLOR : i % 2, -i, &half[i], NULL), "split");
	must(ncclGroupEnd(), "split");
	CHECK(half[0] && half[1] && half[2] && !half[3]);
	must(ncclGroupStart(), "group");
	for (int i = 0; i < RANKS; i++)
		if (i != 1)
			must(ncclCommShrink(comm[i], (int[]){1}, 1, &most[i], NULL, NCCL_SHRINK_DEFAULT), "shrink");
	must(ncclGroupEnd(), "shrink");
	for (int i = 0; i < RANKS; i++)
		fill(&r[i], (float)(i + 1));
	must(ncclGroupStart(), "group");
	for (int i = 0; i < RANKS; i++)
		if (i != 1)
			must(ncclAllReduce(r[i].in, r[i].out, COUNT, ncclFloat32, ncclSum, most[i], r[i].stream),
			     "sum");
	must(ncclGroupEnd(), "sum");
	for (int i = 0; i < RANKS; i++) {
		int rank = -1, n = 0;

		if (i == 1)
			continue;
		read_from(host, r[i].out, sizeof(host), r[i].stream);
		must(ncclCommUserRank(most[i], &rank), "rank");
		must(ncclCommCount(most[i], &n), "count");
		CHECK(host[COUNT - 1] == 8 && n == 3 && rank == i - (i > 1), "%g on %d of %d", (double)host[COUNT - 1],
		      rank, n);
	}
	begun = now_s();
	for (int i = 0; i < RANKS; i++) {
		if (i != 1)
			must(ncclCommDestroy(most[i]), "destroy");
		if (i != 3)
			must(ncclCommDestroy(half[i]), "destroy");
		must(ncclCommFinalize(comm[i]), "finalize");
		must(ncclCommDestroy(comm[i]), "destroy");
	}
	printf("      the end of %d ranks by one thread: %.0f ms\n", RANKS, (now_s() - begun) * 1e3);
	CHECK(now_s() - begun < 8, "each rank waited for the next one");
	for (int i = 0; i < RANKS; i++) {
		must(ncclMemFree(r[i].in), "free");
		must(ncclMemFree(r[i].out), "free");
		free_stream(r[i].stream);
	}
}

/* ---- Life --------------------------------------------------------------------------- */

/* Ranks of one process share the driver, which may create and free nothing for one while a stream of another one waits.
 */
static void nobody_waits(void)
{
	pthread_barrier_wait(&meeting);
}

static void children(struct rank *r)
{
	ncclComm_t half = NULL, three = NULL, few = NULL;
	ncclConfig_t config = unset(sizeof(config));

	config.splitShare = 1;
	must(ncclCommSplit(r->comm, r->rank % 2, r->rank, &half, &config), "split");
	must(ncclCommSplit(r->comm, r->rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, 0, &three, NULL), "split");
	CHECK((three == NULL) == (r->rank == 0));
	if (r->rank != 2)
		must(ncclCommShrink(r->comm, (int[]){2}, 1, &few, NULL, NCCL_SHRINK_ABORT), "shrink");
	nobody_waits();
	sum(r, half);
	if (three)
		sum(r, three);
	if (few)
		sum(r, few);
	sum(r, r->comm);
	nobody_waits();
	if (three)
		must(ncclCommFinalize(three), "finalize");
	must(ncclCommDestroy(three), "destroy");
	must(ncclCommDestroy(few), "destroy");
	must(ncclCommDestroy(half), "destroy");
}

static void children_of_one_group(struct rank *r)
{
	ncclComm_t half = NULL, all = NULL, few = NULL;

	for (int turn = 0; turn < 3; turn++) {
		must(ncclGroupStart(), "group");
		must(ncclCommSplit(r->comm, r->rank % 2, r->rank, &half, NULL), "split");
		must(ncclCommSplit(r->comm, 0, -r->rank, &all, NULL), "split");
		if (r->rank != 1)
			must(ncclCommShrink(r->comm, (int[]){1}, 1, &few, NULL, NCCL_SHRINK_DEFAULT), "shrink");
		must(ncclGroupEnd(), "group");
		nobody_waits();
		sum(r, half);
		sum(r, all);
		if (few)
			sum(r, few);
		nobody_waits();
		must(ncclCommDestroy(all), "destroy");
		must(ncclCommDestroy(few), "destroy");
		must(ncclCommDestroy(half), "destroy");
	}
}

TEST(nccl_life, splits_and_shrinks)
{
	run_ranks(RANKS, children);
	run_ranks(RANKS, children_of_one_group);
}

static void finalized(struct rank *r)
{
	uint64_t value = 9;
	void *handle = NULL;
	ncclWindow_t window = (ncclWindow_t)(void *)r;
	ncclComm_t gone = r->comm;

	sum(r, r->comm);
	must(ncclCommRegister(r->comm, r->in, 64, &handle), "register");
	must(ncclCommDeregister(r->comm, handle), "deregister");
	must(ncclCommWindowRegister(r->comm, r->in, 64, &window, 1), "window");
	CHECK(!window);
	must(ncclCommWindowDeregister(r->comm, window), "window");
	must(ncclCommSuspend(r->comm, NCCL_SUSPEND_MEM), "suspend");
	must(ncclCommMemStats(r->comm, ncclStatGpuMemSuspended, &value), "statistics");
	CHECK(value == 1);
	CHECK(ncclAllReduce(r->in, r->out, 1, ncclFloat32, ncclSum, r->comm, r->stream) == ncclInvalidUsage);
	CHECK(ncclCommSuspend(r->comm, NCCL_SUSPEND_MEM) == ncclInvalidUsage);
	must(ncclCommResume(r->comm), "resume");
	must(ncclCommMemStats(r->comm, ncclStatGpuMemSuspended, &value), "statistics");
	CHECK(value == 0);
	sum(r, r->comm);
	must(ncclCommFinalize(r->comm), "finalize");
	CHECK(ncclCommFinalize(r->comm) == ncclInvalidArgument);
	CHECK(ncclAllReduce(r->in, r->out, 1, ncclFloat32, ncclSum, r->comm, r->stream) == ncclInvalidArgument);
	CHECK(ncclCommSplit(r->comm, 0, 0, &gone, NULL) == ncclInvalidArgument);
	must(ncclCommDestroy(r->comm), "destroy");
	CHECK(ncclCommDestroy(r->comm) == ncclInvalidArgument, "destroyed twice");
	CHECK(ncclAllReduce(r->in, r->out, 1, ncclFloat32, ncclSum, r->comm, r->stream) == ncclInvalidArgument);
	r->comm = NULL;
}

TEST(nccl_life, finalize_suspend_register)
{
	run_ranks(2, finalized);
}

TEST(nccl_life, several_ids)
{
	ncclUniqueId ids[2];
	ncclComm_t comm[2];

	use_device(0);
	must(ncclGetUniqueId(&ids[0]), "id");
	must(ncclGetUniqueId(&ids[1]), "id");
	must(ncclGroupStart(), "group");
	for (int i = 0; i < 2; i++)
		must(ncclCommInitRankScalable(&comm[i], 2, i, 2, ids, NULL), "init");
	must(ncclGroupEnd(), "init");
	for (int i = 0; i < 2; i++)
		must(ncclCommDestroy(comm[i]), "destroy");
}

/* ---- Aborts -------------------------------------------------------------------------- */

static struct {
	ncclComm_t comm;
	atomic_bool begun, ended;
	double aborted_s;
} pending;

static void *abort_it(void *arg)
{
	while (!atomic_load(&pending.begun))
		usleep(1000);
	usleep(50000); /* so that the call is most likely waiting; it makes no difference to the checks */
	CHECK(!atomic_load(&pending.ended), "the call has ended before");
	pending.aborted_s = now_s();
	must(ncclCommAbort(pending.comm), "abort");
	return NULL;
}

/* Rank 0 calls, rank 1 does not: only an abort ends it. */
static void aborted(struct rank *r)
{
	pthread_t t;
	ncclResult_t e = ncclSuccess;

	sum(r, r->comm);
	pthread_barrier_wait(&meeting);
	if (r->rank == 0) {
		pending.comm = r->comm;
		atomic_store(&pending.begun, false);
		atomic_store(&pending.ended, false);
		pthread_create(&t, NULL, abort_it, NULL);
		atomic_store(&pending.begun, true);
		ncclAllReduce(r->in, r->out, COUNT, ncclFloat32, ncclSum, r->comm, r->stream);
		wait_stream(r->stream);
		atomic_store(&pending.ended, true);
		printf("      pending work ended %.1f ms after the abort\n", (now_s() - pending.aborted_s) * 1e3);
		CHECK(now_s() - pending.aborted_s < 20);
		pthread_join(t, NULL);
		r->comm = NULL;
	}
	pthread_barrier_wait(&meeting);
	if (r->rank == 1) { /* learns of it */
		const double until = now_s() + 20;

		while (e == ncclSuccess && now_s() < until) {
			CHECK(ncclCommGetAsyncError(r->comm, &e) == ncclSuccess);
			if (e == ncclSuccess) /* a call reads the news */
				e = ncclAllReduce(r->in, r->out, COUNT, ncclFloat32, ncclSum, r->comm, r->stream);
		}
		CHECK(e == ncclRemoteError, "%d", (int)e);
		CHECK(strstr(ncclGetLastError(NULL), "abort"), "%s", ncclGetLastError(NULL));
		must(ncclCommAbort(r->comm), "abort");
		r->comm = NULL;
	}
}

TEST(nccl_life, an_abort_ends_pending_work)
{
	run_ranks(2, aborted);
}

/* A watchdog. */
static void *ask(void *arg)
{
	ncclResult_t e;

	while (!atomic_load(&pending.ended))
		ncclCommGetAsyncError(pending.comm, &e);
	return NULL;
}

static void asked_meanwhile(struct rank *r)
{
	enum { TURNS = 20, WATCHDOGS = 2 };
	pthread_t t[WATCHDOGS];

	for (int turn = 0; turn < TURNS; turn++) {
		ncclComm_t child = NULL;
		ncclResult_t e = ncclSuccess;

		must(ncclCommSplit(r->comm, 0, r->rank, &child, NULL), "split");
		sum(r, child);
		nobody_waits();
		if (r->rank == 0) {
			pending.comm = child;
			atomic_store(&pending.ended, false);
			for (int i = 0; i < WATCHDOGS; i++)
				pthread_create(&t[i], NULL, ask, NULL);
			usleep(2000);
			must(ncclCommAbort(child), "abort");
			atomic_store(&pending.ended, true);
			for (int i = 0; i < WATCHDOGS; i++)
				pthread_join(t[i], NULL);
			usleep(2000);
		}
		nobody_waits();
		if (r->rank == 1) {
			must(ncclCommGetAsyncError(child, &e), "error");
			CHECK(e == ncclSuccess, "turn %d: %s", turn, ncclGetLastError(NULL));
			must(ncclCommDestroy(child), "destroy");
		}
	}
}

/* Where nothing is pending, the others are left alone, whoever asks meanwhile. */
TEST(nccl_life, an_abort_of_an_idle_communicator_is_its_own)
{
	run_ranks(2, asked_meanwhile);
}

/* Noted in a group, so that the handle is there before the creation begins. */
static _Atomic(ncclComm_t) half_made;

static void *create_alone(void *arg)
{
	ncclComm_t comm = NULL;
	ncclResult_t r;

	use_device(0);
	must(ncclGroupStart(), "group");
	must(ncclCommInitRank(&comm, 2, id, 0), "init");
	atomic_store(&half_made, comm);
	r = ncclGroupEnd();
	CHECK(r == ncclRemoteError && !comm, "%d %s", (int)r, ncclGetLastError(NULL));
	return NULL;
}

/* The other rank never comes. */
TEST(nccl_life, an_abort_ends_a_creation)
{
	ncclComm_t seen;
	ncclResult_t e = ncclSuccess;
	double begun;
	pthread_t t;

	must(ncclGetUniqueId(&id), "id");
	pthread_create(&t, NULL, create_alone, NULL);
	while (!(seen = atomic_load(&half_made)))
		usleep(1000);
	must(ncclCommGetAsyncError(seen, &e), "state");
	CHECK(e == ncclInProgress);
	begun = now_s();
	must(ncclCommAbort(seen), "abort");
	pthread_join(t, NULL);
	printf("      a creation ended %.0f ms after the abort\n", (now_s() - begun) * 1e3);
	CHECK(now_s() - begun < 20);
}

TEST(nccl_life, version)
{
	int v = 0;

	must(ncclGetVersion(&v), "version");
	CHECK(v == 22809, "%d", v);
	setenv("COLL_NCCL_VERSION", "23203", 1);
	must(ncclGetVersion(&v), "version");
	CHECK(v == 23203, "%d", v);
	unsetenv("COLL_NCCL_VERSION");
}

PROGRAM(nccl_life, "")
{
	setenv("COLL_DEBUG", "error", 0);
	find_driver();
	return 1;
}
