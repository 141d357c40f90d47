/*
 * Rows of a table that were looked up, few and many.
 */
#include "ddp/ranks_test.h"

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
					const uint64_t key =
					        coll_mix64((uint64_t)(r + 10 * k + 1000 * micro + 100000 * step));
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

TEST(rows, rows_of_a_table)
{
	for (int n = 1; n <= 4; n++)
		for (int many = 0; many <= 300; many = many ? many * 100 : 3)
			on_ranks(n, rows_rank, &many);
}

/* A second exchange in a pass, or one outside of it, would write past what a step has room for. */
static void twice_rank(coll_comm *comm, int rank, int size, void *arg)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;
	const int32_t id = 7;
	coll_ddp_param p[PARAMS];
	float *lookup = calloc(count_of(TABLE), 4);
	coll_ddp *d = NULL;

	memcpy(p, shapes, sizeof(p));
	p[TABLE].lookup = lookup;
	REQUIRE(coll_ddp_create(&d, p, PARAMS, &c, comm) == COLL_OK);
	CHECK(coll_ddp_rows(d, TABLE, &id, 1) == COLL_ERR_ARGUMENT);
	for (int step = 0; step < 3; step++) {
		coll_ddp_zero(d);
		CHECK(coll_ddp_begin(d, 1) == COLL_OK);
		lookup[id * 24] = (float)size;
		CHECK(coll_ddp_rows(d, TABLE, NULL, 1) == COLL_ERR_ARGUMENT);
		CHECK(coll_ddp_rows(d, TABLE, &id, -1) == COLL_ERR_ARGUMENT);
		CHECK(coll_ddp_rows(d, TABLE, &id, 1) == COLL_OK, "%s", coll_ddp_last_error(d));
		for (int again = 0; again < 40; again++)
			CHECK(coll_ddp_rows(d, TABLE, &id, 1) == COLL_ERR_ARGUMENT);
		CHECK(coll_ddp_wait(d) == COLL_OK, "%s", coll_ddp_last_error(d));
		CHECK(coll_ddp_rows(d, TABLE, &id, 1) == COLL_ERR_ARGUMENT);
		CHECK(((float *)coll_ddp_grads(d))[coll_ddp_offset(d, TABLE) + id * 24] == (float)size);
	}
	free(lookup);
	CHECK(coll_ddp_destroy(&d) == COLL_OK);
}

TEST(rows, rows_named_twice_are_refused)
{
	for (int n = 1; n <= 3; n++)
		on_ranks(n, twice_rank, NULL);
}
