/*
 * What goes wrong around calls with device memory, and what a program may have done to the driver: faults of a kernel,
 * forks, contexts of its own, devices that differ from rank to rank, and arguments that are refused.
 *
 * usage: trouble FILE-OF-THE-STAND-IN [PART-OF-A-TEST'S-NAME]
 */
#include "job.h"

#include "device/kernels.h"
#include "driver.h"

enum { COUNT = 3000, LONG = 400000, LIMIT_S = 60 };

static coll_status sum(const struct job_rank *r, const int *in, int *out, size_t n, coll_stream *stream)
{
	return coll_all_reduce(in, out, n, COLL_I32, COLL_SUM, r->comm, stream);
}

static void right(const struct job_rank *r, int *x, size_t n, int salt, const char *what)
{
	job_fill(r, x, n, salt);
	if (job_ok(r, sum(r, x, x, n, NULL), what))
		job_check(r, x, n, salt, what);
}

/* Operations that the driver has been given by anyone in this process. */
static long enqueued(void)
{
	return ((long (*)(void))driver_symbol("softcuda_enqueued"))();
}

/* ---- A fault ---- */

/* A kernel of the program goes wild, in a stream of its own. */
static void break_device(const struct job_rank *r)
{
	CUmodule module = NULL;
	CUfunction copy = NULL;
	struct coll_kernel_launch l;
	void *stream = NULL;
	int *x = job_memory(r, 16);

	if (!cuda_user_stream(x, &stream) || DRIVER(cuModuleLoadData)(&module, coll_kernels_ptx()) != CUDA_SUCCESS)
		job_wrong(r, "cannot load a kernel");
	coll_kernels_copy(&l, (uint64_t)(uintptr_t)x + (1 << 30), (uint64_t)(uintptr_t)x, 64, 0, 1);
	if (DRIVER(cuModuleGetFunction)(&copy, module, coll_kernels_name(l.kernel)) != CUDA_SUCCESS ||
	    DRIVER(cuLaunchKernel)(copy, l.blocks, 1, 1, l.threads, 1, 1, 0, stream, &(void *){&l.args}, NULL) !=
	            CUDA_SUCCESS)
		job_wrong(r, "cannot launch a kernel");
}

static coll_status ring(const struct job_rank *r, const int *x, int *y)
{
	coll_status st = coll_group_begin(), end;

	if (st == COLL_OK)
		st = coll_send(x, LONG, COLL_I32, (r->rank + 1) % r->size, r->comm, NULL);
	if (st == COLL_OK)
		st = coll_recv(y, LONG, COLL_I32, (r->rank + r->size - 1) % r->size, r->comm, NULL);
	end = coll_group_end();
	return st ? st : end;
}

enum how { BLOCKING, STREAM, GROUP, QUERY, EVENT, DESTROY, DRAIN };

/* A program that asks and never waits. */
static coll_status ask(coll_stream *stream, coll_event *event)
{
	coll_status st = COLL_AGAIN;

	if (event)
		coll_event_record(event, stream);
	for (int ms = 0; st == COLL_AGAIN && ms < 30000; ms++) {
		st = event ? coll_event_query(event) : coll_stream_query(stream);
		if (st == COLL_AGAIN)
			poll(NULL, 0, 1);
	}
	return st;
}

