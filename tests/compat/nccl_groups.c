/*
 * libnccl.so.2 and groups: messages that the two ranks group differently, many messages, messages of a rank to itself,
 * groups in which a call is refused, communicators that end inside of groups. Ranks are threads.
 *
 * usage: nccl_groups [CASE [SEED]]     memory and streams as in nccl_collectives
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/compat/ranks.h"

/* ---- Buffers ---------------------------------------------------------------- */

/* More than the slots of staging have room for together. */
enum { LONG = 4 << 20 };

static int *buffer(size_t count)
{
	void *p = NULL;

	must(ncclMemAlloc(&p, count * sizeof(int)), "alloc");
	return p;
}

static void put(int *to, size_t count, int first, cudaStream_t s)
{
	int *host = malloc(count * sizeof(*host));

	for (size_t i = 0; i < count; i++)
		host[i] = first + (int)i;
	write_to(to, host, count * sizeof(*host), s);
	wait_stream(s);
	free(host);
}

static void check(const char *what, const int *from, size_t count, int first, cudaStream_t s)
{
	int *host = malloc(count * sizeof(*host));
	size_t wrong = 0;

	read_from(host, from, count * sizeof(*host), s);
	for (size_t i = 0; i < count; i++)
		wrong += host[i] != first + (int)i;
	CHECK(wrong == 0, "%s: %zu of %zu elements are wrong", what, wrong, count);
	free(host);
}

/* ---- Messages that are grouped differently ------------------------------------------- */

/* Both sides put the same two messages into a group, or not. */
static bool group_sends, group_recvs;

static void open_if(bool grouped)
{
	if (grouped)
		must(ncclGroupStart(), "group");
}

static void close_if(bool grouped)
{
	if (grouped)
		must(ncclGroupEnd(), "group");
}

static void two_messages(struct rank *r)
{
	int *a = buffer(LONG), *b = buffer(LONG);
	const bool sends = r->rank == 0, grouped = sends ? group_sends : group_recvs;

	put(a, LONG, sends ? 5 : 0, r->stream);
	put(b, LONG, sends ? 9 : 0, r->stream);
	open_if(grouped);
	for (int i = 0; i < 2; i++)
		if (sends)
			must(ncclSend(i ? b : a, LONG, ncclInt32, 1, r->comm, r->stream), "send");
		else
			must(ncclRecv(i ? b : a, LONG, ncclInt32, 0, r->comm, r->stream), "receive");
	close_if(grouped);
	check("first", a, LONG, 5, r->stream);
	check("second", b, LONG, 9, r->stream);
	must(ncclMemFree(a), "free");
	must(ncclMemFree(b), "free");
}

TEST(nccl_groups, sends_in_a_group_and_receives_apart)
{
	group_sends = true;
	group_recvs = false;
	run_ranks(2, two_messages);
}

TEST(nccl_groups, receives_in_a_group_and_sends_apart)
{
	group_sends = false;
	group_recvs = true;
	run_ranks(2, two_messages);
}

/* Rank 0 sends and receives in a group; rank 1 receives, and sends then. */
TEST_OF_RANKS(nccl_groups, both_directions_in_a_group_and_one_after_the_other, 2)
{
	int *a = buffer(LONG), *b = buffer(LONG);

	put(r->rank ? b : a, LONG, r->rank ? 9 : 5, r->stream);
	open_if(r->rank == 0);
	if (r->rank == 0)
		must(ncclSend(a, LONG, ncclInt32, 1, r->comm, r->stream), "send");
	must(ncclRecv(r->rank ? a : b, LONG, ncclInt32, !r->rank, r->comm, r->stream), "receive");
	if (r->rank == 1)
		must(ncclSend(b, LONG, ncclInt32, 0, r->comm, r->stream), "send");
	close_if(r->rank == 0);
	check("there", a, LONG, 5, r->stream);
	check("back", b, LONG, 9, r->stream);
	must(ncclMemFree(a), "free");
	must(ncclMemFree(b), "free");
}

