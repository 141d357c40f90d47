/*
 * Argument checks that the entry points share. A failed check writes the reason to the
 * communicator's error and returns COLL_ERR_ARGUMENT.
 */
#ifndef COLL_API_CHECK_H
#define COLL_API_CHECK_H

#include "call/blocking.h"
#include "core/comm.h"

/* The body of an entry point that starts what `made` puts into `call`. */
#define COLL_API_CALL(made)          \
	struct coll_call call;       \
	const coll_status st = made; \
	return st == COLL_OK ? coll_comm_call(comm, &call) : st

static inline struct coll_call coll_api_call(enum coll_kind kind, const void *in, void *out, size_t count,
                                             coll_dtype type, coll_stream *stream)
{
	return (struct coll_call){.kind = kind, .in = in, .out = out, .count = count, .type = type, .stream = stream};
}

/* Checks the communicator, the stream and the type. If comm is NULL, returns COLL_ERR_ARGUMENT
 * without a message. */
coll_status coll_check_call(coll_comm *comm, const char *kind, coll_stream *stream, coll_dtype type);

/* The same for what goes on among the living when a member has died. */
coll_status coll_check_message(coll_comm *comm, const char *kind, coll_stream *stream, coll_dtype type);

/* The operation exists here and is defined on the type. */
coll_status coll_check_op(coll_comm *comm, const char *kind, coll_op op, coll_dtype type);

/* 0 <= rank < size; what: "root" or "peer". */
coll_status coll_check_rank(coll_comm *comm, const char *kind, const char *what, int rank);

/* blocks * count elements fit in memory, and the buffer is not NULL unless it is empty, and of a kind of memory that
 * the communicator serves (else COLL_ERR_UNSUPPORTED). */
coll_status coll_check_buffer(coll_comm *comm, const char *kind, const char *what, const void *ptr, size_t blocks,
                              size_t count, coll_dtype type);

/* [a, a + a_bytes) and [b, b + b_bytes) are disjoint, or b is where an in-place call may have it:
 * at a + alias_bytes (SIZE_MAX: never). */
coll_status coll_check_apart(coll_comm *comm, const char *kind, const void *a, size_t a_bytes, const void *b,
                             size_t b_bytes, size_t alias_bytes);

/* The blocks of a v-variant: the span of all blocks in bytes, and the largest block in elements.
 * counts must not be NULL. With distinct, blocks must not overlap. */
struct coll_blocks_span {
	size_t span_bytes;
	size_t largest;
};
coll_status coll_check_layout(coll_comm *comm, const char *kind, const char *what, const size_t *counts,
                              const size_t *offsets, coll_dtype type, bool distinct, struct coll_blocks_span *layout);

#endif
