/*
 * All kernels of one ISA level and the table of them, COLL_REDUCE_TABLE. Included
 * once by each level, after its vectors.
 */
#include "reduce/copy.h"
#include "reduce/internal.h"

#define INTEGER 0
#define WIDE    1
#define NARROW  2

#define T     i8
#define CLASS INTEGER
#include "type_kernels.h"
#define T     u8
#define CLASS INTEGER
#include "type_kernels.h"
#define T     i16
#define CLASS INTEGER
#include "type_kernels.h"
#define T     u16
#define CLASS INTEGER
#include "type_kernels.h"
#define T     i32
#define CLASS INTEGER
#include "type_kernels.h"
#define T     u32
#define CLASS INTEGER
#include "type_kernels.h"
#define T     i64
#define CLASS INTEGER
#include "type_kernels.h"
#define T     u64
#define CLASS INTEGER
#include "type_kernels.h"
#define T     f16
#define CLASS NARROW
#include "type_kernels.h"
#define T     bf16
#define CLASS NARROW
#include "type_kernels.h"
#define T     f32
#define CLASS WIDE
#include "type_kernels.h"
#define T     f64
#define CLASS WIDE
#include "type_kernels.h"
#define T     f8e4m3
#define CLASS NARROW
#include "type_kernels.h"
#define T     f8e5m2
#define CLASS NARROW
#include "type_kernels.h"

#define ROW(op)                                                                                                 \
	{                                                                                                       \
		[COLL_I8] = i8_##op##_kernel, [COLL_U8] = u8_##op##_kernel, [COLL_I16] = i16_##op##_kernel,     \
		[COLL_U16] = u16_##op##_kernel, [COLL_I32] = i32_##op##_kernel, [COLL_U32] = u32_##op##_kernel, \
		[COLL_I64] = i64_##op##_kernel, [COLL_U64] = u64_##op##_kernel, FLOATS(op)                      \
	}
#define FLOATS(op)                                                                                        \
	[COLL_F16] = f16_##op##_kernel, [COLL_BF16] = bf16_##op##_kernel, [COLL_F32] = f32_##op##_kernel, \
	[COLL_F64] = f64_##op##_kernel, [COLL_F8E4M3] = f8e4m3_##op##_kernel, [COLL_F8E5M2] = f8e5m2_##op##_kernel

const coll_reduce_fn COLL_REDUCE_TABLE[COLL_REDUCE_OPS][COLL_DTYPE_COUNT] = {
        [COLL_SUM] = ROW(sum),
        [COLL_PROD] = ROW(prod),
        [COLL_MIN] = ROW(min),
        [COLL_MAX] = ROW(max),
        [COLL_AVG] = ROW(avg),
        [COLL_LAND] = ROW(land),
        [COLL_LOR] = ROW(lor),
        [COLL_LXOR] = ROW(lxor),
#undef FLOATS
#define FLOATS(op) /* none */
        [COLL_BAND] = ROW(band),
        [COLL_BOR] = ROW(bor),
        [COLL_BXOR] = ROW(bxor),
#undef FLOATS
        [COLL_REDUCE_PREMUL] = {[COLL_F16] = f16_premul_kernel,
                                [COLL_BF16] = bf16_premul_kernel,
                                [COLL_F32] = f32_premul_kernel,
                                [COLL_F64] = f64_premul_kernel,
                                [COLL_F8E4M3] = f8e4m3_premul_kernel,
                                [COLL_F8E5M2] = f8e5m2_premul_kernel},
};
#undef ROW

#if SPREADS
#define ROW(op)                                                                                           \
	{                                                                                                 \
		[COLL_I8] = i8_##op##_kernel_spread, [COLL_U8] = u8_##op##_kernel_spread,                 \
		[COLL_I16] = i16_##op##_kernel_spread, [COLL_U16] = u16_##op##_kernel_spread,             \
		[COLL_I32] = i32_##op##_kernel_spread, [COLL_U32] = u32_##op##_kernel_spread,             \
		[COLL_I64] = i64_##op##_kernel_spread, [COLL_U64] = u64_##op##_kernel_spread,             \
		[COLL_F16] = f16_##op##_kernel_spread, [COLL_BF16] = bf16_##op##_kernel_spread,           \
		[COLL_F32] = f32_##op##_kernel_spread, [COLL_F64] = f64_##op##_kernel_spread,             \
		[COLL_F8E4M3] = f8e4m3_##op##_kernel_spread, [COLL_F8E5M2] = f8e5m2_##op##_kernel_spread, \
	}
const coll_reduce_spread_fn COLL_REDUCE_SPREAD_TABLE[COLL_REDUCE_OPS][COLL_DTYPE_COUNT] = {
        [COLL_SUM] = ROW(sum),
        [COLL_AVG] = ROW(avg),
};
#undef ROW
#endif
