/*
 * How buckets travel: the exact wire's bits, and what compression loses, keeps and refuses.
 */
#include "ddp/ranks_test.h"

/* ---- The exact wire's bits ---------------------------------------------------- */

#define LEAVES 24

struct bits {
	float *want; /* of one rank */
	size_t bucket_bytes;
	int zero;
};

/* The leaves of this rank, each in a pass of its own; the sums of all must be those of one rank. */
static void exact_rank(coll_comm *comm, int rank, int size, void *arg)
{
	struct bits *bits = arg;
	const int first = rank * LEAVES / size, end = (rank + 1) * LEAVES / size;
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_param p[PARAMS];
	float *weights = calloc(total(), sizeof(*weights));
	coll_ddp *d = NULL;
	size_t at = 0;

	memcpy(p, shapes, sizeof(p));
	for (int i = 0; i < PARAMS; at += count_of(i++))
		p[i].weights = weights + at;
	c.wire = COLL_DDP_EXACT;
	c.first_bytes = c.bucket_bytes = c.last_bytes = bits->bucket_bytes;
	c.zero = bits->zero;
	REQUIRE(coll_ddp_create(&d, p, PARAMS, &c, comm) == COLL_OK);
	for (int step = 0; step < 2; step++) {
		coll_ddp_zero(d);
		for (int leaf = first; leaf < end; leaf++) {
			CHECK(coll_ddp_begin(d, leaf == end - 1) == COLL_OK);
			backward(d, leaf, step, step ? (uint64_t)(rank + 1) : 0, -1);
		}
		CHECK(coll_ddp_wait(d) == COLL_OK, "%s", coll_ddp_last_error(d));
	}
	for (int b = 0; b < coll_ddp_bucket_count(d); b++) {
		coll_ddp_bucket_info info;
		const float *g = coll_ddp_grads(d);

		CHECK(coll_ddp_bucket(d, b, &info) == COLL_OK);
		CHECK(info.first % 4096 == 0 && (info.slice_first % 4096 == 0 || info.slice_count == 0));
		if (bits->want)
			CHECK(!memcmp(bits->want + info.slice_first, g + info.slice_first, 4 * info.slice_count),
			      "%d ranks, zero %d, buckets of %zu", size, bits->zero, bits->bucket_bytes);
	}
	if (!bits->want) {
		bits->want = malloc(total() * sizeof(float));
		memcpy(bits->want, coll_ddp_grads(d), total() * sizeof(float));
	}
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
	free(weights);
}

TEST(wires, exact_bits_depend_on_no_ranks_buckets_or_slices)
{
	struct bits bits = {NULL, 1 << 20, 0};

	on_ranks(1, exact_rank, &bits);
	for (size_t i = 0; i < total(); i++) {
		double sum = 0;

		for (int leaf = 0; leaf < LEAVES; leaf++)
			sum += (double)value((uint64_t)(leaf + 100), i);
		REQUIRE(bits.want[i] == (float)sum, "element %zu: %g, not %g", i, (double)bits.want[i], sum);
	}
	for (int n = 1; n <= 8; n++)
		for (bits.zero = 0; bits.zero < 2; bits.zero++)
			for (bits.bucket_bytes = 1; bits.bucket_bytes <= 1 << 20; bits.bucket_bytes <<= 14)
				on_ranks(n, exact_rank, &bits);
	free(bits.want);
}

/* What cannot be summed, on one rank and in one place. */
struct unfit {
	float x;
	int passes;
	bool good;
};

