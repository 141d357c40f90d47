/*
 * Life: from parameters to an arena, buckets, communicators and streams of its own,
 * and their end. Whatever fails on one rank alone is agreed on before the next
 * collective call, so that no rank waits for one that gave up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/sized.h"
#include "ddp/base.h"
#include "ddp/check.h"
#include "ddp/ddp_inner.h"
#include "ddp/layout.h"
#include "ddp/weights.h"
#include "ddp/wire.h"

static coll_status check_config(coll_ddp *d, int count)
{
	const coll_ddp_config *c = &d->config;

	if (c->type != COLL_F32 && c->type != COLL_F64)
		return ddp_fail(d, COLL_ERR_UNSUPPORTED, "gradients must be f32 or f64");
	if (count < 1)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "there are no parameters");
	if ((int)c->wire < COLL_DDP_PLAIN || c->wire > COLL_DDP_EXACT || c->zero < 0 || c->zero > 2 ||
	    c->powersgd_rank < 0)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "invalid wire %d, zero %d or powersgd_rank %d", (int)c->wire,
		                c->zero, c->powersgd_rank);
	if (c->type != COLL_F32 && c->wire != COLL_DDP_PLAIN && c->wire != COLL_DDP_EXACT)
		return ddp_fail(d, COLL_ERR_UNSUPPORTED, "compressed wires need f32");
	if (c->zero && c->wire != COLL_DDP_PLAIN && (c->zero > 1 || c->wire != COLL_DDP_EXACT))
		return ddp_fail(d, COLL_ERR_UNSUPPORTED, "zero needs the plain wire, or zero 1 the exact one");
	if (c->uneven && c->wire == COLL_DDP_POWERSGD)
		return ddp_fail(d, COLL_ERR_UNSUPPORTED, "uneven inputs cannot be combined with PowerSGD");
	if (c->uneven && c->zero == 2)
		return ddp_fail(d, COLL_ERR_UNSUPPORTED, "uneven inputs cannot be combined with zero 2");
	if (c->wire == COLL_DDP_EXACT && c->keep_whole)
		return ddp_fail(d, COLL_ERR_UNSUPPORTED, "the exact wire cuts parameters: keep_whole cannot be had");
	if (c->grads && c->zero == 2)
		return ddp_fail(d, COLL_ERR_ARGUMENT,
		                "zero 2 needs an arena of its own, so that it can free parts of it");
	return COLL_OK;
}

/* Gradients whose bytes a ptrdiff_t counts; false: there are more. */
static bool count_elements(const coll_ddp *d, struct param *p)
{
	size_t len_bytes = d->esize;

	for (int k = 0; k < p->dim_count; k++) {
		if (p->dims[k] && len_bytes > PTRDIFF_MAX / p->dims[k])
			return false;
		len_bytes *= p->dims[k];
	}
	p->count = len_bytes / d->esize;
	return p->count <= PTRDIFF_MAX / d->esize - d->count;
}

static coll_status copy_param(coll_ddp *d, int i, const coll_ddp_param *from)
{
	struct param *p = &d->params[i];

	if (from->dim_count < 1 || from->dim_count > COLL_DDP_DIMS || !from->name)
		return ddp_fail(d, COLL_ERR_ARGUMENT, "parameter %d has no name, or %d dimensions", i, from->dim_count);
	snprintf(p->name, sizeof(p->name), "%s", from->name);
	p->dim_count = from->dim_count;
	memcpy(p->dims, from->dims, sizeof(p->dims));
	p->rows = from->dims[0];
	if (!count_elements(d, p))
		return ddp_fail(d, COLL_ERR_ARGUMENT, "%s: the element count overflows", p->name);
	p->weights = from->weights;
	p->buffer = from->buffer;
	p->offset = d->count;
	d->count += p->buffer ? 0 : p->count;
	p->lookup = from->lookup;
	if (!p->lookup)
		return COLL_OK;
	if (d->config.wire == COLL_DDP_EXACT)
		return ddp_fail(d, COLL_ERR_UNSUPPORTED, "%s: rows of lookups are not summed exactly", p->name);
	if (d->table >= 0 || p->buffer || p->count == 0)
		return ddp_fail(d, COLL_ERR_UNSUPPORTED, "%s: one table with lookups there may be", p->name);
	d->table = i;
	p->touched = calloc(p->rows, 1);
	p->ids = calloc(p->rows, sizeof(*p->ids));
	return p->touched && p->ids ? COLL_OK : ddp_fail(d, COLL_ERR_MEMORY, "no memory for the rows of %s", p->name);
}