/* Rank 0 sends to 1 and to 2 in a group; 2 waits for rank 1, which waits for all of its own message. */
TEST_OF_RANKS(nccl_groups, a_message_waits_for_another_one_of_its_group, 3)
{
	int *a = buffer(LONG), *b = buffer(LONG);

	put(a, LONG, r->rank ? 0 : 5, r->stream);
	put(b, LONG, r->rank ? 0 : 9, r->stream);
	open_if(r->rank == 0);
	if (r->rank == 0) {
		must(ncclSend(b, LONG, ncclInt32, 2, r->comm, r->stream), "send");
		must(ncclSend(a, LONG, ncclInt32, 1, r->comm, r->stream), "send");
	} else if (r->rank == 1) {
		must(ncclRecv(a, LONG, ncclInt32, 0, r->comm, r->stream), "receive");
		must(ncclSend(a, 1, ncclInt32, 2, r->comm, r->stream), "send");
	} else {
		must(ncclRecv(a, 1, ncclInt32, 1, r->comm, r->stream), "receive");
		must(ncclRecv(b, LONG, ncclInt32, 0, r->comm, r->stream), "receive");
	}
	close_if(r->rank == 0);
	check("first", a, r->rank == 2 ? 1 : LONG, 5, r->stream);
	if (r->rank != 1)
		check("second", b, LONG, 9, r->stream);
	must(ncclMemFree(a), "free");
	must(ncclMemFree(b), "free");
}

/* Messages that end if each is made alone, in this order on all ranks: so they end however a rank groups its own. */
enum { SCRIPT = 24, SCRIPTS = 3 };

