/*
 * The row of CUDA devices, member by member, over the stand-in driver with two devices: what memory is, copies with
 * words and guards, waits, order, and the contexts of the caller. With one device what needs two is skipped.
 *
 * usage: row DRIVER [PART-OF-A-TEST'S-NAME]
 */
#include "tests/plain.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "device/device.h"
#include "device/kernels.h"
#include "tests/cuda/driver.h"

enum { FIELD_BYTES = 4 << 20, BUFFER_BYTES = 1 << 20 };

static struct coll_device *device, *other; /* cuda:0, cuda:1; other is NULL where there is one device */
static char *field;                        /* pinned; its end holds words */
static uint64_t field_at;
static coll_device_stream stream;

#define TABLE          (device->table)
#define WORD(i)        ((_Atomic uint32_t *)(void *)(field + FIELD_BYTES - 4096) + 16 * (i))
#define WORD_AT(i)     (field_at + FIELD_BYTES - 4096 + 64 * (uint64_t)(i))
#define ADDRESS(p)     ((uint64_t)(uintptr_t)(p))
#define DRIVER_OK(...) CHECK((__VA_ARGS__) == CUDA_SUCCESS)

static const char *error_of(struct coll_device *d)
{
	static struct coll_error_box box;

	coll_device_error(d, &box);
	return box.message;
}

#define OK(call) CHECK((call) == COLL_OK, "%s", error_of(device))

static struct coll_device *opened(const char *text)
{
	struct coll_device_choice choice;
	struct coll_error_box err;
	struct coll_device *d = NULL;

	coll_error_clear(&err);
	CHECK(coll_device_parse(text, &choice, &err) == COLL_OK &&
	              coll_device_probe(&choice, driver_path, &err) == COLL_OK &&
	              coll_device_open(&choice, driver_path, 0, 0, &d, &err) == COLL_OK,
	      "%s: %s", text, err.message);
	return d;
}

/* OK: all work of the stream has ended; AGAIN: not yet. */
static coll_status query_on(struct coll_device *d, coll_device_stream s)
{
	CUresult result = CUDA_ERROR_UNKNOWN;

	if (d->table->enter(d) == COLL_OK) {
		result = DRIVER(cuStreamQuery)(s);
		d->table->leave(d);
	}
	return result == CUDA_ERROR_NOT_READY ? COLL_AGAIN : result == CUDA_SUCCESS ? COLL_OK : COLL_ERR_SYSTEM;
}

static coll_status query(coll_device_stream s)
{
	return query_on(device, s);
}

/* The work of the stream ends; a bound, since a wait that never ends is what may be wrong. */
static coll_status drained(coll_device_stream s)
{
	const uint64_t begin = coll_clock_ns();
	coll_status st;

	while ((st = query(s)) == COLL_AGAIN && coll_clock_ns() - begin < 60 * UINT64_C(1000000000))
		poll(NULL, 0, 1);
	return st;
}

static void bind(int ordinal)
{
	static CUcontext contexts[2];

	if (!contexts[ordinal])
		DRIVER_OK(DRIVER(cuDevicePrimaryCtxRetain)(&contexts[ordinal], ordinal));
	DRIVER_OK(DRIVER(cuCtxSetCurrent)(contexts[ordinal]));
}

/* ---- Memory ---- */

static struct coll_device_range range_of(const void *p, size_t len_bytes)
{
	struct coll_device_range r = {.kind = -1};

	CHECK(TABLE->identify(device, p, len_bytes, &r), "%s", error_of(device));
	return r;
}

static void is_host(const void *p, size_t len_bytes, const char *what)
{
	const struct coll_device_range r = range_of(p, len_bytes);

	CHECK(r.kind == COLL_DEVICE_HOST && r.ordinal == -1 && !r.fault, "%s: kind %d, %s", what, r.kind,
	      r.fault ? r.fault : "no fault");
}

static void is_faulty(const void *p, size_t len_bytes, const char *fault)
{
	const struct coll_device_range r = range_of(p, len_bytes);

	CHECK(r.fault && strstr(r.fault, fault), "'%s', expected '%s'", r.fault ? r.fault : "no fault", fault);
}

