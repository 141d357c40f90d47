/*
 * Where buckets end. They are cut from the end of the arena, where gradients are
 * ready first; limits are agreed (compared at creation, or measured together).
 */
#include "ddp/layout.h"

#include <stdlib.h>
#include <string.h>

#include "ddp/base.h"
#include "ddp/ddp_inner.h"

#define MEGABYTE  ((size_t)1 << 20)
#define UNIT      16             /* elements: slices begin at multiples of it within a bucket */
#define PART      4              /* of what is left of the arena: the most of a bucket */
#define LEAST     (MEGABYTE / 4) /* default size of the last one */
#define PROBES    5
#define BIG_BYTES (4 * MEGABYTE)
#define SHARE     50     /* a bucket costs one of so many parts of its own time on the wire */
#define WOKEN_S   200e-6 /* of computing that a bucket costs besides its latency: threads woken, caches filled again */

/* What slices, or buckets, are multiples of. */
static size_t unit_of(const coll_ddp *d, size_t usual)
{
	return d->config.wire == COLL_DDP_EXACT ? DDP_EXACT_BLOCK : usual;
}

void ddp_slice(const coll_ddp *d, size_t first, size_t count, int r, size_t *slice_first, size_t *slice_count)
{
	const size_t unit = unit_of(d, UNIT);
	const size_t units = (count + unit - 1) / unit, per = (units + (size_t)d->size - 1) / (size_t)d->size * unit;
	const size_t from = per * (size_t)r < count ? per * (size_t)r : count;
	const size_t to = from + per < count ? from + per : count;

	*slice_first = first + from;
	*slice_count = to - from;
}

/* Least of a few all_reduces of len_bytes, the slowest rank's. */
static coll_status probe(coll_ddp *d, coll_comm *comm, void *buf, size_t len_bytes, double *seconds)
{
	double best = 1e30;
	coll_status status = COLL_OK;

	for (int i = 0; i < PROBES && !status; i++) {
		const double start = ddp_now_s();

		status = ddp_pass(d, comm, coll_all_reduce(buf, buf, len_bytes / 4, COLL_F32, COLL_MAX, comm, NULL));
		if (ddp_now_s() - start < best)
			best = ddp_now_s() - start;
	}
	if (!status)
		status = ddp_pass(d, comm, coll_all_reduce(&best, &best, 1, COLL_F64, COLL_MAX, comm, NULL));
	*seconds = best;
	return status;
}

/* A bucket costs one latency besides its bytes, and takes some time from the computation. If it is on the wire for 50
 * latencies, that cost is a fiftieth. (By latency alone, 6 us between two cores that wait for each other, it was 64 KiB
 * on 1 Gb/s: 656 buckets of a model of 43 MB.) The last bucket is not overlapped, so it is a tenth of that. */
void ddp_limits(coll_ddp_config *c, double latency_s, double bytes_per_s)
{
	const double bytes = SHARE * (latency_s + WOKEN_S) * bytes_per_s;

	c->bucket_bytes = (size_t)(bytes < 65536             ? 65536
	                           : bytes > 64.0 * MEGABYTE ? 64.0 * MEGABYTE
	                                                     : bytes) /
	                  4096 * 4096;
	c->first_bytes = c->last_bytes = c->bucket_bytes / 10 / 64 * 64;
}

static coll_status measure(coll_ddp *d, coll_comm *comm)
{
	coll_ddp_config *c = &d->config;
	float *buf = calloc(1, BIG_BYTES);
	uint64_t known = buf != NULL;
	double small = 0, big = 0;
	coll_status status = ddp_pass(d, comm, coll_all_reduce(&known, &known, 1, COLL_U64, COLL_MIN, comm, NULL));

	if (!status && !known)
		status = ddp_fail(d, COLL_ERR_MEMORY, "no memory to measure with on some rank");
	if (!status)
		status = probe(d, comm, buf, 4, &small);
	if (!status)
		status = probe(d, comm, buf, BIG_BYTES, &big);
	free(buf);
	if (status)
		return status;
	d->stats.latency_s = small;
	d->stats.bytes_per_s = (double)BIG_BYTES / (big > small ? big - small : big > 0 ? big : 1e-9);
	ddp_limits(c, small, d->stats.bytes_per_s);
	return COLL_OK;
}

