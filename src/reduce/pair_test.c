/*
 * Pairs of a value and an index: which one wins, that neither order nor grouping matters, padding, alignment, and what
 * is not defined on them.
 */
#include <math.h>
#include <stdlib.h>

#include "base/hash.h"
#include "reduce/reduce.h"
#include "tests/plain.h"

enum { COUNT = 37, INPUTS = 5 };

static coll_f64_i32 pair_of(double value, int index)
{
	coll_f64_i32 p;

	memset(&p, 0xee, sizeof(p));
	p.value = value;
	p.index = index;
	return p;
}

static coll_f64_i32 join(coll_op op, coll_f64_i32 a, coll_f64_i32 b)
{
	struct coll_reduction r;
	coll_f64_i32 out;
	const void *src[] = {&a, &b};

	CHECK(coll_reduce_bind(&r, COLL_F64_I32, op, 2, COLL_ISA_AVX512) == COLL_OK);
	coll_reduce_run(&r, &out, src, 2, -1, true, 1);
	return out;
}

/* The value's bits, of NaN and of a zero's sign as well, and the rest of the struct. */
struct words {
	uint64_t value, rest;
};

static struct words words_of(coll_f64_i32 p)
{
	struct words w;

	memcpy(&w, &p, sizeof(w));
	return w;
}

/* a is what remains of both, in either order. The padding is zero. */
static void expect(coll_op op, coll_f64_i32 a, coll_f64_i32 b)
{
	const coll_f64_i32 x = join(op, a, b), y = join(op, b, a);
	const struct words in = words_of(a), one = words_of(x), other = words_of(y);

	CHECK(one.value == in.value && x.index == a.index, "%g %d of %g %d and %g %d", x.value, x.index, a.value,
	      a.index, b.value, b.index);
	CHECK(one.value == other.value && one.rest == other.rest, "%g %d or %g %d", x.value, x.index, y.value, y.index);
	CHECK(one.rest >> 32 == 0, "the padding is zero");
}

TEST(reduce_pair, which_one_wins)
{
	expect(COLL_MINLOC, pair_of(1, 9), pair_of(2, 3));
	expect(COLL_MAXLOC, pair_of(2, 3), pair_of(1, 9));
	expect(COLL_MINLOC, pair_of(1, 3), pair_of(1, 9));
	expect(COLL_MAXLOC, pair_of(1, 3), pair_of(1, 9));
	expect(COLL_MINLOC, pair_of(1, -4), pair_of(1, 0));
	expect(COLL_MINLOC, pair_of(0.0, 1), pair_of(-0.0, 2));
	expect(COLL_MAXLOC, pair_of(-0.0, 1), pair_of(0.0, 2));
	expect(COLL_MINLOC, pair_of(-0.0, 1), pair_of(0.0, 1));
	expect(COLL_MAXLOC, pair_of(0.0, 1), pair_of(-0.0, 1));
	expect(COLL_MINLOC, pair_of((double)NAN, 7), pair_of((double)-INFINITY, 1));
	expect(COLL_MAXLOC, pair_of((double)NAN, 7), pair_of((double)INFINITY, 1));
	expect(COLL_MINLOC, pair_of((double)NAN, 3), pair_of((double)NAN, 7));
	expect(COLL_MAXLOC, pair_of(-(double)NAN, 3), pair_of((double)NAN, 7));
	expect(COLL_MINLOC, pair_of((double)-INFINITY, 5), pair_of(-1e308, 1));
}

/* Values of few bits, so that there are ties, and now and then a NaN. Unaligned. */
static void fill(coll_dtype type, char *at, struct coll_rng *rng)
{
	const size_t bytes = coll_dtype_size(type);

	for (int i = 0; i < COUNT; i++) {
		const int v = (int)(coll_rng_next(rng) % 5) - 2, index = (int)(coll_rng_next(rng) % 4);
		const double d = coll_rng_next(rng) % 9 == 0 ? (double)NAN : v == 0 && index % 2 ? -0.0 : v;
		const float f = (float)d;
		const int64_t n = v;
		char *p = at + (size_t)i * bytes;

		memset(p, index, bytes);
		memcpy(p,
		       type == COLL_F32_I32   ? (const void *)&f
		       : type == COLL_F64_I32 ? (const void *)&d
		                              : (const void *)&n,
		       bytes / 2 == 4 ? 4 : 8);
		memcpy(p + (bytes / 2 == 4 ? 4 : 8), &index, 4);
	}
}

