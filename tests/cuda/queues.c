/*
 * Calls in several streams over few hardware queues: what is right, and what ends by an error that tells why.
 * The queues of the stand-in belong to a process and a device.
 *
 * usage: queues FILE-OF-THE-STAND-IN [PART-OF-A-TEST'S-NAME]
 */
#include "job.h"

#include "device/kernels.h"
#include "driver.h"

enum { COUNT = 3000, LONG = 300000, ROUNDS = 8, MANY = 64, LIMIT_S = 120, LATE_MS = 3000 };

struct lane {
	void *handle;
	coll_stream *stream;
	int *x;
};

static bool open_lane(const struct job_rank *r, struct lane *l, coll_comm *comm, size_t n)
{
	l->x = job_memory(r, n);
	if (!l->x || !cuda_user_stream(l->x, &l->handle))
		return false;
	return job_ok(r, coll_stream_wrap_cuda(&l->stream, comm, l->handle), "a stream");
}

static void close_lane(const struct job_rank *r, struct lane *l)
{
	coll_stream_destroy(&l->stream); /* the result is its error */
	cuda_user_stream_destroy(l->handle);
	job_ok(r, coll_mem_free(r->comm, l->x), "the end of memory");
}

static coll_status sum(struct lane *l, size_t n, coll_comm *comm)
{
	return coll_all_reduce(l->x, l->x, n, COLL_I32, COLL_SUM, comm, l->stream);
}

/* ---- What is right ---- */

