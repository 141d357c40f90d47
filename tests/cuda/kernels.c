/*
 * The device kernels, loaded from the PTX of the library and launched by the driver, against the scalar reductions of
 * the host, bit for bit (two NaNs are equal): every type and operation, lengths, all alignments, several inputs and
 * results, in place. Copies and gathers of every alignment, guarded ones too. Bytes around a result stay as they were.
 *
 * usage: kernels [DEVICE]    the driver is that of COLL_CUDA_LIBRARY
 */
#define PLAIN_OWN_MAIN
#include <stdlib.h>
#include <string.h>

#include "device/kernels.h"
#include "reduce/element.h"
#include "tests/cuda/driver.h"
#include "tests/plain.h"

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

#include "device/kernels_values.h"

enum { IN_MAX = 5, OUT_MAX = 3, BEFORE = 32, LEN_MAX = 8 * 700, ROOM = LEN_MAX + 128, WORDS = 256 };
enum { ALL = (IN_MAX + OUT_MAX) * ROOM };

/* Inputs, then results: as they are at first, as they must be at the end, and as they are then. */
static _Alignas(64) char before[ALL], want[ALL], got[ALL];
static CUdeviceptr memory, words; /* of the same layout; words for guards and flags */
static CUfunction kernel[COLL_KERNEL_COUNT];
static long launches;

static void open_device(void)
{
	const char *ordinal = getenv("KERNELS_DEVICE");
	CUcontext context;
	CUmodule module;
	CUdevice d;

	REQUIRE(coll_kernels_ptx() != NULL, "the build has no kernels");
	REQUIRE(DRIVER(cuInit)(0) == 0 && DRIVER(cuDeviceGet)(&d, ordinal ? atoi(ordinal) : 0) == 0);
	REQUIRE(DRIVER(cuDevicePrimaryCtxRetain)(&context, d) == 0 && DRIVER(cuCtxSetCurrent)(context) == 0);
	REQUIRE(DRIVER(cuModuleLoadData)(&module, coll_kernels_ptx()) == 0);
	for (int i = 0; i < COLL_KERNEL_COUNT; i++)
		REQUIRE(DRIVER(cuModuleGetFunction)(&kernel[i], module, coll_kernels_name(i)) == 0, "%s",
		        coll_kernels_name(i));
	REQUIRE(DRIVER(cuMemAlloc_v2)(&memory, ALL) == 0 && DRIVER(cuMemAlloc_v2)(&words, WORDS) == 0);
}

static void launch(struct coll_kernel_launch *l)
{
	void *args[] = {&l->args};

	REQUIRE(DRIVER(cuLaunchKernel)(kernel[l->kernel], l->blocks, 1, 1, l->threads, 1, 1, 0, NULL, args, NULL) == 0);
	launches++;
}

static void put_all(void)
{
	REQUIRE(DRIVER(cuMemcpyHtoD_v2)(memory, before, ALL) == 0);
}

static void get_all(void)
{
	const CUresult r = DRIVER(cuMemcpyDtoH_v2)(got, memory, ALL);

	REQUIRE(r == 0, "%d", (int)r);
}

/* ---- Reductions ---- */

struct trial {
	coll_dtype type;
	coll_op op;
	int nin, nout, raw;
	bool last, in_place;
	size_t count;
	unsigned skew; /* of all addresses */
	int odd;       /* this one, inputs first, is one element further off; -1: none */
	uint32_t blocks_max;
};

static size_t at(const struct trial *t, int k)
{
	return (size_t)k * ROOM + BEFORE + t->skew + (t->odd == k ? coll_dtype_size(t->type) : 0);
}

static void compare(const struct trial *t)
{
	const size_t bytes = coll_dtype_size(t->type);

	get_all();
	if (memcmp(got, want, ALL) == 0)
		return;
	for (int d = 0; d < t->nout; d++) {
		const size_t first = at(t, t->in_place ? d : IN_MAX + d);

		for (size_t i = first; i < first + t->count * bytes; i += bytes)
			if (is_nan(got + i, t->type) && is_nan(want + i, t->type))
				memcpy(got + i, want + i, bytes);
	}
	for (size_t i = 0; i < ALL; i++)
		REQUIRE(got[i] == want[i],
		        "%s op %d, %d inputs, %d results%s, raw %d, last %d, count %zu, skew %u, odd %d: byte %zu of "
		        "area %zu",
		        coll_dtype_name(t->type), (int)t->op, t->nin, t->nout, t->in_place ? " in place" : "", t->raw,
		        t->last, t->count, t->skew, t->odd, i % ROOM, i / ROOM);
}

