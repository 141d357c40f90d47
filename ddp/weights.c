/*
 * Weights: shared at the start, averaged, and, where every rank updates a slice of
 * each bucket, gathered again.
 */
#include "ddp/weights.h"

#include <string.h>

#include "ddp/base.h"
#include "ddp/ddp_inner.h"
#include "ddp/layout.h"

/* How many bytes from params[i] on lie in one piece; *next: the first parameter after it. */
static size_t run_from(const coll_ddp *d, int i, int *next)
{
	size_t len_bytes = d->params[i].count * d->esize;

	for (*next = i + 1; *next < d->param_count; (*next)++) {
		const struct param *p = &d->params[*next];

		if (p->weights != d->params[i].weights + len_bytes)
			break;
		len_bytes += p->count * d->esize;
	}
	return len_bytes;
}

/* fn on each piece of all weights (buffers too). Where pieces end may differ between
 * ranks, so calls are made parameter by parameter unless there is one piece in all. */
static coll_status each_piece(coll_ddp *d, coll_status (*fn)(coll_ddp *d, char *weights, size_t count, int root),
                              int root, bool buffers)
{
	coll_status status = COLL_OK;

	for (int i = 0; i < d->param_count && !status; i++) {
		const struct param *p = &d->params[i];

		if (p->buffer && !buffers)
			continue;
		if (!p->weights)
			return ddp_fail(d, COLL_ERR_ARGUMENT, "parameter %s was given without its weights", p->name);
		status = fn(d, p->weights, p->count, root);
	}
	return status;
}

static coll_status send_piece(coll_ddp *d, char *weights, size_t count, int root)
{
	ddp_count(d, count * d->esize, d->rank == root ? (double)(count * d->esize) : 0);
	return ddp_pass(d, d->first, coll_broadcast(weights, weights, count, d->config.type, root, d->first, NULL));
}

coll_status coll_ddp_share(coll_ddp *d, int root)
{
	return d ? each_piece(d, send_piece, root, true) : COLL_ERR_ARGUMENT;
}

static coll_status average_piece(coll_ddp *d, char *weights, size_t count, int root)
{
	ddp_count(d, count * d->esize, 2.0 * (double)(count * d->esize) * (d->size - 1) / d->size);
	return ddp_pass(d, d->first,
	                coll_all_reduce(weights, weights, count, d->config.type, COLL_AVG, d->first, NULL));
}

coll_status coll_ddp_average_weights(coll_ddp *d)
{
	if (!d)
		return COLL_ERR_ARGUMENT;
	return d->stub ? COLL_OK : each_piece(d, average_piece, 0, false);
}

/* Slices of buckets are slices of the weights only if these lie as gradients do. */
coll_status ddp_check_weights(coll_ddp *d)
{
	int next;

	for (int i = 0; i < d->param_count; i++)
		if (!d->params[i].weights || d->params[i].buffer)
			return ddp_fail(d, COLL_ERR_ARGUMENT,
			                "zero: all weights must be given, contiguous and in the order of the "
			                "parameters, without buffers: %s",
			                d->params[i].name);
	run_from(d, 0, &next);
	if (next < d->param_count)
		return ddp_fail(
		        d, COLL_ERR_ARGUMENT,
		        "zero: weights must be contiguous and in the order of the parameters: %s does not follow "
		        "%s",
		        d->params[next].name, d->params[next - 1].name);
	return COLL_OK;
}

coll_status coll_ddp_updated(coll_ddp *d, int index)
{
	struct bucket *b;
	char *weights;
	size_t first;
	coll_status status;

	if (!d)
		return COLL_ERR_ARGUMENT;
	if (index < 0 || index >= d->bucket_count)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_updated(): there is no bucket %d", index);
	if (!d->config.zero || d->stub)
		return COLL_OK;
	b = &d->buckets[index];
	weights = d->params[0].weights + b->first * d->esize;
	for (int r = 0; r < d->size; r++)
		ddp_slice(d, b->first, b->count, r, &first, &d->slice_counts[r]);
	ddp_count(d, b->slice_count * d->esize, (double)(b->count * d->esize) * (d->size - 1) / d->size);
	status = ddp_pass(d, d->later,
	                  coll_all_gatherv(d->params[0].weights + b->slice_first * d->esize, weights, d->slice_counts,
	                                   NULL, d->config.type, d->later, d->later_streams[0]));
	b->gathering = status == COLL_OK;
	return status ? status : ddp_pass(d, d->later, coll_event_record(b->gathered, d->later_streams[0]));
}

coll_status coll_ddp_need(coll_ddp *d, int param)
{
	const double start = ddp_now_s();
	coll_status status = COLL_OK;
	bool waited = false;

	if (!d)
		return COLL_ERR_ARGUMENT;
	for (int i = 0; i < d->bucket_count && d->config.zero && !status; i++) {
		struct bucket *b = &d->buckets[i];

		if (!b->gathering || (param >= 0 && (param < b->first_param || param > b->last_param)))
			continue;
		status = ddp_pass(d, d->later, coll_event_wait(b->gathered, -1));
		b->gathering = false;
		waited = true;
	}
	if (waited)
		d->stats.waited_s += ddp_now_s() - start;
	return status;
}
