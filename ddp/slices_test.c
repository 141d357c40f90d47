/*
 * Slices (ZeRO 1 and 2): each rank updates its own, and all learn what one rank would.
 */
#include "ddp/ranks_test.h"

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

TEST(slices, slices_equal_the_whole)
{
	for (int n = 1; n <= 4; n++)
		on_ranks(n, zero_rank, NULL);
}
