/*
 * Operations that the program defines (coll_op_create()) and COLL_MINLOC on device memory: the result has the bits that
 * the same call on host memory gives, whether the function commutes or not, blocking, in a stream and in place.
 * Premultiplied sums with a factor of each rank. And persistent operations that are started in a stream and without
 * one, and calls in one group with more than may run at a time.
 *
 * usage: operations FILE-OF-THE-STAND-IN [PART-OF-A-TEST'S-NAME]
 */
#include "job.h"

#include <stdint.h>

enum { LONGEST = 70001, MARGIN = 8, LIMIT_S = 60, UNTOUCHED = 0x5a };

/* ---- Two functions of elements of 8 bytes, and pairs of a value and a place ---- */

/* It commutes, and its bits depend on which operands are combined first. */
static void blend(void *arg, const void *left, void *inout, size_t count, coll_dtype type)
{
	const double *a = left;
	double *b = inout;

	for (size_t i = 0; i < count; i++)
		b[i] = (a[i] + b[i]) * 0.7;
}

/* x -> a * x + b in numbers of 32 bits. */
struct map {
	uint32_t a, b;
};

/* Left behind right. It does not commute. */
static struct map composed(struct map left, struct map right)
{
	return (struct map){left.a * right.a, left.a * right.b + left.b};
}

static void compose(void *arg, const void *left, void *inout, size_t count, coll_dtype type)
{
	const struct map *a = left;
	struct map *b = inout;

	for (size_t i = 0; i < count; i++)
		b[i] = composed(a[i], b[i]);
}

union element {
	double number;
	struct map map;
	coll_f32_i32 pair;
};

static union element element(coll_dtype type, int rank, size_t i)
{
	const uint32_t n = (uint32_t)(i % 977);

	if (type == COLL_F32_I32)
		return (union element){.pair = {(float)((n + 3 * (uint32_t)rank) % 5), (int32_t)i - rank}};
	if (type == COLL_F64)
		return (union element){.number = 0.1 * (double)n + 1.3 * rank};
	return (union element){.map = {2 * n + 3 + (uint32_t)rank, 5 * n + 7 * (uint32_t)rank + 1}};
}

/* ---- Calls ---- */

enum what { ALL_REDUCE, REDUCE, REDUCE_SCATTER, WHATS };
enum how { BLOCKING, STREAM, IN_PLACE, HOWS };
static const char *const names[WHATS] = {"all_reduce", "reduce", "reduce_scatter"};
static const char *const hows[HOWS] = {"blocking", "in a stream", "in place"};

struct trial {
	const struct job_rank *r;
	coll_op op;
	coll_dtype type;     /* COLL_U64: maps, whose operation does not commute */
	coll_stream *stream; /* of the device */
	union element *in, *want, *got, *device_in, *device_out;
};

static coll_status call(const struct trial *t, enum what what, size_t n, const void *in, void *out, coll_stream *stream)
{
	const coll_dtype type = t->type;
	const struct job_rank *r = t->r;

	switch (what) {
	case ALL_REDUCE: return coll_all_reduce(in, out, n, type, t->op, r->comm, stream);
	case REDUCE: return coll_reduce(in, out, n, type, t->op, r->size - 1, r->comm, stream);
	default: return coll_reduce_scatter(in, out, n, type, t->op, r->comm, stream);
	}
}

/* The function that does not commute has one right result. */
static bool in_rank_order(const struct trial *t, enum what what, size_t n)
{
	const size_t first = what == REDUCE_SCATTER ? (size_t)t->r->rank * n : 0;

	if (t->type != COLL_U64 || (what == REDUCE && t->r->rank != t->r->size - 1))
		return true;
	for (size_t i = 0; i < n; i++) {
		struct map all = element(t->type, 0, first + i).map;

		for (int k = 1; k < t->r->size; k++)
			all = composed(all, element(t->type, k, first + i).map);
		if (t->want[i].map.a != all.a || t->want[i].map.b != all.b)
			return false;
	}
	return true;
}