static void unfit_rank(coll_comm *comm, int rank, int size, void *arg)
{
	const struct unfit *s = arg;
	const size_t place = 4100;
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	float *g;
	coll_ddp *d;

	c.wire = COLL_DDP_EXACT;
	d = make(comm, &c);
	REQUIRE(d && total() > 8192);
	g = coll_ddp_grads(d);
	coll_ddp_zero(d);
	for (int p = 0; p < s->passes; p++) {
		CHECK(coll_ddp_begin(d, p == s->passes - 1) == COLL_OK);
		if (rank == size - 1)
			g[place] = p % 2 ? -s->x : s->x;
		all_ready(d);
	}
	CHECK(coll_ddp_wait(d) == COLL_OK);
	for (size_t i = 0; i < total(); i++)
		CHECK(i / 4096 == 1 && !s->good ? isnan(g[i]) : g[i] == (i == place && s->passes % 2 ? s->x : 0),
		      "%g: element %zu is %g", (double)s->x, i, (double)g[i]);
	coll_ddp_zero(d);
	CHECK(coll_ddp_begin(d, 1) == COLL_OK);
	g[place] = 1;
	all_ready(d);
	CHECK(coll_ddp_wait(d) == COLL_OK && g[place] == (float)size && g[place - 1] == 0, "the next step");
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

TEST(wires, what_no_integer_holds_is_nan_on_all_ranks)
{
	static const struct unfit cases[] = {{8191, 1, true},      {8192, 1, false},      {-8191, 1, true},
	                                     {4000, 2, true},      {4096, 2, false},      {(float)NAN, 1, false},
	                                     {INFINITY, 1, false}, {-INFINITY, 2, false}, {0x1p-50f, 1, true}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		on_ranks(3, unfit_rank, (void *)&cases[i]);
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

TEST(wires, what_does_not_go_together_is_refused)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;

	c.wire = COLL_DDP_EXACT;
	c.keep_whole = 1;
	on_ranks(3, refused_rank, &c);
	c.keep_whole = 0;
	c.zero = 2;
	on_ranks(3, refused_rank, &c);
	c.zero = 0;
	c.wire = COLL_DDP_INT8;
	c.type = COLL_F64;
	on_ranks(2, refused_rank, &c);
}

/* ---- Compression ------------------------------------------------------------ */

/* How far averages that lose something are off, of one step and in their mean over steps. */
struct drift {
	double *sum;
	size_t count;
	int steps;
	double one, off, norm; /* squares: of the first step, of the mean, of what it should be */
};

static void drift_add(struct drift *f, const float *g, int size)
{
	for (size_t i = 0; i < f->count; i++) {
		f->sum[i] += (double)g[i];
		f->one += f->steps ? 0 : pow((double)g[i] - mean_of(size, 0, i), 2);
	}
	f->steps++;
}

static void drift_end(struct drift *f, int size)
{
	for (size_t i = 0; i < f->count; i++) {
		f->off += pow(f->sum[i] / f->steps - mean_of(size, 0, i), 2);
		f->norm += pow(mean_of(size, 0, i), 2);
	}
	free(f->sum);
}

/* A gradient that stays the same: what compression loses in one step must come in the
 * next ones, so that the mean over steps goes to the true average as 1 / steps. */
static void feedback_rank(coll_comm *comm, int rank, int size, void *arg)
{
	const coll_ddp_wire wire = *(coll_ddp_wire *)arg;
	struct drift f = {calloc(total(), sizeof(double)), total(), 0, 0, 0, 0};
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_stats stats = COLL_DDP_STATS_INIT;
	coll_ddp *d;

	c.wire = wire;
	c.first_bytes = c.bucket_bytes = 6000;
	c.powersgd_rank = 4;
	d = make(comm, &c);
	REQUIRE(d && coll_ddp_bucket_count(d) > 2);
	for (int step = 0; step < 40; step++) {
		const float *g = coll_ddp_grads(d);

		coll_ddp_zero(d);
		CHECK(coll_ddp_begin(d, 1) == COLL_OK);
		backward(d, rank, 0, 0, -1);
		CHECK(coll_ddp_wait(d) == COLL_OK, "%s", coll_ddp_last_error(d));
		check_same_bits(comm, g, total() * 4, "compressed");
		drift_add(&f, g, size);
	}
	drift_end(&f, size);
	CHECK(sqrt(f.off / f.norm) < 0.35 * sqrt(f.one / f.norm) && f.one > 0,
	      "wire %d, %d ranks: %g after one step, mean off by %g", wire, size, sqrt(f.one / f.norm),
	      sqrt(f.off / f.norm));
	CHECK(coll_ddp_get_stats(d, &stats, 0) == COLL_OK);
	if (wire == COLL_DDP_INT8 && size > 1)
		CHECK((double)stats.sent_bytes < 0.4 * f.steps * 2 * 4 * (double)total() * (size - 1) / size);
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

TEST(wires, what_compression_loses_comes_later)
{
	for (coll_ddp_wire w = COLL_DDP_INT8; w <= COLL_DDP_POWERSGD; w++)
		for (int n = 2; n <= 3; n++)
			on_ranks(n, feedback_rank, &w);
}

/* Ranks of every kind of loop, usual and not, with rows and columns that are no multiples of a vector. */
static void powersgd_rank(coll_comm *comm, int rank, int size, void *arg)
{
	const int r = *(int *)arg;
	const size_t n = 131 * 77;
	struct drift f = {calloc(n, sizeof(double)), n, 0, 0, 0, 0};
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_param p = {"m", 2, {131, 77}, NULL, 0, NULL};
	coll_ddp *d = NULL;

	c.wire = COLL_DDP_POWERSGD;
	c.powersgd_rank = r;
	REQUIRE(coll_ddp_create(&d, &p, 1, &c, comm) == COLL_OK);
	for (int step = 0; step < 6; step++) {
		float *g = coll_ddp_grads(d);

		coll_ddp_zero(d);
		CHECK(coll_ddp_begin(d, 1) == COLL_OK);
		for (size_t i = 0; i < n; i++)
			g[i] = value((uint64_t)rank, i);
		CHECK(coll_ddp_ready(d, 0) == COLL_OK && coll_ddp_wait(d) == COLL_OK);
		drift_add(&f, g, size);
	}
	drift_end(&f, size);
	/* A random matrix: each direction of 77 holds about as much as any. */
	CHECK(f.one < f.norm * (1 - 0.9 * r / 77) && f.off < f.one,
	      "rank %d, %d ranks: %g after one step, mean off by %g", r, size, sqrt(f.one / f.norm),
	      sqrt(f.off / f.norm));
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

TEST(wires, powersgd_of_every_rank)
{
	for (int r = 1; r <= 17; r += r == 5 ? 3 : r == 8 ? 8 : 1)
		on_ranks(2, powersgd_rank, &r);
}

/* Limits are of what travels: twenty matrices of 64 KiB are 4 KiB of thin ones each. */
static void load_rank(coll_comm *comm, int rank, int size, void *arg)
{
	const coll_ddp_wire wire = *(coll_ddp_wire *)arg;
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	coll_ddp_bucket_info b;
	coll_ddp_param p[20];
	coll_ddp *d = NULL;

	for (int i = 0; i < 20; i++)
		p[i] = (coll_ddp_param){"m", 2, {128, 128}, NULL, 0, NULL};
	c.wire = wire;
	c.keep_whole = 1;
	c.first_bytes = c.bucket_bytes = 4 * 128 * 128;
	REQUIRE(coll_ddp_create(&d, p, 20, &c, comm) == COLL_OK);
	CHECK(coll_ddp_bucket_count(d) == (wire == COLL_DDP_POWERSGD ? 2 : 20), "%d", coll_ddp_bucket_count(d));
	CHECK(coll_ddp_bucket(d, 0, &b) == COLL_OK);
	CHECK(b.last_param == 19 && b.first_param == (wire == COLL_DDP_POWERSGD ? 4 : 19));
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

TEST(wires, limits_are_of_what_travels)
{
	on_ranks(2, load_rank, &(coll_ddp_wire){COLL_DDP_POWERSGD});
	on_ranks(2, load_rank, &(coll_ddp_wire){COLL_DDP_PLAIN});
}

/* One step of d; its average is the result. */
static const float *step_of(coll_ddp *d, int rank, int step)
{
	coll_ddp_zero(d);
	CHECK(coll_ddp_begin(d, 1) == COLL_OK);
	backward(d, rank, step, 0, -1);
	CHECK(coll_ddp_wait(d) == COLL_OK, "%s", coll_ddp_last_error(d));
	return coll_ddp_grads(d);
}

/* A new object with what another one owes goes on as that one does, and without it does not. */
static void owing_rank(coll_comm *comm, int rank, int size, void *arg)
{
	const size_t len_bytes = total() * sizeof(float);
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	float *want = malloc(len_bytes);
	coll_ddp *old, *next, *bare;
	size_t owed_bytes;
	char *owed;

	c.wire = *(coll_ddp_wire *)arg;
	c.first_bytes = c.bucket_bytes = 6000;
	old = make(comm, &c);
	next = make(comm, &c);
	bare = make(comm, &c);
	REQUIRE(old && next && bare);
	for (int step = 0; step < 3; step++)
		step_of(old, rank, step);
	owed_bytes = coll_ddp_state_bytes(old);
	owed = malloc(owed_bytes + 1);
	owed[owed_bytes] = 77;
	coll_ddp_state_save(old, owed);
	CHECK(owed_bytes > 0 && owed[owed_bytes] == 77);
	memcpy(want, step_of(old, rank, 3), len_bytes);
	CHECK(coll_ddp_state_load(next, owed, owed_bytes - 1) == COLL_ERR_ARGUMENT);
	CHECK(coll_ddp_begin(next, 0) == COLL_OK && coll_ddp_state_load(next, owed, owed_bytes) == COLL_ERR_ARGUMENT);
	CHECK(coll_ddp_wait(next) == COLL_OK && coll_ddp_state_load(next, owed, owed_bytes) == COLL_OK);
	CHECK(!memcmp(want, step_of(next, rank, 3), len_bytes), "wire %d, %d ranks", c.wire, size);
	CHECK(memcmp(want, step_of(bare, rank, 3), len_bytes) != 0);
	free(owed);
	free(want);
	CHECK(coll_ddp_destroy(&old) == COLL_OK && coll_ddp_destroy(&next) == COLL_OK);
	CHECK(coll_ddp_destroy(&bare) == COLL_OK);
}

TEST(wires, what_compression_owes_can_be_kept)
{
	for (coll_ddp_wire w = COLL_DDP_INT8; w <= COLL_DDP_POWERSGD; w++)
		for (int n = 1; n <= 3; n++)
			on_ranks(n, owing_rank, &w);
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

TEST(wires, what_is_not_finite_stays_so)
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

TEST(wires, a_thin_matrix_passes_powersgd)
{
	on_ranks(1, thin_rank, NULL);
	on_ranks(3, thin_rank, NULL);
}