static coll_status copy_params(coll_ddp *d, const coll_ddp_param *params, int count)
{
	coll_status status = COLL_OK;

	d->params = calloc((size_t)count, sizeof(*d->params));
	if (!d->params)
		return ddp_fail(d, COLL_ERR_MEMORY, "no memory for %d parameters", count);
	d->param_count = count;
	for (int i = 0; i < count && !status; i++)
		status = copy_param(d, i, &params[i]);
	return status;
}

/* The worst of all ranks' statuses; a rank that was well says whose trouble it was. */
static coll_status agree(coll_ddp *d, coll_comm *comm, coll_status mine)
{
	int32_t worst = (int32_t)mine;
	coll_status status = ddp_pass(d, comm, coll_all_reduce(&worst, &worst, 1, COLL_I32, COLL_MAX, comm, NULL));

	if (status || mine)
		return status ? status : mine;
	return worst ? ddp_fail(d, (coll_status)worst, "another rank: %s", coll_status_string((coll_status)worst))
	             : COLL_OK;
}

/* This rank has not even a coll_ddp: take its part in the agree() that the others begin with. */
static coll_status report_no_memory(coll_comm *comm)
{
	int32_t worst = COLL_ERR_MEMORY;

	coll_all_reduce(&worst, &worst, 1, COLL_I32, COLL_MAX, comm, NULL);
	return COLL_ERR_MEMORY;
}

