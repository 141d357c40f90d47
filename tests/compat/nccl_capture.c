/*
 * libnccl.so.2 and CUDA graphs, as PyTorch captures them: ordinary calls in a stream that is being captured, and the
 * graph launched again and again on data that change. Ranks are threads, each with a stream.
 *
 * usage: nccl_capture [CASE]     memory and streams as in nccl_collectives
 */
#include "tests/compat/ranks.h"

enum { SHORT = 1000, LONG = 1 << 18, MARK = -1, CALLS = 70 };

/* The test that runs. */
static size_t count; /* of elements of one rank's share */
static int launches;
static CUstreamCaptureMode mode;
static bool outlives; /* the graph its communicator */
static bool aside;    /* the calls are in a stream beside the one that is captured, as in PyTorch */

/* What a graph works on: in and gathered have n * count elements, the others count. */
struct work {
	float *in, *reduced, *copied, *gathered, *scattered, *received, *host;
	CUgraphExec graph;
	CUstream main; /* in which it is captured and launched */
};

static float *floats(size_t n)
{
	void *p = NULL;

	must(ncclMemAlloc(&p, n * sizeof(float)), "alloc");
	return p;
}

static void make(struct work *w, const struct rank *r)
{
	const size_t n = (size_t)r->n;

	w->main = (CUstream)(aside ? make_stream() : r->stream);
	w->in = floats(n * count);
	w->reduced = floats(count);
	w->copied = floats(count);
	w->gathered = floats(n * count);
	w->scattered = floats(count);
	w->received = floats(count);
	w->host = malloc(n * count * sizeof(float));
	/* Making a stream waits for those of other ranks, which may wait for this one. */
	pthread_barrier_wait(&meeting);
}

static void unmake(struct work *w)
{
	float *const all[] = {w->in, w->reduced, w->copied, w->gathered, w->scattered, w->received};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		must(ncclMemFree(all[i]), "free");
	free(w->host);
	if (aside)
		free_stream((cudaStream_t)w->main);
}

/* ---- Data of a launch ----------------------------------------------------------- */

/* Small integers, so that sums are exact. */
static float element(int rank, int turn, size_t i)
{
	return (float)((size_t)(rank + 1) * (i % 97 + 3 * (size_t)turn));
}

static float summed(int n, int turn, size_t i)
{
	return element(n * (n + 1) / 2 - 1, turn, i);
}

static void put(const struct rank *r, struct work *w, int turn)
{
	const size_t all = (size_t)r->n * count;

	for (size_t i = 0; i < all; i++)
		w->host[i] = element(r->rank, turn, i);
	write_to(w->in, w->host, all * sizeof(float), r->stream);
	wait_stream(r->stream);
}

static void put_marks(const struct rank *r, struct work *w)
{
	for (size_t i = 0; i < count; i++)
		w->host[i] = MARK;
	write_to(w->reduced, w->host, count * sizeof(float), r->stream);
	write_to(w->received, w->host, count * sizeof(float), r->stream);
	wait_stream(r->stream);
}

static void check_marks(const struct rank *r, struct work *w)
{
	const float *const from[] = {w->reduced, w->received};
	size_t wrong = 0;

	for (int k = 0; k < 2; k++) {
		read_from(w->host, from[k], count * sizeof(float), r->stream);
		for (size_t i = 0; i < count; i++)
			wrong += w->host[i] != MARK;
	}
	CHECK(wrong == 0, "rank %d: %zu elements were written without a communicator", r->rank, wrong);
}

static void check(const struct rank *r, struct work *w, int turn)
{
	const int before = (r->rank + r->n - 1) % r->n, n = r->n;
	size_t wrong[5] = {0};

	read_from(w->host, w->reduced, count * sizeof(float), r->stream);
	for (size_t i = 0; i < count; i++)
		wrong[0] += w->host[i] != summed(n, turn, i);
	read_from(w->host, w->copied, count * sizeof(float), r->stream);
	for (size_t i = 0; i < count; i++)
		wrong[1] += w->host[i] != element(n - 1, turn, i);
	read_from(w->host, w->gathered, (size_t)n * count * sizeof(float), r->stream);
	for (size_t i = 0; i < (size_t)n * count; i++)
		wrong[2] += w->host[i] != element((int)(i / count), turn, i % count);
	read_from(w->host, w->scattered, count * sizeof(float), r->stream);
	for (size_t i = 0; i < count; i++)
		wrong[3] += w->host[i] != summed(n, turn, (size_t)r->rank * count + i);
	read_from(w->host, w->received, count * sizeof(float), r->stream);
	for (size_t i = 0; i < count; i++)
		wrong[4] += w->host[i] != element(before, turn, i);
	CHECK(wrong[0] + wrong[1] + wrong[2] + wrong[3] + wrong[4] == 0,
	      "rank %d launch %d: wrong are %zu sums, %zu copied, %zu gathered, %zu scattered, %zu received", r->rank,
	      turn, wrong[0], wrong[1], wrong[2], wrong[3], wrong[4]);
}

