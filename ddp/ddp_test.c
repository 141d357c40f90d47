/*
 * Data-parallel steps of several ranks in one process, one thread each, against
 * sums that are taken here one after the other.
 */
#define PLAIN_OWN_MAIN
#include "coll/ddp.h"
#include "tests/plain.h"
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST_RANKS 8
#define SEED       20261121u

typedef void (*rank_fn)(coll_comm *comm, int rank, int size, void *arg);

struct thread {
	pthread_t id;
	coll_comm *comm;
	int rank, size;
	rank_fn fn;
	void *arg;
};

static void *thread_main(void *arg)
{
	struct thread *t = arg;

	t->fn(t->comm, t->rank, t->size, t->arg);
	CHECK(coll_comm_destroy(&t->comm) == COLL_OK);
	return NULL;
}

static void on_ranks(int n, rank_fn fn, void *arg)
{
	coll_comm *comms[MOST_RANKS] = {NULL};
	struct thread threads[MOST_RANKS];

	REQUIRE(coll_comm_create_all(comms, n, NULL) == COLL_OK, "%s", coll_last_error(NULL)->message);
	for (int r = 0; r < n; r++) {
		threads[r] = (struct thread){.comm = comms[r], .rank = r, .size = n, .fn = fn, .arg = arg};
		pthread_create(&threads[r].id, NULL, thread_main, &threads[r]);
	}
	for (int r = 0; r < n; r++)
		pthread_join(threads[r].id, NULL);
}

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

/* Between -1 and 1. */
static float value(uint64_t stream, size_t i)
{
	return (float)((double)(mix(mix(SEED + stream) ^ i) >> 11) * 0x1p-52 - 1);
}

/* ---- A small model ------------------------------------------------------- */

#define PARAMS 7
static const coll_ddp_param shapes[PARAMS] = {
        {"place", 2, {5, 24}, NULL, 0, NULL},   {"a.weight", 2, {96, 24}, NULL, 0, NULL},
        {"a.bias", 1, {96}, NULL, 0, NULL},     {"b.weight", 3, {4, 30, 33}, NULL, 0, NULL},
        {"b.bias", 1, {1}, NULL, 0, NULL},      {"empty", 2, {0, 7}, NULL, 0, NULL},
        {"table", 2, {101, 24}, NULL, 0, NULL},
};
#define TABLE 6

static size_t count_of(int i)
{
	size_t n = 1;

	for (int k = 0; k < shapes[i].dim_count; k++)
		n *= shapes[i].dims[k];
	return n;
}

static size_t total(void)
{
	size_t n = 0;

	for (int i = 0; i < PARAMS; i++)
		n += count_of(i);
	return n;
}

static coll_ddp *make(coll_comm *comm, const coll_ddp_config *config)
{
	coll_ddp *d = NULL;
	char problem[256] = "";
	coll_ddp_config c = *config;
	coll_status status;

	c.problem = problem;
	c.problem_bytes = sizeof(problem);
	status = coll_ddp_create(&d, shapes, PARAMS, &c, comm);
	CHECK(status == COLL_OK, "%s: %s", coll_status_string(status), problem);
	return d;
}

/* Gradients of rank in step are random, written when their turn comes and ready at once, in an order of the rank's own;
 * but is never ready. */
static void backward(coll_ddp *d, int rank, int step, uint64_t order, int but)
{
	float *g = coll_ddp_grads(d);
	int list[PARAMS];

	for (int i = 0; i < PARAMS; i++)
		list[i] = PARAMS - 1 - i;
	for (int i = PARAMS - 1; i > 0 && order; i--) {
		int j = (int)(mix(order + (uint64_t)i) % (uint64_t)(i + 1)), t = list[i];

		list[i] = list[j];
		list[j] = t;
	}
	for (int i = 0; i < PARAMS; i++) {
		const size_t from = coll_ddp_offset(d, list[i]), to = from + count_of(list[i]);

		for (size_t k = from; k < to; k++)
			g[k] += value((uint64_t)(rank + 100 * step), k);
		if (list[i] != but)
			CHECK(coll_ddp_ready(d, list[i]) == COLL_OK, "%s", coll_ddp_last_error(d));
	}
}

static void all_ready(coll_ddp *d)
{
	for (int i = PARAMS - 1; i >= 0; i--)
		CHECK(coll_ddp_ready(d, i) == COLL_OK, "%s", coll_ddp_last_error(d));
}

static double mean_of(int size, int step, size_t i)
{
	double s = 0;

	for (int r = 0; r < size; r++)
		s += (double)value((uint64_t)(r + 100 * step), i);
	return s / size;
}

