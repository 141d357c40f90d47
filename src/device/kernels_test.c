/*
 * The device kernels, compiled for the host, against the scalar reductions, bit for bit (two NaNs are equal): every
 * type and operation, alignments equal and not, lengths around the vectors, one and several results, in place, blocks
 * of one thread and of several. Bytes around a result stay as they were. Every access is aligned to its size, and where
 * all addresses allow it, none is shorter than 16 bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "device/kernels_host_test.h"

/* ---- Data ---- */

#include "device/kernels_values.h"

enum { IN_MAX = 9, OUT_MAX = 4, LEN_MAX = 8 * 300, ROOM = LEN_MAX + 64, BEFORE = 16 };

static _Alignas(16) char in[IN_MAX][ROOM], out[OUT_MAX][ROOM], want[ROOM], scratch[ROOM];

/* ---- Reductions ---- */

struct trial {
	coll_dtype type;
	coll_op op;
	int nin, nout, raw;
	bool last, in_place;
	size_t count;
	unsigned skew; /* of all addresses */
	int odd;       /* this one, inputs first, is odd_by bytes further off; -1: none */
	unsigned odd_by;
	uint32_t nblocks, nthreads;
};

static void reduce(const struct trial *t)
{
	const size_t bytes = coll_dtype_size(t->type), len = t->count * bytes;
	const void *src[IN_MAX];
	uint64_t ins[IN_MAX], outs[OUT_MAX];
	char *dst[OUT_MAX];
	struct coll_kernel_launch l;
	struct coll_reduction r;

	REQUIRE(coll_reduce_bind(&r, t->type, t->op, 3, COLL_ISA_SCALAR) == COLL_OK);
	r.scale = 0.3;
	for (int s = 0; s < t->nin; s++) {
		char *p = in[s] + BEFORE + t->skew + (t->odd == s ? t->odd_by : 0);

		for (size_t i = 0; i < t->count; i++)
			put_random(p + i * bytes, t->type);
		src[s] = p;
		ins[s] = (uintptr_t)p;
	}
	coll_reduce_run(&r, want, src, t->nin, t->raw, t->last, t->count);
	for (int d = 0; d < t->nout; d++) {
		memset(out[d], 0x5a, ROOM);
		dst[d] = t->in_place && d < t->nin ? (char *)src[d]
		                                   : out[d] + BEFORE + t->skew + (t->odd == t->nin + d ? t->odd_by : 0);
		outs[d] = (uintptr_t)dst[d];
	}
	coll_kernels_reduce(&l, &r, outs, t->nout, ins, t->nin, t->raw, t->last, t->count, 0, 100);
	crooked = narrow = wide = 0;
	run(&l, t->nblocks, t->nthreads);
	CHECK(crooked == 0, "%s %s: %u accesses are not aligned", coll_dtype_name(t->type), coll_op_name(t->op),
	      crooked);
	if (t->skew == 0 && t->odd < 0 && len % 16 == 0)
		CHECK(narrow == 0 && wide == len / 16 * (unsigned)(t->nin + t->nout),
		      "%s: %u short accesses, %u of 16 bytes", coll_dtype_name(t->type), narrow, wide);
	for (int d = 0; d < t->nout; d++) {
		for (size_t i = 0; i < t->count; i++) {
			const char *got = dst[d] + i * bytes, *expected = want + i * bytes;

			REQUIRE(memcmp(got, expected, bytes) == 0 ||
			                (is_nan(got, t->type) && is_nan(expected, t->type)),
			        "%s op %d, %d inputs, %d results, raw %d, last %d, element %zu of %zu, skew %u, odd %d",
			        coll_dtype_name(t->type), (int)t->op, t->nin, t->nout, t->raw, t->last, i, t->count,
			        t->skew, t->odd);
		}
		for (char *p = out[d]; !(t->in_place && d < t->nin) && p < out[d] + ROOM; p++)
			REQUIRE((p >= dst[d] && p < dst[d] + len) || *p == 0x5a, "a byte beside the result is changed");
	}
}

/* Every type and operation, the operation of premultiplied sums included. */
static void each_operation(void (*trials)(struct trial *t))
{
	for (int type = 0; type < COLL_DTYPE_COUNT; type++)
		for (int op = 0; op <= COLL_OP_PREMUL_SUM; op++) {
			struct trial t = {.type = (coll_dtype)type,
			                  .op = (coll_op)op,
			                  .nin = 2,
			                  .nout = 1,
			                  .odd = -1,
			                  .nblocks = 2,
			                  .nthreads = 1};

			if (op < COLL_OP_COUNT || op == COLL_OP_PREMUL_SUM)
				if (coll_kernels_find(t.type, t.op) >= 0)
					trials(&t);
		}
}

static void lengths_and_skews(struct trial *t)
{
	static const size_t counts[] = {0, 1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 48, 67, 129, 300};

	for (t->skew = 0; t->skew < 16; t->skew++)
		for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
			t->count = counts[c];
			t->last = (c + t->skew) % 2;
			t->raw = (int)((c + t->skew) % 4) - 2;
			reduce(t);
		}
}