TEST(row, host_memory_of_all_sorts)
{
	static const char constant[] = "constant";
	char local[64];
	char *large = malloc(3 << 20),
	     *alone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *allocated = NULL;

	bind(0);
	DRIVER_OK(DRIVER(cuMemHostAlloc)(&allocated, 8192, CU_MEMHOSTALLOC_PORTABLE));
	is_host(local, sizeof(local), "stack");
	is_host(constant, sizeof(constant), "constant");
	is_host(large, 3 << 20, "heap");
	is_host(large + 4095, 2, "over a page");
	is_host(alone, 8192, "never touched");
	is_host(field, FIELD_BYTES, "pinned");
	is_host(field + 13, 100, "in pinned");
	is_host(allocated, 8192, "cuMemHostAlloc");
	CHECK(range_of(field + 13, 1).base == ADDRESS(field) && range_of(field, 1).len_bytes == FIELD_BYTES);
	DRIVER_OK(DRIVER(cuMemFreeHost)(allocated));
	munmap(alone, 8192);
	is_faulty(alone, 8192, "freed, or no memory of this process");
	is_faulty((void *)(uintptr_t)64, 8, "freed, or no memory of this process");
	free(large);
}

TEST(row, device_memory_and_its_ends)
{
	struct coll_device_range r;
	void *p = NULL;
	char *at;

	OK(TABLE->alloc(device, BUFFER_BYTES, &p));
	at = p;
	r = range_of(at + 12345, 1000);
	CHECK(r.kind == COLL_DEVICE_CUDA && r.ordinal == 0 && !r.fault);
	CHECK(r.base == ADDRESS(p) && r.len_bytes >= BUFFER_BYTES);
	CHECK(!range_of(at, BUFFER_BYTES).fault);
	CHECK(!range_of(at + BUFFER_BYTES - 1, 1).fault);
	is_faulty(at, r.len_bytes + (64 << 20), "longer than it was allocated");
	OK(TABLE->free(device, p));
	is_faulty(at, 1, "freed");
	is_faulty(at + 4096, 9000, "freed");
}

TEST(row, memory_that_is_not_ours)
{
	CUdeviceptr managed = 0, contexts = 0;
	CUcontext mine = NULL;
	void *theirs = NULL;

	if (!other)
		SKIP("one device");
	bind(0);
	DRIVER_OK(DRIVER(cuMemAllocManaged)(&managed, 65536, CU_MEM_ATTACH_GLOBAL));
	is_faulty((void *)(uintptr_t)(managed + 100), 64, "managed memory");
	CHECK(other->table->alloc(other, 65536, &theirs) == COLL_OK);
	is_faulty(theirs, 65536, "memory of cuda:1");
	DRIVER_OK(DRIVER(cuCtxCreate_v2)(&mine, 0, 0));
	DRIVER_OK(DRIVER(cuMemAlloc_v2)(&contexts, 65536));
	is_faulty((void *)(uintptr_t)contexts, 8, "another context of the device");
	DRIVER_OK(DRIVER(cuMemFree_v2)(contexts));
	DRIVER_OK(DRIVER(cuCtxDestroy_v2)(mine));
	CHECK(other->table->free(other, theirs) == COLL_OK);
	bind(0);
	DRIVER_OK(DRIVER(cuMemFree_v2)(managed));
}

