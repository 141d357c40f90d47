/*
 * A step: gradients become ready, buckets start in order, rounds follow each other,
 * buckets are complete in order.
 *
 * Invariant: round p of bucket b starts when round p of all buckets before it has
 * started, so that every communicator sees the same order on all ranks whatever
 * the order in which gradients are ready. Everything here polls but the waits.
 */
#include "ddp/step.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ddp/base.h"
#include "ddp/ddp_inner.h"
#include "ddp/rows.h"
#include "ddp/trace.h"
#include "ddp/wire.h"

static coll_status put(coll_ddp *d, int index, int phase)
{
	struct bucket *b = &d->buckets[index];
	coll_comm *comm = phase ? d->later : d->first;
	coll_stream *stream = phase ? d->later_streams[phase - 1] : d->stream[index % 2];
	coll_status status;

	if (phase == 0)
		b->start_s = ddp_now_s();
	b->state = RUNNING;
	b->phase = phase;
	d->started[phase]++;
	status = ddp_pass(d, comm, d->wire->start(d, b, phase, comm, stream));
	/* What a wire computes before it calls is no time on the wire. */
	b->flight = ddp_flight_start(d, index, phase);
	return status ? status : ddp_pass(d, comm, coll_event_record(b->event, stream));
}

/* Pages that lie wholly within the bucket go back to the system, which gives zeros
 * when they are touched again; what is left is set to zero. */
static void drop_pages(coll_ddp *d, const struct bucket *b)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	char *from = ddp_at(d, b->first), *to = from + b->count * d->esize;
	char *first = (char *)(((uintptr_t)from + page - 1) / page * page);
	char *last = (char *)((uintptr_t)to / page * page);

	if (first >= last || madvise(first, (size_t)(last - first), MADV_DONTNEED)) {
		memset(from, 0, (size_t)(to - from));
		return;
	}
	memset(from, 0, (size_t)(first - from));
	memset(last, 0, (size_t)(to - last));
}

/* zero 2: the slice moves to where slices are kept; the bucket's memory is given back. */
static void keep_slice(coll_ddp *d, int index)
{
	struct bucket *b = &d->buckets[index];
	char *to = d->shards + d->shard_at[index] * d->esize, *from = ddp_at(d, b->slice_first);

	if (!d->piling)
		memcpy(to, from, b->slice_count * d->esize);
	else if (d->config.type == COLL_F64)
		for (size_t i = 0; i < b->slice_count; i++)
			((double *)to)[i] += ((double *)from)[i];
	else
		for (size_t i = 0; i < b->slice_count; i++)
			((float *)to)[i] += ((float *)from)[i];
	drop_pages(d, b);
}

static void finish(coll_ddp *d, int index)
{
	struct bucket *b = &d->buckets[index];

	b->end_s = ddp_flight_end(d, b->flight, b->event);
	if (d->wire->finish)
		d->wire->finish(d, b);
	if (d->active == 0)
		d->active = 1;
	ddp_scale_range(d, b->slice_first, b->slice_count, ddp_scale(d));
	b->state = COMPLETE;
}

/* Follow bucket index: its next round, or its end. AGAIN: it is on its way. */
static coll_status follow(coll_ddp *d, int index)
{
	struct bucket *b = &d->buckets[index];
	coll_status status = COLL_OK;

	while (b->state == RUNNING && !status) {
		status = ddp_pass(d, b->phase ? d->later : d->first, coll_event_query(b->event));
		if (status)
			return status;
		if (b->phase + 1 >= d->wire->phases(d)) {
			/* What it is divided by must be known. */
			status = d->config.uneven ? ddp_pass(d, d->side, coll_event_query(d->active_event)) : COLL_OK;
			if (status)
				return status;
			finish(d, index);
			continue;
		}
		if (d->started[b->phase + 1] != index)
			return COLL_AGAIN;
		ddp_flight_end(d, b->flight, b->event);
		status = put(d, index, b->phase + 1);
	}
	return b->state == COMPLETE ? COLL_OK : status ? status : COLL_AGAIN;
}

/* Start what may start, in order. */
static coll_status start_ready(coll_ddp *d)
{
	coll_status status = COLL_OK;

	for (int b = d->started[0]; b < d->bucket_count && d->buckets[b].missing == 0 && !status; b++)
		status = put(d, b, 0);
	return status;
}