static double worst_error(coll_ddp *d, int size, int step)
{
	const float *g = coll_ddp_grads(d);
	double worst = 0;

	for (size_t i = 0; i < coll_ddp_count(d); i++)
		worst = fmax(worst, fabs((double)g[i] - mean_of(size, step, i)));
	return worst;
}

/* A number that is the same on all ranks only if all bits are. */
static void check_same_bits(coll_comm *comm, const void *x, size_t len_bytes, const char *what)
{
	uint64_t h = SEED, both[2];

	for (size_t i = 0; i < len_bytes; i++)
		h = (h ^ ((const uint8_t *)x)[i]) * 0x100000001b3u;
	both[0] = h;
	both[1] = ~h;
	CHECK(coll_all_reduce(both, both, 2, COLL_U64, COLL_MIN, comm, NULL) == COLL_OK);
	CHECK(both[0] == ~both[1], "%s: ranks hold different bits", what);
}

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
		backward(d, rank, step, step ? mix((uint64_t)(rank + 10 * step)) : 0, -1);
		CHECK(coll_ddp_wait(d) == COLL_OK, "%s", coll_ddp_last_error(d));
		CHECK(worst_error(d, size, step) <= l->near, "%d ranks, wire %d, limit %zu: off by %g", size, l->wire,
		      l->bucket, worst_error(d, size, step));
		check_same_bits(comm, coll_ddp_grads(d), total() * 4, "average");
		CHECK(coll_ddp_unused_count(d) == 0);
	}
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

static void averages(void)
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
	on_ranks(8, average_rank, &(struct limits){9000, 0, COLL_DDP_TREE, 3e-7, 256});
	for (int n = 1; n <= 8; n *= 2)
		on_ranks(n, average_rank, &(struct limits){4096, 0, COLL_DDP_TREE, 3e-7});
}

/* ---- The tree's bits ------------------------------------------------------ */

struct bits {
	float *want;
	size_t count;
};

/* Eight leaves, whoever holds them: each rank sums its own in halves, the tree goes on. */
static void sum_leaves(float *to, int first, int n, size_t count)
{
	float *other;

	if (n == 1) {
		for (size_t i = 0; i < count; i++)
			to[i] = value((uint64_t)first, i);
		return;
	}
	other = malloc(count * sizeof(*other));
	sum_leaves(to, first, n / 2, count);
	sum_leaves(other, first + n / 2, n / 2, count);
	for (size_t i = 0; i < count; i++)
		to[i] += other[i];
	free(other);
}

