/*
 * Values for tests of the device kernels: random elements of every type, special ones among them. The includer has
 * reduce/element.h.
 */
#ifndef COLL_DEVICE_KERNELS_VALUES_H
#define COLL_DEVICE_KERNELS_VALUES_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "coll/coll.h"

static uint64_t seed = 20261123;

static inline uint64_t draw(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed * 0x2545f4914f6cdd1dull;
}

/* Any bits; numbers near one, whose sums round; and zeros, infinities, NaNs, largest and smallest of the type. */
static inline void put_random(char *p, coll_dtype type)
{
	static const uint64_t special[] = {0,
	                                   ~0ull,
	                                   1,
	                                   0x8000000000000000,
	                                   0x8000000080008080,
	                                   0x7ff0000000000000,
	                                   0x7f8000007c007f80,
	                                   0x7fefffffffffffff,
	                                   0x7f7fffff7bff7e7b,
	                                   0x0010000000800008};
	const unsigned kind = draw() % 4;
	const float f = (float)((int64_t)(draw() & 0xffffff) - 0x800000) / 65536;
	const double d = (double)((int64_t)draw() >> 8) / 0x1p40;
	const uint64_t bits =
	        kind == 0 ? special[draw() % (sizeof(special) / sizeof(special[0]))] >> draw() % 2 * 32 : draw();

	memcpy(p, &bits, coll_dtype_size(type));
	if (kind < 2)
		return;
	switch (type) {
	case COLL_F16: f16_store(p, f); break;
	case COLL_BF16: bf16_store(p, f); break;
	case COLL_F8E4M3: f8e4m3_store(p, f); break;
	case COLL_F8E5M2: f8e5m2_store(p, f); break;
	case COLL_F32: f32_store(p, f); break;
	case COLL_F64: f64_store(p, d); break;
	default: break;
	}
}

static inline bool is_nan(const char *p, coll_dtype type)
{
	switch (type) {
	case COLL_F16: return __builtin_isnan(f16_load(p));
	case COLL_BF16: return __builtin_isnan(bf16_load(p));
	case COLL_F8E4M3: return __builtin_isnan(f8e4m3_load(p));
	case COLL_F8E5M2: return __builtin_isnan(f8e5m2_load(p));
	case COLL_F32: return __builtin_isnan(f32_load(p));
	case COLL_F64: return __builtin_isnan(f64_load(p));
	default: return false;
	}
}

#endif
