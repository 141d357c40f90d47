/*
 * Entry points of the vector variants: blocks of different lengths.
 */
#include "api/ragged.h"

#include <stdlib.h>
#include <string.h>

#include "api/check.h"
#include "core/error.h"

static size_t offset_of(const size_t *counts, const size_t *offsets, int rank)
{
	size_t at = 0;

	if (offsets)
		return offsets[rank];
	for (int r = 0; r < rank; r++)
		at += counts[r];
	return at;
}

/* All ranks have all lengths. One of the buffers has a block of every rank: out of a gathering call, else in. */
static coll_status ragged(coll_comm *comm, const char *kind, struct coll_call *call, bool gather, const size_t *counts,
                          const size_t *offsets)
{
	const size_t elem = coll_dtype_size(call->type);
	const void *many = gather ? call->out : call->in, *one = gather ? call->in : call->out;
	const char *what = gather ? "out" : "in";
	struct coll_blocks_span layout;
	coll_status st = coll_check_layout(comm, kind, what, counts, offsets, call->type, gather, &layout);

	if (st == COLL_OK)
		st = coll_check_buffer(comm, kind, gather ? "in" : "out", one, 1, counts[comm->rank], call->type);
	if (st == COLL_OK)
		st = coll_check_buffer(comm, kind, what, many, 1, layout.span_bytes / elem, call->type);
	if (st == COLL_OK)
		st = coll_check_apart(comm, kind, many, layout.span_bytes, one, counts[comm->rank] * elem,
		                      offset_of(counts, offsets, comm->rank) * elem);
	if (st != COLL_OK)
		return st;
	call->count = layout.largest;
	call->in_counts = call->out_counts = counts;
	call->in_offsets = call->out_offsets = offsets;
	call->ragged = true;
	return COLL_OK;
}

coll_status coll_make_all_gatherv(const void *in, void *out, const size_t *counts, const size_t *offsets,
                                  coll_dtype type, coll_comm *comm, coll_stream *stream, struct coll_call *call)
{
	const coll_status st = coll_check_call(comm, "all_gatherv", stream, type);

	*call = coll_api_call(COLL_KIND_ALL_GATHER, in, out, 0, type, stream);
	return st == COLL_OK ? ragged(comm, "all_gatherv", call, true, counts, offsets) : st;
}

coll_status coll_all_gatherv(const void *in, void *out, const size_t *counts, const size_t *offsets, coll_dtype type,
                             coll_comm *comm, coll_stream *stream)
{
	COLL_API_CALL(coll_make_all_gatherv(in, out, counts, offsets, type, comm, stream, &call));
}

coll_status coll_make_reduce_scatterv(const void *in, void *out, const size_t *counts, const size_t *offsets,
                                      coll_dtype type, coll_op op, coll_comm *comm, coll_stream *stream,
                                      struct coll_call *call)
{
	coll_status st = coll_check_call(comm, "reduce_scatterv", stream, type);

	if (st == COLL_OK)
		st = coll_check_op(comm, "reduce_scatterv", op, type);
	*call = coll_api_call(COLL_KIND_REDUCE_SCATTER, in, out, 0, type, stream);
	call->op = op;
	return st == COLL_OK ? ragged(comm, "reduce_scatterv", call, false, counts, offsets) : st;
}

coll_status coll_reduce_scatterv(const void *in, void *out, const size_t *counts, const size_t *offsets,
                                 coll_dtype type, coll_op op, coll_comm *comm, coll_stream *stream)
{
	COLL_API_CALL(coll_make_reduce_scatterv(in, out, counts, offsets, type, op, comm, stream, &call));
}

coll_status coll_make_all_to_allv(const void *in, const size_t *in_counts, const size_t *in_offsets, void *out,
                                  const size_t *out_counts, const size_t *out_offsets, coll_dtype type, coll_comm *comm,
                                  coll_stream *stream, struct coll_call *call)
{
	static const char kind[] = "all_to_allv";
	struct coll_blocks_span from, to;
	size_t elem = coll_dtype_size(type);
	coll_status st = coll_check_call(comm, kind, stream, type);

	if (st == COLL_OK)
		st = coll_check_layout(comm, kind, "in", in_counts, in_offsets, type, false, &from);
	if (st == COLL_OK)
		st = coll_check_layout(comm, kind, "out", out_counts, out_offsets, type, true, &to);
	if (st == COLL_OK)
		st = coll_check_buffer(comm, kind, "in", in, 1, from.span_bytes / elem, type);
	if (st == COLL_OK)
		st = coll_check_buffer(comm, kind, "out", out, 1, to.span_bytes / elem, type);
	/* An in-place call is not offered, because the two lengths of a pair of ranks may differ. */
	if (st == COLL_OK)
		st = coll_check_apart(comm, kind, in, from.span_bytes, out, to.span_bytes, SIZE_MAX);
	if (st == COLL_OK && in_counts[comm->rank] != out_counts[comm->rank])
		st = coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT,
		                      "rank %d sends itself %zu elements but receives %zu", comm->rank,
		                      in_counts[comm->rank], out_counts[comm->rank]);
	if (st != COLL_OK)
		return st;
	*call = coll_api_call(COLL_KIND_ALL_TO_ALL, in, out, from.largest > to.largest ? from.largest : to.largest,
	                      type, stream);
	call->in_counts = in_counts;
	call->in_offsets = in_offsets;
	call->out_counts = out_counts;
	call->out_offsets = out_offsets;
	call->pairwise = true;
	return COLL_OK;
}