static void two_communicators(struct job_rank *r)
{
	coll_comm *comms[2] = {r->comm, NULL};
	struct lane lanes[2];

	if (!job_ok(r, coll_comm_duplicate(r->comm, &comms[1]), "duplicate"))
		return;
	for (int i = 0; i < 2; i++)
		if (!open_lane(r, &lanes[i], comms[i], LONG))
			return;
	for (int k = 0; k < ROUNDS; k++) {
		const size_t n = k % 2 ? COUNT : LONG;

		for (int i = 0; i < 2; i++)
			job_fill(r, lanes[i].x, n, 10 * k + i);
		for (int i = 0; i < 2; i++)
			job_ok(r, sum(&lanes[i], n, comms[i]), "a sum");
		for (int i = 0; i < 2; i++)
			job_ok(r, coll_stream_wait(lanes[i].stream, -1), "a wait");
		for (int i = 0; i < 2; i++)
			job_check(r, lanes[i].x, n, 10 * k + i, "two communicators");
	}
	for (int i = 0; i < 2; i++)
		close_lane(r, &lanes[i]);
	job_ok(r, coll_comm_destroy(&comms[1]), "the end of the duplicate");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

static void many_streams(struct job_rank *r)
{
	struct lane lanes[MANY];

	for (int i = 0; i < MANY; i++)
		if (!open_lane(r, &lanes[i], r->comm, COUNT))
			return;
	for (int k = 0; k < ROUNDS / 2; k++) {
		for (int i = 0; i < MANY; i++)
			job_fill(r, lanes[i].x, COUNT, 100 * k + i);
		for (int i = 0; i < MANY; i++)
			job_ok(r, sum(&lanes[(i * 7 + k) % MANY], COUNT, r->comm), "a sum");
		for (int i = 0; i < MANY; i++)
			job_ok(r, coll_stream_wait(lanes[i].stream, -1), "a wait");
		for (int i = 0; i < MANY; i++)
			job_check(r, lanes[i].x, COUNT, 100 * k + i, "many streams");
	}
	for (int i = 0; i < MANY; i++)
		close_lane(r, &lanes[i]);
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

/* Calls of one length, so that words of the call before are those that this one waits for. */
static void in_a_row(struct job_rank *r)
{
	struct lane l;

	if (!open_lane(r, &l, r->comm, COUNT))
		return;
	for (int k = 0; k < 4 * ROUNDS && !r->page->of[r->rank].wrong[0]; k++) {
		job_fill(r, l.x, COUNT, 10 * k);
		job_ok(r, sum(&l, COUNT, r->comm), "a sum");
		job_ok(r, coll_stream_wait(l.stream, -1), "a wait");
		job_check(r, l.x, COUNT, 10 * k, "calls in a row");
	}
	close_lane(r, &l);
	coll_comm_destroy(&r->comm); /* which fails if the other rank has found a wrong sum and gone */
}

/* ---- Messages that the ranks group differently ---- */

enum { MESSAGE = 4 << 20 };

static void check_message(const struct job_rank *r, const int *device, const char *what)
{
	int *x = malloc((size_t)MESSAGE * sizeof(*x));
	size_t wrong = 0;

	if (!cuda_user_read(x, device, (size_t)MESSAGE * sizeof(*x)))
		job_wrong(r, "cannot read device memory");
	for (size_t i = 0; i < MESSAGE; i++)
		wrong += x[i] != !r->rank + 7 + (int)(i % 1000);
	if (wrong)
		job_wrong(r, "%s: %zu of %d elements", what, wrong, MESSAGE);
	free(x);
}

/* Rank 0 sends and receives at once, rank 1 receives and sends then; blocking, or in a stream. */
static void exchange(struct job_rank *r, coll_stream *s, bool one_call, int *in, int *out)
{
	coll_status st;

	if (r->rank == 1) {
		job_ok(r, coll_recv(out, MESSAGE, COLL_I32, 0, r->comm, s), "a receive");
		job_ok(r, coll_send(in, MESSAGE, COLL_I32, 0, r->comm, s), "a send");
	} else if (one_call) {
		st = coll_send_recv(in, MESSAGE, 1, out, MESSAGE, 1, COLL_I32, r->comm, s);
		job_ok(r, st, "an exchange");
	} else {
		job_ok(r, coll_group_begin(), "a group");
		job_ok(r, coll_send(in, MESSAGE, COLL_I32, 1, r->comm, s), "a send");
		job_ok(r, coll_recv(out, MESSAGE, COLL_I32, 1, r->comm, s), "a receive");
		job_ok(r, coll_group_end(), "a group");
	}
	if (s)
		job_ok(r, coll_stream_wait(s, -1), "a wait");
	check_message(r, out, s ? "in a stream" : "blocking");
}

static void exchanges(struct job_rank *r)
{
	int *in = job_memory(r, MESSAGE), *out = job_memory(r, MESSAGE);
	struct lane l;

	if (!in || !out || !open_lane(r, &l, r->comm, COUNT))
		return;
	job_fill(r, in, MESSAGE, 7);
	for (int i = 0; i < 4; i++) {
		job_fill(r, out, MESSAGE, 0);
		exchange(r, i & 1 ? l.stream : NULL, i & 2, in, out);
	}
	close_lane(r, &l);
	job_ok(r, coll_mem_free(r->comm, in), "the end of memory");
	job_ok(r, coll_mem_free(r->comm, out), "the end of memory");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

/* ---- Behind work that waits ---- */

struct watch {
	atomic_bool returned, held_up;
	_Atomic uint32_t *word;
};

/* Store the word when the call has returned, or when the driver holds it up. */
static void *let_go(void *arg)
{
	struct watch *w = arg;
	int held_up = 0;

	while (!atomic_load(&w->returned) && held_up < 500) {
		held_up = ((int (*)(void))driver_symbol("softcuda_blocked"))() > 0 ? held_up + 1 : 0;
		poll(NULL, 0, 1);
	}
	atomic_store(&w->held_up, !atomic_load(&w->returned));
	atomic_store(w->word, 1);
	return NULL;
}

/* The stream waits for what the program stores after the call: so the call may not wait for the stream. It is the
 * first call of all, and the driver makes nothing in it. */
static void behind_a_wait(struct job_rank *r)
{
	static const char *const makes[] = {"cuStreamCreate",  "cuEventCreate",      "cuMemAlloc",
	                                    "cuMemFree",       "cuMemHostRegister",  "cuModuleLoadData",
	                                    "cuStreamDestroy", "cuMemHostAlloc",     "cuModuleGetFunction",
	                                    "cuMemCreate",     "cuStreamSynchronize"};
	long before[sizeof(makes) / sizeof(makes[0])];
	struct lane l;
	CUdeviceptr at = 0;
	void *word = NULL;

	driver_path = getenv("COLL_CUDA_LIBRARY");
	if (!open_lane(r, &l, r->comm, LONG) ||
	    DRIVER(cuMemHostAlloc)(&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP) != CUDA_SUCCESS ||
	    DRIVER(cuMemHostGetDevicePointer_v2)(&at, word, 0) != CUDA_SUCCESS) {
		job_wrong(r, "no memory for a word");
		return;
	}
	for (int k = 0; k < 4; k++) {
		const size_t n = k % 2 ? LONG : COUNT;
		struct watch w = {.word = word};
		pthread_t thread;

		job_fill(r, l.x, n, k);
		atomic_store(w.word, 0);
		for (size_t i = 0; i < sizeof(makes) / sizeof(makes[0]); i++)
			before[i] = driver_calls(makes[i]);
		DRIVER(cuStreamWaitValue32_v2)(l.handle, at, 1, CU_STREAM_WAIT_VALUE_GEQ);
		pthread_create(&thread, NULL, let_go, &w);
		job_ok(r, sum(&l, n, r->comm), "a sum");
		atomic_store(&w.returned, true);
		pthread_join(thread, NULL);
		if (atomic_load(&w.held_up))
			job_wrong(r, "call %d waits for its stream", k);
		job_ok(r, coll_stream_wait(l.stream, -1), "a wait");
		for (size_t i = 0; i < sizeof(makes) / sizeof(makes[0]); i++)
			if (driver_calls(makes[i]) != before[i])
				job_wrong(r, "call %d calls %s", k, makes[i]);
		job_check(r, l.x, n, k, "behind a wait");
	}
	close_lane(r, &l);
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

/* ---- Orders ---- */

/* Rank 0 begins with the first communicator, rank 1 with the second. */
static void opposite_orders(struct job_rank *r)
{
	const bool fails = r->arg != NULL;
	coll_comm *comms[2] = {r->comm, NULL};
	struct lane lanes[2];
	coll_status st[2];

	if (!job_ok(r, coll_comm_duplicate(r->comm, &comms[1]), "duplicate"))
		return;
	for (int i = 0; i < 2; i++) {
		if (!open_lane(r, &lanes[i], comms[i], COUNT))
			return;
		job_fill(r, lanes[i].x, COUNT, i);
	}
	for (int k = 0; k < 2; k++) {
		const int i = k ^ r->rank;

		job_ok(r, sum(&lanes[i], COUNT, comms[i]), "a sum");
	}
	for (int i = 0; i < 2; i++)
		st[i] = coll_stream_wait(lanes[i].stream, -1);
	for (int i = 0; i < 2; i++) {
		if (st[i] != COLL_OK) {
			job_said(r, comms[i], st[i]);
			if (!fails)
				job_ok(r, st[i], "opposite orders");
		} else {
			job_check(r, lanes[i].x, COUNT, i, "opposite orders");
		}
	}
	if (fails && st[0] == COLL_OK && st[1] == COLL_OK)
		job_wrong(r, "both calls are right: over one queue they cannot be");
	for (int i = 0; i < 2; i++)
		close_lane(r, &lanes[i]);
	coll_comm_destroy(&comms[1]);
	coll_comm_destroy(&r->comm);
}

static void over(const char *queues, int ranks, job_fn fn, const void *arg, const char *transports)
{
	const char *late = arg ? "3000" : "60000";
	const char *const environment[] = {"SOFTCUDA_QUEUES",
	                                   queues,
	                                   "SOFTCUDA_SEED",
	                                   "7",
	                                   "COLL_TRANSPORTS",
	                                   transports,
	                                   "COLL_ARRIVAL_TIMEOUT_MS",
	                                   late,
	                                   NULL};

	job_run(ranks, fn, arg, environment, LIMIT_S);
}

TEST(queues, two_communicators_on_two_streams)
{
	over("8", 2, two_communicators, NULL, "shm");
	over("1", 2, two_communicators, NULL, "shm");
	over("1", 3, two_communicators, NULL, "tcp");
}

TEST(queues, calls_in_a_row)
{
	static const char *const environment[] = {
	        "SOFTCUDA_SEED", "7", "COLL_TRANSPORTS", "shm", "COLL_ARRIVAL_TIMEOUT_MS", "3000", NULL};

	job_run(2, in_a_row, NULL, environment, 15);
}

TEST(queues, sixty_four_streams)
{
	over("8", 2, many_streams, NULL, "shm");
	over("1", 2, many_streams, NULL, "shm");
}

TEST(queues, exchanges_with_one_after_the_other)
{
	over("8", 2, exchanges, NULL, "shm");
	over("1", 2, exchanges, NULL, "shm");
}

TEST(queues, calls_return_behind_work_that_waits)
{
	over("8", 2, behind_a_wait, NULL, "shm");
	over("1", 2, behind_a_wait, NULL, "tcp");
}

TEST(queues, launches_that_block)
{
	static const char *const environment[] = {
	        "CUDA_LAUNCH_BLOCKING", "1", "SOFTCUDA_SEED", "5", "COLL_TRANSPORTS", "shm", NULL};

	job_run(2, two_communicators, NULL, environment, LIMIT_S);
	job_run(2, many_streams, NULL, environment, LIMIT_S);
}

TEST(queues, two_orders_with_a_queue_each)
{
	over("8", 2, opposite_orders, NULL, "shm");
	over("8", 2, opposite_orders, NULL, "tcp");
}

/* The error names both calls, by the communicator and the number. */
TEST(queues, two_orders_in_one_queue)
{
	static const char *const transports[] = {"shm", "tcp"};

	for (int t = 0; t < 2; t++) {
		over("1", 2, opposite_orders, "fails", transports[t]);
		for (int i = 0; i < 2; i++) {
			const char *said = job_page->of[i].said;

			CHECK(job_page->of[i].status == COLL_ERR_PEER_LATE, "rank %d: %d %s", i,
			      (int)job_page->of[i].status, said);
			CHECK(strstr(said, "shared hardware queue"), "rank %d: %s", i, said);
			CHECK(strstr(said, "all_reduce") && strstr(strstr(said, "all_reduce") + 1, "all_reduce"),
			      "rank %d: %s", i, said);
		}
	}
}

/* ---- Threads that share a device ---- */

static void blocking_sums(struct job_rank *r)
{
	int *x = job_memory(r, LONG);

	job_meet(r, 0);
	for (int k = 0; x && k < ROUNDS; k++) {
		const size_t n = k % 2 ? COUNT : LONG;

		job_fill(r, x, n, k);
		if (!job_ok(r, coll_all_reduce(x, x, n, COLL_I32, COLL_SUM, r->comm, NULL), "a sum"))
			break;
		job_check(r, x, n, k, "blocking sums");
	}
	coll_mem_free(r->comm, x);
	coll_comm_destroy(&r->comm);
}

static void blocking_groups(struct job_rank *r)
{
	const int next = (r->rank + 1) % r->size, previous = (r->rank + r->size - 1) % r->size;
	int *x = job_memory(r, LONG), *y = job_memory(r, LONG), got = -1;

	for (int k = 0; x && y && k < ROUNDS; k++) {
		coll_status st;

		job_fill(r, x, LONG, k);
		coll_group_begin();
		coll_send(x, LONG, COLL_I32, next, r->comm, NULL);
		coll_recv(y, LONG, COLL_I32, previous, r->comm, NULL);
		st = coll_group_end();
		if (!job_ok(r, st, "a group") || !cuda_user_read(&got, y, sizeof(got)))
			break;
		if (got != previous + k)
			job_wrong(r, "round %d: %d, expected %d", k, got, previous + k);
	}
	coll_mem_free(r->comm, x);
	coll_mem_free(r->comm, y);
	coll_comm_destroy(&r->comm);
}

static void streamed_sum(struct job_rank *r)
{
	struct lane l;
	coll_status st;

	if (!open_lane(r, &l, r->comm, COUNT))
		return;
	job_fill(r, l.x, COUNT, 1);
	/* The driver makes nothing while a stream of the process waits. */
	job_meet(r, 0);
	/* What rank 0 has enqueued is in front of all that the others enqueue. */
	if (r->rank != 0)
		job_meet(r, 2);
	st = sum(&l, COUNT, r->comm);
	if (r->rank == 0)
		job_meet(r, 2);
	if (st == COLL_OK)
		st = coll_stream_wait(l.stream, -1);
	job_said(r, r->comm, st);
	if (st == COLL_OK)
		job_check(r, l.x, COUNT, 1, "a sum in a stream");
	job_meet(r, 1);
	close_lane(r, &l);
	coll_comm_destroy(&r->comm);
}

static void threads_over(const char *queues, int n, job_fn fn, const char *late)
{
	const char *const environment[] = {
	        "SOFTCUDA_QUEUES", queues, "SOFTCUDA_SEED", "9", "COLL_ARRIVAL_TIMEOUT_MS", late, NULL};

	job_run_threads(n, fn, environment, LIMIT_S);
}

TEST(queues, threads_with_a_queue_each)
{
	threads_over("32", 3, streamed_sum, "60000");
	for (int i = 0; i < 3; i++)
		CHECK(job_page->of[i].status == COLL_OK, "rank %d: %s", i, job_page->of[i].said);
}

TEST(queues, threads_in_one_queue_that_block)
{
	threads_over("1", 2, blocking_sums, "10000");
	threads_over("1", 3, blocking_sums, "10000");
	threads_over("1", 2, blocking_groups, "10000");
	threads_over("1", 3, blocking_groups, "10000");
}

TEST(queues, threads_in_one_queue_on_streams)
{
	threads_over("1", 2, streamed_sum, "2000");
	for (int i = 0; i < 2; i++) {
		const char *said = job_page->of[i].said;

		CHECK(job_page->of[i].status == COLL_ERR_PEER_LATE, "rank %d: %d %s", i, (int)job_page->of[i].status,
		      said);
		/* "rank 0 of 2: " begins each error of rank 0. */
		said = strchr(said, ':') ? strchr(said, ':') : said;
		CHECK(strstr(said, "shared hardware queue") && strstr(said, "rank 0") && strstr(said, "rank 1"),
		      "rank %d: %s", i, said);
	}
}

PROGRAM(queues, "DRIVER")
{
	return job_begin(argc, argv);
}