/* Two mappings side by side are one range: allocators that grow work so. */
TEST(row, mapped_memory)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle[2] = {0, 0};
	CUdeviceptr at = 0;
	size_t grain = 0;

	bind(0);
	DRIVER_OK(DRIVER(cuMemGetAllocationGranularity)(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	DRIVER_OK(DRIVER(cuMemAddressReserve)(&at, 3 * grain, 0, 0, 0));
	for (size_t i = 0; i < 2; i++) {
		DRIVER_OK(DRIVER(cuMemCreate)(&handle[i], grain, &prop, 0));
		DRIVER_OK(DRIVER(cuMemMap)(at + i * grain, grain, 0, handle[i], 0));
	}
	DRIVER_OK(DRIVER(cuMemSetAccess)(at, 2 * grain, &access, 1));
	CHECK(range_of((void *)(uintptr_t)(at + 5), 2 * grain - 5).kind == COLL_DEVICE_CUDA);
	CHECK(!range_of((void *)(uintptr_t)(at + 5), 2 * grain - 5).fault);
	is_faulty((void *)(uintptr_t)(at + 5), 2 * grain, "longer than it was allocated");
	is_faulty((void *)(uintptr_t)(at + 2 * grain), 8, "freed, or no memory");
	for (size_t i = 0; i < 2; i++) {
		DRIVER_OK(DRIVER(cuMemUnmap)(at + i * grain, grain));
		DRIVER_OK(DRIVER(cuMemRelease)(handle[i]));
	}
	DRIVER_OK(DRIVER(cuMemAddressFree)(at, 3 * grain));
}

TEST(row, errors_of_memory)
{
	void *p = NULL;
	uint64_t at;

	CHECK(TABLE->alloc(device, SIZE_MAX / 4, &p) == COLL_ERR_MEMORY && !p);
	CHECK(strstr(error_of(device), "[COLL-4301] cuMemAlloc on cuda:0: 2 CUDA_ERROR_OUT_OF_MEMORY"), "%s",
	      error_of(device));
	CHECK(TABLE->free(device, field) == COLL_ERR_SYSTEM && strstr(error_of(device), "cuMemFree on cuda:0"));
	CHECK(TABLE->pin(device, field, FIELD_BYTES, &at) == COLL_ERR_SYSTEM);
	CHECK(strstr(error_of(device), "cuMemHostRegister on cuda:0: 712"), "%s", error_of(device));
	CHECK(TABLE->unpin(device, field + FIELD_BYTES) == COLL_ERR_SYSTEM);
}

/* ---- Copies ---- */

static void fill(char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)((i * 131 + i / 251 + seed) & 0xff);
}

/* Host to device and back, both through pinned memory, each with its word. */
static void there_and_back(char *memory, size_t n, size_t skew, uint32_t value)
{
	const uint64_t half = FIELD_BYTES / 4;
	struct coll_device_piece in = {ADDRESS(memory) + skew, field_at + 1, n}, out = {field_at + half + 3, in.dst, n};

	fill(field + 1, n, value);
	memset(field + half, 0x55, n + 64);
	OK(TABLE->scatter(device, stream, &in, 1, WORD_AT(0), WORD_AT(1), value));
	OK(TABLE->gather(device, stream, &out, 1, WORD_AT(2), value));
	CHECK(drained(stream) == COLL_OK, "%s", error_of(device));
	CHECK(atomic_load(WORD(1)) == value && atomic_load(WORD(2)) == value);
	CHECK(memcmp(field + 1, field + half + 3, n) == 0, "%zu bytes at %zu", n, skew);
	CHECK(field[half + 2] == 0x55 && field[half + 3 + n] == 0x55, "%zu bytes at %zu", n, skew);
}

TEST(row, copies_of_every_length)
{
	static const size_t lengths[] = {0,    1,     7,     8,     15,    16,     31,     1000,
	                                 4096, 32768, 32769, 65536, 65537, 300001, 1000000};
	void *memory = NULL;
	uint32_t value = 100;

	OK(TABLE->alloc(device, BUFFER_BYTES, &memory));
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (size_t skew = 0; skew < 18; skew += i < 9 ? 1 : 17)
			there_and_back(memory, lengths[i], skew, ++value);
	OK(TABLE->free(device, memory));
}

