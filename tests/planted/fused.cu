/*
 * A sum of products from the host's arithmetic, which the build compiles without the flag that forbids contraction:
 * tests/headers/ptx.py must find an fma in it.
 */
#include "device/kernels/kernel.h"

#include "reduce/element.h"

ELEMENT_FLOAT(f32, float, uint32_t)
ELEMENT_WIDE(f32, float)

struct planted_args {
	uint64_t in, out;
};

KERNEL(planted_fused, planted_args)
{
	const struct kernel_16 x = LOAD_16(args.in);
	const float sum = f32_sum(f32_prod(f32_from_bits(x.word[0]), f32_from_bits(x.word[1])), f32_from_bits(x.word[2]));

	STORE_4(args.out, f32_bits(sum));
}