TEST(kernels, reduce_lengths_and_alignments)
{
	each_operation(lengths_and_skews);
}

static void inputs_and_results(struct trial *t)
{
	for (t->nin = 1; t->nin <= IN_MAX; t->nin++)
		for (t->nout = 1; t->nout <= OUT_MAX; t->nout++)
			for (int variant = 0; variant < 6; variant++) {
				t->count = 16 + draw() % 80;
				t->skew = variant < 2 ? 0 : draw() % 16;
				t->odd = variant < 4 ? -1 : (int)(draw() % (unsigned)(t->nin + t->nout));
				t->odd_by = 1u << draw() % 4;
				t->last = draw() % 4 != 0;
				t->in_place = variant % 2 && t->odd < t->nin;
				t->raw = (int)(draw() % (unsigned)(t->nin + 2)) - 2;
				reduce(t);
			}
}

TEST(kernels, reduce_inputs_and_results)
{
	each_operation(inputs_and_results);
}

static void blocks_of_threads(struct trial *t)
{
	t->nin = 3;
	t->last = true;
	t->nout = 2;
	t->nthreads = 4;
	t->nblocks = 3;
	t->count = 299;
	for (t->skew = 0; t->skew < 16; t->skew += 8)
		reduce(t);
}

TEST(kernels, reduce_blocks_of_threads)
{
	each_operation(blocks_of_threads);
}

TEST(kernels, reduce_writes_nothing_if_told)
{
	uint32_t state = 7;
	const uint64_t from[] = {(uintptr_t)in[0], (uintptr_t)in[1]}, to[] = {(uintptr_t)out[0]};
	struct coll_kernel_launch l;
	struct coll_reduction r;

	REQUIRE(coll_reduce_bind(&r, COLL_I32, COLL_SUM, 2, COLL_ISA_SCALAR) == COLL_OK);
	memset(in, 1, sizeof(in));
	memset(out, 0x5a, sizeof(out));
	coll_kernels_reduce(&l, &r, to, 1, from, 2, -1, true, 100, (uintptr_t)&state, 4);
	run(&l, 2, 4);
	CHECK(out[0][0] == 0x5a && memcmp(out[0], out[0] + 1, ROOM - 1) == 0);
	state = 0;
	run(&l, 2, 4);
	CHECK(out[0][0] == 2 && out[0][399] == 2 && out[0][400] == 0x5a);
}

/* ---- Copies ---- */

/* Whether out[0] holds len bytes of in[0], at these places, and nothing else. */
static bool copied(size_t to, size_t from, size_t len)
{
	memset(scratch, 0x5a, ROOM);
	memcpy(scratch + to, in[0] + from, len);
	return memcmp(scratch, out[0], ROOM) == 0;
}

static void fill(void)
{
	for (size_t i = 0; i < ROOM; i++)
		in[0][i] = (char)draw();
	memset(out[0], 0x5a, ROOM);
}

TEST(kernels, copy_any_alignment)
{
	static const size_t lens[] = {0, 1, 2, 3, 7, 8, 15, 16, 17, 30, 31, 32, 33, 47, 64, 100, 255, 1024};
	struct coll_kernel_launch l;

	for (unsigned to = 0; to < 32; to++)
		for (unsigned from = 0; from < 32; from++)
			for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
				fill();
				coll_kernels_copy(&l, (uintptr_t)out[0] + to, (uintptr_t)in[0] + from, lens[i], 0, 8);
				crooked = narrow = wide = 0;
				run(&l, 1 + (uint32_t)i % 3, 1);
				REQUIRE(copied(to, from, lens[i]), "%zu bytes from %u to %u", lens[i], from, to);
				CHECK(crooked == 0, "%u accesses are not aligned", crooked);
				if (to % 16 == 0 && from % 16 == 0)
					CHECK(narrow == 2 * (lens[i] % 16) && wide == 2 * (lens[i] / 16),
					      "%u short, %u wide", narrow, wide);
			}
	fill();
	coll_kernels_copy(&l, (uintptr_t)out[0] + 3, (uintptr_t)in[0] + 3, 2000, 0, 8);
	run(&l, 3, 4);
	CHECK(copied(3, 3, 2000));
}

TEST(kernels, guarded_copy)
{
	uint32_t state = 1;
	struct coll_kernel_launch l;

	for (uint32_t nthreads = 1; nthreads <= 4; nthreads += 3) {
		fill();
		coll_kernels_copy(&l, (uintptr_t)out[0] + 1, (uintptr_t)in[0], 999, (uintptr_t)&state, 8);
		state = 1u << 31;
		run(&l, 3, nthreads);
		CHECK(copied(0, 0, 0), "nothing may be written");
		state = 0;
		run(&l, 3, nthreads);
		CHECK(copied(1, 0, 999));
	}
}