/* ---- One rank ---------------------------------------------------------------------- */

static void make_calls(const struct rank *r, const struct work *w)
{
	must(ncclAllReduce(w->in, w->reduced, count, ncclFloat32, ncclSum, r->comm, r->stream), "all-reduce");
	must(ncclBroadcast(w->in, w->copied, count, ncclFloat32, r->n - 1, r->comm, r->stream), "broadcast");
	must(ncclAllGather(w->in, w->gathered, count, ncclFloat32, r->comm, r->stream), "all-gather");
	must(ncclReduceScatter(w->in, w->scattered, count, ncclFloat32, ncclSum, r->comm, r->stream), "reduce-scatter");
	must(ncclGroupStart(), "group");
	must(ncclSend(w->in, count, ncclFloat32, (r->rank + 1) % r->n, r->comm, r->stream), "send");
	must(ncclRecv(w->received, count, ncclFloat32, (r->rank + r->n - 1) % r->n, r->comm, r->stream), "receive");
	must(ncclGroupEnd(), "group");
}

/* What comes in later waits for what is in earlier. */
static void order(CUstream earlier, CUstream later)
{
	CUevent event = NULL;

	if (earlier == later)
		return;
	CU(DRIVER(cuEventCreate)(&event, CU_EVENT_DISABLE_TIMING));
	CU(DRIVER(cuEventRecord)(event, earlier));
	CU(DRIVER(cuStreamWaitEvent)(later, event, 0));
	CU(DRIVER(cuEventDestroy_v2)(event));
}

/* In the global mode no thread of the process may do what a capture forbids. */
static void capture(const struct rank *r, struct work *w, void (*calls)(const struct rank *r, const struct work *w))
{
	CUgraph graph = NULL;

	pthread_barrier_wait(&meeting);
	CU(DRIVER(cuStreamBeginCapture_v2)(w->main, mode));
	order(w->main, (CUstream)r->stream);
	calls(r, w);
	order((CUstream)r->stream, w->main);
	CU(DRIVER(cuStreamEndCapture)(w->main, &graph));
	pthread_barrier_wait(&meeting);
	CHECK(graph, "nothing was captured");
	if (!graph)
		return;
	CU(DRIVER(cuGraphInstantiateWithFlags)(&w->graph, graph, 0));
	CU(DRIVER(cuGraphDestroy)(graph));
}

static void launch(const struct rank *r, const struct work *w)
{
	order((CUstream)r->stream, w->main);
	CU(DRIVER(cuGraphLaunch)(w->graph, w->main));
	order(w->main, (CUstream)r->stream);
}

/* The communicator of all ranks has ended behind the barrier: launches pass and write nothing. */
static void end_before_the_graph(struct rank *r, struct work *w)
{
	put_marks(r, w);
	must(ncclCommDestroy(r->comm), "destroy");
	r->comm = NULL;
	if (r->rank % 2) { /* while the other ranks still have theirs */
		CU(DRIVER(cuGraphExecDestroy)(w->graph));
		w->graph = NULL;
	}
	pthread_barrier_wait(&meeting);
	for (int i = 0; i < 3 && w->graph; i++)
		launch(r, w);
	check_marks(r, w);
}

static void captured(struct rank *r)
{
	struct work w = {0};

	make(&w, r);
	if (mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) /* else the first call is one of the capture */
		sum(r, r->comm);
	capture(r, &w, make_calls);
	REQUIRE(w.graph);
	for (int turn = 0; turn < launches; turn++) {
		put(r, &w, turn);
		launch(r, &w);
		if (turn % 4 == 1) { /* right behind the launch */
			must(ncclAllReduce(r->in, r->out, COUNT, ncclFloat32, ncclSum, r->comm, r->stream), "sum");
			sum(r, r->comm);
		}
		check(r, &w, turn);
		if (turn % 4 == 3)
			sum(r, r->comm);
	}
	sum(r, r->comm);
	/* The same calls without a graph. */
	put(r, &w, launches);
	make_calls(r, &w);
	check(r, &w, launches);
	if (outlives)
		end_before_the_graph(r, &w);
	if (w.graph)
		CU(DRIVER(cuGraphExecDestroy)(w.graph));
	if (r->comm)
		sum(r, r->comm);
	unmake(&w);
}

