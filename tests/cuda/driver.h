/*
 * The stand-in driver as a test sees it beside the library: its functions by their symbols, and its counters.
 */
#ifndef TESTS_CUDA_DRIVER_H
#define TESTS_CUDA_DRIVER_H

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "device/cuda_abi.h"

static const char *driver_path; /* of the file */
static void *driver_file;       /* once it is loaded */
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

/* DRIVER(cuMemAlloc_v2)(&p, len) */
#define DRIVER(symbol) ((symbol##_fn)driver_symbol(#symbol))

static inline void driver_load(void)
{
	driver_file = dlopen(driver_path, RTLD_NOW | RTLD_LOCAL);
}

/* Any thread. */
static inline void *driver_symbol(const char *name)
{
	void *p;

	pthread_once(&driver_once, driver_load);
	p = driver_file ? dlsym(driver_file, name) : NULL;
	if (!p)
		abort();
	return p;
}

/* Calls of an entry point; NULL: of all. */
static inline long driver_calls(const char *name)
{
	return ((long (*)(const char *))driver_symbol("softcuda_count"))(name);
}

#endif
