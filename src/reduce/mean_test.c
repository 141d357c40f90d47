/*
 * Means of f16, bf16 and 8-bit floats, at every level: equal inputs give that input, for every finite value, any number
 * of inputs and any weights; others give what single operations of f32 give, rounded once.
 */
#include <math.h>
#include <stdlib.h>

#include "reduce/element.h"
#include "reduce/reduce.h"
#include "reduce/spread.h"
#include "tests/plain.h"

enum { VALUES = 65536, INPUTS_MAX = 256 };

static const struct {
	coll_dtype type;
	uint32_t values;
	uint32_t infinity; /* bits of the first that is not finite, without the sign */
} types[] = {{COLL_F16, 65536, 0x7c00}, {COLL_BF16, 65536, 0x7f80}, {COLL_F8E4M3, 256, 0x7f}, {COLL_F8E5M2, 256, 0x7c}};

static union {
	uint16_t half[VALUES];
	uint8_t byte[VALUES];
} in, out;

static uint32_t bits_at(coll_dtype type, const void *p, size_t i)
{
	return coll_dtype_size(type) == 2 ? ((const uint16_t *)p)[i] : ((const uint8_t *)p)[i];
}

/* The finite values of types[k], each once; how many. */
static size_t finite_values(size_t k)
{
	const uint32_t sign = types[k].values / 2;
	size_t n = 0;

	for (uint32_t v = 0; v < types[k].values; v++) {
		if ((v & (sign - 1)) >= types[k].infinity)
			continue;
		if (types[k].values == 65536)
			in.half[n++] = (uint16_t)v;
		else
			in.byte[n++] = (uint8_t)v;
	}
	return n;
}

static void bind(struct coll_reduction *r, size_t k, int isa)
{
	REQUIRE(coll_reduce_bind(r, types[k].type, COLL_AVG, 3, (enum coll_isa)isa) == COLL_OK);
	REQUIRE(r->mean);
}

static void check_equal(size_t k, size_t n, const char *what, int inputs, int isa)
{
	for (size_t i = 0; i < n; i++)
		if (bits_at(types[k].type, &in, i) != bits_at(types[k].type, &out, i)) {
			CHECK(false, "%s %s %s of %d: %04x becomes %04x", coll_dtype_name(types[k].type),
			      coll_reduce_isa_name((enum coll_isa)isa), what, inputs, bits_at(types[k].type, &in, i),
			      bits_at(types[k].type, &out, i));
			return;
		}
}

#define EACH_LEVEL(isa) for (int isa = 0; isa <= (int)coll_reduce_best_isa(); isa++)
#define EACH_TYPE(k)    for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++)

TEST(mean, of_equal_values_is_that_value)
{
	static const int inputs[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33, 101, INPUTS_MAX};
	const void *src[INPUTS_MAX];

	for (int s = 0; s < INPUTS_MAX; s++)
		src[s] = &in;
	EACH_TYPE(k)
	{
		const size_t n = finite_values(k);

		EACH_LEVEL(isa)
		for (size_t i = 0; i < sizeof(inputs) / sizeof(inputs[0]); i++) {
			struct coll_reduction r;

			bind(&r, k, isa);
			coll_reduce_run(&r, &out, src, inputs[i], -1, i % 2, n);
			check_equal(k, n, "mean", inputs[i], isa);
		}
	}
}

TEST(mean, of_equal_values_to_several_places_is_that_value)
{
	_Alignas(64) static char from[2 * VALUES], to[2][2 * VALUES];

	EACH_TYPE(k)
	{
		const size_t n = finite_values(k), bytes = n * coll_dtype_size(types[k].type);
		const char *src[] = {from, from, from};
		char *dst[] = {to[0], to[1]};

		memcpy(from, &in, bytes);
		EACH_LEVEL(isa)
		for (int c = 0; c < 8; c++) {
			struct coll_reduction r;

			bind(&r, k, isa);
			coll_reduce_spread(&r, dst, 1 + c / 4, src, 2 + c % 2, c / 2 % 2, bytes);
			memcpy(&out, to[c / 4], bytes);
			check_equal(k, n, "spread mean", 2 + c % 2, isa);
		}
	}
}

