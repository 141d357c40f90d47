/*
 * See cuda_kernels.h.
 */
#include "device/cuda_kernels.h"

#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/planted.h"

struct coll_cuda_kernels {
	struct coll_cuda_kernels *next;
	CUcontext context;
	CUmodule module;
	CUfunction kernel[COLL_KERNEL_COUNT];
	int users;        /* device objects */
	bool kept;        /* a graph has them */
	bool has_context; /* a reference of it, for the graphs */
};

/* Held while they are loaded: who comes second waits for kernels that have run. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct coll_cuda_kernels *all;

static coll_status load(struct coll_cuda_device *c, struct coll_cuda_kernels *k)
{
	CUresult result = c->cu->cuModuleLoadData(&k->module, coll_kernels_ptx());

	if (result != CUDA_SUCCESS)
		return coll_cuda_report(c, "loading the kernels (cuModuleLoadData)", result);
	for (int i = 0; i < COLL_KERNEL_COUNT; i++) {
		result = c->cu->cuModuleGetFunction(&k->kernel[i], k->module, coll_kernels_name(i));
		if (result != CUDA_SUCCESS)
			return coll_cuda_report(c, coll_kernels_name(i), result);
	}
	return COLL_OK;
}

CUresult coll_cuda_drain(struct coll_cuda_device *c)
{
	const uint64_t deadline = coll_clock_ns() + COLL_DELAY_NS(KERNELS_READY);
	CUresult result;

	while ((result = c->cu->cuStreamQuery(c->stream)) == CUDA_ERROR_NOT_READY && coll_clock_ns() < deadline)
		nanosleep(&(struct timespec){.tv_nsec = (long)COLL_DELAY_NS(KERNELS_LOOK)}, NULL);
	return result;
}

/*
 * Launch each kernel with nothing to do. The first launch of a kernel may wait until the device is idle, which would
 * be for ever behind a stream that waits for a word.
 */
static coll_status launch_all(struct coll_cuda_device *c)
{
	struct coll_kernel_launch l;
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < COLL_KERNEL_COUNT && result == CUDA_SUCCESS && !planted(LATE_KERNEL); i++) {
		coll_kernels_nothing(&l, i);
		result = coll_cuda_launch(c, c->stream, &l);
	}
	return coll_cuda_report(c, "first launch of the kernels", result == CUDA_SUCCESS ? coll_cuda_drain(c) : result);
}

static void use(struct coll_cuda_device *c, struct coll_cuda_kernels *k)
{
	c->kernels = k;
	for (int i = 0; i < COLL_KERNEL_COUNT; i++)
		c->kernel[i] = k->kernel[i];
}

static coll_status load_first(struct coll_cuda_device *c)
{
	struct coll_cuda_kernels *k = calloc(1, sizeof(*k));
	coll_status st;

	if (!k)
		return coll_error_set(&c->base.err, COLL_ERR_MEMORY, "out of memory for a device");
	k->context = c->context;
	st = load(c, k);
	if (st == COLL_OK) {
		use(c, k);
		st = launch_all(c);
	}
	if (st == COLL_OK) {
		k->users = 1;
		k->next = all;
		all = k;
		return COLL_OK;
	}
	c->kernels = NULL;
	if (k->module)
		c->cu->cuModuleUnload(k->module);
	free(k);
	return st;
}

coll_status coll_cuda_kernels_load(struct coll_cuda_device *c)
{
	struct coll_cuda_kernels *k;
	coll_status st = COLL_OK;

	pthread_mutex_lock(&lock);
	for (k = all; k && k->context != c->context; k = k->next)
		;
	if (k) {
		k->users++;
		use(c, k);
	} else {
		st = load_first(c);
	}
	pthread_mutex_unlock(&lock);
	return st;
}

void coll_cuda_kernels_keep(struct coll_cuda_device *c)
{
	pthread_mutex_lock(&lock);
	c->kernels->kept = true;
	pthread_mutex_unlock(&lock);
}

bool coll_cuda_kernels_unload(struct coll_cuda_device *c)
{
	struct coll_cuda_kernels *k = c->kernels, **at = &all;
	bool last, stay;

	c->kernels = NULL;
	if (!k)
		return true;
	pthread_mutex_lock(&lock);
	last = --k->users == 0 && !k->kept;
	stay = k->users == 0 && k->kept && !k->has_context;
	if (stay)
		k->has_context = true;
	while (last && *at != k)
		at = &(*at)->next;
	if (last)
		*at = k->next;
	pthread_mutex_unlock(&lock);
	if (last) {
		c->cu->cuModuleUnload(k->module); /* waits for the device */
		free(k);
	}
	return !stay;
}
