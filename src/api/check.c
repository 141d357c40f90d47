/*
 * Argument checks: see check.h.
 */
#include "api/check.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/entry.h"
#include "core/error.h"
#include "core/memory.h"
#include "devcall/stage.h"
#include "inflight/async.h"
#include "inflight/drive.h"

static coll_status check(coll_comm *comm, const char *kind, coll_stream *stream, coll_dtype type, bool message)
{
	coll_status st;

	if (coll_entry_no_comm(comm, kind))
		return COLL_ERR_ARGUMENT;
	st = coll_comm_usable(comm, kind, message);
	if (st != COLL_OK)
		return st;
	if (stream && stream->ctx != comm->ctx)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "the stream belongs to another job");
	if (coll_dtype_size(type) == 0)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "type %d is not a coll_dtype", (int)type);
	return COLL_OK;
}

coll_status coll_check_call(coll_comm *comm, const char *kind, coll_stream *stream, coll_dtype type)
{
	return check(comm, kind, stream, type, false);
}

coll_status coll_check_message(coll_comm *comm, const char *kind, coll_stream *stream, coll_dtype type)
{
	return check(comm, kind, stream, type, true);
}

coll_status coll_check_op(coll_comm *comm, const char *kind, coll_op op, coll_dtype type)
{
	if (op >= COLL_OP_FIRST && op < COLL_OP_FIRST + COLL_OPS_MAX) {
		const struct coll_op_entry *e = comm->ops ? &comm->ops[op - COLL_OP_FIRST] : NULL;

		if (!e || !e->used)
			return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "operation %u does not exist",
			                        (unsigned)op);
		if (e->code == COLL_OP_PREMUL_SUM && e->type != type)
			return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT,
			                        "this premultiplied sum was made for %s, the call has %s",
			                        coll_dtype_name(e->type), coll_dtype_name(type));
		return COLL_OK;
	}
	if (op >= COLL_OP_COUNT)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "operation %u does not exist", (unsigned)op);
	if (!coll_reduce_supports(type, op))
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "operation %s is not defined on %s",
		                        coll_op_name(op), coll_dtype_name(type));
	return COLL_OK;
}

coll_status coll_check_rank(coll_comm *comm, const char *kind, const char *what, int rank)
{
	if (rank < 0 || rank >= comm->size)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "%s %d is not a rank of 0..%d", what, rank,
		                        comm->size - 1);
	return COLL_OK;
}

coll_status coll_check_buffer(coll_comm *comm, const char *kind, const char *what, const void *ptr, size_t blocks,
                              size_t count, coll_dtype type)
{
	size_t total, bytes;
	coll_status st;

	if (__builtin_mul_overflow(blocks, count, &total) ||
	    __builtin_mul_overflow(total, coll_dtype_size(type), &bytes) || bytes > PTRDIFF_MAX)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "%s: %zu x %zu elements of %s overflow", what,
		                        blocks, count, coll_dtype_name(type));
	if (!ptr && bytes > 0)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "%s is NULL, but its length is %zu bytes", what,
		                        bytes);
	st = coll_comm_takes(comm, kind, what, ptr, bytes);
	/* Not this argument: the other ranks learn that this one cannot go on. */
	if (st == COLL_ERR_SYSTEM && comm->stage)
		coll_stage_give_up(comm, st);
	return st;
}

coll_status coll_check_apart(coll_comm *comm, const char *kind, const void *a, size_t a_bytes, const void *b,
                             size_t b_bytes, size_t alias_bytes)
{
	uintptr_t pa = (uintptr_t)a, pb = (uintptr_t)b;

	if (!a || !b || a_bytes == 0 || b_bytes == 0 || pa + a_bytes <= pb || pb + b_bytes <= pa)
		return COLL_OK;
	if (alias_bytes != SIZE_MAX && pb == pa + alias_bytes)
		return COLL_OK;
	return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT,
	                        "[COLL-1201] buffers overlap without being the same: %p (%zu bytes) and %p (%zu bytes)",
	                        a, a_bytes, b, b_bytes);
}

/* ---- Layouts of v-variants ---- */

struct block {
	size_t first, end;
};

static int by_first(const void *a, const void *b)
{
	const struct block *x = a, *y = b;

	return x->first < y->first ? -1 : x->first > y->first;
}

static coll_status check_distinct(coll_comm *comm, const char *kind, const char *what, const size_t *counts,
                                  const size_t *offsets)
{
	struct block *blocks = malloc((size_t)comm->size * sizeof(*blocks));
	size_t n = 0;
	coll_status st = COLL_OK;

	if (!blocks)
		return coll_comm_refuse(comm, kind, COLL_ERR_MEMORY, "out of memory");
	for (int r = 0; r < comm->size; r++)
		if (counts[r] > 0)
			blocks[n++] = (struct block){offsets[r], offsets[r] + counts[r]};
	qsort(blocks, n, sizeof(*blocks), by_first);
	for (size_t i = 1; i < n && st == COLL_OK; i++)
		if (blocks[i].first < blocks[i - 1].end)
			st = coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT,
			                      "[COLL-1201] %s: blocks at %zu and %zu overlap", what,
			                      blocks[i - 1].first, blocks[i].first);
	free(blocks);
	return st;
}

coll_status coll_check_layout(coll_comm *comm, const char *kind, const char *what, const size_t *counts,
                              const size_t *offsets, coll_dtype type, bool distinct, struct coll_blocks_span *layout)
{
	size_t elem = coll_dtype_size(type), at = 0, end = 0, span = 0, largest = 0;
	coll_status st;

	if (!counts)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "%s: counts is NULL", what);
	st = coll_comm_serves(comm, kind, "counts", counts, (size_t)comm->size * sizeof(*counts));
	if (st == COLL_OK && offsets)
		st = coll_comm_serves(comm, kind, "offsets", offsets, (size_t)comm->size * sizeof(*offsets));
	if (st != COLL_OK)
		return st;
	for (int r = 0; r < comm->size; r++) {
		if (__builtin_add_overflow(offsets ? offsets[r] : at, counts[r], &end) || end > PTRDIFF_MAX / elem)
			return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "%s: block %d (%zu elements) overflows",
			                        what, r, counts[r]);
		at = end;
		if (counts[r] > 0 && end * elem > span)
			span = end * elem;
		if (counts[r] > largest)
			largest = counts[r];
	}
	layout->span_bytes = span;
	layout->largest = largest;
	return distinct && offsets ? check_distinct(comm, kind, what, counts, offsets) : COLL_OK;
}
