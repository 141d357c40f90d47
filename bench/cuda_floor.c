/*
 * What a CUDA device and its driver take for the steps that the library is made of: launches, memory operations of
 * streams, copies, and memory of other processes. One table; no call of the library is measured.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "floor/floor.h"

enum { ROWS_MAX = 20000, ONE_COPY_MAX = 64 << 10 };

static double samples[ROWS_MAX];

/* Runs `step` fs.iters times, after a tenth of that; each is one sample. */
static void measure(const char *what, size_t bytes, bool (*step)(void *arg), bool (*settle)(void), void *arg)
{
	const int warm = fs.iters / 10 + 1;

	for (int i = -warm; i < fs.iters; i++) {
		double begin = floor_now_us();

		if (!step(arg)) {
			floor_failed(what);
			return;
		}
		if (i >= 0)
			samples[i] = floor_now_us() - begin;
		if (settle && !settle()) {
			floor_failed(what);
			return;
		}
	}
	floor_row(what, bytes, samples, fs.iters);
}

static bool settle(void)
{
	return OK(cu.cuStreamSynchronize(fs.a)) && OK(cu.cuStreamSynchronize(fs.b));
}

/* ---- Launches ---- */

static bool launch(void *arg)
{
	(void)arg;
	return floor_launch_nothing(fs.a);
}

static bool launch_and_sync(void *arg)
{
	return launch(arg) && OK(cu.cuStreamSynchronize(fs.a));
}

static bool launch_and_query(void *arg)
{
	CUresult r = launch(arg) ? CUDA_ERROR_NOT_READY : CUDA_ERROR_UNKNOWN;

	while (r == CUDA_ERROR_NOT_READY)
		r = cu.cuStreamQuery(fs.a);
	return OK(r);
}

enum { HELD = 7, BACK, GUARD, BATCH = 64, GUARDED_BLOCKS = 1024 };

/* What one enqueueing call takes while the stream waits for a word. */
static void behind_work(const char *what, bool (*step)(void *arg))
{
	int n = 0;

	if (!HAS(what, cuStreamWaitValue32))
		return;
	while (n < fs.iters) {
		atomic_store(floor_word(HELD), 0);
		if (!OK(cu.cuStreamWaitValue32(fs.a, floor_word_address(HELD), 1, CU_STREAM_WAIT_VALUE_GEQ)))
			break;
		for (int i = 0; i < BATCH && n < fs.iters; i++) {
			const double begin = floor_now_us();

			if (!step(NULL))
				return floor_failed(what);
			samples[n++] = floor_now_us() - begin;
		}
		atomic_store(floor_word(HELD), 1);
		if (!settle())
			return floor_failed(what);
	}
	n ? floor_row(what, 0, samples, n) : floor_failed(what);
}

/* Of many, how long the device takes for one. */
static void each_of_many(const char *what, bool (*step)(void *arg))
{
	const int rounds = fs.iters < 32 ? fs.iters : 32;
	int n = 0;

	for (int k = 0; k < rounds; k++) {
		const double begin = floor_now_us();

		for (int i = 0; i < BATCH; i++)
			if (!step(NULL))
				return floor_failed(what);
		if (!settle())
			return floor_failed(what);
		samples[n++] = (floor_now_us() - begin) / BATCH;
	}
	floor_row(what, 0, samples, n);
}

static void launches(void)
{
	floor_head("launch of an empty kernel");
	if (!fs.kernel[COLL_KERNEL_COPY]) {
		printf("  %-50s the build has no kernels\n", "all of them");
		return;
	}
	measure("the call, idle stream", 0, launch, settle, NULL);
	behind_work("the call, behind a pending wait", launch);
	measure("to its end, synchronised", 0, launch_and_sync, NULL, NULL);
	measure("to its end, by queries", 0, launch_and_query, NULL, NULL);
	each_of_many("one of 64 in a row", launch);
}

/* ---- Memory operations ---- */

static CUdeviceptr device_word; /* 0: pinned words are meant */

static CUdeviceptr word(int i)
{
	return device_word ? device_word + (CUdeviceptr)i * 64 : floor_word_address(i);
}

