/*
 * Lookups in a table: few of its rows have gradients. The ranks tell each other
 * how many rows they touched, then send (ids, rows) or, where that is less, reduce
 * the whole table; both are agreed facts by then. Rows are added in rank order, so the
 * result is the same on all ranks. The arena's part of the table was reduced before.
 *
 * Calls go out on a communicator of their own: counts when the rows are named,
 * the rest when the counts are there.
 */
#include "ddp/rows.h"

#include <stdlib.h>
#include <string.h>

#include "ddp/base.h"
#include "ddp/ddp_inner.h"
#include "ddp/step.h"
#include "ddp/trace.h"

static size_t width_of(const struct param *p)
{
	return p->count / p->rows;
}

/* Of one rank's rows, then their ids, up to a multiple of 8: all ranks' blocks lie one behind the other,
 * and rows are read where they lie. */
static size_t block_bytes(const coll_ddp *d, const struct param *p, size_t rows)
{
	return (rows * (width_of(p) * d->esize + sizeof(uint32_t)) + 7) & ~(size_t)7;
}

static void clear(const coll_ddp *d, struct param *p)
{
	const size_t width = width_of(p) * d->esize;

	for (size_t i = 0; i < p->id_count && !d->rows_dense; i++)
		memset(p->lookup + p->ids[i] * width, 0, width);
	if (d->rows_dense)
		memset(p->lookup, 0, p->count * d->esize);
	memset(p->touched, 0, p->rows);
	p->id_count = 0;
}

coll_status coll_ddp_rows(coll_ddp *d, int param, const int32_t *ids, int n)
{
	struct param *p = d && param >= 0 && param < d->param_count ? &d->params[param] : NULL;

	if (!d)
		return COLL_ERR_ARGUMENT;
	if (!p || !p->lookup)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_rows(): parameter %d is not a table", param);
	if (n < 0 || (n > 0 && !ids))
		return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_rows(%s): %d rows, or the list is NULL", p->name, n);
	if (!d->begun)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_rows(%s) before coll_ddp_begin()", p->name);
	/* The ranks exchange what was named first: a second exchange would have no partner. */
	if (d->rows_phase)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_rows(%s): called twice in one pass, or after a wait",
		                p->name);
	for (int i = 0; i < n; i++) {
		if (ids[i] < 0 || (size_t)ids[i] >= p->rows)
			return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_rows(%s): there is no row %d", p->name,
			                (int)ids[i]);
		if (p->touched[ids[i]])
			continue;
		p->touched[ids[i]] = 1;
		p->ids[p->id_count++] = (uint32_t)ids[i];
	}
	if (d->stub)
		clear(d, p);
	return d->sync && !d->stub ? ddp_rows_start(d) : COLL_OK;
}

coll_status ddp_rows_start(coll_ddp *d)
{
	coll_status status;

	d->row_counts[d->rank] = d->params[d->table].id_count;
	d->rows_phase = 1;
	ddp_count(d, sizeof(uint64_t), (double)(d->size - 1) * sizeof(uint64_t));
	status =
	        ddp_pass(d, d->side,
	                 coll_all_gather(&d->row_counts[d->rank], d->row_counts, 1, COLL_U64, d->side, d->side_stream));
	d->rows_flight = ddp_flight_start(d, d->bucket_count, 0);
	return status ? status : ddp_pass(d, d->side, coll_event_record(d->rows_event, d->side_stream));
}

/* Memory runs out on one rank alone, while the others wait for its rows and buckets: they are given the reason. */
static coll_status grow(coll_ddp *d, char **buf, size_t *have, size_t want)
{
	coll_status status;
	char *grown;

	if (*have >= want)
		return COLL_OK;
	grown = realloc(*buf, want);
	if (!grown) {
		status = ddp_fail(d, COLL_ERR_MEMORY, "no memory for %zu bytes of rows", want);
		coll_ddp_abort(d, d->error);
		return status;
	}
	*buf = grown;
	*have = want;
	return COLL_OK;
}

static void pack(const coll_ddp *d, const struct param *p, size_t bytes)
{
	const size_t width = width_of(p) * d->esize, used = p->id_count * (width + sizeof(uint32_t));

	for (size_t i = 0; i < p->id_count; i++)
		memcpy(d->rows_out + i * width, p->lookup + p->ids[i] * width, width);
	memcpy(d->rows_out + p->id_count * width, p->ids, p->id_count * sizeof(uint32_t));
	memset(d->rows_out + used, 0, bytes - used);
}

static coll_status send_rows(coll_ddp *d, size_t all)
{
	struct param *p = &d->params[d->table];
	const size_t mine = block_bytes(d, p, p->id_count);
	coll_status status = grow(d, &d->rows_out, &d->rows_out_bytes, mine + 1);

	if (!status)
		status = grow(d, &d->rows_in, &d->rows_in_bytes, all + 1);
	if (status)
		return status;
	pack(d, p, mine);
	ddp_count(d, mine, (double)mine * (d->size - 1));
	return ddp_pass(
	        d, d->side,
	        coll_all_gatherv(d->rows_out, d->rows_in, d->row_bytes, d->row_at, COLL_U8, d->side, d->side_stream));
}

