/*
 * Entry points of the vector collectives: check the arguments, build the call, start it.
 */
#include "api/vector.h"

#include "api/check.h"
#include "core/error.h"
#include "inflight/async.h"

/* The checks that all collectives of one vector per rank share. */
static coll_status check_vector(coll_comm *comm, const char *kind, const void *in, bool has_in, const void *out,
                                bool has_out, size_t count, coll_dtype type, coll_stream *stream)
{
	const size_t bytes = count * coll_dtype_size(type);
	coll_status st = coll_check_call(comm, kind, stream, type);

	if (st == COLL_OK && has_in)
		st = coll_check_buffer(comm, kind, "in", in, 1, count, type);
	if (st == COLL_OK && has_out)
		st = coll_check_buffer(comm, kind, "out", out, 1, count, type);
	if (st == COLL_OK && has_in && has_out)
		st = coll_check_apart(comm, kind, in, bytes, out, bytes, 0);
	return st;
}

/* Recognise the usual all_reduce in a few instructions: none of the checks could fail. Any other
 * call is not wrong, but needs the full checks. */
static inline bool usual(const coll_comm *comm, const void *in, const void *out, size_t count, coll_dtype type,
                         coll_op op, const coll_stream *stream)
{
	const size_t bytes = count * coll_dtype_size(type);
	const uintptr_t a = (uintptr_t)in, b = (uintptr_t)out;

	return comm && coll_group.depth >= 0 &&
	       !COLL_GUARDED(atomic_load_explicit(&comm->attention, memory_order_acquire)) && !comm->failed &&
	       coll_fork_owns(comm->mark) && !stream && (unsigned)type < COLL_DTYPE_COUNT && op <= COLL_AVG && in &&
	       out && count < (size_t)1 << 48 && (a == b || a + bytes <= b || b + bytes <= a);
}

coll_status coll_make_all_reduce(const void *in, void *out, size_t count, coll_dtype type, coll_op op, coll_comm *comm,
                                 coll_stream *stream, struct coll_call *call)
{
	if (__builtin_expect(!usual(comm, in, out, count, type, op, stream), false)) {
		coll_status st = check_vector(comm, "all_reduce", in, true, out, true, count, type, stream);

		if (st == COLL_OK)
			st = coll_check_op(comm, "all_reduce", op, type);
		if (st != COLL_OK)
			return st;
	}
	*call = coll_api_call(COLL_KIND_ALL_REDUCE, in, out, count, type, stream);
	call->op = op;
	return COLL_OK;
}

static __attribute__((noinline)) coll_status all_reduce(const void *in, void *out, size_t count, coll_dtype type,
                                                        coll_op op, coll_comm *comm, coll_stream *stream)
{
	COLL_API_CALL(coll_make_all_reduce(in, out, count, type, op, comm, stream, &call));
}

coll_status coll_all_reduce(const void *in, void *out, size_t count, coll_dtype type, coll_op op, coll_comm *comm,
                            coll_stream *stream)
{
	struct coll_fastpath *q = coll_fastpath_find(comm, COLL_KIND_ALL_REDUCE, in, out, count, type, op, 0, stream);

	if (__builtin_expect(q != NULL, true))
		return q->run(comm, q, in, out);
	return all_reduce(in, out, count, type, op, comm, stream);
}

/* out is not used where has_out is false. */
static coll_status make_scan(enum coll_kind kind, const void *in, void *out, bool has_out, size_t count,
                             coll_dtype type, coll_op op, coll_comm *comm, coll_stream *stream, struct coll_call *call)
{
	const char *name = coll_plan_kind_name(kind);
	coll_status st = check_vector(comm, name, in, true, out, has_out, count, type, stream);

	if (st == COLL_OK)
		st = coll_check_op(comm, name, op, type);
	if (st == COLL_OK && op == COLL_AVG)
		st = coll_comm_refuse(comm, name, COLL_ERR_ARGUMENT, "the average of a prefix is not defined");
	if (st != COLL_OK)
		return st;
	*call = coll_api_call(kind, in, has_out ? out : NULL, count, type, stream);
	call->op = op;
	return COLL_OK;
}

coll_status coll_make_scan(const void *in, void *out, size_t count, coll_dtype type, coll_op op, coll_comm *comm,
                           coll_stream *stream, struct coll_call *call)
{
	return make_scan(COLL_KIND_SCAN, in, out, true, count, type, op, comm, stream, call);
}