static uint64_t draw(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

struct script {
	int from, to, *got;
	size_t count;
};

static void make_script(struct rank *r, struct script *m, uint64_t seed)
{
	for (int i = 0; i < SCRIPT; i++) {
		m[i].from = (int)(draw(&seed) % (uint64_t)r->n);
		m[i].to = (m[i].from + 1 + (int)(draw(&seed) % (uint64_t)(r->n - 1))) % r->n;
		m[i].count = draw(&seed) % (draw(&seed) % 3 ? LONG / 2 : 1000) + 1;
		m[i].got = m[i].to == r->rank ? buffer(m[i].count) : NULL;
	}
}

static void make_calls(struct rank *r, const struct script *m, const int *given, uint64_t own)
{
	bool open = false;

	for (int i = 0; i < SCRIPT; i++) {
		if (!open && draw(&own) % 2) {
			must(ncclGroupStart(), "group");
			open = true;
		}
		if (m[i].from == r->rank)
			must(ncclSend(given, m[i].count, ncclInt32, m[i].to, r->comm, r->stream), "send");
		if (m[i].to == r->rank)
			must(ncclRecv(m[i].got, m[i].count, ncclInt32, m[i].from, r->comm, r->stream), "receive");
		if (open && (draw(&own) % 4 == 0 || i + 1 == SCRIPT)) {
			must(ncclGroupEnd(), "group");
			open = false;
		}
	}
}

/* Memory is made and freed while nothing is pending: the driver would wait for that. */
static void one_script(struct rank *r, uint64_t seed)
{
	struct script m[SCRIPT];
	int *given = buffer(LONG);

	put(given, LONG, r->rank, r->stream);
	make_script(r, m, seed);
	pthread_barrier_wait(&meeting);
	make_calls(r, m, given, seed * 97 + (uint64_t)r->rank);
	wait_stream(r->stream);
	pthread_barrier_wait(&meeting);
	for (int i = 0; i < SCRIPT; i++)
		if (m[i].got) {
			check("script", m[i].got, m[i].count, m[i].from, r->stream);
			must(ncclMemFree(m[i].got), "free");
		}
	must(ncclMemFree(given), "free");
}

static uint64_t first_seed = 1;

TEST_OF_RANKS(nccl_groups, every_rank_groups_as_it_likes, 3)
{
	for (uint64_t i = 0; i < SCRIPTS; i++)
		one_script(r, first_seed + i);
}

/* ---- Many messages ---------------------------------------------------------------------- */

enum { MANY = 200 };

/* To each other rank MANY messages of growing length, all in one group. */
TEST_OF_RANKS(nccl_groups, more_messages_than_slots, 3)
{
	const size_t all = (size_t)MANY * (MANY + 1) / 2;
	int *in = buffer(all), *out = buffer(all * (size_t)r->n);

	put(in, all, r->rank, r->stream);
	must(ncclGroupStart(), "group");
	for (int peer = 0; peer < r->n; peer++)
		for (size_t i = 0, at = 0; i < MANY && peer != r->rank; at += ++i) {
			must(ncclSend(in + at, i + 1, ncclInt32, peer, r->comm, r->stream), "send");
			must(ncclRecv(out + (size_t)peer * all + at, i + 1, ncclInt32, peer, r->comm, r->stream),
			     "receive");
		}
	must(ncclGroupEnd(), "group");
	for (int peer = 0; peer < r->n; peer++)
		if (peer != r->rank)
			check("messages", out + (size_t)peer * all, all, peer, r->stream);
	must(ncclMemFree(in), "free");
	must(ncclMemFree(out), "free");
}

/* ---- A rank to itself --------------------------------------------------------------------- */

/* A word of the host that streams wait for. */
static _Atomic uint32_t *hold(cudaStream_t s)
{
	_Atomic uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr at = 0;

	CU(DRIVER(cuMemHostRegister_v2)((void *)word, 4096, CU_MEMHOSTREGISTER_DEVICEMAP));
	CU(DRIVER(cuMemHostGetDevicePointer_v2)(&at, (void *)word, 0));
	CU(DRIVER(cuStreamWaitValue32_v2)((CUstream)s, at, 1, CU_STREAM_WAIT_VALUE_GEQ));
	return word;
}

static void let_go(_Atomic uint32_t *word)
{
	CU(DRIVER(cuMemHostUnregister)((void *)word));
	munmap((void *)word, 4096);
}

/* The stream `held` does not come to the message: then the other one must not be behind it either. */
static void to_itself(struct rank *r, bool hold_send)
{
	cudaStream_t s = r->stream, t = make_stream();
	int *a = buffer(COUNT), *b = buffer(COUNT);
	_Atomic uint32_t *word;

	put(a, COUNT, 5, s);
	put(b, COUNT, 0, t);
	word = hold(hold_send ? s : t);
	must(ncclGroupStart(), "group");
	must(ncclSend(a, COUNT, ncclInt32, r->rank, r->comm, s), "send");
	must(ncclRecv(b, COUNT, ncclInt32, r->rank, r->comm, t), "receive");
	must(ncclGroupEnd(), "group");
	CHECK(DRIVER(cuStreamQuery)((CUstream)(hold_send ? t : s)) == CUDA_ERROR_NOT_READY,
	      "one stream has passed the message, the other one has not come to it");
	atomic_store(word, 1);
	check("received", b, COUNT, 5, t);
	wait_stream(s);
	let_go(word);
	must(ncclMemFree(a), "free");
	must(ncclMemFree(b), "free");
	free_stream(t);
}

static void in_two_streams(struct rank *r)
{
	to_itself(r, true);
	to_itself(r, false);
}

TEST(nccl_groups, a_message_to_itself_in_two_streams)
{
	if (!on_device())
		SKIP("streams are those of devices");
	run_ranks(1, in_two_streams);
}

/* ---- Refusals ----------------------------------------------------------------------------- */

/* The second call is refused as it is made: input and output overlap. */
TEST_OF_RANKS(nccl_groups, a_refused_group_makes_no_call, 2)
{
	int *a = buffer(3 * COUNT), *b = buffer(COUNT);

	for (int i = 0; i < 3; i++) {
		put(a, COUNT, 5, r->stream);
		put(b, COUNT, 7, r->stream);
		must(ncclGroupStart(), "group");
		must(ncclAllReduce(a, b, COUNT, ncclInt32, ncclMax, r->comm, r->stream), "noted");
		must(ncclAllGather(a, a + 1, COUNT, ncclInt32, r->comm, r->stream), "noted");
		CHECK(ncclGroupEnd() == ncclInvalidArgument, "%s", ncclGetLastError(NULL));
		check("output of a group that was refused", b, COUNT, 7, r->stream);
	}
	sum(r, r->comm);
	must(ncclMemFree(a), "free");
	must(ncclMemFree(b), "free");
}

/* One rank errs: the others get what it calls next. */
TEST_OF_RANKS(nccl_groups, the_others_do_not_wait_for_a_refused_group, 2)
{
	int *a = buffer(3 * COUNT), *b = buffer(COUNT);

	put(a, COUNT, 5, r->stream);
	if (r->rank == 0) {
		must(ncclGroupStart(), "group");
		must(ncclAllReduce(a, b, COUNT, ncclInt32, ncclMax, r->comm, r->stream), "noted");
		must(ncclAllGather(a, a + 1, COUNT, ncclInt32, r->comm, r->stream), "noted");
		CHECK(ncclGroupEnd() == ncclInvalidArgument, "%s", ncclGetLastError(NULL));
	}
	must(ncclAllReduce(a, b, COUNT, ncclInt32, ncclMax, r->comm, r->stream), "again");
	check("maximum", b, COUNT, 5, r->stream);
	must(ncclMemFree(a), "free");
	must(ncclMemFree(b), "free");
}

/* ---- Factors in device memory --------------------------------------------------------------- */

static void captured_factor(struct rank *r)
{
	const float two = 2;
	float *factor = (float *)(void *)buffer(1);
	CUgraph graph = NULL;
	ncclRedOp_t op;

	write_to(factor, &two, sizeof(two), r->stream);
	wait_stream(r->stream);
	must(ncclRedOpCreatePreMulSum(&op, factor, ncclFloat32, ncclScalarDevice, r->comm), "operation");
	CU(DRIVER(cuStreamBeginCapture_v2)((CUstream)r->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	CHECK(ncclAllReduce(r->in, r->out, COUNT, ncclFloat32, op, r->comm, r->stream) == ncclInvalidUsage);
	CHECK(strstr(ncclGetLastError(NULL), "ncclScalarHostImmediate"), "%s", ncclGetLastError(NULL));
	CU(DRIVER(cuStreamEndCapture)((CUstream)r->stream, &graph));
	CHECK(graph, "the capture has ended by the refusal");
	if (graph)
		CU(DRIVER(cuGraphDestroy)(graph));
	sum(r, r->comm);
	must(ncclRedOpDestroy(op, r->comm), "operation");
	must(ncclMemFree(factor), "free");
}

TEST(nccl_groups, a_factor_of_the_device_is_refused_in_a_capture)
{
	if (!on_device())
		SKIP("captures are those of devices");
	run_ranks(2, captured_factor);
}

/* ---- Operations that are gone when the group ends ------------------------------------------- */

/* More than there is room for at a time, each with its own factor. */
TEST_OF_RANKS(nccl_groups, an_operation_may_be_destroyed_before_the_group_ends, 2)
{
	enum { CALLS = 100 };
	float *in = (float *)(void *)buffer(1), *out = (float *)(void *)buffer(CALLS), got[CALLS],
	      mine = (float)(r->rank + 1);
	ncclRedOp_t op;

	write_to(in, &mine, sizeof(mine), r->stream);
	wait_stream(r->stream);
	must(ncclGroupStart(), "group");
	for (int i = 0; i < CALLS; i++) {
		float factor = (float)(i + 2);

		must(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat32, ncclScalarHostImmediate, r->comm),
		     "operation");
		must(ncclAllReduce(in, out + i, 1, ncclFloat32, op, r->comm, r->stream), "all_reduce");
		must(ncclRedOpDestroy(op, r->comm), "operation");
	}
	must(ncclGroupEnd(), "the end of a group");
	read_from(got, out, sizeof(got), r->stream);
	for (int i = 0; i < CALLS; i++)
		CHECK(got[i] == 3.0f * (float)(i + 2), "call %d: %g", i, (double)got[i]);
	must(ncclMemFree(in), "free");
	must(ncclMemFree(out), "free");
}

/* ---- Ends ----------------------------------------------------------------------------------- */

/* The group's creation needs the communicator until the group ends. */
TEST_OF_RANKS(nccl_groups, a_communicator_that_the_open_group_needs_does_not_end, 2)
{
	ncclComm_t child = NULL;

	must(ncclGroupStart(), "group");
	must(ncclCommSplit(r->comm, 0, r->rank, &child, NULL), "split");
	CHECK(ncclCommDestroy(r->comm) == ncclInvalidUsage, "%s", ncclGetLastError(NULL));
	CHECK(ncclCommAbort(r->comm) == ncclInvalidUsage, "%s", ncclGetLastError(NULL));
	CHECK(ncclCommDestroy(child) == ncclInvalidUsage, "%s", ncclGetLastError(NULL));
	must(ncclGroupEnd(), "group");
	sum(r, child);
	sum(r, r->comm);
	must(ncclCommDestroy(child), "destroy");
}

static _Atomic(ncclComm_t) half_made;

static void *abort_child(void *arg)
{
	ncclComm_t child;

	while (!(child = atomic_load(&half_made)))
		usleep(1000);
	usleep(50000); /* so that the split most likely waits; it makes no difference to the checks */
	must(ncclCommAbort(child), "abort");
	return NULL;
}

/* Rank 0 splits, rank 1 does not come: the abort of the child ends it. */
TEST_OF_RANKS(nccl_groups, an_abort_of_the_child_ends_a_split, 2)
{
	ncclComm_t child = NULL;
	double begun;
	pthread_t t;

	sum(r, r->comm);
	begun = now_s();
	if (r->rank == 0) {
		atomic_store(&half_made, NULL);
		pthread_create(&t, NULL, abort_child, NULL);
		must(ncclGroupStart(), "group");
		must(ncclCommSplit(r->comm, 0, 0, &child, NULL), "split");
		atomic_store(&half_made, child);
		CHECK(ncclGroupEnd() == ncclRemoteError && !child, "%s", ncclGetLastError(NULL));
		pthread_join(t, NULL);
		CHECK(now_s() - begun < 20, "the split ended %.0f s later", now_s() - begun);
	}
	pthread_barrier_wait(&meeting);
	must(ncclCommAbort(r->comm), "abort");
	r->comm = NULL;
}

/* A child's waits do not ask a handle that was freed with its parent. */
TEST_OF_RANKS(nccl_groups, a_child_outlives_its_parent, 2)
{
	ncclComm_t child = NULL, grandchild = NULL;

	must(ncclCommSplit(r->comm, 0, r->rank, &child, NULL), "split");
	must(ncclCommDestroy(r->comm), "destroy");
	r->comm = NULL;
	must(ncclCommSplit(child, 0, r->rank, &grandchild, NULL), "split");
	sum(r, grandchild);
	must(ncclCommDestroy(child), "destroy");
	must(ncclCommDestroy(grandchild), "destroy");
}

PROGRAM(nccl_groups, "")
{
	setenv("COLL_DEBUG", "error", 0);
	setenv("COLL_ARRIVAL_TIMEOUT_MS", "60000", 0); /* a defect is an error then, and no wait for ever */
	if (argc > 2)
		first_seed = strtoull(argv[2], NULL, 10);
	find_driver();
	return 1;
}