static coll_status make_arena(coll_ddp *d, coll_comm *comm)
{
	const size_t len_bytes = d->count * d->esize;
	void *p = d->config.grads;

	d->memory = CALLERS;
	if (d->config.zero == 2) {
		p = mmap(NULL, len_bytes ? len_bytes : 1, PROT_READ | PROT_WRITE,
		         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		p = p == MAP_FAILED ? NULL : p;
		d->memory = PAGES;
	} else if (!p) {
		coll_status status = ddp_pass(d, comm, coll_mem_alloc(comm, &p, len_bytes));

		if (status)
			return status;
		d->memory = LIBRARY;
	}
	d->grads = p;
	return p || !len_bytes ? COLL_OK
	                       : ddp_fail(d, COLL_ERR_MEMORY, "no memory for gradients of %zu bytes", len_bytes);
}

static coll_status make_shards(coll_ddp *d)
{
	size_t all = 0;

	d->shard_at = calloc((size_t)d->bucket_count + 1, sizeof(*d->shard_at));
	for (int i = 0; d->shard_at && i < d->bucket_count; i++) {
		d->shard_at[i] = all;
		all += d->buckets[i].slice_count;
	}
	d->shards = calloc(all + 1, d->esize);
	return d->shards && d->shard_at ? COLL_OK : ddp_fail(d, COLL_ERR_MEMORY, "no memory for slices");
}

static coll_status make_lists(coll_ddp *d)
{
	const size_t n = (size_t)d->size, rounds = (size_t)d->bucket_count * (size_t)d->wire->phases(d);

	d->started = calloc(MOST_PHASES, sizeof(*d->started));
	d->row_counts = calloc(n, sizeof(*d->row_counts));
	d->row_bytes = calloc(n, sizeof(*d->row_bytes));
	d->row_at = calloc(n, sizeof(*d->row_at));
	d->slice_counts = calloc(n, sizeof(*d->slice_counts));
	d->flights = calloc(rounds + 2, sizeof(*d->flights)); /* two of them for rows */
	if (d->flights && d->started && d->row_counts && d->row_bytes && d->row_at && d->slice_counts)
		return d->config.zero == 2 ? make_shards(d) : COLL_OK;
	return ddp_fail(d, COLL_ERR_MEMORY, "no memory");
}

static coll_status prepare_buckets(coll_ddp *d)
{
	coll_status status = COLL_OK;

	for (int i = 0; i < d->bucket_count && !status; i++) {
		struct bucket *b = &d->buckets[i];

		status = ddp_pass(d, d->first, coll_event_create(&b->event, d->first));
		if (!status)
			status = ddp_pass(d, d->first, coll_event_create(&b->gathered, d->first));
		if (!status && d->wire->prepare)
			status = d->wire->prepare(d, b);
	}
	return status;
}

/* Local: streams and events belong to this process. */
static coll_status make_streams(coll_ddp *d)
{
	coll_status status = coll_stream_create(&d->stream[0], d->first);

	if (!status)
		status = coll_stream_create(&d->stream[1], d->first);
	/* The first of them serves the weights, too. */
	for (int i = 0; !status && (i == 0 || i + 1 < d->wire->phases(d)); i++)
		status = coll_stream_create(&d->later_streams[i], d->first);
	if (!status)
		status = coll_stream_create(&d->side_stream, d->first);
	if (!status)
		status = coll_event_create(&d->active_event, d->first);
	if (!status)
		status = coll_event_create(&d->rows_event, d->first);
	return ddp_pass(d, d->first, status);
}

static coll_status create(coll_ddp *d, const coll_ddp_param *params, int count, coll_comm *comm)
{
	coll_status status = check_config(d, count);

	if (!status)
		status = copy_params(d, params, count);
	if (!status && d->config.zero)
		status = ddp_check_weights(d);
	status = agree(d, comm, status);
	if (!status)
		status = ddp_compare(d, comm);
	if (!status)
		status = ddp_pass(d, comm, coll_comm_duplicate(comm, &d->first));
	if (!status)
		status = ddp_pass(d, comm, coll_comm_duplicate(comm, &d->later));
	if (!status)
		status = ddp_pass(d, comm, coll_comm_duplicate(comm, &d->side));
	if (status)
		return status;
	d->wire = ddp_wire_of(d);
	/* Memory first: of sizes that there is none for, buckets could not be counted. */
	status = agree(d, comm, make_arena(d, d->first));
	if (!status)
		status = ddp_lay_out(d, d->first);
	if (!status)
		status = make_lists(d);
	if (!status)
		status = make_streams(d);
	if (!status)
		status = prepare_buckets(d);
	return agree(d, comm, status);
}

coll_status coll_ddp_create(coll_ddp **ddp, const coll_ddp_param *params, int count, const coll_ddp_config *config,
                            coll_comm *comm)
{
	coll_ddp_config own = COLL_DDP_CONFIG_INIT;
	coll_status status;
	coll_ddp *d;

	if (!ddp || !params || !comm ||
	    (config && !coll_sized_read(&own, sizeof(own), config, COLL_SIZED_FIRST(coll_ddp_config, problem_bytes))))
		return COLL_ERR_ARGUMENT;
	d = calloc(1, sizeof(*d));
	if (!d)
		return report_no_memory(comm);
	d->config = own;
	d->config.keep_whole |= d->config.wire == COLL_DDP_POWERSGD;
	d->rank = coll_comm_rank(comm);
	d->size = coll_comm_size(comm);
	d->active = d->size;
	d->last_of_step = true;
	d->esize = coll_dtype_size(d->config.type);
	d->table = -1;
	status = create(d, params, count, comm);
	d->config.problem = NULL; /* the caller's, valid during creation */
	if (status)
		coll_ddp_destroy(&d);
	else
		*ddp = d;
	return status;
}

static void free_buckets(coll_ddp *d)
{
	for (int i = 0; i < d->bucket_count; i++) {
		struct bucket *b = &d->buckets[i];

		if (d->wire && d->wire->release)
			d->wire->release(b);
		coll_event_destroy(&b->event);
		coll_event_destroy(&b->gathered);
	}
	free(d->buckets);
}

static void free_memory(coll_ddp *d)
{
	for (int i = 0; i < d->param_count; i++) {
		free(d->params[i].touched);
		free(d->params[i].ids);
	}
	if (d->memory == LIBRARY && d->grads)
		coll_mem_free(d->first, d->grads);
	if (d->memory == PAGES && d->grads)
		munmap(d->grads, d->count > 0 ? d->count * d->esize : 1);
	free(d->params);
	free(d->shards);
	free(d->shard_at);
	free(d->started);
	free(d->row_counts);
	free(d->row_bytes);
	free(d->row_at);
	free(d->slice_counts);
	free(d->rows_out);
	free(d->rows_in);
	free(d->flights);
	free(d->trace);
}

static void note_worst(coll_status *worst, coll_status status)
{
	*worst = *worst ? *worst : status;
}

coll_status coll_ddp_destroy(coll_ddp **ddp)
{
	coll_ddp *d = ddp ? *ddp : NULL;
	coll_status worst = COLL_OK;

	if (!d)
		return COLL_OK;
	/* Streams first: nothing is on its way when memory goes. */
	for (int i = 0; i < 2; i++)
		note_worst(&worst, coll_stream_destroy(&d->stream[i]));
	for (int i = 0; i < MOST_PHASES; i++)
		note_worst(&worst, coll_stream_destroy(&d->later_streams[i]));
	note_worst(&worst, coll_stream_destroy(&d->side_stream));
	coll_event_destroy(&d->active_event);
	coll_event_destroy(&d->rows_event);
	free_buckets(d);
	free_memory(d);
	note_worst(&worst, coll_comm_destroy(&d->side));
	note_worst(&worst, coll_comm_destroy(&d->later));
	note_worst(&worst, coll_comm_destroy(&d->first));
	free(d);
	*ddp = NULL;
	return worst;
}

/* Whichever of the communicators another rank waits on. */
coll_status coll_ddp_abort(coll_ddp *d, const char *reason)
{
	coll_comm *const comms[] = {d ? d->first : NULL, d ? d->later : NULL, d ? d->side : NULL};
	coll_status worst = COLL_OK;

	if (!d)
		return COLL_ERR_ARGUMENT;
	for (int i = 0; i < 3; i++)
		note_worst(&worst, coll_comm_abort(comms[i], reason));
	return worst;
}

const char *coll_ddp_last_error(const coll_ddp *d)
{
	return d ? d->error : "the coll_ddp is NULL";
}

void *coll_ddp_grads(const coll_ddp *d)
{
	return d ? d->grads : NULL;
}

size_t coll_ddp_count(const coll_ddp *d)
{
	return d ? d->count : 0;
}

size_t coll_ddp_offset(const coll_ddp *d, int param)
{
	if (!d)
		return 0;
	return param >= 0 && param < d->param_count ? d->params[param].offset : d->count;
}

/* zero 2: what is not a slice was given back, and the slices begin anew with the next step. */
void coll_ddp_zero(coll_ddp *d)
{
	if (d && d->config.zero != 2 && d->grads)
		memset(d->grads, 0, d->count * d->esize);
}

int coll_ddp_bucket_count(const coll_ddp *d)
{
	return d ? d->bucket_count : 0;
}

coll_status coll_ddp_bucket(const coll_ddp *d, int bucket, coll_ddp_bucket_info *info)
{
	const struct bucket *b;

	if (!d || !info || bucket < 0 || bucket >= d->bucket_count)
		return COLL_ERR_ARGUMENT;
	b = &d->buckets[bucket];
	*info = (coll_ddp_bucket_info){b->first,       b->count,       b->first_param,           b->last_param,
	                               b->slice_first, b->slice_count, ddp_at(d, b->slice_first)};
	if (d->config.zero == 2)
		info->slice_grads = d->shards + d->shard_at[bucket] * d->esize;
	return COLL_OK;
}