TEST(row, copies_of_several_pieces)
{
	struct coll_device_piece down[4], up[4];
	void *memory = NULL;

	OK(TABLE->alloc(device, BUFFER_BYTES, &memory));
	fill(field, 500000, 9);
	memset(field + 1000000, 0, 600000);
	for (uint64_t i = 0; i < 4; i++) {
		const uint64_t len = i == 1 ? 200000 : i == 3 ? 0 : 50000;

		down[i] = (struct coll_device_piece){ADDRESS(memory) + 210000 * i, field_at + 200000 * i, len};
		up[i] = (struct coll_device_piece){field_at + 1000000 + 200000 * i, ADDRESS(memory) + 210000 * i, len};
	}
	OK(TABLE->scatter(device, stream, down, 4, 0, 0, 0));
	OK(TABLE->gather(device, stream, up, 4, WORD_AT(0), 7));
	CHECK(drained(stream) == COLL_OK && atomic_load(WORD(0)) == 7);
	CHECK(memcmp(field, field + 1000000, 50000) == 0 && memcmp(field + 200000, field + 1200000, 200000) == 0 &&
	      memcmp(field + 400000, field + 1400000, 50000) == 0);
	/* No piece at all. */
	OK(TABLE->gather(device, stream, NULL, 0, WORD_AT(0), 8));
	OK(TABLE->scatter(device, stream, NULL, 0, WORD_AT(3), WORD_AT(1), 9));
	OK(TABLE->gather(device, stream, NULL, 0, 0, 0));
	CHECK(drained(stream) == COLL_OK && atomic_load(WORD(0)) == 8 && atomic_load(WORD(1)) == 9);
	atomic_store(WORD(0), 0);
	OK(TABLE->free(device, memory));
}

/* The piece is read when the kernel begins, not when it is enqueued; so is the guard. */
TEST(row, a_listed_piece_is_what_is_there_then)
{
	struct coll_device_piece *piece = (void *)(field + 1600000);
	void *memory = NULL;

	OK(TABLE->alloc(device, BUFFER_BYTES, &memory));
	fill(field, 100000, 4);
	memset(field + 200000, 0, 100000);
	atomic_store(WORD(0), 0);
	atomic_store(WORD(4), 0);
	OK(TABLE->wait(device, stream, WORD_AT(4), 1));
	OK(TABLE->listed(device, stream, field_at + 1600000, 100000, WORD_AT(0), WORD_AT(1), 5));
	OK(TABLE->wait(device, stream, WORD_AT(4), 2));
	OK(TABLE->listed(device, stream, field_at + 1600000, 100000, WORD_AT(0), WORD_AT(1), 6));
	OK(TABLE->wait(device, stream, WORD_AT(4), 3));
	OK(TABLE->listed(device, stream, field_at + 1600000, 100000, WORD_AT(0), WORD_AT(1), 7));
	*piece = (struct coll_device_piece){ADDRESS(memory), field_at, 100000};
	atomic_store(WORD(4), 1);
	while (atomic_load(WORD(1)) != 5)
		poll(NULL, 0, 1);
	*piece = (struct coll_device_piece){field_at + 200000, ADDRESS(memory), 99999};
	atomic_store(WORD(4), 2);
	while (atomic_load(WORD(1)) != 6)
		poll(NULL, 0, 1);
	CHECK(memcmp(field, field + 200000, 99999) == 0 && field[299999] == 0);
	*piece = (struct coll_device_piece){field_at, field_at + 200000, 50000};
	memset(field, 0, 100000);
	atomic_store(WORD(0), 1);
	atomic_store(WORD(4), 3);
	CHECK(drained(stream) == COLL_OK && atomic_load(WORD(1)) == 7);
	CHECK(field[1] == 0, "copied in spite of the guard");
	atomic_store(WORD(0), 0);
	OK(TABLE->free(device, memory));
}

/* A guard that is set when the kernel begins: nothing is written, and the word is stored. */
TEST(row, a_guard_forbids_writes)
{
	void *memory = NULL;
	struct coll_device_piece first, second, back;

	OK(TABLE->alloc(device, BUFFER_BYTES, &memory));
	first = (struct coll_device_piece){ADDRESS(memory), field_at, 100000};
	second = (struct coll_device_piece){ADDRESS(memory), field_at + 200000, 100000};
	back = (struct coll_device_piece){field_at + 400000, ADDRESS(memory), 100000};
	fill(field, 100000, 1);
	fill(field + 200000, 100000, 2);
	atomic_store(WORD(0), 0);
	atomic_store(WORD(4), 0);
	OK(TABLE->scatter(device, stream, &first, 1, WORD_AT(0), 0, 0));
	CHECK(drained(stream) == COLL_OK);
	OK(TABLE->wait(device, stream, WORD_AT(4), 1));
	OK(TABLE->scatter(device, stream, &second, 1, WORD_AT(0), WORD_AT(1), 77));
	OK(TABLE->gather(device, stream, &back, 1, WORD_AT(2), 78));
	atomic_store(WORD(0), 1);
	atomic_store(WORD(4), 1);
	CHECK(drained(stream) == COLL_OK && atomic_load(WORD(1)) == 77 && atomic_load(WORD(2)) == 78);
	CHECK(memcmp(field, field + 400000, 100000) == 0, "the guarded copy has written");
	atomic_store(WORD(0), 0);
	OK(TABLE->free(device, memory));
}

