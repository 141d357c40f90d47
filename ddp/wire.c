/*
 * How a bucket's bytes travel: plain, as slices (zero), as bfloat16.
 */
#include "ddp/wire.h"

#include <stdlib.h>
#include <string.h>

#include "ddp/base.h"
#include "ddp/ddp_inner.h"
#include "ddp/exact.h"
#include "ddp/layout.h"

static coll_op op_of(const coll_ddp *d)
{
	return d->config.uneven ? COLL_SUM : COLL_AVG;
}

double ddp_scale(const coll_ddp *d)
{
	const bool sums = d->config.uneven || d->config.wire == COLL_DDP_INT8;

	return sums && d->config.wire != COLL_DDP_EXACT && d->active > 0 ? 1.0 / d->active : 1;
}

void ddp_scale_range(coll_ddp *d, size_t first, size_t count, double by)
{
	if (by == 1)
		return;
	if (d->config.type == COLL_F64) {
		double *g = (double *)d->grads + first;

		for (size_t i = 0; i < count; i++)
			g[i] *= by;
	} else {
		float *g = (float *)d->grads + first;
		const float f = (float)by;

		for (size_t i = 0; i < count; i++)
			g[i] *= f;
	}
}

static int one_phase(const coll_ddp *d)
{
	return 1;
}

static double both_ways(const coll_ddp *d, double bytes)
{
	return 2 * bytes * (d->size - 1) / d->size;
}

static coll_status start_plain(coll_ddp *d, struct bucket *b, int phase, coll_comm *comm, coll_stream *stream)
{
	char *g = ddp_at(d, b->first);
	const size_t len_bytes = b->count * d->esize;

	ddp_count(d, len_bytes, both_ways(d, (double)len_bytes));
	return coll_all_reduce(g, g, b->count, d->config.type, op_of(d), comm, stream);
}

/* In place: this rank's slice of the bucket becomes the average, the rest is spent. */
static coll_status start_slices(coll_ddp *d, struct bucket *b, int phase, coll_comm *comm, coll_stream *stream)
{
	char *g = ddp_at(d, b->first);
	size_t first;

	for (int r = 0; r < d->size; r++)
		ddp_slice(d, b->first, b->count, r, &first, &d->slice_counts[r]);
	ddp_count(d, b->count * d->esize, both_ways(d, (double)(b->count * d->esize)) / 2);
	return coll_reduce_scatterv(g, ddp_at(d, b->slice_first), d->slice_counts, NULL, d->config.type, op_of(d), comm,
	                            stream);
}

static coll_status prepare_half(coll_ddp *d, struct bucket *b)
{
	b->scratch = malloc(b->count * sizeof(uint16_t));
	return b->scratch ? COLL_OK : ddp_fail(d, COLL_ERR_MEMORY, "no memory for bucket of %zu", b->count);
}

static void release_scratch(struct bucket *b)
{
	free(b->scratch);
	b->scratch = NULL;
}

/* To the nearest, ties to even; not-a-numbers stay such. */
static uint16_t to_bf16(float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof(u));
	if ((u & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(u >> 16 | 0x40);
	return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static coll_status start_half(coll_ddp *d, struct bucket *b, int phase, coll_comm *comm, coll_stream *stream)
{
	const float *g = (const float *)d->grads + b->first;
	uint16_t *out = b->scratch;

	for (size_t i = 0; i < b->count; i++)
		out[i] = to_bf16(g[i]);
	ddp_count(d, 2 * b->count, both_ways(d, 2.0 * (double)b->count));
	return coll_all_reduce(out, out, b->count, COLL_BF16, op_of(d), comm, stream);
}

static void finish_half(coll_ddp *d, struct bucket *b)
{
	float *g = (float *)d->grads + b->first;
	const uint16_t *in = b->scratch;

	for (size_t i = 0; i < b->count; i++) {
		const uint32_t u = (uint32_t)in[i] << 16;

		memcpy(&g[i], &u, sizeof(u));
	}
}

static const struct wire plain = {"plain", NULL, NULL, NULL, one_phase, start_plain, NULL, NULL};
static const struct wire slices = {"slices", NULL, NULL, NULL, one_phase, start_slices, NULL, NULL};
static const struct wire half = {"bf16", NULL, prepare_half, release_scratch, one_phase, start_half, finish_half, NULL};

const struct wire *ddp_wire_of(const coll_ddp *d)
{
	switch (d->config.wire) {
	case COLL_DDP_BF16: return &half;
	case COLL_DDP_INT8: return &ddp_wire_int8;
	case COLL_DDP_POWERSGD: return &ddp_wire_powersgd;
	case COLL_DDP_EXACT: return &ddp_wire_exact;
	case COLL_DDP_PLAIN: break;
	}
	return d->config.zero ? &slices : &plain;
}