coll_status ddp_advance(coll_ddp *d)
{
	coll_status status = d->sync && !d->stub ? start_ready(d) : COLL_OK;

	for (int b = d->done; b < d->started[0] && !status; b++) {
		status = follow(d, b);
		if (!status && b == d->done)
			d->done++;
		/* Later buckets may have rounds to begin. */
		if (status == COLL_AGAIN) {
			status = COLL_OK;
			if (d->wire->phases(d) == 1)
				break;
		}
	}
	return status ? status : ddp_rows_poll(d);
}

/* ---- The calls ----------------------------------------------------------- */

static void reset(coll_ddp *d)
{
	const int phases = d->wire->phases(d);

	for (int i = 0; i < d->bucket_count; i++) {
		struct bucket *b = &d->buckets[i];

		b->state = WAITING;
		b->missing = b->first_param < 0 ? 0 : b->last_param - b->first_param + 1;
		for (int p = b->first_param; p >= 0 && p <= b->last_param; p++)
			b->missing -= d->params[p].buffer;
		b->ready_s = b->start_s = b->end_s = 0;
	}
	for (int p = 0; p < phases; p++)
		d->started[p] = 0;
	for (int i = 0; i < d->param_count; i++)
		d->params[i].ready = d->params[i].taken = false;
	d->done = d->taken = 0;
	d->rows_phase = 0;
	d->flight_count = 0;
}

/* Who has data? The sum is known before the first bucket is complete. */
static coll_status ask_active(coll_ddp *d, bool have)
{
	coll_status status;

	d->active = d->size;
	if (!d->config.uneven || d->stub)
		return COLL_OK;
	d->active = have;
	ddp_count(d, sizeof(d->active), 2 * sizeof(d->active));
	status = ddp_pass(d, d->side,
	                  coll_all_reduce(&d->active, &d->active, 1, COLL_I32, COLL_SUM, d->side, d->side_stream));
	return status ? status : ddp_pass(d, d->side, coll_event_record(d->active_event, d->side_stream));
}

static coll_status begin(coll_ddp *d, bool sync, bool have)
{
	coll_status status = d->begun && d->sync ? coll_ddp_wait(d) : COLL_OK;

	if (status)
		return status;
	reset(d);
	d->begun = true;
	/* Slices of zero 2 are all that is kept: each micro-step is reduced. */
	d->sync = sync || d->config.zero == 2;
	d->stats.steps += sync;
	d->step += sync;
	return d->sync ? ask_active(d, have) : COLL_OK;
}

coll_status coll_ddp_begin(coll_ddp *d, int sync)
{
	coll_status status;
	bool more;

	if (!d)
		return COLL_ERR_ARGUMENT;
	more = d->config.zero == 2 && !d->last_of_step;
	status = begin(d, sync, true);
	d->piling = more;
	d->last_of_step = sync;
	return status;
}

/* Once in a pass. */
static void take(coll_ddp *d, struct param *p)
{
	if (d->wire->take && !d->stub && !p->taken && !p->buffer)
		d->wire->take(d, p);
	p->taken = true;
}

coll_status coll_ddp_ready(coll_ddp *d, int param)
{
	struct param *p;

	if (!d)
		return COLL_ERR_ARGUMENT;
	if (param < 0 || param >= d->param_count || d->params[param].buffer)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_ready(): there is no gradient %d", param);
	p = &d->params[param];
	if (!d->begun)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_ready(%s) before coll_ddp_begin()", p->name);
	if (p->ready)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_ready(%s): called twice in one pass", p->name);
	p->ready = true;
	take(d, p);
	if (!d->sync)
		return COLL_OK;
	/* Buckets go down the arena. */
	for (int i = d->started[0]; i < d->bucket_count; i++) {
		struct bucket *b = &d->buckets[i];

		if (b->first + b->count <= p->offset)
			break;
		if (b->first >= p->offset + p->count)
			continue;
		if (--b->missing == 0)
			b->ready_s = ddp_now_s();
	}
	return ddp_advance(d);
}