static bool write_word(void *arg)
{
	(void)arg;
	return OK(cu.cuStreamWriteValue32(fs.a, word(0), 1, CU_STREAM_WRITE_VALUE_DEFAULT));
}

/* The word has that value. */
static bool wait_passed(void *arg)
{
	(void)arg;
	return OK(cu.cuStreamWaitValue32(fs.a, word(0), 1, CU_STREAM_WAIT_VALUE_GEQ));
}

static bool host_sees_write(void *arg)
{
	uint32_t *next = arg;

	if (!OK(cu.cuStreamWriteValue32(fs.a, floor_word_address(BACK), ++*next, CU_STREAM_WRITE_VALUE_DEFAULT)))
		return false;
	while (atomic_load_explicit(floor_word(BACK), memory_order_acquire) != *next)
		;
	return true;
}

/* A wait and a write are in the stream; the host stores, and sees the answer. */
static void host_to_host(void)
{
	const char *what = "a host's store, wait, write, seen by the host";
	int n = 0;

	for (int i = 0; i < fs.iters; i++) {
		double begin;

		atomic_store(floor_word(HELD), 0);
		atomic_store(floor_word(BACK), 0);
		if (!OK(cu.cuStreamWaitValue32(fs.a, floor_word_address(HELD), 1, CU_STREAM_WAIT_VALUE_GEQ)) ||
		    !OK(cu.cuStreamWriteValue32(fs.a, floor_word_address(BACK), 1, CU_STREAM_WRITE_VALUE_DEFAULT)))
			return floor_failed(what);
		begin = floor_now_us();
		atomic_store(floor_word(HELD), 1);
		while (!atomic_load_explicit(floor_word(BACK), memory_order_acquire))
			;
		samples[n++] = floor_now_us() - begin;
		if (!settle())
			return floor_failed(what);
	}
	floor_row(what, 0, samples, n);
}

static void memory_operations(void)
{
	uint32_t next = 0;
	CUdeviceptr made = 0;

	floor_head("memory operations of a stream");
	if (!HAS("all of them", cuStreamWriteValue32) || !HAS("all of them", cuStreamWaitValue32))
		return;
	for (int on_device = 0; on_device < 2; on_device++) {
		const char *const names[2][4] = {
		        {"write, pinned word: the call", "write, pinned word: one of 64 in a row",
		         "wait that holds, pinned word: the call", "wait that holds, pinned word: one of 64"},
		        {"write, device word: the call", "write, device word: one of 64 in a row",
		         "wait that holds, device word: the call", "wait that holds, device word: one of 64"}};

		if (on_device && !OK(cu.cuMemAlloc(&made, 4096)))
			return floor_failed("words on the device");
		device_word = made;
		measure(names[on_device][0], 0, write_word, settle, NULL);
		each_of_many(names[on_device][1], write_word);
		measure(names[on_device][2], 0, wait_passed, settle, NULL);
		each_of_many(names[on_device][3], wait_passed);
	}
	device_word = 0;
	OK(cu.cuMemFree(made));
	behind_work("write, behind a pending wait: the call", write_word);
	atomic_store(floor_word(BACK), 0);
	measure("write, seen by the host", 0, host_sees_write, settle, &next);
	host_to_host();
}

/* ---- Copies ---- */

struct copy {
	CUdeviceptr dst, src;
	size_t bytes;
};

static bool by_engine(void *arg)
{
	const struct copy *c = arg;

	return OK(cu.cuMemcpyAsync(c->dst, c->src, c->bytes, fs.a)) && OK(cu.cuStreamSynchronize(fs.a));
}

static bool by_kernel(void *arg)
{
	const struct copy *c = arg;
	struct coll_kernel_launch l;
	void *args[] = {&l.args};

	coll_kernels_copy(&l, c->dst, c->src, c->bytes, 0, COLL_KERNEL_PCIE_BLOCKS);
	return OK(cu.cuLaunchKernel(fs.kernel[l.kernel], l.blocks, 1, 1, l.threads, 1, 1, 0, fs.a, args, NULL)) &&
	       OK(cu.cuStreamSynchronize(fs.a));
}

