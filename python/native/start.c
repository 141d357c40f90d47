/*
 * From a request to the function of the library, or to the description of a persistent operation.
 */
#include "binding.h"

static coll_status start_ragged(const struct request *r, coll_comm *c, coll_stream *s)
{
	const void *in = r->in_address;
	void *out = r->out_address;

	switch (r->kind) {
	case CALL_ALL_GATHER: return coll_all_gatherv(in, out, r->out_counts, NULL, r->type, c, s);
	case CALL_REDUCE_SCATTER: return coll_reduce_scatterv(in, out, r->in_counts, NULL, r->type, r->op, c, s);
	case CALL_ALL_TO_ALL: return coll_all_to_allv(in, r->in_counts, NULL, out, r->out_counts, NULL, r->type, c, s);
	case CALL_GATHER: return coll_gatherv(in, r->count, out, r->out_counts, NULL, r->type, r->root, c, s);
	case CALL_SCATTER: return coll_scatterv(in, r->in_counts, NULL, out, r->count, r->type, r->root, c, s);
	default: return COLL_ERR_INTERNAL;
	}
}

coll_status coll_py_request_start(const struct request *r, coll_stream *s)
{
	coll_comm *c = r->comm->handle;
	void *in = r->in_address, *out = r->out_address;

	if (r->ragged)
		return start_ragged(r, c, s);
	if (r->tagged)
		return r->kind == CALL_SEND ? coll_send_tag(in, r->count, r->type, r->root, r->tag, c, s)
		                            : coll_recv_tag(out, r->count, r->type, r->root, r->tag, c, NULL);
	switch (r->kind) {
	case CALL_ALL_REDUCE: return coll_all_reduce(in, out, r->count, r->type, r->op, c, s);
	case CALL_REDUCE: return coll_reduce(in, out, r->count, r->type, r->op, r->root, c, s);
	case CALL_BROADCAST: return coll_broadcast(in, out, r->count, r->type, r->root, c, s);
	case CALL_ALL_GATHER: return coll_all_gather(in, out, r->count, r->type, c, s);
	case CALL_REDUCE_SCATTER: return coll_reduce_scatter(in, out, r->count, r->type, r->op, c, s);
	case CALL_ALL_TO_ALL: return coll_all_to_all(in, out, r->count, r->type, c, s);
	case CALL_GATHER: return coll_gather(in, out, r->count, r->type, r->root, c, s);
	case CALL_SCATTER: return coll_scatter(in, out, r->count, r->type, r->root, c, s);
	case CALL_SCAN: return coll_scan(in, out, r->count, r->type, r->op, c, s);
	case CALL_EXCLUSIVE_SCAN: return coll_exclusive_scan(in, out, r->count, r->type, r->op, c, s);
	case CALL_BARRIER: return coll_barrier(c, s);
	case CALL_SEND: return coll_send(in, r->count, r->type, r->root, c, s);
	case CALL_RECV: return coll_recv(out, r->count, r->type, r->root, c, s);
	case CALL_SEND_RECV: return coll_send_recv(in, r->count, r->dest, out, r->out_count, r->root, r->type, c, s);
	default: return COLL_ERR_INTERNAL;
	}
}

_Static_assert((int)CALL_ALL_REDUCE == COLL_ALL_REDUCE && (int)CALL_EXCLUSIVE_SCAN == COLL_EXCLUSIVE_SCAN,
               "kinds go by number");

void coll_py_request_describe(const struct request *r, coll_operation_desc *d)
{
	d->kind = (coll_collective)r->kind;
	d->in = r->in_address;
	d->out = r->out_address;
	d->count = r->count;
	d->type = r->type;
	d->op = r->op;
	d->root = r->root;
	d->ragged = r->ragged;
	d->in_counts = r->in_counts;
	d->out_counts = r->out_counts;
}