coll_status coll_make_exclusive_scan(const void *in, void *out, size_t count, coll_dtype type, coll_op op,
                                     coll_comm *comm, coll_stream *stream, struct coll_call *call)
{
	return make_scan(COLL_KIND_EXCLUSIVE_SCAN, in, out, comm && comm->rank > 0, count, type, op, comm, stream,
	                 call);
}

coll_status coll_exclusive_scan(const void *in, void *out, size_t count, coll_dtype type, coll_op op, coll_comm *comm,
                                coll_stream *stream)
{
	COLL_API_CALL(coll_make_exclusive_scan(in, out, count, type, op, comm, stream, &call));
}

coll_status coll_scan(const void *in, void *out, size_t count, coll_dtype type, coll_op op, coll_comm *comm,
                      coll_stream *stream)
{
	COLL_API_CALL(coll_make_scan(in, out, count, type, op, comm, stream, &call));
}

coll_status coll_make_reduce(const void *in, void *out, size_t count, coll_dtype type, coll_op op, int root,
                             coll_comm *comm, coll_stream *stream, struct coll_call *call)
{
	bool here = comm && comm->rank == root;
	coll_status st = check_vector(comm, "reduce", in, true, out, here, count, type, stream);

	if (st == COLL_OK)
		st = coll_check_rank(comm, "reduce", "root", root);
	if (st == COLL_OK)
		st = coll_check_op(comm, "reduce", op, type);
	if (st != COLL_OK)
		return st;
	*call = coll_api_call(COLL_KIND_REDUCE, in, here ? out : NULL, count, type, stream);
	call->op = op;
	call->root = root;
	return COLL_OK;
}

coll_status coll_reduce(const void *in, void *out, size_t count, coll_dtype type, coll_op op, int root, coll_comm *comm,
                        coll_stream *stream)
{
	COLL_API_CALL(coll_make_reduce(in, out, count, type, op, root, comm, stream, &call));
}

coll_status coll_make_broadcast(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                                coll_stream *stream, struct coll_call *call)
{
	bool here = comm && comm->rank == root;
	coll_status st = check_vector(comm, "broadcast", in, here, out, true, count, type, stream);

	if (st == COLL_OK)
		st = coll_check_rank(comm, "broadcast", "root", root);
	if (st != COLL_OK)
		return st;
	*call = coll_api_call(COLL_KIND_BROADCAST, here ? in : NULL, out, count, type, stream);
	call->root = root;
	return COLL_OK;
}

static __attribute__((noinline)) coll_status broadcast(const void *in, void *out, size_t count, coll_dtype type,
                                                       int root, coll_comm *comm, coll_stream *stream)
{
	COLL_API_CALL(coll_make_broadcast(in, out, count, type, root, comm, stream, &call));
}

coll_status coll_broadcast(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                           coll_stream *stream)
{
	/* Only the root's `in` matters. */
	const void *from = comm && comm->rank == root ? in : out;
	struct coll_fastpath *q =
	        coll_fastpath_find(comm, COLL_KIND_BROADCAST, from, out, count, type, 0, root, stream);

	if (__builtin_expect(q != NULL, true))
		return q->run(comm, q, from, out);
	return broadcast(in, out, count, type, root, comm, stream);
}

coll_status coll_make_barrier(char token[2], coll_comm *comm, coll_stream *stream, struct coll_call *call)
{
	const coll_status st = coll_check_call(comm, "barrier", stream, COLL_U8);

	if (st == COLL_OK)
		*call = coll_api_call(COLL_KIND_BARRIER, &token[0], &token[1], 1, COLL_U8, stream);
	return st;
}

coll_status coll_barrier(coll_comm *comm, coll_stream *stream)
{
	/* One byte per rank, so that there are frames to exchange. */
	char token[2] = {0};
	struct coll_fastpath *q =
	        coll_fastpath_find(comm, COLL_KIND_BARRIER, &token[0], &token[1], 1, COLL_U8, 0, 0, stream);
	struct coll_call call;
	coll_status st;

	if (__builtin_expect(q != NULL, true))
		return q->run(comm, q, &token[0], &token[1]);
	st = coll_make_barrier(token, comm, stream, &call);
	return st == COLL_OK ? coll_comm_call(comm, &call) : st;
}
