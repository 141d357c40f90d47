/*
 * The verification of the perf programs: what the library's kernels compute, in
 * any order, is accepted; what is off by a bit, an element, a block or a call is
 * not. And the arguments: what is refused.
 */
#include <getopt.h>
#include <stdlib.h>

#include "bench/perf/perf.h"
#include "reduce/element.h"
#include "reduce/reduce.h"
#include "tests/plain.h"

enum { COUNT = 9000, SIZE_MAX_TESTED = 16 };

struct inputs {
	char in[SIZE_MAX_TESTED][COUNT * 8];
	char out[COUNT * 8];
};

static struct coll_reduction bind(coll_dtype type, int op, int size)
{
	struct coll_reduction r;

	CHECK(coll_reduce_bind(&r, type, op == PERF_MULSUM ? COLL_OP_PREMUL_SUM : (coll_op)op, size, COLL_ISA_SCALAR) ==
	      COLL_OK);
	r.scale = PERF_MULSUM_SCALE;
	return r;
}

/* All at once; or one by one from the last rank down, rounding at every step. */
static void reduce_at_once(const struct coll_reduction *r, struct inputs *x, int size)
{
	const void *src[SIZE_MAX_TESTED];

	for (int s = 0; s < size; s++)
		src[s] = x->in[s];
	coll_reduce_run(r, x->out, src, size, -2, true, COUNT);
}

static void reduce_backwards(const struct coll_reduction *r, struct inputs *x, int size)
{
	const void *src[2] = {x->in[size - 1], x->out};

	coll_reduce_run(r, x->out, src, 1, -2, size == 1, COUNT);
	for (int s = size - 2; s >= 0; s--) {
		src[0] = x->in[s];
		if (r->mean)
			coll_reduce_weighted(r, x->out, src, 2, (uint32_t[]){1, (uint32_t)(size - 1 - s)}, COUNT);
		else
			coll_reduce_run(r, x->out, src, 2, 0, s == 0, COUNT);
	}
}

static void check_accepts(struct inputs *x, coll_dtype type, int op, int size)
{
	const struct perf_segment all = {.count = COUNT, .source = PERF_REDUCED, .first = 77};
	struct perf_data *d = perf_data_create(type, op, size, size, false);
	const struct coll_reduction r = bind(type, op, size);

	REQUIRE(d);
	for (int s = 0; s < size; s++)
		perf_data_fill(d, s, 3, 77, COUNT, x->in[s]);
	reduce_at_once(&r, x, size);
	CHECK(perf_data_check(d, &all, 3, x->out) == 0, "%s %s size %d", perf_type_name(type), perf_op_name(op), size);
	reduce_backwards(&r, x, size);
	CHECK(perf_data_check(d, &all, 3, x->out) == 0, "%s %s size %d backwards", perf_type_name(type),
	      perf_op_name(op), size);
	/* An element lost, in fifteen of sixteen positions a bit: the smallest error shows. */
	if (size > 1 && op == COLL_SUM) {
		x->out[COUNT / 2] ^= 1;
		CHECK(perf_data_check(d, &all, 3, x->out) == 1, "%s size %d", perf_type_name(type), size);
	}
	perf_data_destroy(&d);
	CHECK(d == NULL);
}

TEST(perf_data, accepts_what_the_kernels_compute_in_any_order)
{
	static const int sizes[] = {1, 2, 3, 5, 8, 16};
	struct inputs *x = malloc(sizeof(*x));

	REQUIRE(x);
	for (coll_dtype type = 0; type < COLL_DTYPE_COUNT; type++)
		for (int op = 0; op < PERF_OPS; op++)
			for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++)
				if (perf_op_supports(type, op))
					check_accepts(x, type, op, sizes[k]);
	free(x);
}

TEST(perf_data, what_is_defined_agrees_with_the_library)
{
	for (coll_dtype type = 0; type < COLL_DTYPE_COUNT; type++)
		for (int op = 0; op < PERF_OPS; op++)
			CHECK(perf_op_supports(type, op) ==
			      coll_reduce_supports(type, op == PERF_MULSUM ? COLL_OP_PREMUL_SUM : (coll_op)op));
}