/* Two graphs of one communicator, launched one behind the other without a wait. */
static void in_turns(struct rank *r)
{
	struct work w[2] = {{0}};

	for (int k = 0; k < 2; k++) {
		make(&w[k], r);
		capture(r, &w[k], make_calls);
		REQUIRE(w[k].graph);
	}
	for (int turn = 0; turn < launches; turn++) {
		put(r, &w[0], turn);
		put(r, &w[1], turn + 1);
		launch(r, &w[turn % 2]);
		launch(r, &w[turn % 2 == 0]);
		check(r, &w[0], turn);
		check(r, &w[1], turn + 1);
	}
	for (int k = 0; k < 2; k++) {
		CU(DRIVER(cuGraphExecDestroy)(w[k].graph));
		unmake(&w[k]);
	}
}

/* More collectives than the library takes in one group, an operation with a factor, a message to itself. */
static void make_many(const struct rank *r, const struct work *w)
{
	const size_t each = count / CALLS;
	float two = 2;
	ncclRedOp_t op;

	must(ncclRedOpCreatePreMulSum(&op, &two, ncclFloat32, ncclScalarHostImmediate, r->comm), "operation");
	must(ncclGroupStart(), "group");
	for (size_t i = 0; i < CALLS; i++)
		must(ncclAllReduce(w->in + i * each, w->reduced + i * each, each, ncclFloat32, i % 2 ? op : ncclSum,
		                   r->comm, r->stream),
		     "all-reduce");
	must(ncclGroupEnd(), "group");
	must(ncclRedOpDestroy(op, r->comm), "operation");
	must(ncclGroupStart(), "group");
	must(ncclSend(w->in, count, ncclFloat32, r->rank, r->comm, r->stream), "send");
	must(ncclRecv(w->received, count, ncclFloat32, r->rank, r->comm, r->stream), "receive");
	must(ncclGroupEnd(), "group");
}

static void check_many(const struct rank *r, struct work *w, int turn)
{
	const size_t each = count / CALLS;
	size_t wrong[2] = {0};

	read_from(w->host, w->reduced, count * sizeof(float), r->stream);
	for (size_t i = 0; i < CALLS * each; i++)
		wrong[0] += w->host[i] != summed(r->n, turn, i) * (float)(i / each % 2 + 1);
	read_from(w->host, w->received, count * sizeof(float), r->stream);
	for (size_t i = 0; i < count; i++)
		wrong[1] += w->host[i] != element(r->rank, turn, i);
	CHECK(wrong[0] + wrong[1] == 0, "rank %d launch %d: wrong are %zu sums, %zu received", r->rank, turn, wrong[0],
	      wrong[1]);
}

static void many(struct rank *r)
{
	struct work w = {0};

	make(&w, r);
	capture(r, &w, make_many);
	REQUIRE(w.graph);
	for (int turn = 0; turn < launches; turn++) {
		put(r, &w, turn);
		launch(r, &w);
		check_many(r, &w, turn);
	}
	CU(DRIVER(cuGraphExecDestroy)(w.graph));
	unmake(&w);
}

/* ---- All ranks in one thread ----------------------------------------------------------- */

enum { IN_A_GRAPH = 3 };