static void reduce(const struct trial *t)
{
	static _Alignas(64) char result[LEN_MAX];
	const size_t bytes = coll_dtype_size(t->type);
	const void *src[IN_MAX];
	uint64_t ins[IN_MAX], outs[OUT_MAX];
	struct coll_kernel_launch l;
	struct coll_reduction r;

	if (atomic_load(&plain_failures) > 5)
		return;
	REQUIRE(coll_reduce_bind(&r, t->type, t->op, 3, COLL_ISA_SCALAR) == COLL_OK);
	r.scale = 0.3;
	memset(before, 0x5a, ALL);
	for (int s = 0; s < t->nin; s++) {
		for (size_t i = 0; i < t->count; i++)
			put_random(before + at(t, s) + i * bytes, t->type);
		src[s] = before + at(t, s);
		ins[s] = memory + at(t, s);
	}
	coll_reduce_run(&r, result, src, t->nin, t->raw, t->last, t->count);
	memcpy(want, before, ALL);
	for (int d = 0; d < t->nout; d++) {
		const size_t to = at(t, t->in_place ? d : IN_MAX + d);

		memcpy(want + to, result, t->count * bytes);
		outs[d] = memory + to;
	}
	put_all();
	coll_kernels_reduce(&l, &r, outs, t->nout, ins, t->nin, t->raw, t->last, t->count, 0, t->blocks_max);
	launch(&l);
	compare(t);
}

static void trials(struct trial *t)
{
	static const size_t counts[] = {1, 3, 8, 17, 64, 131, 700};

	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
		const size_t elem = coll_dtype_size(t->type);

		t->count = counts[c];
		t->skew = (unsigned)(c == 6 ? 0 : c < 2 ? draw() % 16 : draw() % (16 / elem) * elem);
		t->blocks_max = c % 2 ? 1 : 8;
		t->nin = 1 + (int)(draw() % IN_MAX);
		t->nout = 1 + (int)(draw() % OUT_MAX);
		t->in_place = draw() % 4 == 0 && t->nout <= t->nin;
		t->odd = draw() % 3 == 0 ? (int)(draw() % (unsigned)t->nin) : -1;
		t->last = draw() % 4 != 0;
		t->raw = (int)(draw() % (unsigned)(t->nin + 2)) - 2;
		reduce(t);
	}
	/* Every alignment, the same for all addresses and not. */
	t->nin = 2, t->nout = 1, t->in_place = false, t->last = true, t->raw = -1, t->count = 37, t->blocks_max = 4;
	for (t->skew = 0; t->skew < 16; t->skew++)
		for (t->odd = -1; t->odd < 3; t->odd += 2)
			reduce(t);
}

static void reductions_have_the_bits_of_the_host(void)
{
	for (int type = 0; type < COLL_DTYPE_COUNT; type++)
		for (int op = 0; op <= COLL_OP_PREMUL_SUM; op++) {
			struct trial t = {.type = (coll_dtype)type, .op = (coll_op)op};

			if ((op < COLL_OP_COUNT || op == COLL_OP_PREMUL_SUM) && coll_kernels_find(t.type, t.op) >= 0)
				trials(&t);
		}
	CHECK(launches > 1000, "%ld launches", launches);
	printf("%ld launches\n", launches);
}

/* ---- Copies ---- */

static void set_word(int i, uint32_t value)
{
	REQUIRE(DRIVER(cuMemcpyHtoD_v2)(words + (CUdeviceptr)i * 64, &value, sizeof(value)) == 0);
}

static uint32_t get_word(int i)
{
	uint32_t value = 77;

	if (DRIVER(cuMemcpyDtoH_v2)(&value, words + (CUdeviceptr)i * 64, sizeof(value)) != 0)
		CHECK(false, "a word cannot be read");
	return value;
}

enum { COUNTER, FLAG, GUARD };

static void copy(size_t from, size_t to, size_t len, bool gathers, bool guarded)
{
	struct coll_kernel_launch l;

	for (size_t i = 0; i < ALL; i++)
		before[i] = (char)draw();
	memcpy(want, before, ALL);
	if (!guarded)
		memcpy(want + to, before + from, len);
	put_all();
	set_word(COUNTER, 0);
	set_word(FLAG, 3);
	set_word(GUARD, guarded);
	if (gathers)
		coll_kernels_gather(&l, memory + to, memory + from, len, words + 64 * COUNTER, words + 64 * FLAG, 9, 8);
	else
		coll_kernels_copy(&l, memory + to, memory + from, len, words + 64 * GUARD, 8);
	launch(&l);
	get_all();
	CHECK(memcmp(got, want, ALL) == 0, "%zu bytes from %zu to %zu, %s", len, from % 16, to % 16,
	      gathers   ? "gathered"
	      : guarded ? "guarded"
	                : "copied");
	CHECK(get_word(FLAG) == (gathers ? 9 : 3) && get_word(COUNTER) == 0);
}

static void copies_of_every_alignment(void)
{
	static const size_t lengths[] = {0, 1, 15, 16, 17, 100, 5000, 2 * LEN_MAX};

	for (size_t from = 0; from < 16; from += 3)
		for (size_t to = 0; to < 16; to += 1 + from % 2)
			for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
				copy(from, 4 * ROOM + to, lengths[i], i % 2, false);
	copy(5, 4 * ROOM + 9, 3000, false, true);
}

int main(int argc, char **argv)
{
	const char *driver = getenv("COLL_CUDA_LIBRARY");

	if (!coll_kernels_ptx()) {
		plain_skip_all("this build has no kernels");
		return plain_summary();
	}
	if (argc > 1)
		setenv("KERNELS_DEVICE", argv[1], 1);
	driver_path = driver && *driver ? driver : "libcuda.so.1";
	PLAIN_RUN(open_device);
	if (plain_failed)
		return plain_summary();
	PLAIN_RUN(reductions_have_the_bits_of_the_host);
	PLAIN_RUN(copies_of_every_alignment);
	return plain_summary();
}