/* Rows cost each rank all others' rows; the table costs 2 (n - 1) / n of itself. */
static coll_status send(coll_ddp *d)
{
	struct param *p = &d->params[d->table];
	const size_t whole = p->count * d->esize;
	size_t all = 0;
	coll_status status;

	for (int r = 0; r < d->size; r++) {
		d->row_at[r] = all;
		d->row_bytes[r] = block_bytes(d, p, d->row_counts[r]);
		all += d->row_bytes[r];
	}
	d->rows_dense = (double)all > 2.0 * (double)whole * (d->size - 1) / d->size && d->size > 1;
	if (d->rows_dense) {
		ddp_count(d, whole, 2.0 * (double)whole * (d->size - 1) / d->size);
		status = ddp_pass(d, d->side,
		                  coll_all_reduce(p->lookup, p->lookup, p->count, d->config.type, COLL_SUM, d->side,
		                                  d->side_stream));
	} else {
		status = send_rows(d, all);
	}
	d->rows_phase = 2;
	d->rows_flight = ddp_flight_start(d, d->bucket_count, 1);
	return status ? status : ddp_pass(d, d->side, coll_event_record(d->rows_event, d->side_stream));
}

/* n elements of x, the gradients of element first of the arena on, as far as they are this rank's. */
static void add(coll_ddp *d, const struct bucket *b, size_t first, size_t n, const char *x, double by)
{
	const size_t from = first > b->slice_first ? first : b->slice_first;
	const size_t end = b->slice_first + b->slice_count, to = first + n < end ? first + n : end;

	for (size_t i = from; i < to; i++)
		if (d->config.type == COLL_F64)
			((double *)d->grads)[i] += ((const double *)x)[i - first] * by;
		else
			((float *)d->grads)[i] += ((const float *)x)[i - first] * (float)by;
}

static void add_rows(coll_ddp *d, const struct bucket *b, const struct param *p, int r, double by)
{
	const size_t n = d->row_counts[r], width = width_of(p);
	const char *rows = d->rows_in + d->row_at[r], *ids = rows + n * width * d->esize;

	for (size_t i = 0; i < n; i++) {
		uint32_t id;

		memcpy(&id, ids + i * sizeof(id), sizeof(id));
		add(d, b, p->offset + id * width, width, rows + i * width * d->esize, by);
	}
}

/* All buckets that hold a part of the table are complete. */
static void add_all(coll_ddp *d)
{
	struct param *p = &d->params[d->table];
	const double by = 1.0 / (d->active > 0 ? d->active : 1);

	for (int i = 0; i < d->bucket_count; i++) {
		const struct bucket *b = &d->buckets[i];

		if (b->first + b->count <= p->offset || b->first >= p->offset + p->count)
			continue;
		if (d->rows_dense)
			add(d, b, p->offset, p->count, p->lookup, by);
		for (int r = 0; r < d->size && !d->rows_dense; r++)
			add_rows(d, b, p, r, by);
	}
	clear(d, p);
}

bool ddp_rows_pending(const coll_ddp *d, const struct bucket *b)
{
	const struct param *p = d->table >= 0 ? &d->params[d->table] : NULL;

	return p && d->rows_phase > 0 && d->rows_phase < 3 && b->first + b->count > p->offset &&
	       b->first < p->offset + p->count;
}

/* The last bucket, in order, that holds a part of the table. */
static int last_bucket(const coll_ddp *d)
{
	const struct param *p = &d->params[d->table];
	int last = 0;

	for (int i = 0; i < d->bucket_count; i++)
		if (d->buckets[i].first + d->buckets[i].count > p->offset && d->buckets[i].first < p->offset + p->count)
			last = i;
	return last;
}

coll_status ddp_rows_poll(coll_ddp *d)
{
	coll_status status;

	if (d->rows_phase != 1)
		return COLL_OK;
	status = ddp_pass(d, d->side, coll_event_query(d->rows_event));
	if (status)
		return status == COLL_AGAIN ? COLL_OK : status;
	ddp_flight_end(d, d->rows_flight, d->rows_event);
	return send(d);
}

coll_status ddp_rows_wait(coll_ddp *d)
{
	const int last = last_bucket(d);
	coll_status status = COLL_OK;

	while (d->rows_phase < 3 && !status) {
		status = ddp_pass(d, d->side, coll_event_wait(d->rows_event, -1));
		if (status)
			return status;
		ddp_flight_end(d, d->rows_flight, d->rows_event);
		if (d->rows_phase == 1) {
			status = send(d);
			continue;
		}
		status = ddp_wait_for(d, last);
		if (!status)
			add_all(d);
		d->rows_phase = 3;
	}
	return status;
}
