/*
 * Names and sizes of the public types and operations. One row each, in the
 * order of the enums.
 */
#include "coll/coll.h"

static const struct type {
	const char *name;
	size_t bytes;
} types[COLL_DTYPE_COUNT] = {
        [COLL_I8] = {"i8", 1},         [COLL_U8] = {"u8", 1},         [COLL_I16] = {"i16", 2}, [COLL_U16] = {"u16", 2},
        [COLL_I32] = {"i32", 4},       [COLL_U32] = {"u32", 4},       [COLL_I64] = {"i64", 8}, [COLL_U64] = {"u64", 8},
        [COLL_F16] = {"f16", 2},       [COLL_BF16] = {"bf16", 2},     [COLL_F32] = {"f32", 4}, [COLL_F64] = {"f64", 8},
        [COLL_F8E4M3] = {"f8e4m3", 1}, [COLL_F8E5M2] = {"f8e5m2", 1},
};

static const struct type pairs[] = {
        {"f32_i32", sizeof(coll_f32_i32)},
        {"f64_i32", sizeof(coll_f64_i32)},
        {"i32_i32", sizeof(coll_i32_i32)},
        {"i64_i32", sizeof(coll_i64_i32)},
};

static const char *const ops[COLL_OP_COUNT] = {
        [COLL_SUM] = "sum",   [COLL_PROD] = "prod", [COLL_MIN] = "min",   [COLL_MAX] = "max",
        [COLL_AVG] = "avg",   [COLL_BAND] = "band", [COLL_BOR] = "bor",   [COLL_BXOR] = "bxor",
        [COLL_LAND] = "land", [COLL_LOR] = "lor",   [COLL_LXOR] = "lxor",
};

static const struct type *find(coll_dtype type)
{
	if ((unsigned)type < COLL_DTYPE_COUNT)
		return &types[type];
	return type >= COLL_F32_I32 && type <= COLL_I64_I32 ? &pairs[type - COLL_F32_I32] : NULL;
}

const char *coll_dtype_name(coll_dtype type)
{
	return find(type) ? find(type)->name : NULL;
}

size_t coll_dtype_size(coll_dtype type)
{
	return find(type) ? find(type)->bytes : 0;
}

const char *coll_op_name(coll_op op)
{
	return op < COLL_OP_COUNT ? ops[op] : NULL;
}