TEST(perf_data, conversions_agree_with_the_kernels)
{
	for (uint32_t h = 0; h < 65536; h++) {
		const double a = perf_oracle_widen(COLL_F16, h), b = f16_to_f32((uint16_t)h);
		const double c = perf_oracle_widen(COLL_BF16, h), d = bf16_to_f32((uint16_t)h);

		CHECK(a == b || (a != a && b != b), "f16 %x", h);
		CHECK(c == d || (c != c && d != d), "bf16 %x", h);
	}
	for (uint32_t h = 0; h < 256; h++) {
		const double a = perf_oracle_widen(COLL_F8E4M3, h), b = f8e4m3_to_f32((uint8_t)h);
		const double c = perf_oracle_widen(COLL_F8E5M2, h), d = f8e5m2_to_f32((uint8_t)h);

		CHECK(a == b || (a != a && b != b), "f8e4m3 %x", h);
		CHECK(c == d || (c != c && d != d), "f8e5m2 %x", h);
	}
}

/* Every flip of one byte by 0x01 or 0x80 in a sum of floats, but where rounding is
 * allowed for: 1 of 16 positions. */
TEST(perf_data, sees_single_bits_in_exact_positions)
{
	const struct perf_segment all = {.count = COUNT, .source = PERF_REDUCED};
	struct perf_data *d = perf_data_create(COLL_F32, COLL_SUM, 2, 2, false);
	struct inputs *x = malloc(sizeof(*x));
	const struct coll_reduction r = bind(COLL_F32, COLL_SUM, 2);
	int missed = 0;

	REQUIRE(d && x);
	for (int s = 0; s < 2; s++)
		perf_data_fill(d, s, 1, 0, COUNT, x->in[s]);
	reduce_at_once(&r, x, 2);
	for (int i = 0; i < COUNT * 4; i++) {
		x->out[i] ^= i % 3 ? 0x01 : (char)0x80;
		missed += perf_data_check(d, &all, 1, x->out) == 0;
		x->out[i] ^= i % 3 ? 0x01 : (char)0x80;
	}
	CHECK(missed <= COUNT * 4 / 16, "%d of %d missed", missed, COUNT * 4);
	CHECK(missed > 0, "some position must allow for rounding");
	free(x);
	perf_data_destroy(&d);
}

TEST(perf_data, sees_what_is_displaced_stale_or_foreign)
{
	const struct perf_segment s = {.count = COUNT, .source = 1, .first = 5};
	static char buf[COUNT + 2039 + 1];

	for (coll_dtype type = 0; type < 2; type++) {
		struct perf_data *d = perf_data_create(type, -1, 3, 3, false);

		REQUIRE(d);
		perf_data_fill(d, 1, 9, 5, COUNT, buf);
		CHECK(perf_data_check(d, &s, 9, buf) == 0);
		CHECK(perf_data_check(d, &s, 10, buf) > COUNT / 2, "another salt");
		perf_data_fill(d, 2, 9, 5, COUNT, buf);
		CHECK(perf_data_check(d, &s, 9, buf) > COUNT / 2, "another rank");
		perf_data_fill(d, 1, 9, 6, COUNT, buf);
		CHECK(perf_data_check(d, &s, 9, buf) > COUNT / 2, "off by one");
		perf_data_fill(d, 1, 9, 5 + 2039, COUNT, buf);
		CHECK(perf_data_check(d, &s, 9, buf) > COUNT / 2, "off by a period");
		perf_data_fill(d, 1, 9, 5, COUNT, buf);
		buf[COUNT - 1] ^= 0x10;
		CHECK(perf_data_check(d, &s, 9, buf) == 1, "the last element");
		perf_data_destroy(&d);
	}
}

TEST(perf_data, sees_a_nan_where_rounding_is_allowed)
{
	const struct perf_segment all = {.count = COUNT, .source = PERF_REDUCED};
	struct perf_data *d = perf_data_create(COLL_F32, COLL_SUM, 4, 4, true);
	uint32_t *bits = malloc(COUNT * 4);

	REQUIRE(d && bits);
	for (int i = 0; i < COUNT; i++)
		bits[i] = 0x7fc00000;
	CHECK(perf_data_check(d, &all, 1, bits) == COUNT);
	free(bits);
	perf_data_destroy(&d);
}

