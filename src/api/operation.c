/*
 * Entry point of persistent operations: a description is checked like the call that it describes,
 * and becomes an operation.
 */
#include <assert.h>
#include <stdlib.h>

#include "api/block.h"
#include "api/ragged.h"
#include "api/vector.h"
#include "base/sized.h"
#include "call/group.h"
#include "call/persistent.h"
#include "core/entry.h"
#include "core/error.h"
#include "inflight/async.h"

static_assert((int)COLL_ALL_REDUCE == (int)COLL_KIND_ALL_REDUCE && (int)COLL_BARRIER == (int)COLL_KIND_BARRIER &&
                      (int)COLL_REDUCE == (int)COLL_KIND_REDUCE && (int)COLL_BROADCAST == (int)COLL_KIND_BROADCAST &&
                      (int)COLL_ALL_GATHER == (int)COLL_KIND_ALL_GATHER &&
                      (int)COLL_REDUCE_SCATTER == (int)COLL_KIND_REDUCE_SCATTER &&
                      (int)COLL_ALL_TO_ALL == (int)COLL_KIND_ALL_TO_ALL && (int)COLL_GATHER == (int)COLL_KIND_GATHER &&
                      (int)COLL_SCATTER == (int)COLL_KIND_SCATTER && (int)COLL_SCAN == (int)COLL_KIND_SCAN &&
                      (int)COLL_EXCLUSIVE_SCAN == (int)COLL_KIND_EXCLUSIVE_SCAN,
              "the public kinds are the internal ones");

/* Make the call of a description, with the checks of its entry point. */
static coll_status make(const coll_operation_desc *d, coll_comm *comm, char token[2], struct coll_call *call,
                        size_t **own)
{
	switch (d->kind) {
	case COLL_ALL_REDUCE: return coll_make_all_reduce(d->in, d->out, d->count, d->type, d->op, comm, NULL, call);
	case COLL_REDUCE: return coll_make_reduce(d->in, d->out, d->count, d->type, d->op, d->root, comm, NULL, call);
	case COLL_BROADCAST: return coll_make_broadcast(d->in, d->out, d->count, d->type, d->root, comm, NULL, call);
	case COLL_ALL_GATHER:
		if (d->ragged)
			return coll_make_all_gatherv(d->in, d->out, d->out_counts, d->out_offsets, d->type, comm, NULL,
			                             call);
		return coll_make_all_gather(d->in, d->out, d->count, d->type, comm, NULL, call);
	case COLL_REDUCE_SCATTER:
		if (d->ragged)
			return coll_make_reduce_scatterv(d->in, d->out, d->in_counts, d->in_offsets, d->type, d->op,
			                                 comm, NULL, call);
		return coll_make_reduce_scatter(d->in, d->out, d->count, d->type, d->op, comm, NULL, call);
	case COLL_ALL_TO_ALL:
		if (d->ragged)
			return coll_make_all_to_allv(d->in, d->in_counts, d->in_offsets, d->out, d->out_counts,
			                             d->out_offsets, d->type, comm, NULL, call);
		return coll_make_all_to_all(d->in, d->out, d->count, d->type, comm, NULL, call);
	case COLL_GATHER:
		if (d->ragged)
			return coll_make_gatherv(d->in, d->count, d->out, d->out_counts, d->out_offsets, d->type,
			                         d->root, comm, NULL, call, own);
		return coll_make_gather(d->in, d->out, d->count, d->type, d->root, comm, NULL, call);
	case COLL_SCATTER:
		if (d->ragged)
			return coll_make_scatterv(d->in, d->in_counts, d->in_offsets, d->out, d->count, d->type,
			                          d->root, comm, NULL, call, own);
		return coll_make_scatter(d->in, d->out, d->count, d->type, d->root, comm, NULL, call);
	case COLL_SCAN: return coll_make_scan(d->in, d->out, d->count, d->type, d->op, comm, NULL, call);
	case COLL_EXCLUSIVE_SCAN:
		return coll_make_exclusive_scan(d->in, d->out, d->count, d->type, d->op, comm, NULL, call);
	case COLL_BARRIER: return coll_make_barrier(token, comm, NULL, call);
	default:
		return coll_comm_refuse(comm, "operation_prepare", COLL_ERR_ARGUMENT, "%d is not a coll_collective",
		                        (int)d->kind);
	}
}

coll_status coll_operation_prepare(coll_operation **out, const coll_operation_desc *desc, coll_comm *comm)
{
	static const char kind[] = "operation_prepare";
	coll_operation_desc d;
	struct coll_call call;
	size_t *own = NULL;
	char token[2] = {0};
	coll_status st;

	if (coll_entry_no_comm(comm, kind))
		return COLL_ERR_ARGUMENT;
	if (!out || !desc || !coll_sized_read(&d, sizeof(d), desc, COLL_SIZED_FIRST(coll_operation_desc, out_offsets)))
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT,
		                        "no operation, no description, or one not made by "
		                        "COLL_OPERATION_DESC_INIT or with members that this library lacks");
	if (coll_group.depth > 0)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "not inside a group");
	st = make(&d, comm, token, &call, &own);
	if (st == COLL_OK)
		st = coll_operation_make(comm, &call, out);
	free(own);
	return st;
}
