/*
 * What COLL_DDP_AUTO chooses, for networks that are not here: limits from a latency and a
 * bandwidth, and the buckets of a model by them.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "ddp/ddp_inner.h"
#include "ddp/layout.h"
#include "ddp/wire.h"

#define MIB ((size_t)1 << 20)

static coll_ddp_config limits(double latency_s, double bytes_per_s)
{
	coll_ddp_config c = COLL_DDP_CONFIG_INIT;

	ddp_limits(&c, latency_s, bytes_per_s);
	return c;
}

/* What a bucket costs beside its bytes is at most a fiftieth of what it has on the wire, unless
 * the most allowed stands in the way, and little more of it would have done. */
Test(ddp_layout, a_bucket_pays_for_its_latency)
{
	const double latency[] = {1e-6, 12e-6, 50e-6, 200e-6, 1e-3}, rate[] = {1.2e7, 1.2e8, 1.2e9, 1.2e10, 2e11};

	for (size_t i = 0; i < 5; i++)
		for (size_t k = 0; k < 5; k++) {
			const coll_ddp_config c = limits(latency[i], rate[k]);
			const double wire_s = (double)c.bucket_bytes / rate[k], cost_s = latency[i] + 200e-6;

			cr_assert(c.bucket_bytes >= 65536 && c.bucket_bytes <= 64 * MIB, "%zu", c.bucket_bytes);
			if (c.bucket_bytes < 64 * MIB)
				cr_assert(wire_s > 0.97 * 50 * cost_s, "%g s, %g B/s: %zu", latency[i], rate[k],
				          c.bucket_bytes);
			if (c.bucket_bytes > 65536)
				cr_assert(wire_s <= 50 * cost_s, "%g s, %g B/s: %zu", latency[i], rate[k],
				          c.bucket_bytes);
		}
}

/* The last bucket is what nothing hides, the first what everything waits for. */
Test(ddp_layout, ends_are_tenths)
{
	const coll_ddp_config c = limits(12e-6, 1.2e8);

	cr_assert(c.first_bytes == c.last_bytes);
	cr_assert(c.last_bytes <= c.bucket_bytes / 10 && c.last_bytes > c.bucket_bytes / 10 - 64, "%zu of %zu",
	          c.last_bytes, c.bucket_bytes);
}

/* As measured on 1 Gb/s between two namespaces: 12 us, 0.12 GB/s. */
Test(ddp_layout, a_gigabit)
{
	const coll_ddp_config c = limits(12e-6, 1.2e8);

	cr_assert(c.bucket_bytes > 5 * MIB / 4 - 65536 && c.bucket_bytes < 5 * MIB / 4, "%zu", c.bucket_bytes);
}

/* Nonsense measured (a clock that stood still) still gives limits. */
Test(ddp_layout, extremes_are_bounded)
{
	cr_assert(limits(0, 1).bucket_bytes == 65536);
	cr_assert(limits(0, 1).last_bytes > 0);
	cr_assert(limits(10, 1e12).bucket_bytes == 64 * MIB);
	cr_assert(limits(1e30, 1e30).bucket_bytes == 64 * MIB);
}

/* A longer way or a wider one never makes buckets smaller. */
Test(ddp_layout, monotonous)
{
	size_t before = 0;

	for (double latency_s = 1e-6; latency_s < 1e-2; latency_s *= 1.3) {
		const coll_ddp_config c = limits(latency_s, 1e9);

		cr_assert(c.bucket_bytes >= before);
		before = c.bucket_bytes;
	}
	before = 0;
	for (double rate = 1e6; rate < 1e12; rate *= 1.3) {
		const coll_ddp_config c = limits(20e-6, rate);

		cr_assert(c.bucket_bytes >= before);
		before = c.bucket_bytes;
	}
}

/* A model of one parameter of that many bytes, cut by the limits in config. */
static coll_ddp *cut(size_t len_bytes, coll_ddp_config config)
{
	coll_ddp *d = calloc(1, sizeof(*d));

	d->config = config;
	d->size = 2;
	d->esize = sizeof(float);
	d->count = len_bytes / sizeof(float);
	d->params = calloc(1, sizeof(*d->params));
	d->param_count = 1;
	d->params[0].count = d->count;
	d->wire = ddp_wire_of(d);
	cr_assert(ddp_lay_out(d, NULL) == COLL_OK);
	return d;
}

static void done(coll_ddp *d)
{
	free(d->buckets);
	free(d->params);
	free(d);
}

static size_t bytes_of(const coll_ddp *d, int bucket)
{
	return d->buckets[bucket].count * d->esize;
}

/* 43 MB on 1 Gb/s: not hundreds of buckets, and none so large that it outlasts backward. */
Test(ddp_layout, buckets_of_a_small_model)
{
	coll_ddp *d = cut(43000000, limits(12e-6, 1.2e8));
	size_t sum = 0;

	cr_assert(d->bucket_count > 30 && d->bucket_count < 50, "%d buckets", d->bucket_count);
	for (int i = 0; i < d->bucket_count; i++) {
		sum += bytes_of(d, i);
		cr_assert(bytes_of(d, i) <= d->config.bucket_bytes, "bucket %d: %zu", i, bytes_of(d, i));
		if (i > 0)
			cr_assert(d->buckets[i].first + d->buckets[i].count == d->buckets[i - 1].first);
	}
	cr_assert(sum == 43000000 && d->buckets[d->bucket_count - 1].first == 0);
	cr_assert(bytes_of(d, d->bucket_count - 1) <= d->config.last_bytes);
	done(d);
}

/* On a fast network limits are large: then no bucket but the first is more than a quarter of what was left. */
Test(ddp_layout, quarters_of_what_is_left)
{
	coll_ddp *d = cut(500 * MIB, limits(200e-6, 1e10));

	cr_assert(d->config.bucket_bytes == 64 * MIB);
	for (int i = 1; i < d->bucket_count; i++) {
		const size_t left = (d->buckets[i].first + d->buckets[i].count) * d->esize;
		const size_t floor = d->config.last_bytes > MIB ? d->config.last_bytes : MIB;

		cr_assert(bytes_of(d, i) <= (left / 4 > floor ? left / 4 : floor), "bucket %d: %zu of %zu", i,
		          bytes_of(d, i), left);
	}
	cr_assert(d->bucket_count < 30, "%d buckets", d->bucket_count);
	done(d);
}