coll_status coll_all_to_allv(const void *in, const size_t *in_counts, const size_t *in_offsets, void *out,
                             const size_t *out_counts, const size_t *out_offsets, coll_dtype type, coll_comm *comm,
                             coll_stream *stream)
{
	COLL_API_CALL(coll_make_all_to_allv(in, in_counts, in_offsets, out, out_counts, out_offsets, type, comm, stream,
	                                    &call));
}

/* gatherv and scatterv. The root has all counts; each other rank has only its own. For the other
 * ranks this makes the array of counts, which is zero except for their own block. */
static coll_status rooted(coll_comm *comm, const char *kind, struct coll_call *call, size_t **own, bool gather,
                          size_t count, const void *many, const size_t *counts, const size_t *offsets)
{
	const size_t elem = coll_dtype_size(call->type);
	const void *one = gather ? call->in : call->out;
	struct coll_blocks_span layout = {.largest = count};
	coll_status st = coll_check_buffer(comm, kind, gather ? "in" : "out", one, 1, count, call->type);

	if (st == COLL_OK && comm->rank == call->root) {
		st = coll_check_layout(comm, kind, gather ? "out" : "in", counts, offsets, call->type, gather, &layout);
		if (st == COLL_OK)
			st = coll_check_buffer(comm, kind, gather ? "out" : "in", many, 1, layout.span_bytes / elem,
			                       call->type);
		if (st == COLL_OK && counts[comm->rank] != count)
			st = coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT,
			                      "count is %zu but counts[%d], the root's own, is %zu", count, comm->rank,
			                      counts[comm->rank]);
		if (st == COLL_OK)
			st = coll_check_apart(comm, kind, many, layout.span_bytes, one, count * elem,
			                      offset_of(counts, offsets, comm->rank) * elem);
	} else if (st == COLL_OK) {
		*own = calloc((size_t)comm->size, sizeof(**own));
		if (!*own)
			return coll_comm_refuse(comm, kind, COLL_ERR_MEMORY, "out of memory");
		(*own)[comm->rank] = count;
		counts = *own;
		offsets = NULL;
	}
	if (st == COLL_OK) {
		call->count = layout.largest;
		call->in_counts = call->out_counts = counts;
		call->in_offsets = call->out_offsets = offsets;
		call->pairwise = true;
	}
	return st;
}

coll_status coll_make_gatherv(const void *in, size_t count, void *out, const size_t *counts, const size_t *offsets,
                              coll_dtype type, int root, coll_comm *comm, coll_stream *stream, struct coll_call *call,
                              size_t **own)
{
	coll_status st = coll_check_call(comm, "gatherv", stream, type);

	*own = NULL;
	*call = coll_api_call(COLL_KIND_GATHER, in, out, 0, type, stream);
	call->root = root;
	if (st == COLL_OK)
		st = coll_check_rank(comm, "gatherv", "root", root);
	return st == COLL_OK ? rooted(comm, "gatherv", call, own, true, count, out, counts, offsets) : st;
}

coll_status coll_gatherv(const void *in, size_t count, void *out, const size_t *counts, const size_t *offsets,
                         coll_dtype type, int root, coll_comm *comm, coll_stream *stream)
{
	struct coll_call call;
	size_t *own;
	coll_status st = coll_make_gatherv(in, count, out, counts, offsets, type, root, comm, stream, &call, &own);

	if (st == COLL_OK)
		st = coll_comm_call(comm, &call);
	free(own);
	return st;
}

coll_status coll_make_scatterv(const void *in, const size_t *counts, const size_t *offsets, void *out, size_t count,
                               coll_dtype type, int root, coll_comm *comm, coll_stream *stream, struct coll_call *call,
                               size_t **own)
{
	coll_status st = coll_check_call(comm, "scatterv", stream, type);

	*own = NULL;
	*call = coll_api_call(COLL_KIND_SCATTER, in, out, 0, type, stream);
	call->root = root;
	if (st == COLL_OK)
		st = coll_check_rank(comm, "scatterv", "root", root);
	return st == COLL_OK ? rooted(comm, "scatterv", call, own, false, count, in, counts, offsets) : st;
}

coll_status coll_scatterv(const void *in, const size_t *counts, const size_t *offsets, void *out, size_t count,
                          coll_dtype type, int root, coll_comm *comm, coll_stream *stream)
{
	struct coll_call call;
	size_t *own;
	coll_status st = coll_make_scatterv(in, counts, offsets, out, count, type, root, comm, stream, &call, &own);

	if (st == COLL_OK)
		st = coll_comm_call(comm, &call);
	free(own);
	return st;
}
