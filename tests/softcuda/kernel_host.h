/*
 * What a kernel's source needs to be compiled by a C compiler for the stand-in driver: the
 * indices of the running thread, checked global memory, shared memory and the barrier.
 * src/device/kernels/kernel.h includes it where no CUDA compiler is at work, and defines its
 * own macros by it. Such a file is linked into the stand-in's libcuda.so.1, and each
 * SOFT_KERNEL in it adds itself to the table that cuModuleGetFunction looks into.
 *
 * Rules for kernels, which are those of CUDA or narrower:
 *  - Global memory is touched through soft_at() only, 1 to 16 bytes at a time, aligned to
 *    their size. Anything else ends the kernel: 700 (no such memory), 716 (not aligned).
 *  - All threads of a block reach the same soft_barrier() calls, or return.
 *  - Shared memory holds garbage at the start of a block.
 *  - Threads of a block run in an order by seed, one at a time between two barriers; blocks
 *    likewise. Kernels in other queues run at the same time, on other threads.
 *  - No kernel waits for another one.
 */
#ifndef SOFTCUDA_KERNEL_HOST_H
#define SOFTCUDA_KERNEL_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct soft_index {
	unsigned x, y, z;
};

/* Device addresses lo to hi - 1 lie delta further in memory that this process may touch. bytes: loaded and stored
 * there, words of synchronisation aside; they count if it is host memory. */
struct soft_range {
	uintptr_t lo, hi;
	intptr_t delta;
	size_t bytes;
	bool host;
};

enum { SOFT_RANGE_BITS = 6, SOFT_RANGES = 1 << SOFT_RANGE_BITS };

/* Where the range of an address is kept. Blocks that a kernel uses together often lie at a round distance. */
static inline unsigned soft_range_of(uintptr_t address)
{
	return (uint32_t)(address >> 16) * 2654435769U >> (32 - SOFT_RANGE_BITS);
}

/* The running thread of a kernel. ranges: those found last, for all threads of the queue. */
struct soft_thread {
	struct soft_index thread, block, threads, blocks;
	struct soft_range *ranges;
};

extern __thread struct soft_thread *soft_self __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The slow way of soft_at(): find the range or end the kernel. */
void *soft_find(const void *address, unsigned len) __attribute__((visibility("hidden")));

/* TSan looks at what a kernel does with memory, not at how the stand-in finds it: that would be most of its work. */
#ifdef __SANITIZE_THREAD__
#define SOFT_FINDS static __attribute__((noinline, unused, no_sanitize("thread"))) void *
#else
#define SOFT_FINDS static inline void *
#endif

/* Where the len bytes (1, 2, 4, 8, 16) at a device address lie. Does not return if there is no
 * such memory, if this device may not touch it, or if the address is not a multiple of len. */
SOFT_FINDS soft_word_at(const void *address, unsigned len)
{
	const uintptr_t a = (uintptr_t)address;
	const struct soft_range *r = &soft_self->ranges[soft_range_of(a)];

	if (__builtin_expect(a >= r->lo && a + len <= r->hi && !(a & (len - 1)), 1))
		return (void *)(a + (uintptr_t)r->delta);
	return soft_find(address, len);
}

SOFT_FINDS soft_at(const void *address, unsigned len)
{
	void *at = soft_word_at(address, len);

	soft_self->ranges[soft_range_of((uintptr_t)address)].bytes += len;
	return at;
}

typedef struct __attribute__((aligned(16), may_alias)) {
	uint32_t x, y, z, w;
} soft_quad;
typedef uint8_t soft_u8;
typedef uint16_t __attribute__((may_alias)) soft_u16;
typedef uint32_t __attribute__((may_alias)) soft_u32;
typedef uint64_t __attribute__((may_alias)) soft_u64;

/* Global memory by type: soft_u8, soft_u16, soft_u32, soft_u64, soft_quad. */
#define SOFT_LOAD(type, address)         (*(const type *)soft_at(address, sizeof(type)))
#define SOFT_STORE(type, address, value) ((void)(*(type *)soft_at(address, sizeof(type)) = (value)))
/* System scope, 4 or 8 bytes. */
#define SOFT_LOAD_ACQUIRE(type, address) \
	__atomic_load_n((const type *)soft_word_at(address, sizeof(type)), __ATOMIC_ACQUIRE)
#define SOFT_LOAD_RELAXED(type, address) \
	__atomic_load_n((const type *)soft_word_at(address, sizeof(type)), __ATOMIC_RELAXED)
#define SOFT_STORE_RELEASE(type, address, value) \
	__atomic_store_n((type *)soft_word_at(address, sizeof(type)), (value), __ATOMIC_RELEASE)
#define SOFT_ATOMIC_ADD(type, address, value) \
	__atomic_fetch_add((type *)soft_word_at(address, sizeof(type)), (value), __ATOMIC_SEQ_CST)
#define SOFT_FENCE() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* __syncthreads() */
void soft_barrier(void) __attribute__((visibility("hidden")));
/* __shared__: len bytes of the block for this key (the address of any static object), aligned to
 * 16; the same for all threads of the block. */
void *soft_shared(const void *key, size_t len) __attribute__((visibility("hidden")));
/* __shared__ type name[count]; at the head of a kernel's body. */
#define SOFT_SHARED(type, name, count) \
	static const char name##_key;  \
	type *const name = (type *)soft_shared(&name##_key, sizeof(type) * (count))

struct soft_kernel {
	const char *name;
	size_t args_len;
	void (*call)(const void *args);
	struct soft_kernel *next;
};

void soft_kernel_add(struct soft_kernel *kernel) __attribute__((visibility("hidden")));

/* The head of a kernel's definition; its body follows, and sees the arguments as `*soft_args`. */
#define SOFT_KERNEL(kernel, args_type)                                                              \
	static void kernel(const args_type *soft_args);                                             \
	static void kernel##_call(const void *soft_args)                                            \
	{                                                                                           \
		kernel(soft_args);                                                                  \
	}                                                                                           \
	__attribute__((constructor)) static void kernel##_add(void)                                 \
	{                                                                                           \
		static struct soft_kernel self = {#kernel, sizeof(args_type), kernel##_call, NULL}; \
                                                                                                    \
		soft_kernel_add(&self);                                                             \
	}                                                                                           \
	static void kernel(const args_type *soft_args)

#endif
