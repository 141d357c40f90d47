/*
 * The vector variants: check the arguments of a call and describe it, without making it. An error
 * is written to the communicator.
 */
#ifndef COLL_API_RAGGED_H
#define COLL_API_RAGGED_H

#include "core/comm.h"

coll_status coll_make_all_gatherv(const void *in, void *out, const size_t *counts, const size_t *offsets,
                                  coll_dtype type, coll_comm *comm, coll_stream *stream, struct coll_call *call);
coll_status coll_make_reduce_scatterv(const void *in, void *out, const size_t *counts, const size_t *offsets,
                                      coll_dtype type, coll_op op, coll_comm *comm, coll_stream *stream,
                                      struct coll_call *call);
coll_status coll_make_all_to_allv(const void *in, const size_t *in_counts, const size_t *in_offsets, void *out,
                                  const size_t *out_counts, const size_t *out_offsets, coll_dtype type, coll_comm *comm,
                                  coll_stream *stream, struct coll_call *call);
/* *own: an array that the call borrows. The caller frees it after the call. NULL: none. Set also on
 * failure. */
coll_status coll_make_gatherv(const void *in, size_t count, void *out, const size_t *counts, const size_t *offsets,
                              coll_dtype type, int root, coll_comm *comm, coll_stream *stream, struct coll_call *call,
                              size_t **own);
coll_status coll_make_scatterv(const void *in, const size_t *counts, const size_t *offsets, void *out, size_t count,
                               coll_dtype type, int root, coll_comm *comm, coll_stream *stream, struct coll_call *call,
                               size_t **own);

#endif
