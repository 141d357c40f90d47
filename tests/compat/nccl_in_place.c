/*
 * libnccl.so.2 and memory that another process reads in place: long calls on memory of ncclMemAlloc() are copied until
 * the other process has mapped it, and no longer. Those on memory of cuMemAlloc() are copied always, in device memory.
 * Two processes; the counts are those of the stand-in driver and of the library's log.
 *
 * usage: nccl_in_place [CASE]     over the driver of COLL_CUDA_LIBRARY
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/compat/functions.h"
#include "tests/compat/memory.h"
#include "tests/plain.h"

enum { LEN = 1 << 16, ROUNDS = 5, CALLS_MAX = 2000, MORE = 5 };

enum memory { NCCL, CUDA };

/* Of both processes. */
static struct shared {
	atomic_bool ready, mapped[2];
	pthread_barrier_t meeting;
	ncclUniqueId id;
} * both;

/* The test that runs. */
static enum memory memory;
static bool direct;

struct rank {
	int rank, turn; /* calls so far */
	ncclComm_t comm;
	cudaStream_t stream;
	float *in, *out, *host;
	char log[64]; /* the file */
};

static void name_log(char log[64], const char *folder, int rank)
{
	snprintf(log, 64, "%s/%d", folder, rank);
}

static void must(ncclResult_t r, const char *what)
{
	CHECK(r == ncclSuccess, "%s: %d %s", what, (int)r, ncclGetLastError(NULL));
}

/* ---- Memory ------------------------------------------------------------------- */

static float *get(void)
{
	CUdeviceptr p = 0;
	void *q = NULL;

	if (memory == NCCL)
		must(ncclMemAlloc(&q, LEN * sizeof(float)), "alloc");
	else
		CHECK(DRIVER(cuMemAlloc_v2)(&p, LEN * sizeof(float)) == CUDA_SUCCESS);
	return memory == NCCL ? q : (void *)(uintptr_t)p;
}

static void release(float *p)
{
	if (memory == NCCL)
		must(ncclMemFree(p), "free");
	else
		CHECK(DRIVER(cuMemFree_v2)((CUdeviceptr)(uintptr_t)p) == CUDA_SUCCESS);
}

/* Memory of others that this process has asked the driver for. */
static long imports(void)
{
	return driver_calls("cuMemImportFromShareableHandle");
}

static long host_bytes(void)
{
	return ((long (*)(void))driver_symbol("softcuda_host_bytes"))();
}

/* ---- Calls ------------------------------------------------------------------------ */

static float element(int rank, int turn, size_t i)
{
	return (float)((size_t)(rank + 1) * (i % 89 + (size_t)turn));
}

/* Returns the bytes of host memory that the call has touched. */
static long call(struct rank *r)
{
	const int turn = r->turn++;
	size_t wrong = 0;
	long bytes;

	for (size_t i = 0; i < LEN; i++)
		r->host[i] = element(r->rank, turn, i);
	write_to(r->in, r->host, LEN * sizeof(float), r->stream);
	wait_stream(r->stream);
	bytes = host_bytes();
	must(ncclAllReduce(r->in, r->out, LEN, ncclFloat32, ncclSum, r->comm, r->stream), "sum");
	wait_stream(r->stream);
	bytes = host_bytes() - bytes;
	read_from(r->host, r->out, LEN * sizeof(float), r->stream);
	for (size_t i = 0; i < LEN; i++)
		wrong += r->host[i] != element(2, turn, i);
	CHECK(wrong == 0, "rank %d call %d: %zu are wrong", r->rank, turn, wrong);
	return bytes;
}

/* Whether each process has mapped what the other has. All ranks get the same answer. */
static bool are_mapped(const struct rank *r, long before)
{
	bool mapped;

	atomic_store(&both->mapped[r->rank], imports() > before);
	pthread_barrier_wait(&both->meeting);
	mapped = atomic_load(&both->mapped[0]) && atomic_load(&both->mapped[1]);
	pthread_barrier_wait(&both->meeting);
	return mapped;
}

/* New buffers, of which the driver may have given the addresses before: used at once, and until they are mapped. */
static void use_buffers(struct rank *r)
{
	const long before = imports();
	bool mapped = false;
	long bytes = 0;

	/* No rank announces its buffers, which its first call does, before the other one has counted. */
	pthread_barrier_wait(&both->meeting);
	r->in = get();
	r->out = get();
	for (int i = 0; i < (memory == NCCL && direct ? CALLS_MAX : MORE) && !mapped; i++) {
		call(r);
		mapped = are_mapped(r, before);
	}
	CHECK(mapped == (memory == NCCL && direct), "rank %d: mapped %d", r->rank, mapped);
	for (int i = 0; i < MORE; i++)
		bytes += call(r);
	CHECK((bytes == 0) == direct, "rank %d: %ld bytes in host memory", r->rank, bytes);
	release(r->in);
	release(r->out);
}

