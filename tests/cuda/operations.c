/*
 * Operations that the program defines (coll_op_create()) on device memory: the result has the bits that the same call
 * on host memory gives, whether the function commutes or not, blocking, in a stream and in place. And persistent
 * operations that are started in a stream and without one, and calls in one group with more than may run at a time.
 *
 * usage: operations FILE-OF-THE-STAND-IN [PART-OF-A-TEST'S-NAME]
 */
#define PLAIN_OWN_MAIN
#include "job.h"

#include <stdint.h>

enum { LONGEST = 70001, MARGIN = 8, LIMIT_S = 60, UNTOUCHED = 0x5a };

/* ---- Two functions of elements of 8 bytes ---- */

/* It commutes, and its bits depend on which operands are combined first. */
static void blend(void *arg, const void *left, void *inout, size_t count, coll_dtype type)
{
	const double *a = left;
	double *b = inout;

	(void)arg, (void)type;
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

	(void)arg, (void)type;
	for (size_t i = 0; i < count; i++)
		b[i] = composed(a[i], b[i]);
}

union element {
	double number;
	struct map map;
};

static union element element(bool commutes, int rank, size_t i)
{
	const uint32_t n = (uint32_t)(i % 977);

	if (commutes)
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
	bool commutes;
	coll_stream *stream; /* of the device */
	union element *in, *want, *got, *device_in, *device_out;
};

static coll_status call(const struct trial *t, enum what what, size_t n, const void *in, void *out, coll_stream *stream)
{
	const coll_dtype type = t->commutes ? COLL_F64 : COLL_U64;
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

	if (t->commutes || (what == REDUCE && t->r->rank != t->r->size - 1))
		return true;
	for (size_t i = 0; i < n; i++) {
		struct map all = element(false, 0, first + i).map;

		for (int k = 1; k < t->r->size; k++)
			all = composed(all, element(false, k, first + i).map);
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

	snprintf(about, sizeof(about), "%s of %zu %s, %s", names[what], n, t->commutes ? "numbers" : "maps", hows[how]);
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
	for (int turn = 0; turn < 2; turn++) {
		t.commutes = turn == 0;
		job_ok(r, coll_op_create(&t.op, r->comm, t.commutes ? blend : compose, NULL, t.commutes),
		       "an operation");
		for (size_t i = 0; i < all; i++)
			t.in[i] = element(t.commutes, r->rank, i);
		for (int what = 0; what < WHATS; what++)
			for (int how = 0; how < (what == ALL_REDUCE ? HOWS : IN_PLACE); how++)
				for (size_t l = 0; l < 3; l++)
					compare(&t, (enum what)what, (enum how)how, lengths[l]);
		job_ok(r, coll_op_destroy(&t.op, r->comm), "the end of an operation");
	}
	job_ok(r, coll_stream_destroy(&t.stream), "the end of the stream");
	job_ok(r, coll_comm_destroy(&r->comm), "the end");
}

static void operations_of_the_program_give_the_bits_of_the_host(void)
{
	static const char *const transports[] = {"shm", "tcp"};

	for (int i = 0; i < 4; i++) {
		const char *const environment[] = {"COLL_TRANSPORTS", transports[i % 2], NULL};

		job_run(2 + i / 2, every_call, NULL, environment, LIMIT_S);
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

static void an_operation_may_be_started_in_a_stream_and_without(void)
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

static void a_group_may_have_more_calls_than_run_at_a_time(void)
{
	const char *const environment[] = {"COLL_ARRIVAL_TIMEOUT_MS", "5000", NULL};

	job_run(2, in_one_group, NULL, environment, LIMIT_S);
	job_run(3, in_one_group, NULL, environment, LIMIT_S);
}

int main(int argc, char **argv)
{
	static const struct plain_case cases[] = {PLAIN_CASE(operations_of_the_program_give_the_bits_of_the_host),
	                                          PLAIN_CASE(an_operation_may_be_started_in_a_stream_and_without),
	                                          PLAIN_CASE(a_group_may_have_more_calls_than_run_at_a_time)};

	return job_main(argc, argv, "operations", cases, (int)(sizeof(cases) / sizeof(cases[0])));
}