static void orders(coll_dtype type, coll_op op)
{
	static const int order[][INPUTS] = {{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 0, 4, 1, 3}};
	const size_t bytes = COUNT * coll_dtype_size(type);
	struct coll_rng rng = {(uint64_t)type * 64 + op};
	char in[INPUTS][COUNT * 16 + 1], out[3][COUNT * 16 + 1];
	struct coll_reduction r;

	REQUIRE(coll_reduce_bind(&r, type, op, INPUTS, coll_reduce_best_isa()) == COLL_OK);
	for (int k = 0; k < INPUTS; k++)
		fill(type, in[k] + 1, &rng);
	for (int o = 0; o < 3; o++) {
		const void *src[INPUTS], *step[2];

		for (int k = 0; k < INPUTS; k++)
			src[k] = in[order[o][k]] + 1;
		if (o < 2) {
			coll_reduce_run(&r, out[o] + 1, src, INPUTS, -1, true, COUNT);
		} else { /* two by two, into an input */
			memcpy(out[o] + 1, src[0], bytes);
			for (int k = 1; k < INPUTS; k++) {
				step[0] = src[k];
				step[1] = out[o] + 1;
				coll_reduce_run(&r, out[o] + 1, step, 2, -1, k == INPUTS - 1, COUNT);
			}
		}
		CHECK(memcmp(out[o] + 1, out[0] + 1, bytes) == 0, "%s %s: order %d", coll_dtype_name(type),
		      coll_op_name(op), o);
	}
}

TEST(reduce_pair, neither_order_nor_grouping_matters)
{
	for (coll_dtype type = COLL_F32_I32; type <= COLL_I64_I32; type = (coll_dtype)(type + 1)) {
		orders(type, COLL_MINLOC);
		orders(type, COLL_MAXLOC);
	}
}

TEST(reduce_pair, integers)
{
	const coll_i64_i32 a = {INT64_MIN, 8}, b = {INT64_MAX, 2};
	const coll_i32_i32 c = {-5, 1}, d = {-5, 0};
	const void *wide[] = {&a, &b}, *small[] = {&c, &d};
	struct coll_reduction r;
	coll_i64_i32 x;
	coll_i32_i32 y;

	CHECK(coll_reduce_bind(&r, COLL_I64_I32, COLL_MAX, 2, COLL_ISA_SCALAR) == COLL_OK);
	coll_reduce_run(&r, &x, wide, 2, -1, true, 1);
	CHECK(x.value == INT64_MAX && x.index == 2);
	CHECK(coll_reduce_bind(&r, COLL_I32_I32, COLL_MIN, 2, COLL_ISA_SCALAR) == COLL_OK);
	coll_reduce_run(&r, &y, small, 2, -1, true, 1);
	CHECK(y.value == -5 && y.index == 0);
}

TEST(reduce_pair, what_is_defined)
{
	for (coll_dtype type = COLL_F32_I32; type <= COLL_I64_I32; type = (coll_dtype)(type + 1)) {
		CHECK(coll_dtype_name(type) && strstr(coll_dtype_name(type), "_i32"));
		for (coll_op op = 0; op < COLL_OP_COUNT; op++)
			CHECK(coll_reduce_supports(type, op) == (op == COLL_MINLOC || op == COLL_MAXLOC), "%u",
			      (unsigned)op);
		CHECK(coll_reduce_supports(type, COLL_OP_USER) && !coll_reduce_supports(type, COLL_OP_PREMUL_SUM));
	}
	CHECK(coll_dtype_size(COLL_F32_I32) == 8 && coll_dtype_size(COLL_F64_I32) == 16);
	CHECK(!coll_dtype_name((coll_dtype)31) && !coll_dtype_size((coll_dtype)36) && !coll_dtype_size((coll_dtype)-1));
	CHECK(!coll_reduce_supports((coll_dtype)36, COLL_OP_USER) && !coll_reduce_supports((coll_dtype)20, COLL_MIN));
}