/* ---- Waits and order ---- */

/* With one hardware queue a wait holds up every stream. */
static bool own_queues(void)
{
	const char *queues = getenv("SOFTCUDA_QUEUES");

	return !queues || atoi(queues) > 1;
}

TEST(row, a_wait_ends_by_a_store)
{
	static const struct {
		uint32_t before, want, after;
	} cases[] = {{0, 1, 1}, {5, 9, 12}, {UINT32_MAX - 1, 3, 3}, {0, 1, INT32_MAX}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		atomic_store(WORD(0), cases[i].before);
		atomic_store(WORD(1), 0);
		OK(TABLE->gather(device, stream, NULL, 0, WORD_AT(2), (uint32_t)i + 1));
		OK(TABLE->wait(device, stream, WORD_AT(0), cases[i].want));
		OK(TABLE->gather(device, stream, NULL, 0, WORD_AT(1), 1));
		while (atomic_load(WORD(2)) != (uint32_t)i + 1) /* the stream has reached the wait */
			poll(NULL, 0, 1);
		CHECK(query(stream) == COLL_AGAIN && atomic_load(WORD(1)) == 0, "case %zu", i);
		atomic_store(WORD(0), cases[i].after);
		CHECK(drained(stream) == COLL_OK && atomic_load(WORD(1)) == 1, "case %zu", i);
	}
	atomic_store(WORD(0), 10);
	OK(TABLE->wait(device, stream, WORD_AT(0), 10));
	OK(TABLE->wait(device, stream, WORD_AT(0), 3));
	CHECK(drained(stream) == COLL_OK);
}

/* The later stream copies what the earlier one stores. It is given time to do so too early, which proves nothing if it
 * does not, and is needed by no right run. */
TEST(row, order_holds_back_the_later_stream)
{
	const struct coll_device_piece look = {WORD_AT(3), WORD_AT(7), 4};
	coll_device_stream later = NULL;

	OK(TABLE->stream_create(device, &later));
	atomic_store(WORD(0), 0);
	atomic_store(WORD(1), 0);
	atomic_store(WORD(7), 0);
	OK(TABLE->wait(device, stream, WORD_AT(0), 1));
	OK(TABLE->gather(device, stream, NULL, 0, WORD_AT(7), 4711));
	OK(TABLE->order(device, stream, later));
	OK(TABLE->gather(device, later, &look, 1, WORD_AT(1), 1));
	/* What comes behind order() in the earlier stream is none of the later one's. */
	atomic_store(WORD(4), 0);
	OK(TABLE->wait(device, stream, WORD_AT(4), 1));
	for (int i = 0; i < 50 && query(later) == COLL_AGAIN; i++)
		poll(NULL, 0, 1);
	atomic_store(WORD(0), 1);
	if (own_queues()) {
		CHECK(drained(later) == COLL_OK && query(stream) == COLL_AGAIN);
		CHECK(atomic_load(WORD(1)) == 1 && atomic_load(WORD(3)) == 4711);
	}
	atomic_store(WORD(4), 1);
	CHECK(drained(later) == COLL_OK && drained(stream) == COLL_OK);
	CHECK(atomic_load(WORD(1)) == 1 && atomic_load(WORD(3)) == 4711, "%u", atomic_load(WORD(3)));
	OK(TABLE->stream_destroy(device, later));
}

/* ---- Streams and contexts ---- */

