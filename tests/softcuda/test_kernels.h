/*
 * The argument of the test kernels.
 */
#ifndef SOFTCUDA_TEST_KERNELS_H
#define SOFTCUDA_TEST_KERNELS_H

#include <stdint.h>

struct softtest_add {
	uint64_t out, in;
	uint32_t count, add;
};

#endif
