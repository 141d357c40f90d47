/*
 * Arguments of the device kernels: one struct by value per launch.
 *
 * The same layout in C, clang's CUDA and nvcc: fields of a fixed width, addresses as
 * uint64_t, no padding, below the 4 KiB that a launch can carry. An address is a device
 * pointer: device memory, a peer's mapped memory, or pinned host memory as the device sees it.
 */
#ifndef COLL_DEVICE_KERNELS_ARGS_H
#define COLL_DEVICE_KERNELS_ARGS_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum {
	COLL_KERNEL_PLACES_MAX = 64,
	COLL_KERNEL_RANKS_MAX = 8,
	COLL_KERNEL_REGIONS = 16,                        /* of a rank */
	COLL_KERNEL_OFFSET_BITS = 56,                    /* of a word of a record */
	COLL_KERNEL_NOWHERE = COLL_KERNEL_RANKS_MAX + 1, /* in place of a rank: what is never found */
	COLL_KERNEL_GATE_BLOCKS = (1 << 15) - 1,         /* of a grid with a gate, at most */
	COLL_KERNEL_PREMUL = 32                          /* op: the premultiplied sum, COLL_OP_PREMUL_SUM */
};

/* In the word of a record: the rank does not write its input before the call ends. */
#define COLL_KERNEL_KEPT ((uint64_t)1 << 63)

/*
 * gate, in what follows: 0, or a 32-bit word of device memory, 0 before and after, by which one block asks for `state`
 * on behalf of all. Launches that may run at the same time have one each. A grid of one block does not touch it.
 */

/*
 * Copy len_bytes from src to dst, any alignment; the ranges do not overlap. state: 0, or a
 * 32-bit word; if it is not 0 when a block begins, the block writes nothing. So the same kernel is the guarded
 * scatter (pinned slot to out) and the guarded copy on the device.
 */
struct coll_kernel_copy_args {
	uint64_t dst, src, len_bytes, state;
};

/* The same of a copy that is described at `at`, by dst, src and len_bytes, when the kernel begins. */
struct coll_kernel_listed_args {
	uint64_t at, state;
};

/*
 * Copy len_bytes from src to dst, then store value to the 32-bit word flag, with release at the scope of the
 * system: whoever loads value with acquire sees all of dst. counter: a 32-bit word of device memory, 0
 * before and after; launches that may run at the same time have one each. Not used by a grid of one block. flag
 * may be 0: nothing is stored.
 */
struct coll_kernel_gather_args {
	uint64_t dst, src, len_bytes, counter, flag;
	uint32_t value, unused;
};

/*
 * Copies of up to COLL_KERNEL_PLACES_MAX pieces, each like coll_kernel_copy_args. A piece may be empty; no destination
 * overlaps a source.
 */
struct coll_kernel_pieces_args {
	uint64_t state, gate, npieces;
	struct coll_kernel_piece {
		uint64_t dst, src, len_bytes;
	} piece[COLL_KERNEL_PLACES_MAX];
};

/*
 * out[d][i] = in[0][i] op in[1][i] op ... for each d: coll_reduce_run() of count elements, with several
 * places for the result. raw and last as there; op, divisor and scale as in struct coll_reduction.
 * An out may equal an in exactly; no other overlap. state as in coll_kernel_copy_args.
 *
 * found: 0, or what coll_kernel_look has stored. Then in[i] is that of rank i only if the table has no address for its
 * input; else that address and shift count. If the table says that the call is done whole, whole_shift, whole_count and
 * whole_out (0: out[0]) stand in place of shift, count and out[0].
 */
struct coll_kernel_reduce_args {
	uint64_t count, state, gate, divisor;
	uint64_t found, shift, whole_shift, whole_count, whole_out;
	double scale;
	int32_t nin, nout, raw, last, op;
	float share; /* a mean: of each input */
	uint64_t in[COLL_KERNEL_PLACES_MAX], out[COLL_KERNEL_PLACES_MAX];
};

/*
 * Where a rank's input lies in a call, in memory that it writes and others read: its call has this number. in: 0, or a
 * region of the rank, counted from 1, above the offset in it, and perhaps COLL_KERNEL_KEPT.
 */
struct coll_kernel_record {
	uint32_t number, unused;
	uint64_t in;
};

/* What is found of them, in device memory. */
struct coll_kernel_found {
	uint64_t in[COLL_KERNEL_RANKS_MAX]; /* by rank; 0: in its slot */
	uint64_t whole;                     /* not 0: no slot is needed */
	uint64_t nowhere;                   /* 0 */
};

/*
 * Look up the records of a call. record: their addresses by rank; a record of another number is none. bases: by rank,
 * then by region, where that begins for this device. needed: bits of ranks whose input must be found for `whole`,
 * which is never set if may_whole is 0. kept: not 0: they must be COLL_KERNEL_KEPT, too. One block.
 */
struct coll_kernel_look_args {
	uint64_t found, bases;
	uint32_t number, nranks, needed, may_whole, kept, unused;
	uint64_t record[COLL_KERNEL_RANKS_MAX];
};

/* Copies like those of coll_kernel_pieces, of what the table has for the input of `rank`, from shift on; else from src.
 * If the call is done whole, whole_bytes stands for len_bytes. What lies in place is not copied. rank: or
 * COLL_KERNEL_NOWHERE. */
struct coll_kernel_fetch_args {
	uint64_t state, gate, found, npieces;
	struct coll_kernel_fetch {
		uint64_t dst, src, len_bytes, whole_bytes, shift, rank;
	} piece[COLL_KERNEL_RANKS_MAX];
};

/* Store value to the words, or jump if the call is done whole: all that came before in the stream is visible then. One
 * block. state as in coll_kernel_copy_args: others are not told of what was not done. */
struct coll_kernel_signal_args {
	uint64_t state, found;
	uint32_t value, jump, nwords, unused;
	uint64_t word[COLL_KERNEL_RANKS_MAX + 1];
};

static_assert(sizeof(struct coll_kernel_record) == 16, "as every compiler lays it out");
static_assert(sizeof(struct coll_kernel_look_args) == 40 + 8 * COLL_KERNEL_RANKS_MAX, "no padding");
static_assert(sizeof(struct coll_kernel_fetch_args) == 32 + 48 * COLL_KERNEL_RANKS_MAX, "no padding");
static_assert(sizeof(struct coll_kernel_signal_args) == 40 + 8 * COLL_KERNEL_RANKS_MAX, "no padding");
static_assert(sizeof(struct coll_kernel_copy_args) == 32, "as every compiler lays it out");
static_assert(sizeof(struct coll_kernel_listed_args) == 16, "as every compiler lays it out");
static_assert(sizeof(struct coll_kernel_pieces_args) == 24 + 24 * COLL_KERNEL_PLACES_MAX, "no padding");
static_assert(sizeof(struct coll_kernel_gather_args) == 48, "as every compiler lays it out");
static_assert(offsetof(struct coll_kernel_gather_args, value) == 40, "as every compiler lays it out");
static_assert(sizeof(struct coll_kernel_reduce_args) == 104 + 16 * COLL_KERNEL_PLACES_MAX, "no padding");
static_assert(offsetof(struct coll_kernel_reduce_args, in) == 104, "as every compiler lays it out");
static_assert(sizeof(struct coll_kernel_reduce_args) < 4096, "what a launch can carry");

#endif
