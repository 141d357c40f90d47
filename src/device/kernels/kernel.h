/*
 * The language of the device kernels: the common part of C11 and CUDA C++, by macros.
 *
 * clang and nvcc compile the kernels to PTX, without any header of CUDA; a C compiler compiles the same
 * files for the stand-in driver and for the unit test. A kernel touches memory outside its
 * own variables only by LOAD, STORE and what is below them: on the host these find the memory
 * of an address that a CPU cannot use. Nothing here waits for another rank.
 *
 *   KERNEL(name, tag) { body }   an entry; its argument is `struct tag args`, not to be changed
 *   KERNEL_INLINE                a function of the device
 *   KERNEL_UNROLL, KERNEL_ROLLED before a loop of a constant count; before a loop that is to stay short
 *   THREAD, THREADS              index in the block, and size of the block
 *   BLOCK, BLOCKS                index in the grid, and size of the grid
 *   BARRIER()                    all threads of the block; orders their accesses
 *   SHARED(type, name, count)    an array that the threads of a block share, at the head of a body; undefined at first
 *   LOAD_1(p) .. LOAD_8(p)       uint8_t .. uint64_t at the address p (uint64_t), which is aligned to its size
 *   LOAD_16(p)                   struct kernel_16
 *   STORE_1(p, v) .. STORE_16(p, v)
 *   LOAD_ACQUIRE_SYS(p)          uint32_t, scope of the system (other devices and hosts)
 *   LOAD_RELAXED_SYS(p)          uint64_t, scope of the system, without order
 *   STORE_RELEASE_SYS(p, v)      uint32_t, scope of the system
 *   FENCE_SYS()                  acquire and release, scope of the system
 *   ATOMIC_ADD(p, v)             uint32_t before the addition; acquire and release, scope of the device
 *
 * On the host the includer has defined all of these, or has included the stand-in's kernel_host.h, or defines SOFTCUDA
 * and has the folder of that header among those that are searched.
 */
#ifndef COLL_DEVICE_KERNELS_KERNEL_H
#define COLL_DEVICE_KERNELS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "device/kernels/args.h"

/* 16 bytes in four registers. */
struct kernel_16 {
	uint32_t word[4];
};

#if defined(__CUDACC__) || defined(__CUDA__)

#if defined(__clang__) && !defined(__NVCC__)
#define KERNEL_DEVICE __attribute__((device))
#define KERNEL_GLOBAL __attribute__((global))
#define KERNEL_CONSTANT
#define KERNEL_SHARED      __attribute__((shared))
#define KERNEL_AT(type, p) (*(type __attribute__((address_space(1), may_alias)) *)(p))
typedef uint32_t kernel_u32x4 __attribute__((ext_vector_type(4)));
/* clang knows it, but not as a function of the device. */
extern "C" KERNEL_DEVICE inline void *memcpy(void *to, const void *from, size_t len)
{
	return __builtin_memcpy(to, from, len);
}
#else
#define KERNEL_DEVICE      __device__
#define KERNEL_GLOBAL      __global__
#define KERNEL_CONSTANT    __grid_constant__
#define KERNEL_SHARED      __shared__
#define KERNEL_AT(type, p) (*(type *)__cvta_global_to_generic(p))
typedef uint4 kernel_u32x4;
#endif

#define KERNEL(name, tag) extern "C" KERNEL_GLOBAL void name(const KERNEL_CONSTANT struct tag args)
#define KERNEL_INLINE     static inline KERNEL_DEVICE __attribute__((always_inline, unused))
#define KERNEL_UNROLL     _Pragma("unroll")
#define KERNEL_ROLLED     _Pragma("unroll 1")
#define ELEMENT_INLINE    KERNEL_INLINE

KERNEL_INLINE uint32_t kernel_thread(void)
{
	uint32_t v;

	asm("mov.u32 %0, %%tid.x;" : "=r"(v));
	return v;
}

KERNEL_INLINE uint32_t kernel_threads(void)
{
	uint32_t v;

	asm("mov.u32 %0, %%ntid.x;" : "=r"(v));
	return v;
}

KERNEL_INLINE uint32_t kernel_block(void)
{
	uint32_t v;

	asm("mov.u32 %0, %%ctaid.x;" : "=r"(v));
	return v;
}