/* How many elements of p travel. Limits are for these: a latency costs a compressed bucket as much as any. */
static size_t load_of(const coll_ddp *d, const struct param *p)
{
	return d->wire->load ? d->wire->load(d, p) : p->count;
}

/* Of all that lies before end, which is where a parameter begins if loads are not counts. */
static size_t load_before(const coll_ddp *d, size_t end)
{
	size_t sum = 0;

	if (!d->wire->load)
		return end;
	for (int i = 0; i < d->param_count; i++)
		if (!d->params[i].buffer && d->params[i].offset < end)
			sum += load_of(d, &d->params[i]);
	return sum;
}

/* Whole parameters as long as they fit; one at least. */
static size_t cut_whole(const coll_ddp *d, size_t end, size_t limit)
{
	size_t from = end, sum = 0;

	for (int i = d->param_count - 1; i >= 0; i--) {
		const struct param *p = &d->params[i];

		if (p->buffer || p->offset >= end || p->count == 0)
			continue;
		sum += load_of(d, p);
		if (from < end && sum > limit)
			break;
		from = p->offset;
	}
	return from;
}

/* In elements that travel. A bucket is ready when its last gradient is and has only the time in which the rest is
 * computed to hide behind: so none but small ones is more than a part of what was left. */
static size_t limit_at(const coll_ddp *d, size_t end)
{
	const coll_ddp_config *c = &d->config;
	const size_t limit = (end == d->count ? c->first_bytes : c->bucket_bytes) / d->esize;
	const size_t floor = (c->last_bytes > MEGABYTE ? c->last_bytes : MEGABYTE) / d->esize;
	const size_t left = load_before(d, end) / PART, part = left > floor ? left : floor;

	return end == d->count || limit < part ? limit : part;
}

/* The element at which the bucket that ends at end begins. */
static size_t cut(const coll_ddp *d, size_t end)
{
	const coll_ddp_config *c = &d->config;
	const size_t limit = limit_at(d, end);
	const size_t unit = unit_of(d, 1), last = (c->last_bytes / d->esize + unit - 1) / unit * unit;
	const size_t most = limit ? limit : 1, from = end > most ? (end - most) / unit * unit : 0;

	if (c->keep_whole)
		return cut_whole(d, end, most);
	/* Leave the last bucket its own size, where there is enough for two. */
	return from < last && end > last ? last : from;
}

static coll_status add_bucket(coll_ddp *d, size_t first, size_t end, int *room)
{
	struct bucket *b;

	if (d->bucket_count == *room) {
		const int more = *room ? 2 * *room : 64;
		struct bucket *grown = realloc(d->buckets, (size_t)more * sizeof(*grown));

		if (!grown)
			return ddp_fail(d, COLL_ERR_MEMORY, "no memory for %d buckets", more);
		d->buckets = grown;
		*room = more;
	}
	b = &d->buckets[d->bucket_count++];
	memset(b, 0, sizeof(*b));
	b->first = first;
	b->count = end - first;
	b->first_param = b->last_param = -1;
	for (int i = 0; i < d->param_count; i++) {
		const struct param *p = &d->params[i];

		if (p->buffer || p->offset >= end || p->offset + p->count <= first)
			continue;
		if (b->first_param < 0)
			b->first_param = i;
		b->last_param = i;
	}
	if (d->config.zero)
		ddp_slice(d, b->first, b->count, d->rank, &b->slice_first, &b->slice_count);
	else
		b->slice_first = b->first, b->slice_count = b->count;
	return COLL_OK;
}

coll_status ddp_lay_out(coll_ddp *d, coll_comm *comm)
{
	coll_ddp_config *c = &d->config;
	coll_status status = COLL_OK;
	int room = 0;

	if (c->bucket_bytes == COLL_DDP_AUTO)
		status = measure(d, comm);
	c->first_bytes = c->first_bytes ? c->first_bytes : MEGABYTE;
	c->bucket_bytes = c->bucket_bytes ? c->bucket_bytes : 25 * MEGABYTE;
	c->last_bytes = c->last_bytes ? c->last_bytes : LEAST;
	for (size_t end = d->count; end > 0 && !status;) {
		const size_t first = cut(d, end);

		status = add_bucket(d, first, end, &room);
		end = first;
	}
	return status;
}
