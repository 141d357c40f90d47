/*
 * Entry points of the collectives with equal blocks.
 */
#include "api/block.h"

#include "api/check.h"
#include "inflight/async.h"

/* Check the buffers of a call: in has in_blocks blocks, and out has out_blocks. 0: this rank does
 * not use that buffer. In place, the smaller buffer is this rank's block of the larger one. Buffers
 * of equal size are identical. */
static coll_status check_blocks(coll_comm *comm, const char *kind, const void *in, size_t in_blocks, const void *out,
                                size_t out_blocks, size_t count, coll_dtype type, coll_stream *stream)
{
	size_t block = count * coll_dtype_size(type), own;
	coll_status st = coll_check_call(comm, kind, stream, type);

	if (st == COLL_OK && in_blocks)
		st = coll_check_buffer(comm, kind, "in", in, in_blocks, count, type);
	if (st == COLL_OK && out_blocks)
		st = coll_check_buffer(comm, kind, "out", out, out_blocks, count, type);
	if (st != COLL_OK || !in_blocks || !out_blocks)
		return st;
	own = (size_t)comm->rank * block;
	if (in_blocks > out_blocks)
		return coll_check_apart(comm, kind, in, in_blocks * block, out, block, own);
	if (out_blocks > in_blocks)
		return coll_check_apart(comm, kind, out, out_blocks * block, in, block, own);
	return coll_check_apart(comm, kind, in, in_blocks * block, out, out_blocks * block, 0);
}

coll_status coll_make_all_gather(const void *in, void *out, size_t count, coll_dtype type, coll_comm *comm,
                                 coll_stream *stream, struct coll_call *call)
{
	size_t n = comm ? (size_t)comm->size : 0;
	coll_status st = check_blocks(comm, "all_gather", in, 1, out, n, count, type, stream);

	if (st == COLL_OK)
		*call = coll_api_call(COLL_KIND_ALL_GATHER, in, out, count, type, stream);
	return st;
}

static __attribute__((noinline)) coll_status all_gather(const void *in, void *out, size_t count, coll_dtype type,
                                                        coll_comm *comm, coll_stream *stream)
{
	COLL_API_CALL(coll_make_all_gather(in, out, count, type, comm, stream, &call));
}

coll_status coll_all_gather(const void *in, void *out, size_t count, coll_dtype type, coll_comm *comm,
                            coll_stream *stream)
{
	struct coll_fastpath *q = coll_fastpath_find(comm, COLL_KIND_ALL_GATHER, in, out, count, type, 0, 0, stream);

	if (__builtin_expect(q != NULL, true))
		return q->run(comm, q, in, out);
	return all_gather(in, out, count, type, comm, stream);
}

coll_status coll_make_reduce_scatter(const void *in, void *out, size_t count, coll_dtype type, coll_op op,
                                     coll_comm *comm, coll_stream *stream, struct coll_call *call)
{
	size_t n = comm ? (size_t)comm->size : 0;
	coll_status st = check_blocks(comm, "reduce_scatter", in, n, out, 1, count, type, stream);

	if (st == COLL_OK)
		st = coll_check_op(comm, "reduce_scatter", op, type);
	if (st != COLL_OK)
		return st;
	*call = coll_api_call(COLL_KIND_REDUCE_SCATTER, in, out, count, type, stream);
	call->op = op;
	return COLL_OK;
}

static __attribute__((noinline)) coll_status reduce_scatter(const void *in, void *out, size_t count, coll_dtype type,
                                                            coll_op op, coll_comm *comm, coll_stream *stream)
{
	COLL_API_CALL(coll_make_reduce_scatter(in, out, count, type, op, comm, stream, &call));
}

coll_status coll_reduce_scatter(const void *in, void *out, size_t count, coll_dtype type, coll_op op, coll_comm *comm,
                                coll_stream *stream)
{
	struct coll_fastpath *q =
	        coll_fastpath_find(comm, COLL_KIND_REDUCE_SCATTER, in, out, count, type, op, 0, stream);

	if (__builtin_expect(q != NULL, true))
		return q->run(comm, q, in, out);
	return reduce_scatter(in, out, count, type, op, comm, stream);
}

coll_status coll_make_all_to_all(const void *in, void *out, size_t count, coll_dtype type, coll_comm *comm,
                                 coll_stream *stream, struct coll_call *call)
{
	size_t n = comm ? (size_t)comm->size : 0;
	coll_status st = check_blocks(comm, "all_to_all", in, n, out, n, count, type, stream);

	if (st == COLL_OK)
		*call = coll_api_call(COLL_KIND_ALL_TO_ALL, in, out, count, type, stream);
	return st;
}

static __attribute__((noinline)) coll_status all_to_all(const void *in, void *out, size_t count, coll_dtype type,
                                                        coll_comm *comm, coll_stream *stream)
{
	COLL_API_CALL(coll_make_all_to_all(in, out, count, type, comm, stream, &call));
}

coll_status coll_all_to_all(const void *in, void *out, size_t count, coll_dtype type, coll_comm *comm,
                            coll_stream *stream)
{
	struct coll_fastpath *q = coll_fastpath_find(comm, COLL_KIND_ALL_TO_ALL, in, out, count, type, 0, 0, stream);

	if (__builtin_expect(q != NULL, true))
		return q->run(comm, q, in, out);
	return all_to_all(in, out, count, type, comm, stream);
}

coll_status coll_make_gather(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                             coll_stream *stream, struct coll_call *call)
{
	bool here = comm && comm->rank == root;
	size_t n = comm ? (size_t)comm->size : 0;
	coll_status st = check_blocks(comm, "gather", in, 1, out, here ? n : 0, count, type, stream);

	if (st == COLL_OK)
		st = coll_check_rank(comm, "gather", "root", root);
	if (st != COLL_OK)
		return st;
	*call = coll_api_call(COLL_KIND_GATHER, in, here ? out : NULL, count, type, stream);
	call->root = root;
	return COLL_OK;
}

coll_status coll_gather(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                        coll_stream *stream)
{
	COLL_API_CALL(coll_make_gather(in, out, count, type, root, comm, stream, &call));
}

coll_status coll_make_scatter(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                              coll_stream *stream, struct coll_call *call)
{
	bool here = comm && comm->rank == root;
	size_t n = comm ? (size_t)comm->size : 0;
	coll_status st = check_blocks(comm, "scatter", in, here ? n : 0, out, 1, count, type, stream);

	if (st == COLL_OK)
		st = coll_check_rank(comm, "scatter", "root", root);
	if (st != COLL_OK)
		return st;
	*call = coll_api_call(COLL_KIND_SCATTER, here ? in : NULL, out, count, type, stream);
	call->root = root;
	return COLL_OK;
}

coll_status coll_scatter(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                         coll_stream *stream)
{
	COLL_API_CALL(coll_make_scatter(in, out, count, type, root, comm, stream, &call));
}
