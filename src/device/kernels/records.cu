/*
 * Where the inputs of a call lie on each rank: looked up in the records of the ranks once per call, by one block, and
 * kept in device memory. So no other block reads across PCIe. See args.h for what each entry promises.
 */
#include "device/kernels/kernel.h"

#include "device/kernels/args.h"

/* 0: no region. bases: those of the rank. */
KERNEL_INLINE uint64_t record_place(uint64_t word, uint64_t bases)
{
	const uint64_t region = (word & ~COLL_KERNEL_KEPT) >> COLL_KERNEL_OFFSET_BITS;

	if (region == 0)
		return 0;
	return LOAD_RELAXED_SYS(bases + (region - 1) * 8) + (word & (((uint64_t)1 << COLL_KERNEL_OFFSET_BITS) - 1));
}

KERNEL(coll_kernel_look, coll_kernel_look_args)
{
	SHARED(uint32_t, missing, COLL_KERNEL_RANKS_MAX);

	KERNEL_ROLLED
	for (uint32_t r = THREAD; r < args.nranks; r += THREADS) {
		const uint64_t record = args.record[r], bases = args.bases + r * COLL_KERNEL_REGIONS * 8;
		const bool is = LOAD_ACQUIRE_SYS(record) == args.number;
		const uint64_t word = is ? LOAD_RELAXED_SYS(record + 8) : 0, in = record_place(word, bases);

		STORE_8(args.found + r * 8, in);
		missing[r] = (args.needed >> r & 1) && (!in || (args.kept && !(word & COLL_KERNEL_KEPT)));
	}
	BARRIER();
	if (THREAD == 0) {
		uint64_t whole = args.may_whole;

		KERNEL_ROLLED
		for (uint32_t r = 0; r < args.nranks; r++)
			whole = missing[r] ? 0 : whole;
		if (args.nranks > 0) {
			STORE_8(args.found + COLL_KERNEL_RANKS_MAX * 8, whole);
			STORE_8(args.found + COLL_KERNEL_NOWHERE * 8, 0);
		}
	}
}

KERNEL(coll_kernel_fetch, coll_kernel_fetch_args)
{
	uint64_t whole;

	if (args.npieces == 0 || !kernel_may_write(args.state, args.gate))
		return;
	whole = LOAD_8(args.found + COLL_KERNEL_RANKS_MAX * 8) ? ~(uint64_t)0 : 0;
	KERNEL_ROLLED
	for (uint64_t i = 0; i < args.npieces; i++) {
		const uint64_t in = LOAD_8(args.found + args.piece[i].rank * 8), there = in ? ~(uint64_t)0 : 0;
		/* By masks: a choice between two members would put the argument into local memory. */
		const uint64_t src = ((in + args.piece[i].shift) & there) | (args.piece[i].src & ~there);
		const uint64_t len = (args.piece[i].whole_bytes & whole) | (args.piece[i].len_bytes & ~whole);

		if (src != args.piece[i].dst)
			copy_bytes(args.piece[i].dst, src, len);
	}
}

KERNEL(coll_kernel_signal, coll_kernel_signal_args)
{
	if (!kernel_may_write(args.state, 0))
		return;
	if (THREAD < args.nwords) {
		const uint64_t whole = LOAD_8(args.found + COLL_KERNEL_RANKS_MAX * 8);

		FENCE_SYS();
		STORE_RELEASE_SYS(args.word[THREAD], whole ? args.jump : args.value);
	}
}
