/*
 * How calls, streams and communicators end while something is still under way: closings that another rank delays,
 * streams that are destroyed or held, calls of which the driver takes a part only.
 *
 * usage: ends FILE-OF-THE-STAND-IN [PART-OF-A-TEST'S-NAME]
 */
#define PLAIN_OWN_MAIN
#include "job.h"

#include <time.h>

#include "device/kernels.h"
#include "driver.h"

enum { COUNT = 1000, LONG = 100000, LIMIT_S = 60 };

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

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

static void a_late_closing_disturbs_no_stream(void)
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

static void a_stream_is_destroyed_with_work(void)
{
	static const char *const staged[] = {"COLL_DEVICE_DIRECT", "0", NULL};

	job_run(2, gone_stream, NULL, NULL, LIMIT_S);
	job_run(2, gone_stream, NULL, staged, LIMIT_S);
}

static void over_the_kernels(void)
{
	SKIP("this build has no kernels");
}

int main(int argc, char **argv)
{
	static const struct plain_case cases[] = {PLAIN_CASE(a_late_closing_disturbs_no_stream),
	                                          PLAIN_CASE(a_stream_is_destroyed_with_work)};

	if (argc < 2)
		return 2;
	driver_path = argv[1];
	setenv("COLL_CUDA_LIBRARY", argv[1], 1);
	setenv("COLL_DEVICE", "cuda", 1);
	unsetenv("CUDA_VISIBLE_DEVICES");
	if (coll_kernels_ptx())
		plain_run_cases("ends", cases, sizeof(cases) / sizeof(cases[0]), argv[2]);
	else
		PLAIN_RUN(over_the_kernels);
	return plain_summary();
}
