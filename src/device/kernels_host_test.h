/*
 * Test helper: the device kernels as C of the host, and launches of them. Counts accesses that are not aligned, and
 * those below 16 bytes and of 16.
 *
 * A block of one thread needs no barrier. One of several is as many threads of the system, with a barrier among them.
 */
#ifndef COLL_DEVICE_KERNELS_HOST_TEST_H
#define COLL_DEVICE_KERNELS_HOST_TEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "device/kernels.h"
#include "tests/plain.h"

/* ---- What kernel.h wants of a host ---- */

static _Thread_local uint32_t this_thread, this_block;
static uint32_t threads, blocks;
static pthread_barrier_t meeting;
static _Atomic unsigned crooked, narrow, wide; /* accesses: not aligned, below 16 bytes, of 16 bytes */
static uint64_t watched;                       /* the address of a word; */
static _Atomic unsigned asked;                 /* how often it was loaded */

static void meet(void)
{
	if (threads > 1)
		pthread_barrier_wait(&meeting);
}

static char *place(uint64_t p, unsigned bytes)
{
	if (p % bytes)
		atomic_fetch_add_explicit(&crooked, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(bytes == 16 ? &wide : &narrow, 1, memory_order_relaxed);
	return (char *)(uintptr_t)p;
}

#define ACCESS(bytes, type)                                  \
	static inline type load_##bytes(uint64_t p)          \
	{                                                    \
		type v;                                      \
                                                             \
		memcpy(&v, place(p, bytes), bytes);          \
		return v;                                    \
	}                                                    \
	static inline void store_##bytes(uint64_t p, type v) \
	{                                                    \
		memcpy(place(p, bytes), &v, bytes);          \
	}

#define KERNEL(name, tag)       static void name(struct tag args)
#define KERNEL_INLINE           static inline __attribute__((always_inline, unused))
#define KERNEL_UNROLL           /* none */
#define KERNEL_ROLLED           /* none */
#define THREAD                  this_thread
#define THREADS                 threads
#define BLOCK                   this_block
#define BLOCKS                  blocks
#define BARRIER()               meet()
#define SHARED(type, name, n)   static type name[n]
#define LOAD_1(p)               load_1(p)
#define LOAD_2(p)               load_2(p)
#define LOAD_4(p)               load_4(p)
#define LOAD_8(p)               load_8(p)
#define LOAD_16(p)              load_16(p)
#define STORE_1(p, v)           store_1(p, v)
#define STORE_2(p, v)           store_2(p, v)
#define STORE_4(p, v)           store_4(p, v)
#define STORE_8(p, v)           store_8(p, v)
#define STORE_16(p, v)          store_16(p, v)
#define WORD(p)                 ((_Atomic uint32_t *)(uintptr_t)(p))
#define LOAD_ACQUIRE_SYS(p)     load_acquire(p)
#define LOAD_RELAXED_SYS(p)     atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)(p), memory_order_relaxed)
#define STORE_RELEASE_SYS(p, v) atomic_store_explicit(WORD(p), v, memory_order_release)
#define FENCE_SYS()             atomic_thread_fence(memory_order_acq_rel)
#define ATOMIC_ADD(p, v)        atomic_fetch_add_explicit(WORD(p), v, memory_order_acq_rel)

static inline uint32_t load_acquire(uint64_t p)
{
	if (p == watched)
		atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
	return atomic_load_explicit(WORD(p), memory_order_acquire);
}

ACCESS(1, uint8_t)
ACCESS(2, uint16_t)
ACCESS(4, uint32_t)
ACCESS(8, uint64_t)
struct kernel_16;
static inline struct kernel_16 load_16(uint64_t p);
static inline void store_16(uint64_t p, struct kernel_16 v);

#include "device/kernels/kernels.cu"
#include "device/kernels/table.h"

ACCESS(16, struct kernel_16)

/* ---- Launches ---- */

#define CALL(entry, tag)                           \
	static void entry##_call(const void *args) \
	{                                          \
		entry(*(const struct tag *)args);  \
	}
#define CALLED(entry, tag) entry##_call,

COLL_KERNELS(CALL)
static void (*const calls[])(const void *) = {COLL_KERNELS(CALLED)};

static const struct coll_kernel_launch *launched;

static void *run_thread(void *index)
{
	this_thread = (uint32_t)(uintptr_t)index;
	for (this_block = 0; this_block < blocks; this_block++) {
		calls[launched->kernel](&launched->args);
		/* A shared variable is one object here: the next block waits. */
		meet();
	}
	return NULL;
}

static inline void run(const struct coll_kernel_launch *l, uint32_t nblocks, uint32_t nthreads)
{
	enum { HELPERS = 32 };
	pthread_t helper[HELPERS] = {0};

	REQUIRE(nthreads <= HELPERS);
	launched = l;
	blocks = nblocks;
	threads = nthreads;
	if (threads > 1)
		pthread_barrier_init(&meeting, NULL, threads);
	for (uintptr_t i = 1; i < threads; i++)
		REQUIRE(pthread_create(&helper[i], NULL, run_thread, (void *)i) == 0);
	run_thread(NULL);
	for (uint32_t i = 1; i < threads; i++)
		pthread_join(helper[i], NULL);
	if (threads > 1)
		pthread_barrier_destroy(&meeting);
}

#endif