static void compare(const struct trial *t, enum what what, enum how how, size_t n)
{
	const size_t in_bytes = (what == REDUCE_SCATTER ? (size_t)t->r->size : 1) * n * sizeof(*t->in);
	const size_t out_bytes = n * sizeof(*t->in), room = out_bytes + MARGIN * sizeof(*t->in);
	const bool in_place = how == IN_PLACE;
	coll_stream *stream = how == STREAM ? t->stream : NULL;
	char about[120];
	coll_status st;

	snprintf(about, sizeof(about), "%s of %zu %s, %s", names[what], n,
	         t->type == COLL_F64   ? "numbers"
	         : t->type == COLL_U64 ? "maps"
	                               : "pairs",
	         hows[how]);
	memset(t->want, UNTOUCHED, room);
	if (!job_ok(t->r, call(t, what, n, t->in, t->want, NULL), about))
		return;
	if (!in_rank_order(t, what, n))
		job_wrong(t->r, "%s: not combined in rank order on the host", about);
	memset(t->got, UNTOUCHED, room);
	if (in_place)
		memcpy(t->got, t->in, in_bytes);
	if (!cuda_user_write(t->device_out, t->got, room) || !cuda_user_write(t->device_in, t->in, in_bytes))
		job_wrong(t->r, "cannot write device memory");
	st = call(t, what, n, in_place ? t->device_out : t->device_in, t->device_out, stream);
	if (st == COLL_OK && stream)
		st = coll_stream_wait(stream, -1);
	job_ok(t->r, st, about);
	if (!cuda_user_read(t->got, t->device_out, room))
		job_wrong(t->r, "cannot read device memory");
	if (memcmp(t->got, t->want, room) != 0)
		job_wrong(t->r, "%s: not as on the host", about);
}

