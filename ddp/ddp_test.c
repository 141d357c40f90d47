/*
 * Averages, differences between ranks, micro-steps, what is unused or uneven, weights, trace.
 */
#include <unistd.h>

#include "ddp/ranks_test.h"

/* ---- Averages ----------------------------------------------------------- */

struct limits {
	size_t bucket;
	int whole;
	coll_ddp_wire wire;
	double near;
	size_t rest; /* of all buckets but the first; 0: as that */
};

static void average_rank(coll_comm *comm, int rank, int size, void *arg)
{
	const struct limits *l = arg;
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_bucket_info info;
	size_t end = total();
	coll_ddp *d;

	c.first_bytes = l->bucket;
	c.bucket_bytes = c.last_bytes = l->rest ? l->rest : l->bucket;
	c.keep_whole = l->whole;
	c.wire = l->wire;
	d = make(comm, &c);
	REQUIRE(d);
	for (int b = 0; b < coll_ddp_bucket_count(d); b++) {
		CHECK(coll_ddp_bucket(d, b, &info) == COLL_OK);
		CHECK(info.first + info.count == end && info.count > 0);
		CHECK(l->whole || info.count * 4 <= l->bucket || info.count == 1);
		end = info.first;
	}
	CHECK(end == 0);
	for (int step = 0; step < 3; step++) {
		coll_ddp_zero(d);
		CHECK(coll_ddp_begin(d, 1) == COLL_OK);
		backward(d, rank, step, step ? coll_mix64((uint64_t)(rank + 10 * step)) : 0, -1);
		CHECK(coll_ddp_wait(d) == COLL_OK, "%s", coll_ddp_last_error(d));
		CHECK(worst_error(d, size, step) <= l->near, "%d ranks, wire %d, limit %zu: off by %g", size, l->wire,
		      l->bucket, worst_error(d, size, step));
		check_same_bits(comm, coll_ddp_grads(d), total() * 4, "average");
		CHECK(coll_ddp_unused_count(d) == 0);
	}
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

TEST(ddp, averages)
{
	static const struct limits cases[] = {
	        {4096, 0, COLL_DDP_PLAIN, 3e-7},
	        {1000, 0, COLL_DDP_PLAIN, 3e-7},
	        {(size_t)1 << 30, 0, COLL_DDP_PLAIN, 3e-7},
	        {4096, 1, COLL_DDP_PLAIN, 3e-7},
	        {1 << 12, 0, COLL_DDP_BF16, 2e-2},
	        {1 << 13, 0, COLL_DDP_INT8, 3e-2},
	        {COLL_DDP_AUTO, 0, COLL_DDP_PLAIN, 3e-7},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (int n = 1; n <= 4; n++) {
			struct limits l = cases[i];

			on_ranks(n, average_rank, &l);
		}
	on_ranks(2, average_rank, &(struct limits){1, 0, COLL_DDP_PLAIN, 3e-7});
	/* Small buckets overtake the large one before them: later rounds still come in order. */
	on_ranks(4, average_rank, &(struct limits){9000, 0, COLL_DDP_INT8, 3e-2, 256});
}

/* ---- Differences between ranks ---------------------------------------------- */

static void mismatch_rank(coll_comm *comm, int rank, int size, void *arg)
{
	const int which = *(int *)arg;
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_param p[PARAMS];
	char problem[512] = "";
	coll_ddp *d = NULL;
	coll_status status;
	int32_t one = 1;

	memcpy(p, shapes, sizeof(p));
	c.problem = problem;
	c.problem_bytes = sizeof(problem);
	if (which == 0 && rank > 0 && rank != 2)
		p[3].dims[1] = 31;
	if (which == 1 && rank == 2)
		p[4].name = "c.bias";
	if (which == 4 && rank == 1)
		p[3].dims[0] = 5;
	if (which == 4 && rank > 1)
		p[3].name = "c.weight";
	if (which == 2 && rank == 1)
		c.zero = 0, c.bucket_bytes = 12345;
	status = coll_ddp_create(&d, p, which == 3 && rank == 3 ? PARAMS - 1 : PARAMS, &c, comm);
	CHECK(status == COLL_ERR_MISMATCH && !d, "case %d: %s", which, coll_status_string(status));
	if (which == 0)
		CHECK(strstr(problem, "b.weight") && strstr(problem, "30") && strstr(problem, "31") &&
		              strstr(problem, "ranks 1, 3"),
		      "%s", problem);
	if (which == 4)
		CHECK(strstr(problem, "rank 1: b.weight [5 x 30 x 33]") &&
		              strstr(problem, "ranks 2, 3: c.weight [4 x 30 x 33]"),
		      "%s", problem);
	if (which == 1)
		CHECK(strstr(problem, "b.bias") && strstr(problem, "c.bias") && strstr(problem, "rank 2"), "%s",
		      problem);
	if (which == 2)
		CHECK(strstr(problem, "12345") && strstr(problem, "rank 1"), "%s", problem);
	if (which == 3)
		CHECK(strstr(problem, "rank 3") && strstr(problem, "6 parameters"), "%s", problem);
	/* The communicator is as it was. */
	CHECK(coll_all_reduce(&one, &one, 1, COLL_I32, COLL_SUM, comm, NULL) == COLL_OK && one == size);
}

TEST(ddp, differences_are_named)
{
	for (int which = 0; which < 5; which++)
		on_ranks(4, mismatch_rank, &which);
}

/* Shapes whose elements wrap around, or that no memory holds, are refused, and at once. */
static void huge_rank(coll_comm *comm, int rank, int size, void *arg)
{
	static const size_t dims[][2] = {
		{(size_t)1 << 63, 2},
		{SIZE_MAX, SIZE_MAX},
		{(size_t)1 << 61, 1},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
		/* A sanitizer's allocator ends a program that asks for so much. */
		{(size_t)1 << 60, 1},
		{(size_t)1 << 50, 1}
#endif
	};

	for (size_t i = 0; i < sizeof(dims) / sizeof(*dims); i++)
		for (int who = 0; who < 2; who++) {
			coll_ddp_param p[2] = {{"small", 1, {3}, NULL, 0, NULL}, {"huge", 2, {1, 1}, NULL, 0, NULL}};
			coll_ddp_config c = COLL_DDP_CONFIG_INIT;
			coll_ddp *d = NULL;
			coll_status status;
			int32_t one = 1;

			/* Of one rank, or of all of them. */
			if (rank == 0 || who)
				memcpy(p[1].dims, dims[i], sizeof(dims[i]));
			status = coll_ddp_create(&d, p, 2, &c, comm);
			CHECK(status != COLL_OK && !d, "case %zu: %zu elements", i, d ? coll_ddp_count(d) : 0);
			CHECK(coll_all_reduce(&one, &one, 1, COLL_I32, COLL_SUM, comm, NULL) == COLL_OK && one == size);
		}
}

TEST(ddp, huge_shapes_are_refused)
{
	on_ranks(2, huge_rank, NULL);
}

/* ---- Micro-steps, unused parameters, uneven inputs -------------------------- */

static void micro_rank(coll_comm *comm, int rank, int size, void *arg)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_stats stats = COLL_DDP_STATS_INIT;
	const float *g;
	double worst = 0;
	coll_ddp *d;

	c.bucket_bytes = 4096;
	d = make(comm, &c);
	REQUIRE(d);
	g = coll_ddp_grads(d);
	for (int micro = 0; micro < 3; micro++) {
		CHECK(coll_ddp_begin(d, micro == 2) == COLL_OK);
		backward(d, rank, micro, 0, -1);
		if (micro == 2)
			break;
		CHECK(coll_ddp_wait(d) == COLL_OK);
		CHECK(coll_ddp_get_stats(d, &stats, 0) == COLL_OK);
		CHECK(stats.payload_bytes == 0 && stats.sent_bytes == 0 && stats.collectives == 0);
	}
	CHECK(coll_ddp_wait(d) == COLL_OK);
	for (size_t i = 0; i < coll_ddp_count(d); i++)
		worst = fmax(worst,
		             fabs((double)g[i] - mean_of(size, 0, i) - mean_of(size, 1, i) - mean_of(size, 2, i)));
	CHECK(worst < 1e-6, "off by %g", worst);
	CHECK(coll_ddp_get_stats(d, &stats, 1) == COLL_OK);
	CHECK(stats.payload_bytes == 4 * total() && stats.steps == 1);
	CHECK(coll_ddp_ready(d, 1) == COLL_ERR_ARGUMENT);
	CHECK(coll_ddp_begin(d, 0) == COLL_OK && coll_ddp_ready(d, 1) == COLL_OK);
	CHECK(coll_ddp_ready(d, 1) == COLL_ERR_ARGUMENT && strstr(coll_ddp_last_error(d), "a.weight"));
	CHECK(coll_ddp_ready(d, PARAMS) == COLL_ERR_ARGUMENT);
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

TEST(ddp, micro_steps_send_nothing)
{
	on_ranks(2, micro_rank, NULL);
	on_ranks(3, micro_rank, NULL);
}

static void unused_rank(coll_comm *comm, int rank, int size, void *arg)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp *d;

	c.bucket_bytes = 4096;
	d = make(comm, &c);
	REQUIRE(d);
	for (int step = 0; step < 2; step++) {
		const int but = rank == 1 ? 3 : rank == 2 ? 0 : -1;

		coll_ddp_zero(d);
		CHECK(coll_ddp_begin(d, 1) == COLL_OK);
		backward(d, rank, step, (uint64_t)step, but);
		CHECK(coll_ddp_wait(d) == COLL_OK, "%s", coll_ddp_last_error(d));
		CHECK(coll_ddp_unused_count(d) == (but >= 0));
		CHECK(but < 0 || !strcmp(coll_ddp_unused(d, 0), shapes[but].name));
		CHECK(coll_ddp_unused(d, but >= 0) == NULL);
		CHECK(worst_error(d, size, step) <= 3e-7);
	}
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

TEST(ddp, unused_parameters_are_named)
{
	on_ranks(3, unused_rank, NULL);
}

/* Rank r has 2 + 2 r steps' worth of data. */
static void uneven_rank(coll_comm *comm, int rank, int size, void *arg)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	const int mine = 2 + 2 * rank, most = 2 + 2 * (size - 1);
	int more = 1, step = 0;
	coll_ddp *d;

	c.bucket_bytes = 4096;
	c.uneven = 1;
	c.wire = *(coll_ddp_wire *)arg;
	d = make(comm, &c);
	REQUIRE(d);
	for (;; step++) {
		double worst = 0;
		int first = 0;
		const float *g = coll_ddp_grads(d);

		if (step < mine) {
			coll_ddp_zero(d);
			CHECK(coll_ddp_begin(d, 1) == COLL_OK);
			backward(d, rank, step, 0, -1);
			CHECK(coll_ddp_wait(d) == COLL_OK, "%s", coll_ddp_last_error(d));
		} else {
			CHECK(coll_ddp_join(d, &more) == COLL_OK, "%s", coll_ddp_last_error(d));
			if (!more)
				break;
		}
		while (step >= 2 + 2 * first)
			first++;
		for (size_t i = 0; i < coll_ddp_count(d); i++) {
			double sum = 0;

			for (int r = first; r < size; r++)
				sum += (double)value((uint64_t)(r + 100 * step), i);
			worst = fmax(worst, fabs((double)g[i] - sum / (size - first)));
		}
		CHECK(worst < (c.wire ? 5e-2 : 1e-6), "step %d: off by %g", step, worst);
	}
	CHECK(step == most, "%d of %d steps", step, most);
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

TEST(ddp, uneven_inputs)
{
	for (coll_ddp_wire w = COLL_DDP_PLAIN; w <= COLL_DDP_INT8; w++)
		for (int n = 2; n <= 3; n++)
			on_ranks(n, uneven_rank, &w);
}

/* ---- A rank that gives up ------------------------------------------------------- */

/* Where the others are when the last rank gives up. */
enum { IN_STEP, IN_WEIGHTS, PLACES };

static coll_status go_on(coll_ddp *d, int place)
{
	coll_status status = COLL_OK;

	if (place == IN_WEIGHTS)
		return coll_ddp_average_weights(d);
	status = coll_ddp_begin(d, 1);
	for (int i = PARAMS - 1; i >= 0 && !status; i--)
		status = coll_ddp_ready(d, i);
	return status ? status : coll_ddp_wait(d);
}

static void giving_up_rank(coll_comm *comm, int rank, int size, void *arg)
{
	float w[8] = {0};
	coll_ddp_param p[PARAMS];
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	const int place = *(int *)arg;
	coll_ddp *d = NULL;
	coll_status status;
	int32_t one = 1;

	memcpy(p, shapes, sizeof(p));
	p[0] = (coll_ddp_param){"w", 1, {8}, w, 0, NULL};
	c.bucket_bytes = 4096;
	REQUIRE(coll_ddp_create(&d, p, PARAMS, &c, comm) == COLL_OK);
	if (rank == size - 1)
		CHECK(coll_ddp_abort(d, "the disk is on fire") == COLL_OK);
	status = go_on(d, place);
	CHECK(status == COLL_ERR_ABORTED && strstr(coll_ddp_last_error(d), "the disk is on fire"), "%s: %s",
	      coll_status_string(status), coll_ddp_last_error(d));
	coll_ddp_destroy(&d);
	/* The communicator is as it was. */
	CHECK(coll_all_reduce(&one, &one, 1, COLL_I32, COLL_SUM, comm, NULL) == COLL_OK && one == size);
}

TEST(ddp, a_rank_that_gives_up_ends_the_others)
{
	for (int place = 0; place < PLACES; place++)
		for (int n = 1; n <= 3; n++)
			on_ranks(n, giving_up_rank, &place);
}

/* ---- Weights, stub, trace ------------------------------------------------------ */

static void weights_rank(coll_comm *comm, int rank, int size, void *arg)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_stats stats = COLL_DDP_STATS_INIT;
	double w[3][40], steps[5];
	coll_ddp_param p[3] = {{"w\"\\\n", 2, {5, 8}, w[0], 0, NULL},
	                       {"steps", 1, {5}, steps, 1, NULL},
	                       {"v", 1, {40}, w[2], 0, NULL}};
	char path[64], text[1024];
	coll_ddp *d = NULL;
	size_t n;
	FILE *f;

	for (int i = 0; i < 40; i++)
		w[0][i] = w[2][i] = rank + i;
	for (int i = 0; i < 5; i++)
		steps[i] = rank;
	c.type = COLL_F64;
	REQUIRE(coll_ddp_create(&d, p, 3, &c, comm) == COLL_OK);
	CHECK(coll_ddp_count(d) == 80 && coll_ddp_offset(d, 2) == 40);
	CHECK(coll_ddp_average_weights(d) == COLL_OK);
	CHECK(w[0][7] == 7 + (size - 1) / 2.0 && w[2][39] == 39 + (size - 1) / 2.0 && steps[0] == rank);
	w[2][1] = rank;
	CHECK(coll_ddp_share(d, size - 1) == COLL_OK);
	CHECK(w[2][1] == size - 1 && steps[4] == size - 1);
	coll_ddp_trace(d, 1);
	coll_ddp_stub(d, 1);
	for (int step = 0; step < 2; step++) {
		CHECK(coll_ddp_get_stats(d, &stats, 1) == COLL_OK);
		CHECK(coll_ddp_begin(d, 1) == COLL_OK);
		((double *)coll_ddp_grads(d))[0] = rank;
		CHECK(coll_ddp_ready(d, 2) == COLL_OK && coll_ddp_ready(d, 0) == COLL_OK);
		CHECK(coll_ddp_ready(d, 1) == COLL_ERR_ARGUMENT);
		CHECK(coll_ddp_wait(d) == COLL_OK);
		CHECK(((double *)coll_ddp_grads(d))[0] == (step ? (size - 1) / 2.0 : rank));
		CHECK(coll_ddp_get_stats(d, &stats, 0) == COLL_OK);
		CHECK((stats.collectives > 0) == step);
		coll_ddp_stub(d, 0);
	}
	snprintf(path, sizeof(path), "/tmp/ddp_test.%d.%d", (int)getpid(), rank);
	CHECK(coll_ddp_trace_write(d, path) == COLL_OK);
	f = fopen(path, "re");
	n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	text[n] = 0;
	CHECK(strstr(text, "\"traceEvents\"") && strstr(text, "bucket 0"), "%s", text);
	/* Names are JSON, whatever they are. */
	CHECK(strstr(text, "\"first\":\"w\\\"\\\\\\u000a\"}"), "%s", text);
	if (f)
		fclose(f);
	unlink(path);
	CHECK(coll_ddp_trace_write(d, "/nonexistent/x") == COLL_ERR_SYSTEM);
	CHECK(coll_ddp_destroy(&d) == COLL_OK && d == NULL && coll_ddp_destroy(&d) == COLL_OK);
}

TEST(ddp, weights_stub_and_trace)
{
	for (int n = 1; n <= 3; n++)
		on_ranks(n, weights_rank, NULL);
}

TEST(ddp, none_is_refused)
{
	coll_ddp_stats stats = COLL_DDP_STATS_INIT;
	coll_ddp_bucket_info info;
	coll_ddp *none = NULL;
	int more;

	const coll_status refused[] = {
	        coll_ddp_create(NULL, NULL, 0, NULL, NULL),
	        coll_ddp_abort(NULL, "no reason"),
	        coll_ddp_share(NULL, 0),
	        coll_ddp_average_weights(NULL),
	        coll_ddp_state_load(NULL, &info, 1),
	        coll_ddp_begin(NULL, 1),
	        coll_ddp_ready(NULL, 0),
	        coll_ddp_rows(NULL, 0, NULL, 0),
	        coll_ddp_wait(NULL),
	        coll_ddp_wait_bucket(NULL, 0),
	        coll_ddp_join(NULL, &more),
	        coll_ddp_bucket(NULL, 0, &info),
	        coll_ddp_updated(NULL, 0),
	        coll_ddp_need(NULL, 0),
	        coll_ddp_get_stats(NULL, &stats, 0),
	        coll_ddp_trace_write(NULL, "/dev/null"),
	};

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		CHECK(refused[i] == COLL_ERR_ARGUMENT, "call %zu: %s", i, coll_status_string(refused[i]));
	coll_ddp_zero(NULL);
	coll_ddp_stub(NULL, 1);
	coll_ddp_trace(NULL, 1);
	coll_ddp_state_save(NULL, &info);
	CHECK(coll_ddp_last_error(NULL) && !coll_ddp_grads(NULL) && !coll_ddp_unused(NULL, 0));
	CHECK(coll_ddp_count(NULL) == 0 && coll_ddp_offset(NULL, 0) == 0 && coll_ddp_bucket_count(NULL) == 0);
	CHECK(coll_ddp_state_bytes(NULL) == 0 && coll_ddp_unused_count(NULL) == 0);
	CHECK(coll_ddp_destroy(NULL) == COLL_OK && coll_ddp_destroy(&none) == COLL_OK);
}