TEST(row, streams_are_checked)
{
	struct coll_device_capture capture;
	coll_device_stream theirs = NULL;
	CUstream captured = NULL, foreign = NULL;
	CUcontext mine = NULL;
	CUgraph graph = NULL;
	const char *why = NULL;

	if (!other)
		SKIP("one device");
	OK(TABLE->stream_check(device, stream, &capture, &why));
	OK(TABLE->stream_check(device, NULL, &capture, &why));
	OK(TABLE->stream_check(device, CU_STREAM_LEGACY, &capture, &why));
	OK(TABLE->stream_check(device, CU_STREAM_PER_THREAD, &capture, &why));
	CHECK(other->table->stream_create(other, &theirs) == COLL_OK);
	CHECK(TABLE->stream_check(device, theirs, &capture, &why) == COLL_ERR_ARGUMENT &&
	              strcmp(why, "a stream of cuda:1") == 0,
	      "%s", why);
	CHECK(other->table->stream_destroy(other, theirs) == COLL_OK);
	DRIVER_OK(DRIVER(cuCtxCreate_v2)(&mine, 0, 0));
	DRIVER_OK(DRIVER(cuStreamCreate)(&foreign, CU_STREAM_NON_BLOCKING));
	CHECK(TABLE->stream_check(device, foreign, &capture, &why) == COLL_ERR_ARGUMENT &&
	              strcmp(why, "a stream of another context of cuda:0") == 0,
	      "%s", why);
	DRIVER_OK(DRIVER(cuStreamDestroy_v2)(foreign));
	DRIVER_OK(DRIVER(cuCtxDestroy_v2)(mine));
	bind(0);
	DRIVER_OK(DRIVER(cuStreamCreate)(&captured, CU_STREAM_DEFAULT));
	OK(TABLE->stream_check(device, captured, &capture, &why));
	CHECK(capture.id == 0);
	DRIVER_OK(DRIVER(cuStreamBeginCapture_v2)(captured, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(TABLE->stream_check(device, captured, &capture, &why));
	CHECK(capture.id != 0 && capture.graph);
	/* Not even where that is forbidden to the thread itself. */
	OK(TABLE->fault(device));
	CHECK(TABLE->stream_check(device, NULL, &capture, &why) == COLL_ERR_UNSUPPORTED && strstr(why, "legacy stream"),
	      "%s", why);
	OK(TABLE->stream_check(device, stream, &capture, &why));
	/* The capture outlives the questions. */
	DRIVER_OK(DRIVER(cuStreamEndCapture)(captured, &graph));
	DRIVER_OK(DRIVER(cuGraphDestroy)(graph));
	DRIVER_OK(DRIVER(cuStreamDestroy_v2)(captured));
}

TEST(row, the_callers_context_stays)
{
	CUcontext mine = NULL, now = NULL;

	if (!other)
		SKIP("one device");
	DRIVER_OK(DRIVER(cuCtxSetCurrent)(NULL));
	OK(TABLE->gather(device, stream, NULL, 0, WORD_AT(0), 1));
	DRIVER_OK(DRIVER(cuCtxGetCurrent)(&now));
	CHECK(!now);
	DRIVER_OK(DRIVER(cuCtxCreate_v2)(&mine, 0, 1));
	is_host(field, 8, "pinned");
	OK(TABLE->enter(device));
	CHECK(other->table->enter(other) == COLL_OK);
	OK(query(stream) == COLL_AGAIN ? COLL_OK : drained(stream));
	other->table->leave(other);
	TABLE->leave(device);
	DRIVER_OK(DRIVER(cuCtxGetCurrent)(&now));
	CHECK(now == mine);
	DRIVER_OK(DRIVER(cuCtxDestroy_v2)(mine));
}

/* What a small call asks of the driver between enter and leave. */
TEST(row, a_small_call_is_few_driver_calls)
{
	struct coll_device_capture capture;
	static const char *const never[] = {"cuMemAlloc",          "cuMemFree",       "cuModuleLoadData",
	                                    "cuModuleGetFunction", "cuStreamCreate",  "cuEventCreate",
	                                    "cuMemHostRegister",   "cuStreamDestroy", "cuCtxPushCurrent"};
	struct coll_device_piece in, out;
	long before[sizeof(never) / sizeof(never[0])], all;
	const char *why = NULL;
	void *memory = NULL;

	if (!dlsym(driver_file, "softcuda_count"))
		SKIP("a driver that does not count its calls");
	OK(TABLE->alloc(device, 4096, &memory));
	in = (struct coll_device_piece){field_at, ADDRESS(memory), 1024};
	out = (struct coll_device_piece){ADDRESS(memory), field_at, 1024};
	bind(0);
	atomic_store(WORD(0), 0);
	atomic_store(WORD(5), 1);
	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		before[i] = driver_calls(never[i]);
	all = driver_calls(NULL);
	OK(TABLE->enter(device));
	range_of(memory, 1024);
	range_of(memory, 1024);
	OK(TABLE->stream_check(device, stream, &capture, &why));
	OK(TABLE->gather(device, stream, &in, 1, WORD_AT(1), 1));
	OK(TABLE->wait(device, stream, WORD_AT(5), 1));
	OK(TABLE->scatter(device, stream, &out, 1, WORD_AT(0), WORD_AT(2), 1));
	TABLE->leave(device);
	all = driver_calls(NULL) - all;
	CHECK(all <= 9, "%ld calls: 5 questions, and gather, wait, scatter, store", all);
	for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++)
		CHECK(driver_calls(never[i]) == before[i], "%s", never[i]);
	CHECK(drained(stream) == COLL_OK);
	OK(TABLE->free(device, memory));
}

TEST(row, a_device_may_be_opened_twice)
{
	struct coll_device *again = opened("cuda:0");
	void *p = NULL;

	if (!again)
		return;
	CHECK(strcmp(again->name, "cuda:0") == 0 && strstr(again->about, "driver 13.0") && again->lacks[0] == 0, "%s",
	      again->about);
	CHECK(again->table->alloc(again, 4096, &p) == COLL_OK);
	CHECK(range_of(p, 4096).kind == COLL_DEVICE_CUDA && !range_of(p, 4096).fault, "one context serves both");
	CHECK(again->table->free(again, p) == COLL_OK);
	coll_device_close(&again);
	CHECK(!again);
	coll_device_close(&again);
	OK(TABLE->gather(device, stream, NULL, 0, WORD_AT(0), 3));
	CHECK(drained(stream) == COLL_OK);
}

/* Last, since cuda:1 is lost by it. */
TEST(row, a_fault_is_described)
{
	struct coll_device_piece wild = {field_at, 0, 64};
	coll_device_stream s = NULL;
	void *p = NULL;

	if (!other)
		SKIP("one device");
	CHECK(other->table->alloc(other, 4096, &p) == COLL_OK);
	CHECK(other->table->stream_create(other, &s) == COLL_OK);
	wild.src = ADDRESS(p) + (1 << 20);
	CHECK(other->table->gather(other, s, &wild, 1, WORD_AT(6), 1) == COLL_OK);
	while (query_on(other, s) == COLL_AGAIN)
		poll(NULL, 0, 1);
	CHECK(other->table->fault(other) == COLL_ERR_SYSTEM);
	CHECK(strstr(error_of(other), "cuStreamQuery on cuda:1: 700 CUDA_ERROR_ILLEGAL_ADDRESS"), "%s",
	      error_of(other));
	CHECK(other->table->wait(other, s, WORD_AT(6), 1) == COLL_ERR_SYSTEM);
	CHECK(strstr(error_of(other), "cuStreamWaitValue32 on cuda:1: 700"), "%s", error_of(other));
}

PROGRAM(row, "DRIVER")
{
	int devices = 0;

	driver_path = argv[1];
	unsetenv("CUDA_VISIBLE_DEVICES");
	setenv("SOFTCUDA_DEVICES", "2", 0);
	if (!coll_kernels_ptx())
		return plain_skip_all("this build has no kernels");
	device = opened("cuda:0");
	if (DRIVER(cuDeviceGetCount)(&devices) == CUDA_SUCCESS && devices > 1)
		other = opened("cuda:1");
	field = mmap(NULL, FIELD_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (!device || field == MAP_FAILED || TABLE->pin(device, field, FIELD_BYTES, &field_at) != COLL_OK ||
	    TABLE->stream_create(device, &stream) != COLL_OK)
		return -1;
	return 2;
}

/* The last: what all of them had is given back. */
TEST(row, everything_is_given_back)
{
	OK(TABLE->stream_destroy(device, stream));
	OK(TABLE->unpin(device, field));
	if (other)
		coll_device_close(&other);
	coll_device_close(&device);
}