/* What was never ready counts as it is. */
static coll_status start_rest(coll_ddp *d)
{
	coll_status status = COLL_OK;

	d->unused_count = 0;
	for (int i = 0; i < d->param_count; i++) {
		d->unused_count += !d->params[i].buffer && !d->params[i].ready;
		take(d, &d->params[i]);
	}
	for (int i = d->started[0]; i < d->bucket_count; i++) {
		if (d->buckets[i].missing)
			d->buckets[i].ready_s = ddp_now_s();
		d->buckets[i].missing = 0;
	}
	if (d->table >= 0 && d->rows_phase == 0)
		status = ddp_rows_start(d);
	return status ? status : ddp_advance(d);
}

/* Until bucket index is complete. */
coll_status ddp_wait_for(coll_ddp *d, int index)
{
	coll_status status = ddp_advance(d);

	while (d->done <= index && !status) {
		struct bucket *b = &d->buckets[d->done];

		status = ddp_pass(d, b->phase ? d->later : d->first, coll_event_wait(b->event, -1));
		if (!status && d->config.uneven)
			status = ddp_pass(d, d->side, coll_event_wait(d->active_event, -1));
		if (!status)
			status = ddp_advance(d);
	}
	return status;
}

coll_status coll_ddp_wait_bucket(coll_ddp *d, int index)
{
	const double start = ddp_now_s();
	coll_status status = COLL_OK;

	if (!d)
		return COLL_ERR_ARGUMENT;
	if (index < 0 || index >= d->bucket_count)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_wait_bucket(): there is no bucket %d", index);
	if (!d->begun || !d->sync || d->stub)
		return COLL_OK;
	/* A table's buckets are complete when its rows are, which come last. */
	if (d->started[0] <= index || (d->table >= 0 && (d->started[0] < d->bucket_count || d->rows_phase == 0)))
		status = start_rest(d);
	for (int b = d->taken; b <= index && !status; b++) {
		const double before = ddp_now_s();

		status = ddp_wait_for(d, b);
		if (!status && ddp_rows_pending(d, &d->buckets[b]))
			status = ddp_rows_wait(d);
		if (status)
			break;
		if (d->config.zero == 2)
			keep_slice(d, b);
		d->taken = b + 1;
		ddp_trace_bucket(d, &d->buckets[b], ddp_now_s() - before);
	}
	d->stats.waited_s += ddp_now_s() - start;
	return status;
}

/* When gradients would have begun to travel. */
static void trace_stubbed(coll_ddp *d)
{
	for (int i = 0; i < d->bucket_count; i++) {
		struct bucket *b = &d->buckets[i];

		b->start_s = b->end_s = b->ready_s;
		ddp_trace_bucket(d, b, 0);
	}
}

coll_status coll_ddp_wait(coll_ddp *d)
{
	coll_status status = COLL_OK;

	if (!d)
		return COLL_ERR_ARGUMENT;
	if (!d->begun)
		return COLL_OK;
	if (d->sync && d->stub)
		trace_stubbed(d);
	if (d->sync && !d->stub) {
		status = start_rest(d);
		if (!status && d->bucket_count)
			status = coll_ddp_wait_bucket(d, d->bucket_count - 1);
		if (!status)
			ddp_flights_close(d);
	}
	d->begun = d->begun && status != COLL_OK;
	return status;
}

coll_status coll_ddp_join(coll_ddp *d, int *more)
{
	coll_status status;

	if (!d || !more)
		return COLL_ERR_ARGUMENT;
	if (!d->config.uneven)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "coll_ddp_join() without config.uneven");
	status = begin(d, true, false);
	if (!status)
		status = ddp_pass(d, d->side, coll_event_wait(d->active_event, -1));
	if (status)
		return status;
	if (d->active == 0) {
		d->begun = false;
		*more = 0;
		return COLL_OK;
	}
	coll_ddp_zero(d);
	for (int i = 0; i < d->param_count && !status; i++) {
		if (d->params[i].lookup)
			status = coll_ddp_rows(d, i, NULL, 0);
		d->params[i].ready = true;
	}
	for (int i = 0; i < d->bucket_count; i++)
		d->buckets[i].missing = 0;
	if (!status)
		status = coll_ddp_wait(d);
	*more = 1;
	return status;
}

int coll_ddp_unused_count(const coll_ddp *d)
{
	return d ? d->unused_count : 0;
}

const char *coll_ddp_unused(const coll_ddp *d, int i)
{
	for (int p = 0; d && p < d->param_count; p++)
		if (!d->params[p].buffer && !d->params[p].ready && i-- == 0)
			return d->params[p].name;
	return NULL;
}
