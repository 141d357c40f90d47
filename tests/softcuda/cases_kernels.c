/*
 * Cases of launches, of what kernels may touch, and of the errors that follow.
 */
#include "tests/softcuda/cases.h"

static CUresult load_from(CUdeviceptr at, unsigned bytes, CUdeviceptr out)
{
	OK(launch(kernel("softtest_load"), 1, 1, CU_STREAM_PER_THREAD, out, at, bytes, 0));
	return cuStreamSynchronize(CU_STREAM_PER_THREAD);
}

static void wild(void)
{
	int local = 5;
	CUdeviceptr out = device_memory(64);

	OK(load_from(out, 4, out));
	IS(load_from((CUdeviceptr)(uintptr_t)&local, 4, out), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void guard(void)
{
	CUdeviceptr p = device_memory(100), out = device_memory(64);

	OK(load_from(p + 99, 1, out));
	OK(load_from(p + 96, 4, out));
	IS(load_from(p + 100, 1, out), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void freed(void)
{
	CUdeviceptr p = device_memory(64), out = device_memory(64);

	OK(load_from(p, 4, out));
	OK(cuMemFree(p));
	IS(load_from(p, 4, out), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void misaligned(void)
{
	CUdeviceptr p = device_memory(64);

	OK(load_from(p + 16, 16, p));
	IS(load_from(p + 8, 16, p), CUDA_ERROR_MISALIGNED_ADDRESS);
}

static void other_device(void)
{
	CUcontext zero = start(), one;
	CUdeviceptr p, out;

	OK(cuDevicePrimaryCtxRetain(&one, 1));
	OK(cuCtxSetCurrent(one));
	p = device_memory(64);
	OK(cuCtxSetCurrent(zero));
	out = device_memory(64);
	OK(cuCtxEnablePeerAccess(one, 0));
	IS(cuCtxEnablePeerAccess(one, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	OK(load_from(p, 4, out));
	OK(cuCtxSetCurrent(one)); /* access in this direction was not enabled */
	IS(load_from(out, 4, p), CUDA_ERROR_ILLEGAL_ADDRESS);
	OK(cuCtxSetCurrent(zero)); /* the other context goes on */
	OK(load_from(p, 4, out));
}

static void sticky(void)
{
	CUdeviceptr p;
	CUevent e;
	CUdeviceptr out = device_memory(64);

	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	IS(load_from(8, 4, out), CUDA_ERROR_ILLEGAL_ADDRESS);
	IS(cuMemAlloc(&p, 64), CUDA_ERROR_ILLEGAL_ADDRESS);
	IS(cuStreamQuery(NULL), CUDA_ERROR_ILLEGAL_ADDRESS);
	IS(cuEventQuery(e), CUDA_ERROR_ILLEGAL_ADDRESS);
	IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	IS(launch(NULL, 1, 1, NULL, out, out, 4, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void other_context(void)
{
	CUcontext foreign;
	uint32_t *w;
	CUdeviceptr p;

	/* Some threads wait at the barrier when another one faults: they are given up. */
	start();
	p = device_memory(100);
	OK(launch(kernel("softtest_sum"), 2, 64, NULL, p, p, 0, 0));
	IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
	OK(cuCtxCreate(&foreign, 0, 0));
	w = words();
	for (int i = 0; i < 64; i++)
		w[i] = 2;
	OK(launch(kernel("softtest_sum"), 1, 64, NULL, on_device(&w[64]), on_device(w), 0, 0));
	OK(cuCtxSynchronize());
	IS(w[64], 128);
}

static void sticky_drains(void)
{
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr out = device_memory(64);
	uint32_t *w = words();
	CUfunction f = kernel("softtest_load");

	OK(launch(f, 1, 1, b, out, out, 4, 0));
	OK(cuCtxSynchronize());
	hold(a, &w[0], 1);
	write_word(a, &w[1], 1);
	OK(launch(f, 1, 1, b, out, 8, 4, 0));
	IS(cuStreamSynchronize(b), CUDA_ERROR_ILLEGAL_ADDRESS);
	while (done_ops() < enqueued_ops()) /* the wait has ended, though its word has not changed */
		;
	IS(get(&w[1]), 0);
}

static bool called;

static void callback(void *arg)
{
	__atomic_store_n(&called, true, __ATOMIC_RELEASE);
}

static void no_callback(void)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	CUdeviceptr out = device_memory(64);
	uint32_t *w = words();
	CUfunction f = kernel("softtest_load");

	OK(launch(f, 1, 1, s, out, out, 4, 0));
	OK(cuLaunchHostFunc(s, callback, NULL));
	OK(cuStreamSynchronize(s));
	TRUE(called);
	called = false;
	hold(s, &w[0], 1);
	OK(launch(f, 1, 1, s, out, 8, 4, 0));
	OK(cuLaunchHostFunc(s, callback, NULL));
	put(&w[0], 1);
	IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
	TRUE(!__atomic_load_n(&called, __ATOMIC_ACQUIRE));
}

static CUresult inside;

static void calls_driver(void *arg)
{
	inside = cuStreamQuery(arg);
}

static void callback_calls(void)
{
	CUstream s = stream(CU_STREAM_NON_BLOCKING);

	OK(cuLaunchHostFunc(s, calls_driver, s));
	OK(cuStreamSynchronize(s));
	IS(inside, CUDA_ERROR_NOT_PERMITTED);
}

static void launch_sizes(void)
{
	CUdeviceptr p = device_memory(8192);
	CUfunction f = kernel("softtest_add");

	IS(launch(f, 0, 32, NULL, p, p, 0, 0), CUDA_ERROR_INVALID_VALUE);
	IS(launch(f, 1, 0, NULL, p, p, 0, 0), CUDA_ERROR_INVALID_VALUE);
	IS(launch(f, 1, 1025, NULL, p, p, 0, 0), CUDA_ERROR_INVALID_VALUE);
	OK(launch(f, 2, 1024, NULL, p, p, 2048, 3));
	OK(cuCtxSynchronize());
}

static void mixed_contexts(void)
{
	CUcontext zero = start(), foreign;
	CUdeviceptr p;
	CUfunction f;
	CUevent e;
	CUstream s = stream(CU_STREAM_NON_BLOCKING);

	OK(cuCtxCreate(&foreign, 0, 0));
	f = kernel("softtest_add");
	p = device_memory(64);
	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	IS(cuEventRecord(e, s), CUDA_ERROR_INVALID_HANDLE);
	IS(launch(f, 1, 1, s, p, p, 1, 0), CUDA_ERROR_INVALID_HANDLE);
	IS(cuStreamQuery((CUstream)(uintptr_t)&p), CUDA_ERROR_INVALID_HANDLE);
	OK(cuCtxDestroy(foreign));
	OK(cuCtxSetCurrent(zero));
}

static void block_order(void)
{
	uint32_t sum = 0;
	CUdeviceptr p;
	uint32_t *w = words();
	CUfunction f = kernel("softtest_sum");

	for (int block = 0; block < 4; block++)
		for (uint32_t i = 0; i < 128; i++)
			w[block * 128 + (int)i] = i * (uint32_t)(block + 1);
	for (uint32_t i = 0; i < 128; i++)
		sum += i;
	p = on_device(w);
	OK(launch(f, 4, 128, NULL, p + 3072, p, 0, 0));
	OK(cuCtxSynchronize());
	for (uint32_t block = 0; block < 4; block++)
		IS(w[768 + block], sum * (block + 1));
}

const struct softcuda_case cases_kernels[] = {
        {"wild", wild, {NULL}},
        {"guard", guard, {NULL}},
        {"freed", freed, {NULL}},
        {"misaligned", misaligned, {NULL}},
        {"other_device", other_device, {"SOFTCUDA_DEVICES=2", NULL}},
        {"sticky", sticky, {NULL}},
        {"other_context", other_context, {"SOFTCUDA_QUEUES=1", NULL}},
        {"sticky_drains", sticky_drains, {NULL}},
        {"no_callback", no_callback, {NULL}},
        {"callback_calls", callback_calls, {NULL}},
        {"launch_sizes", launch_sizes, {NULL}},
        {"mixed_contexts", mixed_contexts, {NULL}},
        {"block_order", block_order, {NULL}},
        {NULL, NULL, {NULL}},
};