static void every_call(struct job_rank *r)
{
	static const size_t lengths[] = {1, 1000, LONGEST};
	const size_t all = (size_t)r->size * LONGEST;
	struct trial t = {.r = r, .in = malloc(all * sizeof(*t.in))};
	void *handle = NULL;

	t.want = malloc((LONGEST + MARGIN) * sizeof(*t.want));
	t.got = malloc((LONGEST + MARGIN) * sizeof(*t.got));
	t.device_in = (void *)job_memory(r, 2 * all);
	t.device_out = (void *)job_memory(r, (size_t)2 * (LONGEST + MARGIN));
	if (!cuda_user_stream(t.device_in, &handle))
		job_wrong(r, "no stream");
	job_ok(r, coll_stream_wrap_cuda(&t.stream, r->comm, handle), "a stream");
	for (int turn = 0; turn < 4; turn++) {
		t.type = turn == 0 ? COLL_F64 : turn == 1 ? COLL_U64 : COLL_F32_I32;
		t.op = turn == 2 ? COLL_MINLOC : COLL_MAXLOC;
		if (turn < 2)
			job_ok(r, coll_op_create(&t.op, r->comm, turn == 0 ? blend : compose, NULL, turn == 0),
			       "an operation");
		for (size_t i = 0; i < all; i++)
			t.in[i] = element(t.type, r->rank, i);
		for (int what = 0; what < WHATS; what++)
			for (int how = 0; how < (what == ALL_REDUCE ? HOWS : IN_PLACE); how++)
				for (size_t l = 0; l < 3; l++)
					compare(&t, (enum what)what, (enum how)how, lengths[l]);
		if (turn < 2)
			job_ok(r, coll_op_destroy(&t.op, r->comm), "the end of an operation");
	}
	job_ok(r, coll_stream_destroy(&t.stream), "the end of the stream");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(operations, operations_of_the_program_and_pairs_give_the_bits_of_the_host)
{
	static const char *const transports[] = {"shm", "tcp"};

	for (int i = 0; i < 4; i++) {
		const char *const environment[] = {"COLL_TRANSPORTS", transports[i % 2], NULL};

		job_run(2 + i / 2, every_call, NULL, environment, LIMIT_S);
	}
}

/* ---- Premultiplied sums ---- */

enum { SCAN = WHATS, SCALED_WHATS };
enum { CAPTURED = HOWS, HOST_MEMORY, SCALED_HOWS };
static const char *const scaled_names[SCALED_WHATS] = {"all_reduce", "reduce", "reduce_scatter", "scan"};
static const char *const scaled_hows[SCALED_HOWS] = {"blocking", "in a stream", "in place", "captured", "host memory"};

struct scaled {
	const struct job_rank *r;
	coll_op op;
	coll_dtype type;
	size_t width;
	void *handle;
	coll_stream *stream;
	char *host, *in, *out; /* and two on the device */
};

/* Small integers, so that sums are exact in each type and in each order. */
static int scaled_element(int rank, size_t i)
{
	return (int)(i % 7) + rank;
}

static int factor_of(int rank)
{
	return rank + 1;
}

static void scaled_put(coll_dtype type, char *at, int value)
{
	const double d = value;
	const float f = (float)value;

	if (type == COLL_F64)
		memcpy(at, &d, sizeof(d));
	else if (type == COLL_F32)
		memcpy(at, &f, sizeof(f));
	else
		memcpy(at, (const char *)&f + 2, 2); /* bf16: little endian */
}

static coll_status scaled_call(const struct scaled *t, int what, size_t n, const void *in, void *out,
                               coll_stream *stream)
{
	const struct job_rank *r = t->r;

	switch (what) {
	case ALL_REDUCE: return coll_all_reduce(in, out, n, t->type, t->op, r->comm, stream);
	case REDUCE: return coll_reduce(in, out, n, t->type, t->op, r->size - 1, r->comm, stream);
	case REDUCE_SCATTER: return coll_reduce_scatter(in, out, n, t->type, t->op, r->comm, stream);
	default: return coll_scan(in, out, n, t->type, t->op, r->comm, stream);
	}
}

/* A call as it is made: once, or captured and launched. */
static void scaled_make(const struct scaled *t, int what, int how, size_t n, const char *about)
{
	const bool host = how == HOST_MEMORY;
	const void *in = host ? t->host : how == IN_PLACE ? t->out : t->in;
	void *out = host ? t->host + (size_t)t->r->size * n * t->width : t->out, *exec = NULL;
	coll_stream *stream = how == STREAM || how == CAPTURED ? t->stream : NULL;

	if (how == CAPTURED && !cuda_user_capture(t->handle))
		job_wrong(t->r, "%s: no capture", about);
	job_ok(t->r, scaled_call(t, what, n, in, out, stream), about);
	if (how == CAPTURED) {
		if (!cuda_user_captured(t->handle, &exec, 1) || !cuda_user_launch(exec, t->handle) ||
		    !cuda_user_synchronize(t->handle))
			job_wrong(t->r, "%s: no graph", about);
		cuda_user_exec_destroy(exec);
	} else if (stream) {
		job_ok(t->r, coll_stream_wait(stream, -1), about);
	}
}

static void scaled_compare(const struct scaled *t, int what, int how, size_t n)
{
	const int size = t->r->size, last = what == SCAN ? t->r->rank : size - 1;
	const size_t in_count = (what == REDUCE_SCATTER ? (size_t)size : 1) * n, out_bytes = n * t->width;
	const size_t begin = what == REDUCE_SCATTER ? (size_t)t->r->rank * n : 0;
	char *got = t->host + (size_t)size * n * t->width, about[120], want[8];

	snprintf(about, sizeof(about), "%s of %zu %s, %s", scaled_names[what], n, coll_dtype_name(t->type),
	         scaled_hows[how]);
	for (size_t i = 0; i < in_count; i++)
		scaled_put(t->type, t->host + i * t->width, scaled_element(t->r->rank, i));
	memset(got, UNTOUCHED, out_bytes);
	if (!cuda_user_write(t->out, how == IN_PLACE ? t->host : got, out_bytes) ||
	    !cuda_user_write(t->in, t->host, in_count * t->width))
		job_wrong(t->r, "cannot write device memory");
	scaled_make(t, what, how, n, about);
	if (how != HOST_MEMORY && !cuda_user_read(got, t->out, out_bytes))
		job_wrong(t->r, "cannot read device memory");
	for (size_t i = 0; i < n && (what != REDUCE || t->r->rank == size - 1); i++) {
		int sum = 0;

		for (int k = 0; k <= last; k++)
			sum += factor_of(k) * scaled_element(k, begin + i);
		scaled_put(t->type, want, sum);
		if (memcmp(got + i * t->width, want, t->width) != 0) {
			job_wrong(t->r, "%s: element %zu is wrong", about, i);
			return;
		}
	}
}

static void scaled_calls(struct job_rank *r)
{
	enum { MOST = 150001 };
	static const size_t lengths[] = {1, 1000, MOST};
	static const coll_dtype types[] = {COLL_F64, COLL_F32, COLL_BF16};
	struct scaled t = {.r = r, .host = malloc((size_t)(r->size + 1) * MOST * 8)};
	const char *way = NULL;

	t.in = (void *)job_memory(r, (size_t)r->size * MOST * 2);
	t.out = (void *)job_memory(r, (size_t)MOST * 2);
	if (!cuda_user_stream(t.in, &t.handle))
		job_wrong(r, "no stream");
	job_ok(r, coll_stream_wrap_cuda(&t.stream, r->comm, t.handle), "a stream");
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		char factor[8];

		t.type = types[i];
		t.width = coll_dtype_size(t.type);
		scaled_put(t.type, factor, factor_of(r->rank));
		job_ok(r, coll_op_create_premul_sum(&t.op, r->comm, factor, t.type), "an operation");
		for (int what = 0; what < SCALED_WHATS; what++)
			for (int how = 0; how < SCALED_HOWS; how++)
				for (size_t l = 0; l < 3 && (how != IN_PLACE || what == ALL_REDUCE); l++)
					scaled_compare(&t, what, how, lengths[l]);
		way = coll_comm_last_way(r->comm);
		job_ok(r, coll_op_destroy(&t.op, r->comm), "the end of an operation");
	}
	if ((strcmp(way, "device-direct") == 0) != *(const bool *)r->arg)
		job_wrong(r, "went by %s", way);
	cuda_user_stream_destroy(t.handle);
	job_ok(r, coll_stream_destroy(&t.stream), "the end of the stream");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(operations, each_rank_scales_by_its_own_factor)
{
	for (int i = 0; i < 4; i++) {
		const bool direct = i < 3;
		const char *const environment[] = {"COLL_DEVICE_DIRECT", direct ? "1" : "0", "COLL_DEVICE_SLOT_BYTES",
		                                   i == 1 ? "1048576" : "4194304", NULL};

		job_run(i < 3 ? 2 + i : 3, scaled_calls, &direct, environment, LIMIT_S);
	}
}

/* ---- Persistent operations ---- */

/* Memory of the host, so that a call is staged if it is in a stream of the device, and otherwise is not. */
static void start_both(struct job_rank *r)
{
	enum { N = 3000, ROUNDS = 300, EDGE = 2 };
	int *in = malloc(N * sizeof(int)), *out = malloc(N * sizeof(int)), *device = job_memory(r, 1);
	const coll_operation_desc desc = {.struct_size = sizeof(desc),
	                                  .kind = COLL_ALL_REDUCE,
	                                  .in = in,
	                                  .out = out,
	                                  .count = N,
	                                  .type = COLL_I32,
	                                  .op = COLL_SUM};
	coll_operation *op = NULL;
	coll_stream *stream = NULL;
	void *handle = NULL;

	if (!cuda_user_stream(device, &handle))
		job_wrong(r, "no stream");
	job_ok(r, coll_stream_wrap_cuda(&stream, r->comm, handle), "a stream");
	job_ok(r, coll_operation_prepare(&op, &desc, r->comm), "an operation");
	for (int k = 0; k < ROUNDS; k++) {
		for (int i = 0; i < N; i++)
			in[i] = r->rank + k + i;
		if (!job_ok(r, coll_operation_start(op, k / EDGE % 2 ? stream : NULL), "a start") ||
		    !job_ok(r, coll_operation_wait(op, -1), "the end of a start"))
			return;
		for (int i = 0; i < N; i++)
			if (out[i] != r->size * (k + i) + r->size * (r->size - 1) / 2)
				job_wrong(r, "start %d: element %d is %d", k, i, out[i]);
	}
	job_ok(r, coll_operation_destroy(&op), "the end of the operation");
	job_ok(r, coll_stream_destroy(&stream), "the end of the stream");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(operations, an_operation_may_be_started_in_a_stream_and_without)
{
	for (int direct = 0; direct < 2; direct++) {
		const char *const environment[] = {"COLL_DEVICE_DIRECT", direct ? "1" : "0", "COLL_ARRIVAL_TIMEOUT_MS",
		                                   "5000", NULL};

		job_run(2, start_both, NULL, environment, LIMIT_S);
		job_run(3, start_both, NULL, environment, LIMIT_S);
	}
}

/* ---- Groups ---- */

/* As many staged calls as run at a time, and behind them some that go direct and have memory of the host. */
static void in_one_group(struct job_rank *r)
{
	enum { N = 2000, STAGED = 4, DIRECT = 3, ROUNDS = 20 };
	const size_t counts[] = {N, N, N, N}, all = (size_t)r->size * N;
	int *in = job_memory(r, N), *gathered = job_memory(r, STAGED * all), *got = malloc(all * sizeof(int));
	int *host_in = malloc(N * sizeof(int)), *host_out = malloc((size_t)DIRECT * N * sizeof(int));

	job_fill(r, in, N, 5);
	for (int k = 0; k < ROUNDS; k++) {
		for (int i = 0; i < N; i++)
			host_in[i] = r->rank + k + i % 1000;
		job_ok(r, coll_group_begin(), "a group");
		for (size_t i = 0; i < STAGED; i++)
			job_ok(r, coll_gatherv(in, N, gathered + i * all, counts, NULL, COLL_I32, 0, r->comm, NULL),
			       "a gatherv");
		for (size_t i = 0; i < DIRECT; i++)
			job_ok(r, coll_all_reduce(host_in, host_out + i * N, N, COLL_I32, COLL_SUM, r->comm, NULL),
			       "an all_reduce");
		if (!job_ok(r, coll_group_end(), "the end of a group"))
			return;
		for (int i = 0; i < DIRECT * N; i++)
			if (host_out[i] != r->size * (k + i % N % 1000) + r->size * (r->size - 1) / 2)
				job_wrong(r, "group %d: element %d is %d", k, i, host_out[i]);
		for (size_t i = 0; i < STAGED && r->rank == 0; i++) {
			if (!cuda_user_read(got, gathered + i * all, all * sizeof(int)))
				job_wrong(r, "cannot read device memory");
			for (size_t j = 0; j < all; j++)
				if (got[j] != (int)(j / N) + 5 + (int)(j % N % 1000))
					job_wrong(r, "group %d: gathered element %zu is %d", k, j, got[j]);
		}
	}
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

TEST(operations, a_group_may_have_more_calls_than_run_at_a_time)
{
	const char *const environment[] = {"COLL_ARRIVAL_TIMEOUT_MS", "5000", NULL};

	job_run(2, in_one_group, NULL, environment, LIMIT_S);
	job_run(3, in_one_group, NULL, environment, LIMIT_S);
}

PROGRAM(operations, "DRIVER")
{
	return job_begin(argc, argv);
}
