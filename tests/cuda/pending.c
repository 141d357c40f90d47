/*
 * A stream of one process waits for a word while another process computes on the same device: the other one loses no
 * throughput, and a store of the host ends the wait.
 *
 * usage: pending SECONDS [LEAST-RATIO]    the driver is that of COLL_CUDA_LIBRARY
 */
#define PLAIN_OWN_MAIN
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device/kernels.h"
#include "tests/cuda/driver.h"
#include "tests/plain.h"
#include "tests/seconds.h"

enum { PAGE = 4096, BATCH = 20 };

/* A page of both processes. word: what the stream waits for. */
static struct shared {
	_Atomic uint32_t word, waits, drained, drain_us;
} * shared;

static double seconds = 60, least = 0;
static pid_t child;

static bool open_device(CUstream *s, CUdeviceptr *page)
{
	CUcontext context;
	CUdevice d;

	return DRIVER(cuInit)(0) == 0 && DRIVER(cuDeviceGet)(&d, 0) == 0 &&
	       DRIVER(cuDevicePrimaryCtxRetain)(&context, d) == 0 && DRIVER(cuCtxSetCurrent)(context) == 0 &&
	       DRIVER(cuStreamCreate)(s, CU_STREAM_NON_BLOCKING) == 0 &&
	       DRIVER(cuMemHostRegister_v2)(shared, PAGE, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) ==
	               0 &&
	       DRIVER(cuMemHostGetDevicePointer_v2)(page, shared, 0) == 0;
}

/* The other process: its stream waits. */
static int wait_for_word(void)
{
	CUdeviceptr page;
	CUstream s;
	double begin;

	if (!open_device(&s, &page) || DRIVER(cuStreamWaitValue32_v2)(s, page, 1, CU_STREAM_WAIT_VALUE_GEQ) != 0)
		return 1;
	atomic_store(&shared->waits, 1);
	while (!atomic_load(&shared->word))
		usleep(1000);
	begin = now_s();
	if (DRIVER(cuStreamSynchronize)(s) != 0)
		return 1;
	atomic_store(&shared->drain_us, (uint32_t)((now_s() - begin) * 1e6));
	atomic_store(&shared->drained, 1);
	return 0;
}

/* Kernels per second. */
static double compute(CUfunction kernel, CUstream s, CUdeviceptr memory, uint64_t bytes, double for_s)
{
	const double begin = now_s();
	struct coll_kernel_launch l;
	void *args[] = {&l.args};
	long done = 0;

	coll_kernels_copy(&l, memory + bytes, memory, bytes, 0, 256);
	do {
		for (int i = 0; i < BATCH; i++)
			if (DRIVER(cuLaunchKernel)(kernel, l.blocks, 1, 1, l.threads, 1, 1, 0, s, args, NULL) != 0)
				return 0;
		if (DRIVER(cuStreamSynchronize)(s) != 0)
			return 0;
		done += BATCH;
	} while (now_s() - begin < for_s);
	return (double)done / (now_s() - begin);
}

static void a_pending_wait_takes_nothing(void)
{
	const bool real = !getenv("COLL_CUDA_LIBRARY");
	const uint64_t bytes = real ? 64 << 20 : 16 << 10;
	double alone, beside;
	CUdeviceptr page, memory;
	CUfunction kernel;
	CUmodule module;
	CUstream s;
	int status = -1;

	REQUIRE(open_device(&s, &page) && coll_kernels_ptx());
	REQUIRE(DRIVER(cuModuleLoadData)(&module, coll_kernels_ptx()) == 0);
	REQUIRE(DRIVER(cuModuleGetFunction)(&kernel, module, coll_kernels_name(COLL_KERNEL_COPY)) == 0);
	REQUIRE(DRIVER(cuMemAlloc_v2)(&memory, 2 * bytes) == 0);
	compute(kernel, s, memory, bytes, 0.2);
	alone = compute(kernel, s, memory, bytes, seconds / 10);
	atomic_store(&shared->word, 0);
	atomic_store(&shared->waits, 2); /* the other process begins */
	while (atomic_load(&shared->waits) != 1 && waitpid(child, &status, WNOHANG) == 0)
		usleep(1000);
	REQUIRE(atomic_load(&shared->waits) == 1, "the other process has ended: %d", status);
	beside = compute(kernel, s, memory, bytes, seconds);
	CHECK(!atomic_load(&shared->drained));
	atomic_store(&shared->word, 1);
	REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
	CHECK(atomic_load(&shared->drained));
	CHECK(alone > 0 && beside >= least * alone, "%.0f kernels/s beside a wait, %.0f alone", beside, alone);
	printf("%.0f kernels/s alone, %.0f beside a wait that pends for %.0f s: %.3f; the wait ended %u us after the "
	       "store\n",
	       alone, beside, seconds, beside / alone, atomic_load(&shared->drain_us));
}

int main(int argc, char **argv)
{
	const char *driver = getenv("COLL_CUDA_LIBRARY");

	if (argc > 1)
		seconds = atof(argv[1]);
	if (argc > 2)
		least = atof(argv[2]);
	driver_path = driver && *driver ? driver : "libcuda.so.1";
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	/* A process that uses a driver cannot fork. */
	child = fork();
	if (child == 0) {
		while (atomic_load(&shared->waits) != 2)
			usleep(1000);
		_exit(wait_for_word());
	}
	PLAIN_RUN(a_pending_wait_takes_nothing);
	kill(child, SIGKILL);
	return plain_summary();
}