TEST(perf_data, hash_sees_every_bit)
{
	char buf[203] = {0};
	const uint64_t zero = perf_data_hash(buf, sizeof(buf));

	for (size_t i = 0; i < sizeof(buf) * 8; i++) {
		buf[i / 8] ^= (char)(1 << i % 8);
		CHECK(perf_data_hash(buf, sizeof(buf)) != zero, "bit %zu", i);
		buf[i / 8] ^= (char)(1 << i % 8);
	}
	CHECK(perf_data_hash(buf, 100) != perf_data_hash(buf, 101));
}

/* ---- Arguments ---- */

static int parse(struct perf_args *a, const char *line)
{
	static char text[256];
	char *argv[64] = {(char *)"allreduce_perf"};
	int argc = 1;

	snprintf(text, sizeof(text), "%s", line);
	for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	optind = 0;
	return perf_args_parse(a, argv[0], argc, argv);
}

TEST(perf_args, reads_the_flags_of_nccl_tests)
{
	struct perf_args a;

	REQUIRE(parse(&a, "") == 0);
	CHECK(a.min_bytes == 32 << 20 && a.max_bytes == 32 << 20 && a.iters == 20 && a.warmups == 5 && a.checks == 1);
	REQUIRE(parse(&a, "-b 8 -e 128M -f 2 -g 1 -t 1 -n 7 -w 0 -c 0 -m 3 -N 2 -T 9 -a 2 -R 1 -u 3 -J x --touch "
	                  "--details") == 0);
	CHECK(a.min_bytes == 8 && a.max_bytes == 128 << 20 && a.factor == 2 && a.iters == 7 && a.warmups == 0);
	CHECK(a.checks == 0 && a.aggregate == 3 && a.cycles == 2 && a.timeout_s == 9 && a.average == 2);
	CHECK(a.library_memory && a.unalign == 3 && a.touch && a.details && strcmp(a.json, "x") == 0);
	REQUIRE(parse(&a, "--minbytes 1K --maxbytes 1.5K --stepbytes 512 --datatype bfloat16 --op avg --root all") ==
	        0);
	CHECK(a.min_bytes == 1024 && a.max_bytes == 1536 && a.step_bytes == 512 && a.type == COLL_BF16);
	CHECK(a.op == COLL_AVG && a.root == PERF_ALL);
	REQUIRE(parse(&a, "-d all -o all -b 0 -e 64K -f 7") == 0);
	CHECK(a.type == PERF_ALL && a.op == PERF_ALL && a.min_bytes == 0);
	REQUIRE(parse(&a, "-g 4 --device cuda:0,1,2,3") == 0);
	CHECK(a.ranks == 4 && strcmp(a.device, "cuda:0,1,2,3") == 0);
	REQUIRE(parse(&a, "-b 2362232012") == 0);
	CHECK(a.min_bytes == 2362232012 && a.max_bytes == 2362232012);
}

TEST(perf_args, refuses_the_rest)
{
	static const char *const bad[] = {
	        "-G 1",
	        "--bogus",
	        "-b",
	        "-b 8x",
	        "-b -1",
	        "-b nan",
	        "-b 1.3",
	        "-e 4 -b 8",
	        "-f 1",
	        "-f 0",
	        "-n 0",
	        "-n -3",
	        "-n 2.5",
	        "-w -1",
	        "-d float7",
	        "-o plus",
	        "-r -1",
	        "-g 2",
	        "-g 2 --device host",
	        "-g 0 --device cuda",
	        "-t 2",
	        "-R 2",
	        "-a 4",
	        "-m 0",
	        "-i 0",
	        "surplus",
	        "-c x",
	        "-u -1",
	        "-d float -o band",
	        "-d int8 -o mulsum",
	};
	struct perf_args a;

	fflush(stderr);
	if (!freopen("/dev/null", "w", stderr)) /* 28 times the usage */
		SKIP("no /dev/null");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(parse(&a, bad[i]) == 1 + 2, "%s", bad[i]);
}