/* The library's copy within the device, whose blocks look at a word in pinned memory first. */
struct guarded {
	struct copy copy;
	bool looks;
	CUdeviceptr gate; /* 0: each block by itself */
};

static bool by_guarded_kernel(void *arg)
{
	const struct guarded *g = arg;
	const struct coll_kernel_piece piece = {g->copy.dst, g->copy.src, g->copy.bytes};
	struct coll_kernel_launch l;
	void *args[] = {&l.args};

	coll_kernels_pieces(&l, &piece, 1, g->looks ? floor_word_address(GUARD) : 0, GUARDED_BLOCKS);
	coll_kernels_gate(&l, g->gate);
	return OK(cu.cuLaunchKernel(fs.kernel[l.kernel], l.blocks, 1, 1, l.threads, 1, 1, 0, fs.a, args, NULL)) &&
	       OK(cu.cuStreamSynchronize(fs.a));
}

static void guarded_copies(CUdeviceptr dst, CUdeviceptr src)
{
	struct guarded g = {.copy = {dst, src, GUARDED_BLOCKS * 4096}};
	CUdeviceptr gate = 0;

	g.copy.bytes = g.copy.bytes < fs.max_bytes ? g.copy.bytes : fs.max_bytes;
	if (!fs.kernel[COLL_KERNEL_PIECES] || !HAS("guarded copies", cuMemsetD8Async))
		return;
	if (!OK(cu.cuMemAlloc(&gate, 4)) || !OK(cu.cuMemsetD8Async(gate, 0, 4, fs.a)))
		return floor_failed("guarded copies");
	atomic_store(floor_word(GUARD), 0);
	measure("within the device, kernel of 1024 blocks", g.copy.bytes, by_guarded_kernel, NULL, &g);
	g.looks = true;
	measure("the same, each block asks for a pinned word", g.copy.bytes, by_guarded_kernel, NULL, &g);
	g.gate = gate;
	measure("the same, one block asks for all", g.copy.bytes, by_guarded_kernel, NULL, &g);
	OK(cu.cuMemFree(gate));
}

static void copies(void)
{
	const int iters = fs.iters;
	CUdeviceptr device[2] = {0, 0}, pinned = 0;
	void *host = mmap(NULL, fs.max_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const bool pins = host != MAP_FAILED &&
	                  OK(cu.cuMemHostRegister(host, fs.max_bytes,
	                                          CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));

	floor_head("copies, to their end");
	if (!pins || !OK(cu.cuMemHostGetDevicePointer(&pinned, host, 0)) ||
	    !OK(cu.cuMemAlloc(&device[0], fs.max_bytes)) || !OK(cu.cuMemAlloc(&device[1], fs.max_bytes)))
		return floor_failed("memory for them");
	for (int way = 0; way < 3; way++) {
		static const char *const names[] = {"device to pinned", "pinned to device", "within the device"};
		char what[64];

		for (size_t bytes = 8; bytes <= fs.max_bytes; bytes *= 8) {
			struct copy c = {way == 0 ? pinned : device[0], way == 1 ? pinned : device[1], bytes};

			fs.iters = bytes > (16 << 20) && iters > 20 ? 20 : iters;
			snprintf(what, sizeof(what), "%s, copy engine", names[way]);
			if (HAS(what, cuMemcpyAsync))
				measure(what, bytes, by_engine, NULL, &c);
			snprintf(what, sizeof(what), "%s, kernel", names[way]);
			if (fs.kernel[COLL_KERNEL_COPY] && bytes <= ONE_COPY_MAX)
				measure(what, bytes, by_kernel, NULL, &c);
		}
	}
	fs.iters = iters;
	guarded_copies(device[0], device[1]);
	OK(cu.cuMemFree(device[0]));
	OK(cu.cuMemFree(device[1]));
	OK(cu.cuMemHostUnregister(host));
	munmap(host, fs.max_bytes);
}

/* ---- Questions ---- */

static bool attributes(void *arg)
{
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
	                               CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
	                               CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	unsigned type = 0, managed = 0;
	CUdeviceptr start = 0;
	size_t size = 0;
	int ordinal = 0;
	void *to[] = {&type, &managed, &ordinal, &start, &size};

	return OK(cu.cuPointerGetAttributes(5, which, to, *(CUdeviceptr *)arg));
}

static CUevent event;

static bool record_event(void *arg)
{
	(void)arg;
	return OK(cu.cuEventRecord(event, fs.a));
}

static bool query_event(void *arg)
{
	(void)arg;
	return OK(cu.cuEventQuery(event));
}

static bool order_streams(void *arg)
{
	return record_event(arg) && OK(cu.cuStreamWaitEvent(fs.b, event, CU_EVENT_WAIT_DEFAULT));
}

static bool query_stream(void *arg)
{
	(void)arg;
	return OK(cu.cuStreamQuery(fs.a));
}

static void questions(void)
{
	static char plain[64];
	CUdeviceptr host = (CUdeviceptr)(uintptr_t)plain, device = 0;

	floor_head("questions and events");
	if (HAS("attributes of a pointer", cuPointerGetAttributes) && OK(cu.cuMemAlloc(&device, 1 << 20))) {
		measure("attributes, plain host memory", 0, attributes, NULL, &host);
		measure("attributes, device memory", 0, attributes, NULL, &device);
		measure("attributes, pinned memory", 0, attributes, NULL, &fs.page_address);
		OK(cu.cuMemFree(device));
	}
	if (HAS("query of an idle stream", cuStreamQuery))
		measure("query of an idle stream", 0, query_stream, NULL, NULL);
	if (!HAS("events", cuEventCreate) || !HAS("events", cuEventRecord) || !HAS("events", cuEventQuery) ||
	    !HAS("events", cuStreamWaitEvent))
		return;
	if (!OK(cu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING)))
		return floor_failed("events");
	measure("record an event: the call", 0, record_event, settle, NULL);
	measure("query an event that is done", 0, query_event, NULL, NULL);
	measure("record, and let another stream wait: the calls", 0, order_streams, settle, NULL);
}

