/*
 * Kernels for the tests of the stand-in itself. Their PTX is in softcuda_test.c: names only.
 */
#include "tests/softcuda/test_kernels.h"

#include "tests/softcuda/kernel_host.h"

#define AT(p) ((const void *)(uintptr_t)(p))

/* out[i] = in[i] + add, one thread each. */
SOFT_KERNEL(softtest_add, struct softtest_add)
{
	const unsigned i = soft_self->block.x * soft_self->threads.x + soft_self->thread.x;

	if (i < soft_args->count)
		SOFT_STORE(soft_u32, AT(soft_args->out + 4 * i),
		           SOFT_LOAD(soft_u32, AT(soft_args->in + 4 * i)) + soft_args->add);
}

/* out[block] = sum of in over the block's part, by a tree in shared memory. */
SOFT_KERNEL(softtest_sum, struct softtest_add)
{
	SOFT_SHARED(uint32_t, part, 1024);
	const unsigned t = soft_self->thread.x, n = soft_self->threads.x;

	part[t] = SOFT_LOAD(soft_u32, AT(soft_args->in + 4 * (soft_self->block.x * n + t)));
	soft_barrier();
	for (unsigned half = n / 2; half; half /= 2) {
		if (t < half)
			part[t] += part[t + half];
		soft_barrier();
	}
	if (t == 0)
		SOFT_STORE(soft_u32, AT(soft_args->out + 4 * soft_self->block.x), part[0]);
}

/* One load of so many bytes at in, its first byte stored to out. */
SOFT_KERNEL(softtest_load, struct softtest_add)
{
	uint8_t first;

	if (soft_args->count == 16)
		first = (uint8_t)SOFT_LOAD(soft_quad, AT(soft_args->in)).x;
	else if (soft_args->count == 4)
		first = (uint8_t)SOFT_LOAD(soft_u32, AT(soft_args->in));
	else
		first = SOFT_LOAD(soft_u8, AT(soft_args->in));
	SOFT_STORE(soft_u8, AT(soft_args->out), first);
}

/* What shared memory holds at the start. */
SOFT_KERNEL(softtest_shared, struct softtest_add)
{
	SOFT_SHARED(uint32_t, word, 4);

	SOFT_STORE(soft_u32, AT(soft_args->out), word[0]);
}
