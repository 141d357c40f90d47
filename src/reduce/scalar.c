/*
 * The scalar level: every type and operation in plain C, the oracle of all
 * others. A vector is one element here. The compiler may vectorise the loops; it
 * may not change a bit of the result (no contraction, no fast math).
 */
#include "reduce/element.h"

ELEMENT_SIGNED(i8, int8_t, uint8_t, uint32_t)
ELEMENT_UNSIGNED(u8, uint8_t, uint32_t)
ELEMENT_SIGNED(i16, int16_t, uint16_t, uint32_t)
ELEMENT_UNSIGNED(u16, uint16_t, uint32_t)
ELEMENT_SIGNED(i32, int32_t, uint32_t, uint32_t)
ELEMENT_UNSIGNED(u32, uint32_t, uint32_t)
ELEMENT_SIGNED(i64, int64_t, uint64_t, uint64_t)
ELEMENT_UNSIGNED(u64, uint64_t, uint64_t)
ELEMENT_FLOAT(f16, float, uint32_t)
ELEMENT_FLOAT(bf16, float, uint32_t)
ELEMENT_FLOAT(f8e4m3, float, uint32_t)
ELEMENT_FLOAT(f8e5m2, float, uint32_t)
ELEMENT_FLOAT(f32, float, uint32_t)
ELEMENT_FLOAT(f64, double, uint64_t)
ELEMENT_HALF(f16)
ELEMENT_HALF(bf16)
ELEMENT_F8(f8e4m3)
ELEMENT_F8(f8e5m2)
ELEMENT_WIDE(f32, float)
ELEMENT_WIDE(f64, double)

/* No part of one element: these are never reached. */
#define ONE_LANE(T)                                                    \
	enum { T##_lanes = 1 };                                        \
	ELEMENT_INLINE T##_v T##_load_some(const char *p, size_t n)    \
	{                                                              \
		(void)n;                                               \
		return T##_load(p);                                    \
	}                                                              \
	ELEMENT_INLINE void T##_store_some(char *p, T##_v v, size_t n) \
	{                                                              \
		(void)n;                                               \
		T##_store(p, v);                                       \
	}
ONE_LANE(i8)
ONE_LANE(u8)
ONE_LANE(i16)
ONE_LANE(u16)
ONE_LANE(i32)
ONE_LANE(u32)
ONE_LANE(i64)
ONE_LANE(u64)
ONE_LANE(f16)
ONE_LANE(bf16)
ONE_LANE(f8e4m3)
ONE_LANE(f8e5m2)
ONE_LANE(f32)
ONE_LANE(f64)

#define UNROLL  1
#define SPREADS 0
/* dst is exactly one of the inputs or overlaps none: iterations are independent.
 * clang detects this at run time, and warns if it is asked to use it but cannot. */
#if defined(__clang__)
#define KERNEL_INDEPENDENT
#else
#define KERNEL_INDEPENDENT _Pragma("GCC ivdep")
#endif
#define COLL_REDUCE_TABLE coll_reduce_scalar
#include "level.h"
