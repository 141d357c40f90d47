/*
 * Copies: any alignment, 16 bytes at a time where the two addresses allow it.
 * See args.h for what each entry promises.
 */
#include "device/kernels/kernel.h"

#include "device/kernels/args.h"

/* Whole units of so many bytes; both addresses are multiples of that. */
#define COPY_UNITS(bytes)                                                                  \
	KERNEL_INLINE void copy_units_##bytes(uint64_t dst, uint64_t src, uint64_t units)  \
	{                                                                                  \
		for (uint64_t i = kernel_rank(); i < units; i += kernel_size())            \
			STORE_##bytes(dst + i * (bytes), LOAD_##bytes(src + i * (bytes))); \
	}
COPY_UNITS(1)
COPY_UNITS(2)
COPY_UNITS(4)
COPY_UNITS(8)
COPY_UNITS(16)

/* The unit is the largest at which both addresses have the same rest. Bytes before the first unit and behind the last
 * one go singly: fewer than 31. */
KERNEL_INLINE void copy_bytes(uint64_t dst, uint64_t src, uint64_t len)
{
	const uint64_t apart = (dst ^ src) | 16;
	const uint64_t unit = apart & (0 - apart);
	const uint64_t before = (0 - dst) & (unit - 1);
	const uint64_t head = before < len ? before : len;
	const uint64_t units = (len - head) / unit, tail = head + units * unit;

	dst += head;
	src += head;
	if (unit == 16)
		copy_units_16(dst, src, units);
	else if (unit == 8)
		copy_units_8(dst, src, units);
	else if (unit == 4)
		copy_units_4(dst, src, units);
	else if (unit == 2)
		copy_units_2(dst, src, units);
	else
		copy_units_1(dst, src, units);
	copy_units_1(dst - head, src - head, head);
	copy_units_1(dst - head + tail, src - head + tail, len - tail);
}

KERNEL(coll_kernel_copy, coll_kernel_copy_args)
{
	if (kernel_may_write(args.state, 0))
		copy_bytes(args.dst, args.src, args.len_bytes);
}

KERNEL(coll_kernel_listed, coll_kernel_listed_args)
{
	if (kernel_may_write(args.state, 0) && args.at != 0)
		copy_bytes(LOAD_8(args.at), LOAD_8(args.at + 8), LOAD_8(args.at + 16));
}

/*
 * The barrier puts the block's stores before its thread 0, the fence and the addition put them before the thread that
 * counts last, and its release before whoever acquires the flag. Release is cumulative: it covers what the
 * releasing thread has observed, not only what it wrote.
 */
KERNEL(coll_kernel_gather, coll_kernel_gather_args)
{
	copy_bytes(args.dst, args.src, args.len_bytes);
	BARRIER();
	if (THREAD != 0)
		return;
	FENCE_SYS();
	if (BLOCKS > 1) {
		if (ATOMIC_ADD(args.counter, 1) != BLOCKS - 1)
			return;
		STORE_4(args.counter, 0);
		FENCE_SYS();
	}
	if (args.flag != 0)
		STORE_RELEASE_SYS(args.flag, args.value);
}

KERNEL(coll_kernel_pieces, coll_kernel_pieces_args)
{
	if (!kernel_may_write(args.state, args.gate))
		return;
	KERNEL_ROLLED
	for (uint64_t i = 0; i < args.npieces; i++)
		copy_bytes(args.piece[i].dst, args.piece[i].src, args.piece[i].len_bytes);
}
