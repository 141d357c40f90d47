/*
 * Names and sizes of the public types and operations. One row each, in the
 * order of the enums.
 */
#include "coll/coll.h"

static const struct {
	const char *name;
	size_t bytes;
} types[COLL_DTYPE_COUNT] = {
        [COLL_I8] = {"i8", 1},         [COLL_U8] = {"u8", 1},         [COLL_I16] = {"i16", 2}, [COLL_U16] = {"u16", 2},
        [COLL_I32] = {"i32", 4},       [COLL_U32] = {"u32", 4},       [COLL_I64] = {"i64", 8}, [COLL_U64] = {"u64", 8},
        [COLL_F16] = {"f16", 2},       [COLL_BF16] = {"bf16", 2},     [COLL_F32] = {"f32", 4}, [COLL_F64] = {"f64", 8},
        [COLL_F8E4M3] = {"f8e4m3", 1}, [COLL_F8E5M2] = {"f8e5m2", 1},
};

static const char *const ops[COLL_OP_COUNT] = {
        [COLL_SUM] = "sum",   [COLL_PROD] = "prod", [COLL_MIN] = "min",   [COLL_MAX] = "max",
        [COLL_AVG] = "avg",   [COLL_BAND] = "band", [COLL_BOR] = "bor",   [COLL_BXOR] = "bxor",
        [COLL_LAND] = "land", [COLL_LOR] = "lor",   [COLL_LXOR] = "lxor",
};

const char *coll_dtype_name(coll_dtype type)
{
	return (unsigned)type < COLL_DTYPE_COUNT ? types[type].name : NULL;
}

size_t coll_dtype_size(coll_dtype type)
{
	return (unsigned)type < COLL_DTYPE_COUNT ? types[type].bytes : 0;
}

const char *coll_op_name(coll_op op)
{
	return op < COLL_OP_COUNT ? ops[op] : NULL;
}
