/*
 * The driver of cuda_floor, this process's use of it, and the rows of the table.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "floor.h"

enum { LINE = 64, PAGE = 4096 };

struct floor_driver cu;
struct floor_state fs;
int floor_failures;

double floor_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

bool floor_ok(CUresult r, const char *what)
{
	const char *name = NULL;

	if (r == CUDA_SUCCESS)
		return true;
	if (!cu.cuGetErrorName || cu.cuGetErrorName(r, &name) != CUDA_SUCCESS)
		name = "an error";
	fprintf(stderr, "cuda_floor: %.60s: %d %s\n", what, (int)r, name);
	return false;
}

static bool load(void)
{
	const char *name = getenv("COLL_CUDA_LIBRARY");
	void *file = dlopen(name && *name ? name : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

	if (!file) {
		fprintf(stderr, "cuda_floor: cannot load the CUDA driver: %s\n", dlerror());
		return false;
	}
#define LOAD(member, symbol, version, parameters) *(void **)(void *)&cu.member = dlsym(file, #symbol);
	CUDA_ABI_FUNCTIONS(LOAD)
#undef LOAD
	if (cu.cuInit && cu.cuDeviceGet && cu.cuDevicePrimaryCtxRetain && cu.cuCtxSetCurrent && cu.cuStreamCreate &&
	    cu.cuStreamSynchronize && cu.cuMemAlloc && cu.cuMemFree && cu.cuMemHostRegister &&
	    cu.cuMemHostGetDevicePointer)
		return true;
	fprintf(stderr, "cuda_floor: the driver lacks what every row needs\n");
	return false;
}

static bool load_kernels(void)
{
	CUmodule module;

	if (!coll_kernels_ptx())
		return true;
	if (!OK(cu.cuModuleLoadData(&module, coll_kernels_ptx())))
		return false;
	for (int i = 0; i < COLL_KERNEL_COUNT; i++)
		if (!OK(cu.cuModuleGetFunction(&fs.kernel[i], module, coll_kernels_name(i))))
			return false;
	return true;
}

bool floor_open(int ordinal)
{
	if (!load() || !OK(cu.cuInit(0)) || !OK(cu.cuDeviceGet(&fs.device, ordinal)) ||
	    !OK(cu.cuDevicePrimaryCtxRetain(&fs.context, fs.device)) || !OK(cu.cuCtxSetCurrent(fs.context)) ||
	    !OK(cu.cuStreamCreate(&fs.a, CU_STREAM_NON_BLOCKING)) ||
	    !OK(cu.cuStreamCreate(&fs.b, CU_STREAM_NON_BLOCKING)) ||
	    !OK(cu.cuMemHostRegister(fs.page, PAGE, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)) ||
	    !OK(cu.cuMemHostGetDevicePointer(&fs.page_address, fs.page, 0)) || !load_kernels())
		return false;
	/* A first launch may wait for an idle device. */
	return !fs.kernel[COLL_KERNEL_COPY] || (floor_launch_nothing(fs.a) && OK(cu.cuStreamSynchronize(fs.a)));
}

bool floor_launch_nothing(CUstream s)
{
	struct coll_kernel_launch l;
	void *args[] = {&l.args};

	coll_kernels_nothing(&l, COLL_KERNEL_COPY);
	return OK(cu.cuLaunchKernel(fs.kernel[l.kernel], l.blocks, 1, 1, l.threads, 1, 1, 0, s, args, NULL));
}

_Atomic uint32_t *floor_word(int i)
{
	return (_Atomic uint32_t *)(void *)(fs.page + (size_t)i * LINE);
}

CUdeviceptr floor_word_address(int i)
{
	return fs.page_address + (CUdeviceptr)i * LINE;
}

/* ---- Rows ---- */

static int compare(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void floor_head(const char *title)
{
	printf("\n%-52s %12s %10s %10s %10s %8s\n", title, "bytes", "p50 us", "min us", "p99 us", "GB/s");
}

void floor_row(const char *what, size_t bytes, double *us, int n)
{
	char size[24] = "-", rate[24] = "-";
	double p50;

	qsort(us, (size_t)n, sizeof(*us), compare);
	p50 = us[n / 2];
	if (bytes > 0) {
		snprintf(size, sizeof(size), "%zu", bytes);
		snprintf(rate, sizeof(rate), "%.2f", (double)bytes / p50 * 1e-3);
	}
	printf("  %-50s %12s %10.2f %10.2f %10.2f %8s\n", what, size, p50, us[0], us[(int)((double)n * 0.99)], rate);
	fflush(stdout);
}

void floor_lacks(const char *what, const char *function)
{
	printf("  %-50s the driver lacks %s\n", what, function);
}

void floor_failed(const char *what)
{
	floor_failures++;
	printf("  %-50s failed: see stderr\n", what);
}
