/*
 * Events in streams of the device: they return the error of a call before them, which names the lost rank, and a stream
 * that waits for one runs its work behind that call.
 *
 * usage: events FILE-OF-THE-STAND-IN [PART-OF-A-TEST'S-NAME]
 */
#include "job.h"

#include "driver.h"

enum { RANKS = 3, VICTIM = 1, LONG = 200000, LIMIT_S = 60 };

/* Two streams of the device, and an event. */
struct things {
	int *in, *out, *copy;
	void *handle[2];
	coll_stream *stream[2];
	coll_event *event;
};

static void open_things(const struct job_rank *r, struct things *t)
{
	*t = (struct things){.in = job_memory(r, LONG), .out = job_memory(r, LONG), .copy = job_memory(r, LONG)};
	for (int i = 0; i < 2; i++) {
		if (!cuda_user_stream(t->in, &t->handle[i]))
			job_wrong(r, "no stream");
		job_ok(r, coll_stream_wrap_cuda(&t->stream[i], r->comm, t->handle[i]), "a stream");
	}
	job_ok(r, coll_event_create(&t->event, r->comm), "an event");
	job_fill(r, t->in, LONG, 1);
}

static void sum(const struct job_rank *r, const struct things *t, const char *what)
{
	job_ok(r, coll_all_reduce(t->in, t->out, LONG, COLL_I32, COLL_SUM, r->comm, t->stream[0]), what);
	job_ok(r, coll_event_record(t->event, t->stream[0]), what);
}

/* ---- Errors ---- */

enum blow { KILL, ABORT };

/* The event is that of the error, and so is a stream that waits for it. */
static void must_name_the_victim(const struct job_rank *r, const char *what, coll_status st)
{
	if (st == COLL_OK || st == COLL_AGAIN || coll_last_error(r->comm)->rank != VICTIM)
		job_wrong(r, "%s: %d %s", what, (int)st, coll_last_error(r->comm)->message);
}

static void loses_a_rank(struct job_rank *r)
{
	const enum blow blow = *(const enum blow *)r->arg;
	struct things t;

	open_things(r, &t);
	sum(r, &t, "a call");
	job_ok(r, coll_event_wait(t.event, -1), "the event of a call");
	job_check(r, t.out, LONG, 1, "a call");
	job_meet(r, 0);
	if (r->rank == VICTIM && blow == KILL)
		raise(SIGKILL);
	if (r->rank == VICTIM) {
		job_ok(r, coll_comm_abort(r->comm, "for this test"), "an abort");
	} else {
		/* The victim makes no second call, so this one cannot end well. */
		const coll_status st = coll_all_reduce(t.in, t.out, LONG, COLL_I32, COLL_SUM, r->comm, t.stream[0]);

		if (st == COLL_OK) { /* else the rank was lost before the call was made */
			job_ok(r, coll_event_record(t.event, t.stream[0]), "an event");
			must_name_the_victim(r, "the event", coll_event_wait(t.event, -1));
			must_name_the_victim(r, "its query", coll_event_query(t.event));
			job_ok(r, coll_stream_wait_event(t.stream[1], t.event), "to wait for an event");
			must_name_the_victim(r, "a stream that waits for it", coll_stream_wait(t.stream[1], -1));
		}
		must_name_the_victim(r, "the call or its stream", st ? st : coll_stream_wait(t.stream[0], -1));
		job_said(r, r->comm, st);
		job_page->of[r->rank].status = st;
	}
	coll_event_destroy(&t.event);
	coll_stream_destroy(&t.stream[0]);
	coll_stream_destroy(&t.stream[1]);
	coll_comm_destroy(&r->comm);
}

TEST(events, events_name_a_lost_rank)
{
	static const char *const transports[] = {"shm", "tcp"};

	for (int i = 0; i < 4; i++) {
		const enum blow blow = i / 2 ? ABORT : KILL;
		const char *const environment[] = {"COLL_TRANSPORTS", transports[i % 2], NULL};
		const struct job_work w = {loses_a_rank, &blow, environment, RANKS};
		pid_t pids[RANKS];

		meeting_start(pids, RANKS, job_page, sizeof(*job_page), job_process, &w);
		job_judge(pids, RANKS, LIMIT_S, blow == KILL ? VICTIM : -1);
		for (int k = 0; k < RANKS; k++)
			CHECK(k == VICTIM || strstr(job_page->of[k].said, "rank 1"), "%s, rank %d: %s",
			      transports[i % 2], k, job_page->of[k].said);
	}
}

/* ---- Order ---- */

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

static void copy_behind(const struct job_rank *r, const struct things *t)
{
	if (DRIVER(cuMemcpyAsync)((CUdeviceptr)(uintptr_t)t->copy, (CUdeviceptr)(uintptr_t)t->out, LONG * sizeof(int),
	                          t->handle[1]) != CUDA_SUCCESS)
		job_wrong(r, "cannot copy device memory");
}

/* The program copies the sum in another stream, which waits for the event. The stream of the sum is held until the copy
 * had time to come too early. */
static void waits(struct job_rank *r)
{
	coll_stream *host = NULL;
	_Atomic uint32_t *word;
	struct things t;

	open_things(r, &t);
	cuda_user_enter(t.in);
	for (int turn = 0; turn < 5; turn++) {
		job_fill(r, t.in, LONG, turn);
		word = hold(r, t.handle[0]);
		sum(r, &t, "a held call");
		job_ok(r, coll_stream_wait_event(t.stream[1], t.event), "to wait for an event");
		copy_behind(r, &t);
		poll(NULL, 0, 30);
		if (cuda_user_query(t.handle[1]) != CUDA_ERROR_NOT_READY || coll_event_query(t.event) != COLL_AGAIN)
			job_wrong(r, "turn %d: the copy did not wait for the sum", turn);
		atomic_store(word, 1);
		if (!cuda_user_synchronize(t.handle[1]))
			job_wrong(r, "the stream does not end in order");
		job_check(r, t.copy, LONG, turn, "the copy of a sum");
		job_ok(r, coll_event_wait(t.event, -1), "the event");
		job_ok(r, coll_stream_wait(t.stream[1], -1), "the stream that waited");
		DRIVER(cuMemHostUnregister)((void *)word);
		munmap((void *)word, 4096);
	}
	/* A stream of the host waits for one of the device; the other way, the event must have been reached. */
	job_ok(r, coll_stream_create(&host, r->comm), "a stream of the host");
	sum(r, &t, "a call");
	job_ok(r, coll_stream_wait_event(host, t.event), "to wait for an event");
	job_ok(r, coll_stream_wait(host, -1), "the stream of the host");
	job_check(r, t.out, LONG, 4, "a call");
	job_ok(r, coll_event_record(t.event, host), "an event");
	job_ok(r, coll_stream_wait_event(t.stream[1], t.event), "to wait for what is reached");
	job_ok(r, coll_stream_destroy(&host), "the end of a stream");
	job_ok(r, coll_event_destroy(&t.event), "the end of an event");
	for (int i = 0; i < 2; i++)
		job_ok(r, coll_stream_destroy(&t.stream[i]), "the end of a stream");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(events, a_stream_waits_for_an_event)
{
	static const char *const transports[] = {"shm", "tcp"};

	for (int i = 0; i < 2; i++) {
		const char *const environment[] = {"COLL_TRANSPORTS", transports[i], NULL};

		job_run(2, waits, NULL, environment, LIMIT_S);
	}
}

PROGRAM(events, "DRIVER")
{
	driver_path = argc > 1 ? argv[1] : NULL;
	return job_begin(argc, argv);
}