KERNEL_INLINE uint32_t kernel_blocks(void)
{
	uint32_t v;

	asm("mov.u32 %0, %%nctaid.x;" : "=r"(v));
	return v;
}

KERNEL_INLINE struct kernel_16 kernel_load_16(uint64_t p)
{
	const kernel_u32x4 v = KERNEL_AT(const kernel_u32x4, p);
	const struct kernel_16 x = {{v.x, v.y, v.z, v.w}};

	return x;
}

/* Written out: nvcc makes four stores of the parts of a vector that it has computed as floats. */
KERNEL_INLINE void kernel_store_16(uint64_t p, struct kernel_16 x)
{
	asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(x.word[0]), "r"(x.word[1]),
	             "r"(x.word[2]), "r"(x.word[3])
	             : "memory");
}

KERNEL_INLINE uint32_t kernel_load_acquire(uint64_t p)
{
	uint32_t v;

	asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

KERNEL_INLINE uint64_t kernel_load_relaxed(uint64_t p)
{
	uint64_t v;

	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

KERNEL_INLINE uint32_t kernel_atomic_add(uint64_t p, uint32_t v)
{
	uint32_t before;

	asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(before) : "l"(p), "r"(v) : "memory");
	return before;
}

#define THREAD                  kernel_thread()
#define THREADS                 kernel_threads()
#define BLOCK                   kernel_block()
#define BLOCKS                  kernel_blocks()
#define BARRIER()               asm volatile("bar.sync 0;" ::: "memory")
#define SHARED(type, name, n)   static KERNEL_SHARED type name[n]
#define LOAD_1(p)               KERNEL_AT(const uint8_t, p)
#define LOAD_2(p)               KERNEL_AT(const uint16_t, p)
#define LOAD_4(p)               KERNEL_AT(const uint32_t, p)
#define LOAD_8(p)               KERNEL_AT(const uint64_t, p)
#define LOAD_16(p)              kernel_load_16(p)
#define STORE_1(p, v)           (KERNEL_AT(uint8_t, p) = (v))
#define STORE_2(p, v)           (KERNEL_AT(uint16_t, p) = (v))
#define STORE_4(p, v)           (KERNEL_AT(uint32_t, p) = (v))
#define STORE_8(p, v)           (KERNEL_AT(uint64_t, p) = (v))
#define STORE_16(p, v)          kernel_store_16(p, v)
#define LOAD_ACQUIRE_SYS(p)     kernel_load_acquire(p)
#define LOAD_RELAXED_SYS(p)     kernel_load_relaxed(p)
#define STORE_RELEASE_SYS(p, v) asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory")
#define FENCE_SYS()             asm volatile("fence.acq_rel.sys;" ::: "memory")
#define ATOMIC_ADD(p, v)        kernel_atomic_add(p, v)

#else

#if defined(SOFTCUDA) && !defined(SOFTCUDA_KERNEL_HOST_H)
#include "kernel_host.h"
#endif
#if defined(SOFTCUDA_KERNEL_HOST_H)
#define KERNEL(name, tag)       SOFT_KERNEL(name, struct tag)
#define args                    (*soft_args) /* which all threads share: copies of it would be most of their work */
#define KERNEL_INLINE           static inline __attribute__((always_inline, unused))
#define KERNEL_UNROLL           /* none */
#define KERNEL_ROLLED           /* none */
#define THREAD                  (soft_self->thread.x)
#define THREADS                 (soft_self->threads.x)
#define BLOCK                   (soft_self->block.x)
#define BLOCKS                  (soft_self->blocks.x)
#define BARRIER()               soft_barrier()
#define SHARED(type, name, n)   SOFT_SHARED(type, name, n)
#define KERNEL_PLACE(p)         ((const void *)(uintptr_t)(p))
#define LOAD_1(p)               SOFT_LOAD(soft_u8, KERNEL_PLACE(p))
#define LOAD_2(p)               SOFT_LOAD(soft_u16, KERNEL_PLACE(p))
#define LOAD_4(p)               SOFT_LOAD(soft_u32, KERNEL_PLACE(p))
#define LOAD_8(p)               SOFT_LOAD(soft_u64, KERNEL_PLACE(p))
#define LOAD_16(p)              kernel_load_16(p)
#define STORE_1(p, v)           SOFT_STORE(soft_u8, KERNEL_PLACE(p), v)
#define STORE_2(p, v)           SOFT_STORE(soft_u16, KERNEL_PLACE(p), v)
#define STORE_4(p, v)           SOFT_STORE(soft_u32, KERNEL_PLACE(p), v)
#define STORE_8(p, v)           SOFT_STORE(soft_u64, KERNEL_PLACE(p), v)
#define STORE_16(p, v)          kernel_store_16(p, v)
#define LOAD_ACQUIRE_SYS(p)     SOFT_LOAD_ACQUIRE(soft_u32, KERNEL_PLACE(p))
#define LOAD_RELAXED_SYS(p)     SOFT_LOAD_RELAXED(soft_u64, KERNEL_PLACE(p))
#define STORE_RELEASE_SYS(p, v) SOFT_STORE_RELEASE(soft_u32, KERNEL_PLACE(p), v)
#define FENCE_SYS()             SOFT_FENCE()
#define ATOMIC_ADD(p, v)        SOFT_ATOMIC_ADD(soft_u32, KERNEL_PLACE(p), v)

KERNEL_INLINE struct kernel_16 kernel_load_16(uint64_t p)
{
	const soft_quad v = SOFT_LOAD(soft_quad, KERNEL_PLACE(p));

	return (struct kernel_16){{v.x, v.y, v.z, v.w}};
}

KERNEL_INLINE void kernel_store_16(uint64_t p, struct kernel_16 v)
{
	const soft_quad q = {v.word[0], v.word[1], v.word[2], v.word[3]};

	SOFT_STORE(soft_quad, KERNEL_PLACE(p), q);
}
#endif
#if !defined(KERNEL) || !defined(LOAD_16) || !defined(STORE_RELEASE_SYS)
#error "a host build defines what this header lists"
#endif

#endif

/*
 * What a gate holds while a grid runs: how many of its blocks have come, how many have left, and the answer.
 *
 * Loads of one word across PCIe come one after the other, at about half a microsecond each: for a thousand blocks that
 * is a hundred times what their work takes. So the block that comes first asks, and the others wait for its answer in
 * device memory. It runs by then, and waits for nobody, so all of them go on. Acquire and release pass on to them what
 * the load has acquired. The last one to leave puts the gate back to 0: the others have their answer.
 */
#define KERNEL_GATE_MASK ((uint32_t)COLL_KERNEL_GATE_BLOCKS)
#define KERNEL_GATE_LEFT ((uint32_t)1 << 15)
#define KERNEL_GATE_GO   ((uint32_t)1 << 30)
#define KERNEL_GATE_STOP ((uint32_t)1 << 31)

KERNEL_INLINE uint32_t kernel_ask_once(uint64_t state, uint64_t gate)
{
	uint32_t answer = 0;

	if ((ATOMIC_ADD(gate, 1) & KERNEL_GATE_MASK) == 0) {
		answer = LOAD_ACQUIRE_SYS(state) ? KERNEL_GATE_STOP : KERNEL_GATE_GO;
		ATOMIC_ADD(gate, answer);
	}
	while (answer == 0)
		answer = LOAD_ACQUIRE_SYS(gate) & (KERNEL_GATE_GO | KERNEL_GATE_STOP);
	if ((ATOMIC_ADD(gate, KERNEL_GATE_LEFT) / KERNEL_GATE_LEFT & KERNEL_GATE_MASK) == BLOCKS - 1)
		STORE_RELEASE_SYS(gate, 0);
	return answer & KERNEL_GATE_STOP;
}

/* Whether this block may write: state is 0, or the address of a word that is 0. gate: 0, or see args.h. All threads of
 * the block get the same answer, from one access: the word may lie across PCIe. */
KERNEL_INLINE bool kernel_may_write(uint64_t state, uint64_t gate)
{
	SHARED(uint32_t, seen, 1);

	if (state == 0)
		return true;
	if (THREAD == 0)
		*seen = gate != 0 && BLOCKS > 1 ? kernel_ask_once(state, gate) : LOAD_ACQUIRE_SYS(state);
	BARRIER();
	return *seen == 0;
}

/* This thread in the grid, and the number of threads of the grid. */
KERNEL_INLINE uint64_t kernel_rank(void)
{
	return (uint64_t)BLOCK * THREADS + THREAD;
}

KERNEL_INLINE uint64_t kernel_size(void)
{
	return (uint64_t)BLOCKS * THREADS;
}

#endif
