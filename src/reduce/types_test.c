/*
 * Names and sizes of types and operations.
 */
#include "coll/coll.h"
#include "tests/plain.h"

static const struct {
	coll_dtype type;
	const char *name;
	size_t bytes;
} types[] = {
        {COLL_I8, "i8", 1},         {COLL_U8, "u8", 1},         {COLL_I16, "i16", 2}, {COLL_U16, "u16", 2},
        {COLL_I32, "i32", 4},       {COLL_U32, "u32", 4},       {COLL_I64, "i64", 8}, {COLL_U64, "u64", 8},
        {COLL_F16, "f16", 2},       {COLL_BF16, "bf16", 2},     {COLL_F32, "f32", 4}, {COLL_F64, "f64", 8},
        {COLL_F8E4M3, "f8e4m3", 1}, {COLL_F8E5M2, "f8e5m2", 1},
};

TEST(types, names_and_sizes)
{
	CHECK(sizeof(types) / sizeof(types[0]) == COLL_DTYPE_COUNT);
	for (int i = 0; i < COLL_DTYPE_COUNT; i++) {
		CHECK(coll_dtype_size(types[i].type) == types[i].bytes, "type %d", i);
		CHECK(strcmp(coll_dtype_name(types[i].type), types[i].name) == 0, "type %d", i);
	}
}

TEST(types, unknown_types_have_no_name_and_no_size)
{
	CHECK(coll_dtype_name(COLL_DTYPE_COUNT) == NULL);
	CHECK(coll_dtype_size(COLL_DTYPE_COUNT) == 0);
	CHECK(coll_dtype_name((coll_dtype)-1) == NULL);
	CHECK(coll_dtype_size((coll_dtype)-1) == 0);
}

TEST(types, names_of_operations)
{
	static const char *const names[] = {"sum", "prod", "min",  "max", "avg", "band",
	                                    "bor", "bxor", "land", "lor", "lxor"};

	for (coll_op op = 0; op < COLL_OP_COUNT; op++)
		CHECK(strcmp(coll_op_name(op), names[op]) == 0, "op %u", op);
	CHECK(coll_op_name(COLL_OP_COUNT) == NULL);
	CHECK(coll_op_name(~0u) == NULL);
}