/* Rank 1 loses its device in the middle of calls. Everyone's call ends with that cause. */
static void fault(struct job_rank *r)
{
	const enum how how = *(const enum how *)r->arg;
	int *x = job_memory(r, LONG), *y = job_memory(r, LONG);
	coll_stream *stream = NULL;
	coll_event *event = NULL;
	coll_status st = COLL_OK;
	void *handle = NULL;

	if (how == STREAM || how >= QUERY) {
		cuda_user_stream(x, &handle);
		job_ok(r, coll_stream_wrap_cuda(&stream, r->comm, handle), "a stream");
	}
	if (how == EVENT)
		job_ok(r, coll_event_create(&event, r->comm), "an event");
	right(r, x, COUNT, 1, "before the fault");
	job_meet(r, 0);
	for (int k = 0; k < 100000 && st == COLL_OK; k++) {
		if (k == 3 && r->rank == 1)
			break_device(r);
		if (how == GROUP) {
			st = ring(r, x, y);
			continue;
		}
		st = sum(r, x, y, LONG, stream);
		if (how >= DESTROY && k == 6)
			break;
		if (st == COLL_OK && how == STREAM)
			st = coll_stream_wait(stream, -1);
		if (st == COLL_OK && (how == QUERY || how == EVENT))
			st = ask(stream, event);
	}
	job_said(r, r->comm, st);
	if (how < DESTROY && st == COLL_OK)
		job_wrong(r, "no error");
	coll_event_destroy(&event);
	if (how == DESTROY)
		coll_stream_destroy(&stream);
	coll_comm_destroy(&r->comm);
}

TEST(trouble, a_fault_ends_the_call_everywhere)
{
	static const char *const transports[] = {"shm", "tcp"};

	for (int i = 0; i < 2 * DESTROY; i++) {
		const enum how how = (enum how)(i % DESTROY);
		const char *const environment[] = {"COLL_TRANSPORTS", transports[i % 2], NULL};

		job_run(3, fault, &how, environment, LIMIT_S);
		for (int k = 0; k < 3; k++) {
			const char *said = job_page->of[k].said;

			CHECK(strstr(said, "700 CUDA_ERROR_ILLEGAL_ADDRESS") && strstr(said, "rank 1") &&
			              strstr(said, "cuda:0"),
			      "way %d, rank %d: %d %s", (int)how, k, (int)job_page->of[k].status, said);
		}
	}
}

/* Nobody waits for the calls before the end: that does not hang. */
TEST(trouble, a_fault_does_not_keep_destroy)
{
	static const enum how hows[] = {DESTROY, DRAIN};

	for (int i = 0; i < 2; i++)
		job_run(2, fault, &hows[i], NULL, LIMIT_S);
}

/* ---- Calls that differ ---- */

enum difference { OTHER_COUNT, OTHER_OPERATION, OTHER_TYPE, OTHER_CALL, DIFFERENCES };

struct differ {
	enum difference difference;
	bool stream;
};

/* Rank 1 makes the other call. */
static coll_status call_or_other(const struct job_rank *r, const int *in, int *out, coll_stream *stream)
{
	const struct differ *d = r->arg;
	const enum difference own = r->rank == 1 ? d->difference : DIFFERENCES;
	const size_t n = own == OTHER_COUNT ? LONG - 1 : LONG;
	const coll_op op = own == OTHER_OPERATION ? COLL_MAX : COLL_SUM;

	if (own == OTHER_CALL)
		return coll_all_gather(in, out, n, COLL_I32, r->comm, stream);
	return coll_all_reduce(in, out, n, own == OTHER_TYPE ? COLL_F32 : COLL_I32, op, r->comm, stream);
}

/* What the driver says of it. */
static void drains(const struct job_rank *r, void *handle)
{
	int st = cuda_user_query(handle);

	for (int ms = 0; st == CUDA_ERROR_NOT_READY && ms < 20000; ms++) {
		poll(NULL, 0, 1);
		st = cuda_user_query(handle);
	}
	if (st != CUDA_SUCCESS)
		job_wrong(r, "the stream has not drained: %d", st);
}

static void differs(struct job_rank *r)
{
	const struct differ *d = r->arg;
	int *x = job_memory(r, LONG), *y = job_memory(r, (size_t)r->size * LONG);
	coll_stream *stream = NULL;
	void *handle = NULL;
	coll_status st;

	cuda_user_stream(x, &handle);
	if (d->stream)
		job_ok(r, coll_stream_wrap_cuda(&stream, r->comm, handle), "a stream");
	right(r, x, COUNT, 1, "before the difference");
	job_meet(r, 0); /* else the difference may end the call before it on a slow rank */
	st = call_or_other(r, x, y, stream);
	if (st == COLL_OK && stream)
		st = coll_stream_wait(stream, -1);
	job_said(r, r->comm, st);
	drains(r, handle);
	coll_stream_destroy(&stream);
	coll_comm_destroy(&r->comm);
}