/* What the log has to say about all calls. */
static void check_log(const struct rank *r)
{
	unsigned long long in_place = 0, all = 0;
	char line[600], text[600] = "";
	FILE *f = fopen(r->log, "r");
	const char *at;

	REQUIRE(f, "%s cannot be read", r->log);
	while (fgets(line, sizeof(line), f))
		if ((at = strstr(line, "buffers of long calls in place: ")))
			strcpy(text, at);
	fclose(f);
	CHECK((sscanf(text, "buffers of long calls in place: %llu of %llu", &in_place, &all) == 2) == direct, "%s",
	      text);
	if (!direct)
		return;
	CHECK(all == (unsigned long long)r->turn, "%d calls: %s", r->turn, text);
	CHECK((in_place > 0) == (memory == NCCL), "%s", text);
	CHECK((strstr(text, "cuMemAlloc") != NULL) == (memory == CUDA), "%s", text);
	printf("      rank %d: %llu of %llu in place\n", r->rank, in_place, all);
	fflush(stdout);
}

static void run_rank(int rank, const char *folder)
{
	struct rank r = {.rank = rank};

	name_log(r.log, folder, rank);
	setenv("COLL_DEBUG", "info", 1);
	setenv("COLL_LOG_FILE", r.log, 1);
	setenv("COLL_DEVICE_DIRECT", direct ? "1" : "0", 1);
	use_device(rank % devices());
	r.stream = make_stream();
	r.host = malloc(LEN * sizeof(float));
	must(ncclCommInitRank(&r.comm, 2, both->id, rank), "init");
	if (r.comm) {
		for (int i = 0; i < ROUNDS; i++)
			use_buffers(&r);
		must(ncclCommDestroy(r.comm), "destroy");
		check_log(&r);
	}
	free(r.host);
	free_stream(r.stream);
}

/* The id is made when both ranks are forked: a sanitizer cannot work in the forks of a process that has threads. */
static void run_ranks(const char *folder)
{
	pthread_barrierattr_t attr;
	pid_t child[2];

	both = mmap(NULL, sizeof(*both), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&both->meeting, &attr, 2);
	for (int rank = 0; rank < 2; rank++) {
		child[rank] = fork();
		if (child[rank] == 0) {
			alarm(250);
			while (!atomic_load(&both->ready))
				usleep(500);
			run_rank(rank, folder);
			_exit(plain_failures > 0);
		}
	}
	must(ncclGetUniqueId(&both->id), "id");
	atomic_store(&both->ready, true);
	for (int rank = 0; rank < 2; rank++) {
		int status = 1;

		waitpid(child[rank], &status, 0);
		CHECK(status == 0, "rank %d ended with wait status %d", rank, status);
	}
	munmap(both, sizeof(*both));
}

/* In a process of its own, for the same reason. */
static void run(enum memory of, bool is_direct)
{
	char folder[] = "/tmp/nccl_in_place.XXXXXX", log[64];
	int status = 1;
	pid_t child;

	if (!on_device())
		SKIP("other processes map device memory alone");
	memory = of;
	direct = is_direct;
	REQUIRE(mkdtemp(folder));
	child = fork();
	if (child == 0) {
		run_ranks(folder);
		_exit(plain_failures > 0);
	}
	waitpid(child, &status, 0);
	CHECK(status == 0, "wait status %d", status);
	for (int rank = 0; rank < 2; rank++) { /* of ranks that were killed, too */
		name_log(log, folder, rank);
		unlink(log);
	}
	rmdir(folder);
}

/* ---- Tests ----------------------------------------------------------------------------- */

TEST(nccl_in_place, memory_of_nccl_is_read_in_place)
{
	run(NCCL, true);
}

TEST(nccl_in_place, memory_of_cuda_is_copied_on_the_device)
{
	run(CUDA, true);
}

/* What shows that the counts can show it. */
TEST(nccl_in_place, staged_calls_cross_host_memory)
{
	run(NCCL, false);
}

PROGRAM(nccl_in_place, "")
{
	find_driver();
	return 1;
}