/* As nccl-tests make a graph of each rank: groups of the calls of all, in streams that are all being captured. */
static void capture_all(struct rank *r, struct work *w, int n)
{
	CUgraph graph[RANKS] = {NULL};

	for (int i = 0; i < n; i++)
		CU(DRIVER(cuStreamBeginCapture_v2)((CUstream)r[i].stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int k = 0; k < IN_A_GRAPH; k++) {
		must(ncclGroupStart(), "group");
		for (int i = 0; i < n; i++) {
			must(ncclAllReduce(w[i].in, w[i].reduced, count, ncclFloat32, ncclSum, r[i].comm, r[i].stream),
			     "sum");
			must(ncclBroadcast(w[i].in, w[i].copied, count, ncclFloat32, n - 1, r[i].comm, r[i].stream),
			     "copy");
			must(ncclSend(w[i].in, count, ncclFloat32, (i + 1) % n, r[i].comm, r[i].stream), "send");
			must(ncclRecv(w[i].received, count, ncclFloat32, (i + n - 1) % n, r[i].comm, r[i].stream),
			     "receive");
		}
		must(ncclGroupEnd(), "group");
		must(ncclGroupStart(), "group");
		for (int i = 0; i < n; i++) {
			must(ncclAllGather(w[i].in, w[i].gathered, count, ncclFloat32, r[i].comm, r[i].stream),
			     "gather");
			must(ncclReduceScatter(w[i].in, w[i].scattered, count, ncclFloat32, ncclSum, r[i].comm,
			                       r[i].stream),
			     "scatter");
		}
		must(ncclGroupEnd(), "group");
	}
	for (int i = 0; i < n; i++) /* all, before the first becomes an executable: none is made during a capture */
		CU(DRIVER(cuStreamEndCapture)((CUstream)r[i].stream, &graph[i]));
	for (int i = 0; i < n; i++) {
		CU(DRIVER(cuGraphInstantiateWithFlags)(&w[i].graph, graph[i], 0));
		CU(DRIVER(cuGraphDestroy)(graph[i]));
	}
}

static void one_thread(int n, size_t elements)
{
	struct rank r[RANKS] = {{0}};
	struct work w[RANKS] = {{0}};
	ncclComm_t comms[RANKS];
	int list[RANKS];

	if (!on_device())
		SKIP("captures are those of devices");
	count = elements;
	pthread_barrier_init(&meeting, NULL, 1);
	for (int i = 0; i < n; i++)
		list[i] = i % devices();
	must(ncclCommInitAll(comms, n, list), "init all");
	for (int i = 0; i < n; i++) {
		use_device(list[i]);
		r[i] = (struct rank){.rank = i, .n = n, .comm = comms[i], .stream = make_stream()};
		make(&w[i], &r[i]);
	}
	capture_all(r, w, n);
	for (int turn = 0; turn < 8; turn++) {
		for (int i = 0; i < n; i++)
			put(&r[i], &w[i], turn);
		for (int i = 0; i < n; i++)
			CU(DRIVER(cuGraphLaunch)(w[i].graph, (CUstream)r[i].stream));
		for (int i = 0; i < n; i++)
			check(&r[i], &w[i], turn);
	}
	for (int i = 0; i < n; i++)
		CU(DRIVER(cuGraphExecDestroy)(w[i].graph));
	for (int i = 0; i < n; i++) {
		unmake(&w[i]);
		must(ncclCommDestroy(comms[i]), "destroy");
		free_stream(r[i].stream);
	}
	pthread_barrier_destroy(&meeting);
}

static void run(int n, size_t elements, bool graph_outlives, void (*body)(struct rank *r))
{
	if (!on_device())
		SKIP("captures are those of devices");
	count = elements;
	launches = count == SHORT ? 20 : 4; /* the stand-in driver takes long for many bytes */
	outlives = graph_outlives;
	mode = n == 2 ? CU_STREAM_CAPTURE_MODE_GLOBAL : CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
	run_ranks(n, body);
}

/* ---- Tests ----------------------------------------------------------------------------- */

TEST(nccl_capture, short_calls_of_two)
{
	run(2, SHORT, false, captured);
}

TEST(nccl_capture, short_calls_of_three)
{
	run(3, SHORT, false, captured);
}

TEST(nccl_capture, long_calls_of_two)
{
	run(2, LONG, false, captured);
}

TEST(nccl_capture, short_calls_outlive_two)
{
	run(2, SHORT, true, captured);
}

TEST(nccl_capture, long_calls_outlive_three)
{
	run(3, LONG, true, captured);
}

TEST(nccl_capture, calls_in_a_stream_aside)
{
	aside = true;
	run(2, SHORT, false, captured);
	run(3, SHORT, true, captured);
	run(2, LONG, false, captured);
	aside = false;
}

TEST(nccl_capture, many_in_a_group)
{
	run(2, SHORT, false, many);
	aside = true;
	run(3, SHORT, false, many);
	aside = false;
}

TEST(nccl_capture, two_graphs_in_turns)
{
	run(2, SHORT, false, in_turns);
	run(3, SHORT, false, in_turns);
}

TEST(nccl_capture, graphs_of_all_ranks_in_one_thread)
{
	one_thread(2, SHORT);
	one_thread(3, SHORT);
	one_thread(RANKS, SHORT);
	one_thread(2, LONG);
}

PROGRAM(nccl_capture, "")
{
	setenv("COLL_DEBUG", "error", 0);
	setenv("COLL_ARRIVAL_TIMEOUT_MS", "60000", 0); /* a defect is an error then, and no wait for ever */
	find_driver();
	return 1;
}