static void tree_rank(coll_comm *comm, int rank, int size, void *arg)
{
	struct bits *bits = arg;
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp *d;

	c.wire = COLL_DDP_TREE;
	c.bucket_bytes = 4096;
	d = make(comm, &c);
	REQUIRE(d);
	CHECK(coll_ddp_begin(d, 1) == COLL_OK);
	sum_leaves(coll_ddp_grads(d), rank * 8 / size, 8 / size, bits->count);
	all_ready(d);
	CHECK(coll_ddp_wait(d) == COLL_OK);
	if (rank == 0) {
		float *g = coll_ddp_grads(d);

		/* The average of n ranks, times n, exact for powers of two. */
		for (size_t i = 0; i < bits->count; i++)
			g[i] *= (float)size;
		if (size == 1)
			memcpy(bits->want, g, bits->count * sizeof(*g));
		CHECK(!memcmp(bits->want, g, bits->count * sizeof(*g)), "%d ranks", size);
	}
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

static void tree_bits_do_not_depend_on_the_number_of_ranks(void)
{
	struct bits bits = {malloc(total() * sizeof(float)), total()};

	for (int n = 1; n <= 8; n *= 2)
		on_ranks(n, tree_rank, &bits);
	free(bits.want);
}

static void refused_rank(coll_comm *comm, int rank, int size, void *arg)
{
	coll_ddp_config c = *(coll_ddp_config *)arg;
	char problem[256] = "";
	coll_ddp *d = NULL;

	c.problem = problem;
	c.problem_bytes = sizeof(problem);
	CHECK(coll_ddp_create(&d, shapes, PARAMS, &c, comm) == COLL_ERR_UNSUPPORTED && !d && problem[0], "%s", problem);
}

static void what_does_not_go_together_is_refused(void)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;

	c.wire = COLL_DDP_TREE;
	on_ranks(3, refused_rank, &c);
	c.wire = COLL_DDP_INT8;
	c.type = COLL_F64;
	on_ranks(2, refused_rank, &c);
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
	if (which == 2 && rank == 1)
		c.zero = 0, c.bucket_bytes = 12345;
	status = coll_ddp_create(&d, p, which == 3 && rank == 3 ? PARAMS - 1 : PARAMS, &c, comm);
	CHECK(status == COLL_ERR_MISMATCH && !d, "case %d: %s", which, coll_status_string(status));
	if (which == 0)
		CHECK(strstr(problem, "b.weight") && strstr(problem, "30") && strstr(problem, "31") &&
		              strstr(problem, "ranks 1, 3"),
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

static void differences_are_named(void)
{
	for (int which = 0; which < 4; which++)
		on_ranks(4, mismatch_rank, &which);
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

static void micro_steps_send_nothing(void)
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

static void unused_parameters_are_named(void)
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

static void uneven_inputs(void)
{
	for (coll_ddp_wire w = COLL_DDP_PLAIN; w <= COLL_DDP_INT8; w++)
		for (int n = 2; n <= 3; n++)
			on_ranks(n, uneven_rank, &w);
}

/* ---- Slices (ZeRO) ---------------------------------------------------------- */

static void train_slices(coll_comm *comm, int rank, int size, int zero, int micros, float *weights)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_param p[PARAMS];
	coll_ddp_bucket_info info;
	coll_ddp *d = NULL;
	size_t at = 0;

	memcpy(p, shapes, sizeof(p));
	for (int i = 0; i < PARAMS; i++) {
		p[i].weights = weights + at;
		at += count_of(i);
	}
	for (size_t i = 0; i < at; i++)
		weights[i] = rank ? -9 : value(77, i);
	c.bucket_bytes = 8192;
	c.zero = zero;
	REQUIRE(coll_ddp_create(&d, p, PARAMS, &c, comm) == COLL_OK);
	CHECK(coll_ddp_share(d, 0) == COLL_OK);
	for (int step = 0; step < 4; step++) {
		for (int m = 0; m < micros; m++) {
			CHECK(coll_ddp_begin(d, m == micros - 1) == COLL_OK);
			for (int i = 0; i < PARAMS; i++)
				CHECK(coll_ddp_need(d, i) == COLL_OK);
			backward(d, rank, step * micros + m, 0, -1);
			CHECK(coll_ddp_wait(d) == COLL_OK, "%s", coll_ddp_last_error(d));
		}
		for (int b = coll_ddp_bucket_count(d) - 1; b >= 0; b--) {
			CHECK(coll_ddp_bucket(d, b, &info) == COLL_OK);
			for (size_t i = 0; i < info.slice_count; i++)
				weights[info.slice_first + i] -= 0.125f * ((const float *)info.slice_grads)[i];
			CHECK(coll_ddp_updated(d, b) == COLL_OK);
		}
		coll_ddp_zero(d);
	}
	CHECK(coll_ddp_need(d, -1) == COLL_OK);
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

static void zero_rank(coll_comm *comm, int rank, int size, void *arg)
{
	float *plain = malloc(total() * 4), *sliced = malloc(total() * 4);
	double worst = 0;

	for (int micros = 1; micros <= 3; micros += 2)
		for (int zero = 1; zero <= 2; zero++) {
			train_slices(comm, rank, size, 0, micros, plain);
			train_slices(comm, rank, size, zero, micros, sliced);
			check_same_bits(comm, sliced, total() * 4, "sliced weights");
			for (size_t i = 0; i < total(); i++)
				worst = fmax(worst, fabs((double)plain[i] - (double)sliced[i]));
			CHECK(worst <= 1e-6, "zero %d, %d micro-steps, %d ranks: off by %g", zero, micros, size, worst);
			/* Sums of two have one order only. */
			CHECK(size > 2 || micros > 1 || !memcmp(plain, sliced, total() * 4), "zero %d", zero);
		}
	free(plain);
	free(sliced);
}

static void slices_equal_the_whole(void)
{
	for (int n = 1; n <= 4; n++)
		on_ranks(n, zero_rank, NULL);
}

/* ---- Compression ------------------------------------------------------------ */

/* A gradient that stays the same: what compression loses in one step must come in the
 * next ones, so that the mean over steps goes to the true average as 1 / steps. */
static void feedback_rank(coll_comm *comm, int rank, int size, void *arg)
{
	const coll_ddp_wire wire = *(coll_ddp_wire *)arg;
	const int steps = 40;
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_stats stats = COLL_DDP_STATS_INIT;
	double *sum = calloc(total(), sizeof(*sum)), off = 0, norm = 0, one = 0;
	coll_ddp *d;

	c.wire = wire;
	c.bucket_bytes = 16384;
	c.powersgd_rank = 4;
	d = make(comm, &c);
	REQUIRE(d);
	for (int step = 0; step < steps; step++) {
		const float *g = coll_ddp_grads(d);

		coll_ddp_zero(d);
		CHECK(coll_ddp_begin(d, 1) == COLL_OK);
		backward(d, rank, 0, 0, -1);
		CHECK(coll_ddp_wait(d) == COLL_OK, "%s", coll_ddp_last_error(d));
		check_same_bits(comm, g, total() * 4, "compressed");
		for (size_t i = 0; i < total(); i++) {
			sum[i] += (double)g[i];
			one += step ? 0 : pow((double)g[i] - mean_of(size, 0, i), 2);
		}
	}
	for (size_t i = 0; i < total(); i++) {
		off += pow(sum[i] / steps - mean_of(size, 0, i), 2);
		norm += pow(mean_of(size, 0, i), 2);
	}
	CHECK(sqrt(off / norm) < 0.35 * sqrt(one / norm) && one > 0,
	      "wire %d, %d ranks: %g after one step, mean off by %g", wire, size, sqrt(one / norm), sqrt(off / norm));
	CHECK(coll_ddp_get_stats(d, &stats, 0) == COLL_OK);
	if (wire == COLL_DDP_INT8 && size > 1)
		CHECK((double)stats.sent_bytes < 0.4 * steps * 2 * 4 * (double)total() * (size - 1) / size);
	free(sum);
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

static void what_compression_loses_comes_later(void)
{
	for (coll_ddp_wire w = COLL_DDP_INT8; w <= COLL_DDP_POWERSGD; w++)
		for (int n = 2; n <= 3; n++)
			on_ranks(n, feedback_rank, &w);
}

/* What is not finite on one rank must not look finite on any; the step after it is well again. */
static void infinite_rank(coll_comm *comm, int rank, int size, void *arg)
{
	const float bad[] = {INFINITY, -INFINITY, NAN, 1e-44f};
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp *d;
	float *g;

	c.wire = COLL_DDP_INT8;
	d = make(comm, &c);
	REQUIRE(d);
	g = coll_ddp_grads(d);
	for (int step = 0; step < 8; step++) {
		coll_ddp_zero(d);
		CHECK(coll_ddp_begin(d, 1) == COLL_OK);
		if (rank == 1 && step % 2 == 0)
			g[5] = bad[step / 2];
		all_ready(d);
		CHECK(coll_ddp_wait(d) == COLL_OK);
		CHECK((isfinite(g[5]) != 0) == (step % 2 || step == 6), "step %d: %g", step, (double)g[5]);
	}
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

static void what_is_not_finite_stays_so(void)
{
	on_ranks(3, infinite_rank, NULL);
}

/* A matrix of rank 2 goes through PowerSGD of rank 4 as it is. */
static void thin_rank(coll_comm *comm, int rank, int size, void *arg)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	const size_t at = count_of(0);
	double worst = 0, most = 0;
	coll_ddp *d;
	float *g;

	c.wire = COLL_DDP_POWERSGD;
	d = make(comm, &c);
	REQUIRE(d);
	g = coll_ddp_grads(d);
	CHECK(coll_ddp_begin(d, 1) == COLL_OK);
	for (size_t i = 0; i < 96 * 24; i++)
		g[at + i] =
		        (float)(rank + 1) * (value(1, i / 24) * value(2, i % 24) + value(3, i / 24) * value(4, i % 24));
	all_ready(d);
	CHECK(coll_ddp_wait(d) == COLL_OK);
	for (size_t i = 0; i < 96 * 24; i++) {
		const double want = (size + 1) / 2.0 *
		                    (double)(value(1, i / 24) * value(2, i % 24) + value(3, i / 24) * value(4, i % 24));

		worst = fmax(worst, fabs((double)g[at + i] - want));
		most = fmax(most, fabs(want));
	}
	CHECK(worst < 1e-5 * most, "off by %g of %g", worst, most);
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

static void a_thin_matrix_passes_powersgd(void)
{
	on_ranks(1, thin_rank, NULL);
	on_ranks(3, thin_rank, NULL);
}

/* ---- Rows of a table ---------------------------------------------------------- */

static void rows_rank(coll_comm *comm, int rank, int size, void *arg)
{
	const int many = *(int *)arg;
	const size_t width = 24, at = total() - count_of(TABLE);
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_stats stats = COLL_DDP_STATS_INIT;
	coll_ddp_param p[PARAMS];
	double *want = calloc(count_of(TABLE), sizeof(*want)), worst = 0;
	coll_ddp *d = NULL;
	float *lookup = calloc(count_of(TABLE), 4), *g;

	memcpy(p, shapes, sizeof(p));
	p[TABLE].lookup = lookup;
	c.bucket_bytes = c.first_bytes = 3000;
	REQUIRE(coll_ddp_create(&d, p, PARAMS, &c, comm) == COLL_OK);
	g = coll_ddp_grads(d);
	for (int step = 0; step < 2; step++) {
		memset(want, 0, count_of(TABLE) * sizeof(*want));
		coll_ddp_zero(d);
		for (int micro = 0; micro < 2; micro++) {
			int32_t ids[400];
			int n = 0;

			CHECK(coll_ddp_begin(d, micro) == COLL_OK);
			if (micro)
				backward(d, rank, step, 0, -1);
			for (int r = 0; r < size; r++)
				for (int k = 0; k < many + r; k++) {
					const uint64_t key = mix((uint64_t)(r + 10 * k + 1000 * micro + 100000 * step));
					const size_t id = key % 101;

					if (r == rank)
						ids[n++] = (int32_t)id;
					for (size_t i = 0; i < width; i++) {
						want[id * width + i] += (double)value(key, i) / size;
						if (r == rank)
							lookup[id * width + i] += value(key, i);
					}
				}
			CHECK(coll_ddp_rows(d, TABLE, ids, n) == COLL_OK, "%s", coll_ddp_last_error(d));
		}
		CHECK(coll_ddp_wait(d) == COLL_OK, "%s", coll_ddp_last_error(d));
		for (size_t i = 0; i < count_of(TABLE); i++) {
			worst = fmax(worst, fabs((double)g[at + i] - mean_of(size, step, at + i) - want[i]));
			CHECK(lookup[i] == 0);
		}
		CHECK(worst < 3e-6, "%d ranks, %d lookups: off by %g", size, many, worst);
		check_same_bits(comm, g, total() * 4, "rows");
	}
	CHECK(coll_ddp_get_stats(d, &stats, 0) == COLL_OK);
	/* Few rows travel as rows, many as a table. */
	CHECK(many > 3 || stats.payload_bytes < 2 * 4 * total() + 2 * (8 + 2 * 8 * (4 + 4 * width)));
	CHECK(coll_ddp_rows(d, 0, NULL, 0) == COLL_ERR_ARGUMENT);
	CHECK(coll_ddp_rows(d, TABLE, &(int32_t){101}, 1) == COLL_ERR_ARGUMENT);
	free(lookup);
	free(want);
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

static void rows_of_a_table(void)
{
	for (int n = 1; n <= 4; n++)
		for (int many = 0; many <= 300; many = many ? many * 100 : 3)
			on_ranks(n, rows_rank, &many);
}

/* ---- Weights, stub, trace ------------------------------------------------------ */

static void weights_rank(coll_comm *comm, int rank, int size, void *arg)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_stats stats = COLL_DDP_STATS_INIT;
	double w[3][40], steps[5];
	coll_ddp_param p[3] = {
	        {"w", 2, {5, 8}, w[0], 0, NULL}, {"steps", 1, {5}, steps, 1, NULL}, {"v", 1, {40}, w[2], 0, NULL}};
	char path[64], text[256];
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
	if (f)
		fclose(f);
	unlink(path);
	CHECK(coll_ddp_trace_write(d, "/nonexistent/x") == COLL_ERR_SYSTEM);
	CHECK(coll_ddp_destroy(&d) == COLL_OK && d == NULL && coll_ddp_destroy(&d) == COLL_OK);
}

static void weights_stub_and_trace(void)
{
	for (int n = 1; n <= 3; n++)
		on_ranks(n, weights_rank, NULL);
}

int main(void)
{
	PLAIN_RUN(averages);
	PLAIN_RUN(tree_bits_do_not_depend_on_the_number_of_ranks);
	PLAIN_RUN(what_does_not_go_together_is_refused);
	PLAIN_RUN(differences_are_named);
	PLAIN_RUN(micro_steps_send_nothing);
	PLAIN_RUN(unused_parameters_are_named);
	PLAIN_RUN(uneven_inputs);
	PLAIN_RUN(slices_equal_the_whole);
	PLAIN_RUN(what_compression_loses_comes_later);
	PLAIN_RUN(what_is_not_finite_stays_so);
	PLAIN_RUN(a_thin_matrix_passes_powersgd);
	PLAIN_RUN(rows_of_a_table);
	PLAIN_RUN(weights_stub_and_trace);
	return plain_summary();
}