/* ---- Program ---- */

static void title(void)
{
	char name[128] = "?";
	int version = 0;

	if (cu.cuDeviceGetName)
		OK(cu.cuDeviceGetName(name, sizeof(name) - 1, fs.device));
	if (cu.cuDriverGetVersion)
		OK(cu.cuDriverGetVersion(&version));
	printf("# %s, driver for CUDA %d.%d, %d samples a row, blocks of up to %zu MiB\n", name, version / 1000,
	       version % 1000 / 10, fs.iters, fs.max_bytes >> 20);
}

static int usage(int status)
{
	fprintf(status ? stderr : stdout,
	        "usage: cuda_floor [-d DEVICE] [-n SAMPLES] [-m MIB]\n"
	        "  -d DEVICE   number of the device (default 0)\n"
	        "  -n SAMPLES  of each row, 1 to %d (default 1000)\n"
	        "  -m MIB      the largest block and copy, 2 or more (default 1024)\n",
	        ROWS_MAX);
	return status;
}

int main(int argc, char **argv)
{
	struct floor_answer a = {.done = false};
	int flag, device = 0, mib = 1024;

	fs.iters = 1000;
	while ((flag = getopt(argc, argv, "d:n:m:h")) != -1) {
		if (flag == 'd')
			device = atoi(optarg);
		else if (flag == 'n')
			fs.iters = atoi(optarg);
		else if (flag == 'm')
			mib = atoi(optarg);
		else
			return usage(flag == 'h' ? 0 : 2);
	}
	if (optind < argc || fs.iters < 1 || fs.iters > ROWS_MAX || mib < 2 || device < 0)
		return usage(2);
	fs.max_bytes = (size_t)mib << 20;
	fs.page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (fs.page == MAP_FAILED || !floor_other_start(device)) {
		perror("cuda_floor");
		return 1;
	}
	if (!floor_open(device) || !floor_hear(&a) || !a.done) {
		floor_other_end();
		return 1;
	}
	title();
	launches();
	memory_operations();
	questions();
	floor_pair_rows();
	copies();
	floor_mapped_rows();
	floor_other_end();
	return floor_failures > 0;
}
