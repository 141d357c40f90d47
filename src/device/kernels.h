/*
 * The device kernels as the host sees them: their PTX, their indices, and launches made ready.
 *
 * Pure: no driver is called. A launch is an entry of device/kernels/table.h, a grid of one dimension and one struct;
 * what each kernel promises is in device/kernels/args.h. Addresses are device pointers. Copies are fastest if source
 * and destination have the same rest modulo 16: a staging slot can be chosen so.
 */
#ifndef COLL_DEVICE_KERNELS_H
#define COLL_DEVICE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"
#include "device/device.h"
#include "device/kernels/args.h"
#include "reduce/reduce.h"

/* Rows of the table. Reductions: COLL_KERNEL_REDUCE + the type. */
enum {
	COLL_KERNEL_COPY,
	COLL_KERNEL_GATHER,
	COLL_KERNEL_PIECES,
	COLL_KERNEL_LISTED,
	COLL_KERNEL_LOOK,
	COLL_KERNEL_FETCH,
	COLL_KERNEL_SIGNAL,
	COLL_KERNEL_REDUCE,
	COLL_KERNEL_COUNT = COLL_KERNEL_REDUCE + COLL_DTYPE_COUNT
};

/* Blocks that saturate PCIe, for copies from or to pinned host memory: more would only take multiprocessors from
 * others. To be measured. */
enum { COLL_KERNEL_PCIE_BLOCKS = 32 };

/* Text for cuModuleLoadData(). NULL: the build found no compiler for it (option ptx_compiler). */
const char *coll_kernels_ptx(void);

/* The name of an entry in that module; 0 <= kernel < COLL_KERNEL_COUNT. */
const char *coll_kernels_name(int kernel);

/* The bytes of its argument. */
size_t coll_kernels_args_bytes(int kernel);

/* The index of the reduction, or -1: not defined on the type, or an operation of the user, which no device can run. */
int coll_kernels_find(coll_dtype type, coll_op op);

struct coll_kernel_launch {
	int kernel;
	uint32_t blocks, threads;
	union coll_kernel_args {
		struct coll_kernel_copy_args copy;
		struct coll_kernel_gather_args gather;
		struct coll_kernel_pieces_args pieces;
		struct coll_kernel_listed_args listed;
		struct coll_kernel_look_args look;
		struct coll_kernel_fetch_args fetch;
		struct coll_kernel_signal_args signal;
		struct coll_kernel_reduce_args reduce;
	} args;
};

/*
 * The following fill a launch. blocks_max: 1 or more; for work in device memory about 8 per multiprocessor, since a
 * block has at most 256 threads. Nothing to copy or reduce is a launch of one block.
 */

/* state: 0, or a word that forbids the copy if it is not 0. */
void coll_kernels_copy(struct coll_kernel_launch *l, uint64_t dst, uint64_t src, uint64_t len_bytes, uint64_t state,
                       uint32_t blocks_max);

/* 1 <= n <= COLL_KERNEL_PLACES_MAX copies by one launch. */
void coll_kernels_pieces(struct coll_kernel_launch *l, const struct coll_kernel_piece *pieces, int n, uint64_t state,
                         uint32_t blocks_max);

/* at: what coll_kernels_copy() takes, of at most so many bytes, in memory that is written before the launch begins. */
void coll_kernels_listed(struct coll_kernel_launch *l, uint64_t at, uint64_t len_max, uint64_t state,
                         uint32_t blocks_max);

/* counter: 0 limits the grid to one block. */
void coll_kernels_gather(struct coll_kernel_launch *l, uint64_t dst, uint64_t src, uint64_t len_bytes, uint64_t counter,
                         uint64_t flag, uint32_t value, uint32_t blocks_max);

/*
 * coll_reduce_run(r, out, in, nin, raw, last, count), the result to nout places. r is bound to an operation for which
 * coll_kernels_find() has an index. 1 <= nin, nout <= COLL_KERNEL_PLACES_MAX.
 */
void coll_kernels_reduce(struct coll_kernel_launch *l, const struct coll_reduction *r, const uint64_t *out, int nout,
                         const uint64_t *in, int nin, int raw, bool last, uint64_t count, uint64_t state,
                         uint32_t blocks_max);

/* The places of a reduction that coll_kernels_reduce() has filled may be others: see struct coll_kernel_reduce_args. */
void coll_kernels_reduce_found(struct coll_kernel_launch *l, const struct coll_device_places *where, size_t elem_bytes,
                               uint32_t blocks_max);

void coll_kernels_look(struct coll_kernel_launch *l, const struct coll_kernel_look_args *args);

/* 1 <= n <= COLL_KERNEL_RANKS_MAX. */
void coll_kernels_fetch(struct coll_kernel_launch *l, const struct coll_kernel_fetch *pieces, int n, uint64_t found,
                        uint64_t state, uint32_t blocks_max);

/* The blocks of a launch of pieces, fetch or a reduction that is filled otherwise ask for its state once: see gate in
 * kernels/args.h. Others, and grids that are too large, ask block by block. */
void coll_kernels_gate(struct coll_kernel_launch *l, uint64_t gate);

/* For copies across PCIe whose blocks each ask for the state: 8 blocks at most, of twice as many threads. */
void coll_kernels_few_blocks(struct coll_kernel_launch *l);

void coll_kernels_signal(struct coll_kernel_launch *l, const struct coll_kernel_signal_args *args);

/* A launch of a kernel that touches no memory but its argument: once at creation, since a first launch may have to wait
 * until the device is idle. */
void coll_kernels_nothing(struct coll_kernel_launch *l, int kernel);

#endif