TEST(trouble, calls_that_differ_are_named)
{
	static const char *const transports[] = {"shm", "tcp"};
	/* In the call of rank 1, and in that of the others. */
	static const char *const named[DIFFERENCES][2] = {[OTHER_COUNT] = {"399999", "400000"},
	                                                  [OTHER_OPERATION] = {"max", "sum"},
	                                                  [OTHER_TYPE] = {"f32", "i32"},
	                                                  [OTHER_CALL] = {"all_gather", "all_reduce"}};

	for (int i = 0; i < 4 * DIFFERENCES; i++) {
		const struct differ d = {(enum difference)(i / 4), i / 2 % 2};
		const char *const environment[] = {"COLL_TRANSPORTS", transports[i % 2], NULL};

		job_run(3, differs, &d, environment, LIMIT_S);
		for (int k = 0; k < 3; k++) {
			const char *said = job_page->of[k].said, *const *names = named[d.difference];

			CHECK(job_page->of[k].status == COLL_ERR_MISMATCH && strstr(said, "[COLL-3101]") &&
			              strstr(said, "rank 1 calls") && strstr(said, names[0]) && strstr(said, names[1]),
			      "difference %d, %s, %s, rank %d: %d %s", (int)d.difference, transports[i % 2],
			      d.stream ? "stream" : "blocking", k, (int)job_page->of[k].status, said);
		}
	}
}

/* ---- fork ---- */

