/*
 * Cases of streams, queues, events and memory operations.
 */
#include "tests/softcuda/cases.h"

#include <string.h>

static void fifo(void)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	hold(s, &w[0], 1);
	for (uint32_t i = 1; i <= 50; i++) {
		write_word(s, &w[1], i);
		OK(cuMemcpyAsync(on_device(&w[100 + i]), on_device(&w[1]), 4, s));
	}
	put(&w[0], 1);
	OK(cuStreamSynchronize(s));
	for (uint32_t i = 1; i <= 50; i++)
		IS(w[100 + i], i);
}

static void async(void)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	hold(s, &w[0], 1); /* would not return */
	write_word(s, &w[1], 1);
	IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	IS(get(&w[1]), 0);
	put(&w[0], 1);
	OK(cuStreamSynchronize(s));
	IS(get(&w[1]), 1);
}

static void legacy(void)
{
	CUstream blocking = stream(CU_STREAM_DEFAULT), other = stream(CU_STREAM_DEFAULT),
	         apart = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	hold(blocking, &w[0], 1);
	write_word(NULL, &w[1], 1);  /* behind the wait */
	write_word(apart, &w[2], 1); /* not */
	write_word(other, &w[3], 1); /* behind the NULL stream's work */
	await(&w[2], 1);
	TRUE(stays_pending(CU_STREAM_LEGACY));
	TRUE(stays_pending(other));
	OK(cuStreamSynchronize(apart));
	IS(get(&w[1]), 0);
	IS(get(&w[3]), 0);
	put(&w[0], 1);
	OK(cuStreamSynchronize(other));
	IS(get(&w[1]), 1);
	IS(get(&w[3]), 1);
}

static void shared_queue(void)
{
	uint32_t *w;
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING),
	         c = stream(CU_STREAM_NON_BLOCKING);

	IS(queue_of(a), 0);
	IS(queue_of(b), 1);
	IS(queue_of(c), 0);
	w = words();
	hold(a, &w[0], 1);
	write_word(c, &w[1], 1); /* shares the queue of a */
	write_word(b, &w[2], 1);
	await(&w[2], 1);
	TRUE(stays_pending(c));
	IS(get(&w[1]), 0);
	put(&w[0], 1);
	await(&w[1], 1);
}

static void own_queue(void)
{
	CUstream s[8];
	uint32_t *w;

	start();
	for (int i = 0; i < 8; i++)
		s[i] = stream(CU_STREAM_NON_BLOCKING);
	w = words();
	for (int i = 0; i < 7; i++)
		hold(s[i], &w[0], 1);
	write_word(s[7], &w[1], 1);
	await(&w[1], 1);
	put(&w[0], 1);
	for (int i = 0; i < 8; i++)
		OK(cuStreamSynchronize(s[i]));
}

static CUresult enqueue_write(void *arg)
{
	void **a = arg;

	return cuStreamWriteValue32(a[0], on_device(a[1]), 1, 0);
}

static void queue_depth(void)
{
	struct other_call c;
	void *args[2];
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	hold(s, &w[0], 1);
	for (int i = 0; i < 15; i++)
		write_word(s, &w[1], 1);
	args[0] = s;
	args[1] = &w[2];
	call_begin(&c, enqueue_write, args);
	TRUE(call_waits(&c));
	put(&w[0], 1);
	OK(call_end(&c));
	await(&w[2], 1);
}

static CUresult call_launch(void *arg)
{
	void **a = arg;

	return launch(a[0], 1, 32, a[1], (uint64_t)(uintptr_t)a[2], (uint64_t)(uintptr_t)a[2], 32, 0);
}

static CUresult call_query(void *arg)
{
	return cuStreamQuery(arg);
}

static void lazy_launch(void)
{
	struct other_call first, second;
	void *args[3];
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();
	CUdeviceptr p = device_memory(4096);
	CUfunction f = kernel("softtest_add");

	hold(a, &w[0], 1);
	args[0] = f, args[1] = b, args[2] = (void *)(uintptr_t)p;
	call_begin(&first, call_launch, args);
	TRUE(call_waits(&first));
	call_begin(&second, call_query, b); /* any other call waits too */
	while (blocked_calls() < 2)
		TRUE(!__atomic_load_n(&second.returned, __ATOMIC_ACQUIRE));
	put(&w[0], 1);
	OK(call_end(&first));
	call_end(&second);
	OK(cuCtxSynchronize());
	hold(a, &w[0], 2);
	OK(call_launch(args)); /* loaded now: returns */
	OK(cuStreamSynchronize(b));
	put(&w[0], 2);
}

