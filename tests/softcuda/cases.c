/*
 * Helpers of the cases: see cases.h.
 */
#include "tests/softcuda/cases.h"

#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

const char case_ptx[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                        ".visible .entry softtest_add(\n.param .b8 p[24]\n)\n{ ret; }\n"
                        ".visible .entry softtest_sum(\n.param .b8 p[24]\n)\n{ ret; }\n"
                        ".visible .entry softtest_load(\n.param .b8 p[24]\n)\n{ ret; }\n"
                        ".visible .entry softtest_shared(\n.param .b8 p[24]\n)\n{ ret; }\n";

void case_fail(const char *file, int line, const char *text, long is, long wanted)
{
	printf("%s:%d: %s is %ld, not %ld\n", file, line, text, is, wanted);
	fflush(stdout);
	_exit(1);
}

static bool started;

CUcontext start(void)
{
	CUcontext ctx;

	started = true;
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
	return ctx;
}

static void start_once(void)
{
	if (!started)
		start();
}

CUmodule load(void)
{
	CUmodule m;

	OK(cuModuleLoadData(&m, case_ptx));
	return m;
}

CUfunction kernel(const char *name)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, load(), name));
	return f;
}

CUresult launch(CUfunction f, unsigned blocks, unsigned threads, CUstream s, uint64_t out, uint64_t in, unsigned count,
                unsigned add)
{
	struct softtest_add args = {out, in, count, add};
	void *params[] = {&args};

	return cuLaunchKernel(f, blocks, 1, 1, threads, 1, 1, 0, s, params, NULL);
}

CUstream stream(unsigned flags)
{
	CUstream s;

	start_once();
	OK(cuStreamCreate(&s, flags));
	return s;
}

CUdeviceptr device_memory(size_t len)
{
	CUdeviceptr p;

	start_once();
	OK(cuMemAlloc(&p, len));
	return p;
}

uint32_t *words(void)
{
	uint32_t *w = mmap(NULL, WORDS * sizeof(*w), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	start_once();
	TRUE(w != MAP_FAILED);
	OK(cuMemHostRegister(w, WORDS * sizeof(*w), CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
	return w;
}

CUdeviceptr on_device(const void *host)
{
	CUdeviceptr p;

	OK(cuMemHostGetDevicePointer(&p, (void *)(uintptr_t)host, 0));
	return p;
}

void hold(CUstream s, uint32_t *word, uint32_t value)
{
	OK(cuStreamWaitValue32(s, on_device(word), value, CU_STREAM_WAIT_VALUE_GEQ));
}

void put(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

uint32_t get(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

void write_word(CUstream s, uint32_t *word, uint32_t value)
{
	OK(cuStreamWriteValue32(s, on_device(word), value, 0));
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void breathe(long since)
{
	TRUE(now_ms() - since < 20000);
	sched_yield();
}

void await(const uint32_t *word, uint32_t value)
{
	const long since = now_ms();

	while (get(word) != value)
		breathe(since);
}

bool stays_pending(CUstream s)
{
	const long since = now_ms();

	/* A planted mistake must show; what is right is right at once. */
	for (int i = 0; i < 2000 || (getenv("SOFTCUDA_PLANT") && now_ms() - since < 1000); i++) {
		const CUresult result = cuStreamQuery(s);

		if (!result)
			return false;
		IS(result, CUDA_ERROR_NOT_READY);
		sched_yield();
	}
	return true;
}

static void *call_main(void *arg)
{
	struct other_call *c = arg;

	if (c->ctx)
		OK(cuCtxSetCurrent(c->ctx));
	c->result = c->call(c->arg);
	__atomic_store_n(&c->returned, true, __ATOMIC_RELEASE);
	return NULL;
}

void call_begin(struct other_call *c, CUresult (*call)(void *), void *arg)
{
	*c = (struct other_call){.call = call, .arg = arg};
	OK(cuCtxGetCurrent(&c->ctx));
	OK(pthread_create(&c->thread, NULL, call_main, c));
}

bool call_waits(struct other_call *c)
{
	const long since = now_ms();

	while (!blocked_calls() && !__atomic_load_n(&c->returned, __ATOMIC_ACQUIRE))
		breathe(since);
	return !__atomic_load_n(&c->returned, __ATOMIC_ACQUIRE);
}

CUresult call_end(struct other_call *c)
{
	pthread_join(c->thread, NULL);
	return c->result;
}