TEST(mean, of_equal_values_of_any_weights_is_that_value)
{
	static const uint32_t weights[][COLL_REDUCE_WEIGHTS_MAX] = {
	        {1, 2},          {2, 1},          {1, 4},
	        {3, 4},          {5, 8},          {1, 32},
	        {32, 33},        {127, 130},      {4095, 1},
	        {1 << 20, 3},    {16, 16, 1},     {16, 16, 16, 16, 15},
	        {1, 2, 3},       {16, 7, 16},     {1, 1, 1, 1},
	        {1, 9, 1, 9, 1}, {9, 8, 7, 6, 5}, {16, 16, 16, 16, 16, 16, 16, 3}};
	const void *src[COLL_REDUCE_WEIGHTS_MAX];

	for (int s = 0; s < COLL_REDUCE_WEIGHTS_MAX; s++)
		src[s] = &in;
	EACH_TYPE(k)
	{
		const size_t n = finite_values(k);

		EACH_LEVEL(isa)
		for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++) {
			struct coll_reduction r;
			int inputs = 0;

			while (inputs < COLL_REDUCE_WEIGHTS_MAX && weights[i][inputs])
				inputs++;
			bind(&r, k, isa);
			coll_reduce_weighted(&r, &out, src, inputs, weights[i], n);
			check_equal(k, n, "weighted mean", inputs, isa);
		}
	}
}

static float widened(coll_dtype type, uint32_t bits)
{
	switch (type) {
	case COLL_F16: return f16_to_f32((uint16_t)bits);
	case COLL_BF16: return bf16_to_f32((uint16_t)bits);
	case COLL_F8E4M3: return f8e4m3_to_f32((uint8_t)bits);
	default: return f8e5m2_to_f32((uint8_t)bits);
	}
}

static uint32_t narrowed(coll_dtype type, float f)
{
	switch (type) {
	case COLL_F16: return f16_from_f32(f);
	case COLL_BF16: return bf16_from_f32(f);
	case COLL_F8E4M3: return f8e4m3_from_f32(f);
	default: return f8e5m2_from_f32(f);
	}
}

/* Each value with the one `apart` further on: sums that overflow, that cancel, that vanish. */
static void check_pairs(size_t k, size_t n, size_t apart, const uint32_t *weight, int isa)
{
	const coll_dtype type = types[k].type;
	const size_t bytes = coll_dtype_size(type), pairs = n - apart;
	const void *src[] = {&in, (const char *)&in + apart * bytes};
	const float whole = (float)(weight[0] + weight[1]), a = (float)weight[0] / whole, b = (float)weight[1] / whole;
	struct coll_reduction r;

	bind(&r, k, isa);
	coll_reduce_weighted(&r, &out, src, 2, weight, pairs);
	for (size_t i = 0; i < pairs; i++) {
		const float x = widened(type, bits_at(type, &in, i)), y = widened(type, bits_at(type, &in, i + apart));
		const float left = a * x, right = b * y;

		if (bits_at(type, &out, i) != narrowed(type, left + right)) {
			CHECK(false, "%s %s: %u of %a, %u of %a: %04x", coll_dtype_name(type),
			      coll_reduce_isa_name((enum coll_isa)isa), weight[0], (double)x, weight[1], (double)y,
			      bits_at(type, &out, i));
			return;
		}
	}
}

TEST(mean, is_that_of_f32_rounded_once)
{
	static const uint32_t weights[][2] = {{1, 1}, {1, 2}, {4, 3}, {15, 1}};

	EACH_TYPE(k)
	{
		const size_t n = finite_values(k);

		EACH_LEVEL(isa)
		for (size_t i = 0; i < sizeof(weights) / sizeof(weights[0]); i++)
			for (size_t apart = 1; apart < n; apart = 3 * apart + 1)
				check_pairs(k, n, apart, weights[i], isa);
	}
}

/* The sum that is rounded before it is divided, and the share that is rounded before it is added, do not pass. */
TEST(mean, of_the_largest_and_the_smallest_values)
{
	static const uint16_t largest = 0x7bff, smallest = 1;
	const void *three[] = {&largest, &largest, &largest}, *two[] = {&smallest, &smallest};
	uint16_t result;

	EACH_LEVEL(isa)
	{
		struct coll_reduction r;

		bind(&r, 0, isa);
		coll_reduce_run(&r, &result, three, 2, -1, false, 1);
		CHECK(result == largest, "two of three: %04x", result);
		coll_reduce_weighted(&r, &result, (const void *[]){&result, &largest}, 2, (uint32_t[]){2, 1}, 1);
		CHECK(result == largest, "%04x", result);
		coll_reduce_run(&r, &result, two, 2, -1, false, 1);
		coll_reduce_weighted(&r, &result, (const void *[]){&result, &smallest}, 2, (uint32_t[]){2, 1}, 1);
		CHECK(result == smallest, "%04x", result);
	}
}