static CUresult call_stream(void *arg)
{
	return cuStreamCreate(arg, CU_STREAM_NON_BLOCKING);
}

static void stream_create(void)
{
	struct other_call c;
	CUstream made;
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	hold(s, &w[0], 1);
	call_begin(&c, call_stream, &made);
	TRUE(call_waits(&c));
	put(&w[0], 1);
	OK(call_end(&c));
	write_word(made, &w[1], 1);
	await(&w[1], 1);
}

static CUresult call_free(void *arg)
{
	return cuMemFree((CUdeviceptr)(uintptr_t)arg);
}

static void free_waits(void)
{
	struct other_call c;
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();
	CUdeviceptr p = device_memory(64);

	hold(s, &w[0], 1);
	call_begin(&c, call_free, (void *)(uintptr_t)p);
	TRUE(call_waits(&c));
	put(&w[0], 1);
	OK(call_end(&c));
}

static CUresult call_copy(void *arg)
{
	void **a = arg;

	return cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)a[0], a[1], 64, a[2]);
}

static void pageable_copy(void)
{
	struct other_call c;
	char here[64] = "pageable", back[64] = "";
	void *args[3];
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();
	CUdeviceptr p = device_memory(64);

	hold(s, &w[0], 1);
	args[0] = (void *)(uintptr_t)p, args[1] = here, args[2] = s;
	call_begin(&c, call_copy, args);
	TRUE(call_waits(&c));
	put(&w[0], 1);
	OK(call_end(&c));
	OK(cuMemcpyDtoHAsync(back, p, 64, s)); /* has returned: is done */
	IS(memcmp(here, back, 64), 0);
}

static void registered_copy(void)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();
	CUdeviceptr p = device_memory(64);

	put(&w[16], 77);
	hold(s, &w[0], 1);
	OK(cuMemcpyHtoDAsync(p, &w[16], 64, s));
	OK(cuMemcpyDtoHAsync(&w[32], p, 64, s));
	OK(cuMemcpyAsync(on_device(&w[48]), p, 64, s));
	IS(get(&w[32]), 0);
	put(&w[0], 1);
	OK(cuStreamSynchronize(s));
	IS(w[32], 77);
	IS(w[48], 77);
}

static void launch_blocking(void)
{
	struct other_call c;
	void *args[3];
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();
	CUdeviceptr p = device_memory(4096);
	CUfunction f = kernel("softtest_add");

	args[0] = f, args[1] = s, args[2] = (void *)(uintptr_t)p;
	OK(call_launch(args)); /* loads */
	hold(s, &w[0], 1);
	write_word(s, &w[1], 1);
	call_begin(&c, call_launch, args);
	TRUE(call_waits(&c));
	put(&w[0], 1);
	OK(call_end(&c));
}

/* ---- memory operations ---- */

static bool falls_through(CUstream s, uint32_t *w, uint32_t is, uint32_t value, unsigned flags)
{
	bool through;

	/* A word written behind the wait says whether it ended; then it is ended in any case. */
	put(&w[0], is);
	put(&w[1], 0);
	OK(cuStreamWaitValue32(s, on_device(&w[0]), value, flags));
	write_word(s, &w[1], 1);
	through = !stays_pending(s);
	put(&w[0], flags == CU_STREAM_WAIT_VALUE_NOR ? 0 : flags == CU_STREAM_WAIT_VALUE_AND ? ~0u : value);
	await(&w[1], 1);
	return through;
}

static void wait_cyclic(void)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	put(&w[0], 3); /* 3 is ahead of 0xfffffffe by 5 */
	hold(s, &w[0], 0xfffffffe);
	write_word(s, &w[1], 1);
	await(&w[1], 1);
	put(&w[0], 0xfffffffe); /* and 0xfffffffe behind 3 */
	hold(s, &w[0], 3);
	write_word(s, &w[2], 1);
	hold(s, &w[0], 4);
	TRUE(stays_pending(s) && !get(&w[2]));
	put(&w[0], 3);
	await(&w[2], 1);
	put(&w[0], 4);
	OK(cuStreamSynchronize(s));
}

static void wait_flags(void)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	TRUE(falls_through(s, w, 5, 5, CU_STREAM_WAIT_VALUE_EQ));
	TRUE(!falls_through(s, w, 6, 5, CU_STREAM_WAIT_VALUE_EQ));
	TRUE(falls_through(s, w, 6, 2, CU_STREAM_WAIT_VALUE_AND));
	TRUE(!falls_through(s, w, 5, 2, CU_STREAM_WAIT_VALUE_AND));
	TRUE(falls_through(s, w, 5, 2, CU_STREAM_WAIT_VALUE_NOR));
	TRUE(!falls_through(s, w, ~2u, 2, CU_STREAM_WAIT_VALUE_NOR));
	IS(cuStreamWaitValue32(s, on_device(w), 0, CU_STREAM_WAIT_VALUE_FLUSH), CUDA_ERROR_NOT_SUPPORTED);
	IS(cuStreamWriteValue32(s, on_device(w), 0, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER), CUDA_ERROR_NOT_SUPPORTED);
}