TEST(kernels, gather_counts_its_blocks)
{
	uint32_t flag = 0, counter = 0, turn = 0;
	struct coll_kernel_launch l;

	for (uint32_t nthreads = 1; nthreads <= 4; nthreads += 3)
		for (uint32_t nblocks = 1; nblocks <= 5; nblocks++)
			for (size_t len = 0; len < 200; len += 33) {
				fill();
				turn++;
				coll_kernels_gather(&l, (uintptr_t)out[0] + 5, (uintptr_t)in[0] + 9, len,
				                    (uintptr_t)&counter, (uintptr_t)&flag, turn, 8);
				run(&l, nblocks, nthreads);
				CHECK(flag == turn && counter == 0, "flag %u of %u, counter %u", flag, turn, counter);
				CHECK(copied(5, 9, len));
			}
	/* All blocks but the last: no flag yet. */
	counter = 0;
	coll_kernels_gather(&l, (uintptr_t)out[0], (uintptr_t)in[0], 64, (uintptr_t)&counter, (uintptr_t)&flag, 1000,
	                    8);
	launched = &l;
	threads = 1;
	blocks = 3;
	for (this_block = 0; this_block < 3; this_block++) {
		CHECK(flag != 1000 && counter == this_block, "after %u blocks", this_block);
		calls[l.kernel](&l.args);
	}
	CHECK(flag == 1000 && counter == 0);
	launched = NULL;
}

/* ---- The table and the grids ---- */

TEST(kernels, table)
{
	CHECK(strcmp(coll_kernels_name(COLL_KERNEL_COPY), "coll_kernel_copy") == 0);
	CHECK(coll_kernels_args_bytes(COLL_KERNEL_GATHER) == sizeof(struct coll_kernel_gather_args));
	for (int type = 0; type < COLL_DTYPE_COUNT; type++) {
		char name[64];

		snprintf(name, sizeof(name), "coll_kernel_reduce_%s", coll_dtype_name((coll_dtype)type));
		CHECK(strcmp(coll_kernels_name(coll_kernels_find((coll_dtype)type, COLL_SUM)), name) == 0, "%s", name);
		CHECK(coll_kernels_find((coll_dtype)type, (coll_op)COLL_OP_USER) == -1);
		for (int op = 0; op < COLL_OP_COUNT; op++)
			CHECK((coll_kernels_find((coll_dtype)type, (coll_op)op) >= 0) ==
			      coll_reduce_supports((coll_dtype)type, (coll_op)op));
	}
	CHECK(coll_kernels_find(COLL_F32, COLL_BAND) == -1);
	CHECK(coll_kernels_find(COLL_I32, (coll_op)COLL_OP_PREMUL_SUM) == -1);
}

TEST(kernels, ptx_has_the_entries_of_the_table)
{
	const char *ptx = coll_kernels_ptx();
	int entries = 0;

	if (!ptx)
		SKIP("built without a compiler of kernels");
	for (const char *p = ptx; (p = strstr(p, ".entry ")); p++)
		entries++;
	CHECK(entries == COLL_KERNEL_COUNT, "%d entries", entries);
	for (int k = 0; k < COLL_KERNEL_COUNT; k++) {
		char head[80];

		snprintf(head, sizeof(head), ".entry %s(", coll_kernels_name(k));
		CHECK(strstr(ptx, head) != NULL, "%s", head);
	}
}

TEST(kernels, a_launch_of_nothing_touches_nothing)
{
	struct coll_kernel_launch l;

	crooked = narrow = wide = 0;
	for (int k = 0; k < COLL_KERNEL_COUNT; k++) {
		coll_kernels_nothing(&l, k);
		run(&l, 1, 1);
	}
	CHECK(narrow == 0 && wide == 0);
}

static bool grid(uint64_t dst, uint64_t src, uint64_t len, uint32_t blocks_max, uint32_t nblocks, uint32_t nthreads)
{
	struct coll_kernel_launch l;

	coll_kernels_copy(&l, dst, src, len, 0, blocks_max);
	return l.blocks == nblocks && l.threads == nthreads;
}

TEST(kernels, grids)
{
	struct coll_kernel_launch l;

	CHECK(grid(0, 0, 0, 8, 1, 32) && grid(0, 0, 8, 8, 1, 32) && grid(0, 0, 16 * 33, 8, 1, 64));
	CHECK(grid(0, 0, 16 * 256, 8, 1, 256) && grid(0, 0, 16 * 257, 8, 2, 256) && grid(0, 0, 1 << 30, 8, 8, 256));
	CHECK(grid(0, 1, 256, 8, 1, 256) && grid(0, 4, 4096, 8, 4, 256) && grid(0, 0, 1ull << 40, ~0u, 1u << 28, 256));
	coll_kernels_gather(&l, 0, 0, 1 << 20, 0, 64, 1, 8);
	CHECK(l.blocks == 1, "no counter, one block");
}
