/*
 * How calls, streams and communicators end while something is still under way: closings that another rank delays,
 * streams that are destroyed or held, calls of which the driver takes a part only.
 *
 * usage: ends FILE-OF-THE-STAND-IN [PART-OF-A-TEST'S-NAME]
 */
#include "job.h"
#include "tests/seconds.h"

#include <sys/mman.h>
#include <time.h>

#include "base/planted.h"
#include "driver.h"

/* Of the files of the library that are compiled for this program. */
enum coll_planted coll_planted;

enum { COUNT = 1000, LONG = 100000, LIMIT_S = 60 };

/* The context of the library's device, for calls of the driver by this thread. */
static void bind(const struct job_rank *r)
{
	CUcontext context = NULL;

	if (DRIVER(cuDevicePrimaryCtxRetain)(&context, 0) != CUDA_SUCCESS ||
	    DRIVER(cuCtxSetCurrent)(context) != CUDA_SUCCESS)
		job_wrong(r, "no context");
}

/* A stream of the user, and the library's view of it. */
static coll_stream *make_stream(const struct job_rank *r, void **handle)
{
	coll_stream *stream = NULL;

	bind(r);
	if (DRIVER(cuStreamCreate)((CUstream *)handle, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS)
		job_wrong(r, "no stream");
	job_ok(r, coll_stream_wrap_cuda(&stream, r->comm, *handle), "a stream");
	return stream;
}

static void sum(const struct job_rank *r, const int *in, int *out, size_t n, coll_stream *stream, const char *what)
{
	job_ok(r, coll_all_reduce(in, out, n, COLL_I32, COLL_SUM, r->comm, stream), what);
}

/* ---- A closing that another rank delays ---- */

/* Rank 0 has destroyed a child, and its stream waits for rank 1, which destroys the child before it comes. */
static void late_closing(struct job_rank *r)
{
	int *x = job_memory(r, LONG), *y = job_memory(r, LONG);
	coll_comm *child = NULL;
	coll_stream *stream;
	void *handle;

	job_fill(r, x, LONG, 1);
	stream = make_stream(r, &handle);
	job_ok(r, coll_comm_split(r->comm, 0, r->rank, &child), "a child");
	job_meet(r, 0);
	if (r->rank == 0) {
		job_ok(r, coll_comm_destroy(&child), "the end of the child");
		sum(r, x, y, LONG, stream, "a call");
		job_meet(r, 1);
	} else {
		job_meet(r, 1);
		job_ok(r, coll_comm_destroy(&child), "the end of the child");
		/* Rank 0's progress thread sees that the child has ended. */
		poll(NULL, 0, 200);
		sum(r, x, y, LONG, stream, "a call");
	}
	job_ok(r, coll_stream_wait(stream, -1), "the stream");
	job_check(r, y, LONG, 1, "a call");
	job_ok(r, coll_stream_destroy(&stream), "the end of the stream");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(ends, a_late_closing_disturbs_no_stream)
{
	static const char *const staged[] = {"COLL_DEVICE_DIRECT", "0", NULL};

	job_run(2, late_closing, NULL, NULL, LIMIT_S);
	job_run(2, late_closing, NULL, staged, LIMIT_S);
}

/* ---- A stream that is gone ---- */

/* The program may destroy a stream that still has work. The library asks the driver meanwhile. */
static void gone_stream(struct job_rank *r)
{
	int *x = job_memory(r, COUNT), *y = job_memory(r, COUNT);
	coll_stream *stream;
	long asked;
	void *handle;

	job_fill(r, x, COUNT, 1);
	stream = make_stream(r, &handle);
	if (r->rank == 0) {
		sum(r, x, y, COUNT, stream, "a call");
		if (DRIVER(cuStreamDestroy_v2)(handle) != CUDA_SUCCESS)
			job_wrong(r, "cannot destroy the stream");
		asked = driver_calls("cuStreamQuery");
		while (coll_stream_query(stream) == COLL_AGAIN && driver_calls("cuStreamQuery") == asked)
			poll(NULL, 0, 1);
	}
	job_meet(r, 0);
	if (r->rank == 1)
		sum(r, x, y, COUNT, stream, "a call");
	job_ok(r, coll_stream_wait(stream, -1), "the stream");
	job_check(r, y, COUNT, 1, "a call");
	job_ok(r, coll_stream_destroy(&stream), "the end of the stream");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(ends, a_stream_is_destroyed_with_work)
{
	static const char *const staged[] = {"COLL_DEVICE_DIRECT", "0", NULL};

	job_run(2, gone_stream, NULL, NULL, LIMIT_S);
	job_run(2, gone_stream, NULL, staged, LIMIT_S);
}

/* ---- A stream that is held ---- */

struct held_call {
	coll_stream *stream;
	void *handle;
	_Atomic uint32_t *word; /* rank 0: 1 lets the stream go on */
	int *x, *y;             /* of n elements */
	size_t n;
};

/* The stream waits until the word is 1. */
static _Atomic uint32_t *hold(const struct job_rank *r, void *stream)
{
	_Atomic uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CUdeviceptr at = 0;

	if (DRIVER(cuMemHostRegister_v2)((void *)word, 4096, CU_MEMHOSTREGISTER_DEVICEMAP) != CUDA_SUCCESS ||
	    DRIVER(cuMemHostGetDevicePointer_v2)(&at, (void *)word, 0) != CUDA_SUCCESS ||
	    DRIVER(cuStreamWaitValue32_v2)(stream, at, 1, CU_STREAM_WAIT_VALUE_GEQ) != CUDA_SUCCESS)
		job_wrong(r, "cannot hold the stream");
	return word;
}

/* The program lets the stream go on: it ends in order, and nothing was written. */
static void let_go(const struct job_rank *r, const struct held_call *c)
{
	int *x = malloc(c->n * sizeof(*x));

	atomic_store(c->word, 1);
	if (DRIVER(cuStreamSynchronize)(c->handle) != CUDA_SUCCESS)
		job_wrong(r, "the stream does not end in order");
	if (!cuda_user_read(x, c->y, c->n * sizeof(*x)))
		job_wrong(r, "cannot read device memory");
	for (size_t i = 0; i < c->n; i++)
		if (x[i] != -1) {
			job_wrong(r, "element %zu was written after the end of the communicator", i);
			break;
		}
	free(x);
}

/* Device memory of the program's own, which outlives the communicator: -1 everywhere. */
static int *own_memory(const struct job_rank *r, size_t n)
{
	int *x = malloc(n * sizeof(*x));
	CUdeviceptr at = 0;

	memset(x, 0xff, n * sizeof(*x));
	if (DRIVER(cuMemAlloc_v2)(&at, n * sizeof(*x)) != CUDA_SUCCESS ||
	    !cuda_user_write((void *)(uintptr_t)at, x, n * sizeof(*x)))
		job_wrong(r, "no memory");
	free(x);
	return (int *)(uintptr_t)at;
}

/* A stream and memory for a call; that of rank 0 is held. */
static void prepare_held(struct job_rank *r, struct held_call *c, size_t n, bool held)
{
	c->stream = make_stream(r, &c->handle);
	c->n = n;
	c->x = own_memory(r, n);
	c->y = own_memory(r, n);
	c->word = held && r->rank == 0 ? hold(r, c->handle) : NULL;
}

static void call_held(struct job_rank *r, struct held_call *c)
{
	prepare_held(r, c, COUNT, true);
	sum(r, c->x, c->y, COUNT, c->stream, "a call");
	job_meet(r, 0);
}

static void held(struct job_rank *r)
{
	struct held_call c;
	double begun;

	call_held(r, &c);
	begun = now_s();
	if (r->rank == 0)
		job_ok(r, coll_comm_abort(r->comm, "held"), "abort");
	if (coll_stream_wait(c.stream, -1) == COLL_OK)
		job_wrong(r, "no error");
	coll_stream_destroy(&c.stream);
	coll_comm_destroy(&r->comm);
	if (now_s() - begun > 30)
		job_wrong(r, "the end took %.0f s", now_s() - begun);
	if (r->rank == 0)
		let_go(r, &c);
}

TEST(ends, an_abort_waits_for_no_held_stream)
{
	static const char *const staged[] = {"COLL_DEVICE_DIRECT", "0", NULL};

	job_run(2, held, NULL, NULL, LIMIT_S);
	job_run(2, held, NULL, staged, LIMIT_S);
}

/* Rank 0 aborts before its stream has come to the call, and the stream then passes over it. Rank 1 looks when all of
 * that has happened: its kernels have read a slot that was not filled. */
static void passed_over(struct job_rank *r)
{
	struct held_call c;
	coll_status st;

	call_held(r, &c);
	if (r->rank == 0) {
		job_ok(r, coll_comm_abort(r->comm, "passed over"), "abort");
		coll_stream_wait(c.stream, -1);
		let_go(r, &c);
	}
	job_meet(r, 1);
	if (r->rank == 1) {
		st = coll_stream_wait(c.stream, -1);
		if (st == COLL_OK || !strstr(coll_last_error(r->comm)->message, "passed over"))
			job_wrong(r, "a call that rank 0 passed over is %d", (int)st);
	}
	coll_stream_destroy(&c.stream);
	coll_comm_destroy(&r->comm);
}

TEST(ends, what_a_rank_passed_over_is_no_result)
{
	static const char *const staged[] = {"COLL_DEVICE_DIRECT", "0", "COLL_PROGRESS", "off", NULL};
	static const char *const direct[] = {"COLL_PROGRESS", "off", NULL};

	job_run(2, passed_over, NULL, direct, LIMIT_S);
	job_run(2, passed_over, NULL, staged, LIMIT_S);
}

/* ---- A call of which the driver takes a part ---- */

struct broken {
	int launch; /* the one that the driver refuses, of rank 0 */
	bool held;
};

static void broken(struct job_rank *r)
{
	const struct broken *how = r->arg;
	struct held_call c;
	coll_status st;

	prepare_held(r, &c, LONG, how->held);
	job_meet(r, 0);
	if (r->rank == 0)
		((void (*)(const char *, int, int))driver_symbol("softcuda_refuse"))(
		        "cuLaunchKernel", how->launch, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
	st = coll_all_reduce(c.x, c.y, LONG, COLL_I32, COLL_SUM, r->comm, c.stream);
	if (st == COLL_OK)
		st = coll_stream_wait(c.stream, -1);
	job_said(r, r->comm, st);
	if (st == COLL_OK || !strstr(coll_last_error(r->comm)->message, "701"))
		job_wrong(r, "the error is %d %s", (int)st, coll_last_error(r->comm)->message);
	coll_stream_destroy(&c.stream);
	coll_comm_destroy(&r->comm);
	if (c.word)
		let_go(r, &c);
	else if (driver_calls("cuMemHostRegister") != driver_calls("cuMemHostUnregister"))
		job_wrong(r, "%ld ranges stay pinned",
		          driver_calls("cuMemHostRegister") - driver_calls("cuMemHostUnregister"));
}

TEST(ends, a_call_that_is_enqueued_in_part_ends)
{
	static const struct broken first = {0, true}, second = {1, true}, free_running = {1, false};
	static const char *const staged[] = {"COLL_DEVICE_DIRECT", "0", NULL};

	job_run(2, broken, &first, NULL, LIMIT_S);
	job_run(2, broken, &second, staged, LIMIT_S);
	job_run(2, broken, &free_running, NULL, LIMIT_S);
	job_run(2, broken, &free_running, staged, LIMIT_S);
}

/* ---- Numbers come round ---- */

/* Messages in both directions, which need more than the slots: they leave those in turns. */
static void exchange(const struct job_rank *r, coll_stream *stream)
{
	enum { MANY = 9 << 18 };
	int *x = job_memory(r, MANY), *y = job_memory(r, MANY), *host = malloc(MANY * sizeof(*host));

	job_fill(r, x, MANY, 3);
	job_fill(r, y, MANY, 77);
	job_ok(r, coll_group_begin(), "a group");
	job_ok(r, coll_send(x, MANY, COLL_I32, !r->rank, r->comm, stream), "send");
	job_ok(r, coll_recv(y, MANY, COLL_I32, !r->rank, r->comm, stream), "recv");
	job_ok(r, coll_group_end(), "a group");
	job_ok(r, coll_stream_wait(stream, -1), "messages");
	if (!cuda_user_read(host, y, MANY * sizeof(*host)))
		job_wrong(r, "cannot read device memory");
	for (int i = 0; i < MANY; i++)
		if (host[i] != !r->rank + 3 + i % 1000) {
			job_wrong(r, "messages in turns: element %d is %d", i, host[i]);
			break;
		}
	free(host);
}

/* After 20 calls that take 2^27 numbers each, words that none of them has used are more than 2^31 behind. */
static void round_numbers(struct job_rank *r)
{
	int *x = job_memory(r, COUNT), *y = job_memory(r, COUNT), *host = malloc(COUNT * sizeof(*host));
	_Atomic uint32_t *word = NULL;
	void *handle;
	coll_stream *stream = make_stream(r, &handle);

	job_fill(r, x, COUNT, 1);
	for (int i = 0; i < 20; i++)
		sum(r, x, y, COUNT, i % 2 ? stream : NULL, "one of many calls");
	job_ok(r, coll_stream_wait(stream, -1), "many calls");
	job_check(r, y, COUNT, 1, "many calls");
	for (int i = 0; i < COUNT; i++)
		host[i] = r->rank + 1;
	sum(r, host, host, COUNT, NULL, "host memory");
	for (int i = 0; i < COUNT; i++)
		if (host[i] != 3)
			job_wrong(r, "host memory: element %d is %d", i, host[i]);
	job_fill(r, x, COUNT, 5);
	/* The message leaves when the stream of its sender comes to it, and not before. */
	if (r->rank == 0) {
		word = hold(r, handle);
		job_ok(r, coll_send(x, COUNT, COLL_I32, 1, r->comm, stream), "send");
	} else {
		job_fill(r, y, COUNT, 77);
		job_ok(r, coll_recv(y, COUNT, COLL_I32, 0, r->comm, stream), "recv");
	}
	poll(NULL, 0, 100);
	if (coll_stream_query(stream) != COLL_AGAIN)
		job_wrong(r, "the message is over before it was sent");
	job_meet(r, 0);
	if (word)
		atomic_store(word, 1);
	job_ok(r, coll_stream_wait(stream, -1), "the message");
	if (!cuda_user_read(host, r->rank == 0 ? x : y, COUNT * sizeof(*host)))
		job_wrong(r, "cannot read device memory");
	for (int i = 0; i < COUNT; i++)
		if (host[i] != 5 + i) {
			job_wrong(r, "the message: element %d is %d", i, host[i]);
			break;
		}
	free(host);
	exchange(r, stream);
	coll_stream_destroy(&stream);
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(ends, idle_words_are_brought_forward)
{
	static const char *const staged[] = {"COLL_DEVICE_DIRECT", "0", NULL};

	coll_planted = COLL_PLANTED_MANY_NUMBERS;
	job_run(2, round_numbers, NULL, NULL, LIMIT_S);
	job_run(2, round_numbers, NULL, staged, LIMIT_S);
	coll_planted = COLL_PLANTED_NONE;
}

/* ---- Long calls ---- */

static void is_value(const struct job_rank *r, const int *device, size_t n, int first, const char *what)
{
	int *x = malloc(n * sizeof(*x));

	if (!cuda_user_read(x, device, n * sizeof(*x)))
		job_wrong(r, "cannot read device memory");
	for (size_t i = 0; i < n; i++)
		if (x[i] != first + (int)(i % 1000)) {
			job_wrong(r, "%s: element %zu is %d, not %d", what, i, x[i], first + (int)(i % 1000));
			break;
		}
	free(x);
}

/* The thread that makes a call is the one that lets its stream go on: the call returns before. */
static void long_calls(struct job_rank *r)
{
	enum { BLOCK = 4500 * 1000, ALL = 2 * BLOCK };
	int *x = job_memory(r, ALL), *y = job_memory(r, ALL);
	_Atomic uint32_t *word;
	coll_stream *stream;
	void *handle;

	stream = make_stream(r, &handle);
	job_fill(r, x, ALL, 1);
	word = hold(r, handle);
	sum(r, x, y, ALL, stream, "a long call");
	atomic_store(word, 1);
	job_ok(r, coll_stream_wait(stream, -1), "the stream");
	job_check(r, y, ALL, 1, "a long call");
	word = hold(r, handle);
	job_ok(r, coll_all_gather(x, y, BLOCK, COLL_I32, r->comm, stream), "long blocks");
	atomic_store(word, 1);
	job_ok(r, coll_stream_wait(stream, -1), "the stream");
	is_value(r, y, BLOCK, 1, "the block of rank 0");
	is_value(r, y + BLOCK, BLOCK, 2, "the block of rank 1");
	word = hold(r, handle);
	if (r->rank == 0)
		job_ok(r, coll_send(x, ALL, COLL_I32, 1, r->comm, stream), "a long send");
	else
		job_ok(r, coll_recv(x, ALL, COLL_I32, 0, r->comm, stream), "a long receive");
	atomic_store(word, 1);
	job_ok(r, coll_stream_wait(stream, -1), "the stream");
	is_value(r, x, ALL, 1, "a long message");
	job_ok(r, coll_stream_destroy(&stream), "the end of the stream");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(ends, long_calls_return_before_their_end)
{
	static const char *const staged[] = {"COLL_DEVICE_DIRECT", "0", NULL};

	job_run(2, long_calls, NULL, staged, LIMIT_S);
}

/* ---- Drivers that cannot ---- */

/* In a process of its own. */
static void create_without_memops(const void *arg, int child)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;
	coll_status st;

	setenv("SOFTCUDA_NO_MEMOPS", "1", 1);
	cfg.log = job_quiet;
	st = coll_comm_create_all(&comm, 1, &cfg);
	snprintf(job_page->of[0].said, JOB_TEXT, "%s", coll_last_error(NULL)->message);
	_exit(st == COLL_ERR_CONFIG && !comm ? 0 : 1);
}

TEST(ends, a_driver_without_memory_operations_is_refused)
{
	pid_t pid;

	meeting_start(&pid, 1, job_page, sizeof(*job_page), create_without_memops, NULL);
	job_judge(&pid, 1, LIMIT_S, -1);
	CHECK(strstr(job_page->of[0].said, "COLL-1118") && strstr(job_page->of[0].said, "cuStreamWaitValue32"), "%s",
	      job_page->of[0].said);
}

PROGRAM(ends, "DRIVER")
{
	driver_path = argc > 1 ? argv[1] : NULL;
	return job_begin(argc, argv);
}