static void memop_aligned(void)
{
	uint32_t *w = words();
	CUdeviceptr p = device_memory(64);

	IS(cuStreamWriteValue32(NULL, on_device(w) + 2, 0, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuStreamWaitValue32(NULL, p + 1, 0, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamWriteValue32(NULL, p + 4, 0, 0));
	OK(cuStreamSynchronize(NULL));
}

static void memop_memory(void)
{
	static uint32_t pageable;
	CUdeviceptr managed;
	CUdeviceptr p = device_memory(64);

	OK(cuMemAllocManaged(&managed, 64, CU_MEM_ATTACH_GLOBAL));
	IS(cuStreamWriteValue32(NULL, (CUdeviceptr)(uintptr_t)&pageable, 1, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuStreamWriteValue32(NULL, managed, 1, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuStreamWaitValue32(NULL, p + 64, 1, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamWriteValue32(NULL, p + 60, 1, 0));
	OK(cuStreamWaitValue32(NULL, p + 60, 1, 0));
	OK(cuStreamSynchronize(NULL));
}

static void memop_batch(void)
{
	CUstreamBatchMemOpParams ops[256];
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	memset(ops, 0, sizeof(ops));
	for (uint32_t i = 0; i < 256; i++) {
		ops[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
		ops[i].writeValue.address = on_device(&w[1]);
		ops[i].writeValue.value = i + 1;
	}
	IS(cuStreamBatchMemOp(s, 256, ops, 0), CUDA_ERROR_INVALID_VALUE);
	ops[100].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32; /* of what the one before wrote */
	ops[100].waitValue.value = 100;
	ops[100].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
	OK(cuStreamBatchMemOp(s, 255, ops, 0));
	OK(cuStreamSynchronize(s));
	IS(get(&w[1]), 255);
}

/* ---- events ---- */

static void events(void)
{
	CUevent e;
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(cuEventQuery(e));
	hold(s, &w[0], 1);
	OK(cuEventRecord(e, s));
	hold(s, &w[0], 2);
	IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	put(&w[0], 1);
	OK(cuEventSynchronize(e)); /* does not wait for what is behind */
	OK(cuEventQuery(e));
	IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	put(&w[0], 2);
	OK(cuStreamSynchronize(s));
	OK(cuEventDestroy(e));
	IS(cuEventQuery(e), CUDA_ERROR_INVALID_HANDLE);
}

static void wait_event(void)
{
	CUevent e;
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	hold(a, &w[0], 1);
	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(b, e, 0));
	write_word(b, &w[1], 1);
	hold(a, &w[0], 2);
	OK(cuEventRecord(e, a)); /* later than the wait: not waited for */
	TRUE(stays_pending(b));
	IS(get(&w[1]), 0);
	put(&w[0], 1);
	await(&w[1], 1);
	put(&w[0], 2);
	OK(cuStreamSynchronize(a));
}

const struct softcuda_case cases_streams[] = {
        {"fifo", fifo, {NULL}},
        {"async", async, {NULL}},
        {"legacy", legacy, {NULL}},
        {"shared_queue", shared_queue, {"SOFTCUDA_QUEUES=2", NULL}},
        {"own_queue", own_queue, {NULL}},
        {"queue_depth", queue_depth, {"SOFTCUDA_DEPTH=16", NULL}},
        {"lazy_launch", lazy_launch, {NULL}},
        {"stream_create", stream_create, {NULL}},
        {"free_waits", free_waits, {NULL}},
        {"pageable_copy", pageable_copy, {NULL}},
        {"registered_copy", registered_copy, {NULL}},
        {"launch_blocking", launch_blocking, {"CUDA_LAUNCH_BLOCKING=1", NULL}},
        {"wait_cyclic", wait_cyclic, {NULL}},
        {"wait_flags", wait_flags, {NULL}},
        {"memop_aligned", memop_aligned, {NULL}},
        {"memop_memory", memop_memory, {NULL}},
        {"memop_batch", memop_batch, {NULL}},
        {"events", events, {NULL}},
        {"wait_event", wait_event, {NULL}},
        {NULL, NULL, {NULL}},
};