static void forks(struct job_rank *r)
{
	int *x = job_memory(r, COUNT);
	int status = -1;
	pid_t child;

	right(r, x, COUNT, 1, "before the fork");
	child = fork();
	if (child == 0) {
		coll_comm *own = NULL;
		coll_config cfg = COLL_CONFIG_INIT;

		cfg.rank = 0;
		cfg.size = 1;
		cfg.device = "cuda";
		cfg.log = job_quiet;
		/* The driver is of no use in a child: an error that says so. */
		_exit(coll_comm_create(&own, &cfg) == COLL_OK || !strstr(coll_last_error(NULL)->message, "[COLL-"));
	}
	for (int k = 0; k < 20; k++)
		right(r, x, COUNT, k, "while the child is there");
	waitpid(child, &status, 0);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		job_wrong(r, "the child ended with 0x%x", (unsigned)status);
	right(r, x, LONG > COUNT ? COUNT : LONG, 5, "after the child");
	job_ok(r, coll_mem_free(r->comm, x), "the end of memory");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(trouble, a_child_does_not_disturb)
{
	job_run(2, forks, NULL, NULL, LIMIT_S);
}

/* ---- Contexts and devices ---- */

/* The program has contexts of its own, of this device and of another one; it finds them as it left them. */
static void contexts(struct job_rank *r)
{
	int *x = job_memory(r, COUNT);

	for (int ordinal = 0; ordinal < 2; ordinal++) {
		CUcontext mine = NULL, now = NULL;

		job_fill(r, x, COUNT, ordinal);
		if (DRIVER(cuCtxCreate_v2)(&mine, 0, ordinal) != CUDA_SUCCESS)
			job_wrong(r, "no context");
		job_ok(r, sum(r, x, x, COUNT, NULL), "a foreign context");
		if (DRIVER(cuCtxGetCurrent)(&now) != CUDA_SUCCESS || now != mine)
			job_wrong(r, "the context of the program is not as it was");
		job_check(r, x, COUNT, ordinal, "a foreign context");
		DRIVER(cuCtxDestroy_v2)(mine);
	}
	DRIVER(cuCtxSetCurrent)(NULL);
	job_ok(r, sum(r, x, x, COUNT, NULL), "no context");
	job_ok(r, coll_mem_free(r->comm, x), "the end of memory");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(trouble, a_foreign_context_is_kept)
{
	static const char *const environment[] = {"SOFTCUDA_DEVICES", "2", NULL};

	job_run(2, contexts, NULL, environment, LIMIT_S);
}

static void plain(struct job_rank *r)
{
	int *x = job_memory(r, LONG);

	right(r, x, COUNT, 1, "a small sum");
	right(r, x, LONG, 2, "a long sum");
	job_ok(r, coll_mem_free(r->comm, x), "the end of memory");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(trouble, ranks_see_different_devices)
{
	static const char *const one_each[] = {
	        "SOFTCUDA_DEVICES", "2", "CUDA_VISIBLE_DEVICES@0", "1", "CUDA_VISIBLE_DEVICES@1", "0", "COLL_DEVICE",
	        "cuda:0",           NULL};
	static const char *const two_and_one[] = {"SOFTCUDA_DEVICES", "2", "CUDA_VISIBLE_DEVICES@1", "1", NULL};
	static const char *const one_has_none[] = {"CUDA_VISIBLE_DEVICES@1", "", "COLL_CREATE_TIMEOUT_MS", "2000",
	                                           NULL};
	const struct job_work none = {plain, NULL, one_has_none, 2};
	pid_t pids[2];

	job_run(2, plain, NULL, one_each, LIMIT_S);
	job_run(2, plain, NULL, two_and_one, LIMIT_S);
	/* The rank without one is refused by name, and the other does not wait for ever. */
	meeting_start(pids, 2, job_page, sizeof(*job_page), job_process, &none);
	for (int i = 0; i < 2; i++) {
		int status = 0;

		for (int ms = 0; waitpid(pids[i], &status, WNOHANG) == 0 && ms < 30000; ms++) {
			if (ms == 5000 &&
			    i == 0) /* its exchange, which is the test's, waits for the rank that is gone */
				kill(pids[0], SIGKILL);
			poll(NULL, 0, 1);
		}
	}
	CHECK(strstr(job_page->of[1].wrong, "CUDA_VISIBLE_DEVICES") && strstr(job_page->of[1].wrong, "[COLL-1116]"),
	      "%s", job_page->of[1].wrong);
}

/* ---- What is refused ---- */

/* Before anything is given to the driver; the text has the argument and the reason. */
static void refuses(const struct job_rank *r, const int *in, int *out, size_t n, coll_stream *stream,
                    const char *argument, const char *reason)
{
	const long before = enqueued();
	const coll_status st = sum(r, in, out, n, stream);
	const char *said = coll_last_error(r->comm)->message;

	if (st != COLL_ERR_ARGUMENT && st != COLL_ERR_UNSUPPORTED)
		job_wrong(r, "%s, %s: status %d %s", argument, reason, (int)st, said);
	else if (!strstr(said, argument) || !strstr(said, reason))
		job_wrong(r, "'%s' lacks '%s' or '%s'", said, argument, reason);
	if (enqueued() != before)
		job_wrong(r, "%s, %s: %ld operations were enqueued", argument, reason, enqueued() - before);
}

/* The last page of an allocation. */
static int *half_a_buffer(const struct job_rank *r)
{
	char *p = (char *)job_memory(r, 32768);

	return (int *)(void *)(p + 32768 * sizeof(int) - 4096);
}

/* A page of host memory in front of a mapping of the device, and one behind it. */
static void mixed_kinds(const struct job_rank *r, int *good)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	static const char reason[] = "host memory and device memory";
	CUmemGenericAllocationHandle memory = 0;
	CUdeviceptr at = 0;
	size_t grain = 0;
	char *first, *second;

	if (DRIVER(cuMemGetAllocationGranularity)(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS ||
	    DRIVER(cuMemAddressReserve)(&at, 3 * grain, 0, 0, 0) != CUDA_SUCCESS ||
	    DRIVER(cuMemCreate)(&memory, grain, &prop, 0) != CUDA_SUCCESS ||
	    DRIVER(cuMemMap)(at + grain, grain, 0, memory, 0) != CUDA_SUCCESS ||
	    DRIVER(cuMemSetAccess)(at + grain, grain, &access, 1) != CUDA_SUCCESS) {
		job_wrong(r, "no mapping");
		return;
	}
	first = (char *)(uintptr_t)at + grain;
	second = first + grain;
	for (char *page = first - 4096; page <= second; page += grain + 4096) {
		if (mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page)
			job_wrong(r, "no host memory at %p", (void *)page);
		memset(page, 0, 4096);
	}
	refuses(r, (int *)(void *)(first - 64), good, 32, NULL, "in at ", reason);
	refuses(r, good, (int *)(void *)(first - 64), 32, NULL, "out at ", reason);
	refuses(r, (int *)(void *)(second - 64), good, 32, NULL, "in at ", reason);
	refuses(r, good, (int *)(void *)(second - 64), 32, NULL, "out at ", reason);
	/* Each of the kinds alone is good, on both sides of either border. */
	job_ok(r, sum(r, (int *)(void *)(first - 64), good, 16, NULL), "the host memory in front");
	job_ok(r, sum(r, good, (int *)(void *)first, 16, NULL), "the device memory behind it");
	job_ok(r, sum(r, good, (int *)(void *)(second - 64), 16, NULL), "the device memory in front");
	job_ok(r, sum(r, (int *)(void *)second, good, 16, NULL), "the host memory behind it");
}

static void bad_arguments(struct job_rank *r)
{
	int host[16] = {0}, *x = job_memory(r, COUNT), *gone = job_memory(r, COUNT), *half = half_a_buffer(r);
	CUdeviceptr managed = 0, other = 0;
	CUcontext second = NULL;
	CUstream theirs = NULL;
	coll_stream *stream = NULL;
	coll_status st;

	job_fill(r, x, COUNT, 0);
	job_ok(r, coll_mem_free(r->comm, gone), "the end of memory");
	DRIVER(cuMemAllocManaged)(&managed, 65536, CU_MEM_ATTACH_GLOBAL);
	refuses(r, gone, x, COUNT, NULL, "in at ", "freed");
	refuses(r, x, gone, COUNT, NULL, "out at ", "freed");
	refuses(r, (int *)(uintptr_t)managed, x, 16, NULL, "in at ", "managed");
	refuses(r, x, (int *)(uintptr_t)managed, 16, NULL, "out at ", "managed");
	refuses(r, half, x, COUNT, NULL, "in at ", "longer than it was allocated");
	mixed_kinds(r, x);
	if (DRIVER(cuDevicePrimaryCtxRetain)(&second, 1) == CUDA_SUCCESS &&
	    DRIVER(cuCtxSetCurrent)(second) == CUDA_SUCCESS && DRIVER(cuMemAlloc_v2)(&other, 65536) == CUDA_SUCCESS &&
	    DRIVER(cuStreamCreate)(&theirs, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
		refuses(r, (int *)(uintptr_t)other, x, 16, NULL, "in at ", "memory of cuda:1");
		refuses(r, x, (int *)(uintptr_t)other, 16, NULL, "out at ", "memory of cuda:1");
		st = coll_stream_wrap_cuda(&stream, r->comm, theirs);
		if (st == COLL_OK || !strstr(coll_last_error(r->comm)->message, "a stream of cuda:1"))
			job_wrong(r, "a stream of cuda:1: %d %s", (int)st, coll_last_error(r->comm)->message);
	} else {
		job_wrong(r, "no second device");
	}
	/* A refused call was not counted: the other ranks' calls meet the next one. */
	job_ok(r, coll_stream_create(&stream, r->comm), "a stream of the host");
	refuses(r, x, x, 16, stream, "stream", "wrap a stream of the device");
	job_ok(r, coll_stream_destroy(&stream), "the end of a stream");
	job_ok(r, sum(r, host, host, 16, NULL), "host memory");
	right(r, x, COUNT, 4, "after all that");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(trouble, bad_arguments_are_named)
{
	static const char *const environment[] = {"SOFTCUDA_DEVICES", "2", "COLL_DEVICE", "cuda:0", NULL};

	job_run(2, bad_arguments, NULL, environment, LIMIT_S);
}

PROGRAM(trouble, "DRIVER")
{
	driver_path = argv[1];
	return job_begin(argc, argv);
}
