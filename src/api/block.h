/*
 * The collectives with equal blocks: check the arguments of a call and describe it, without making
 * it. An error is written to the communicator.
 */
#ifndef COLL_API_BLOCK_H
#define COLL_API_BLOCK_H

#include "core/comm.h"

coll_status coll_make_all_gather(const void *in, void *out, size_t count, coll_dtype type, coll_comm *comm,
                                 coll_stream *stream, struct coll_call *call);
coll_status coll_make_reduce_scatter(const void *in, void *out, size_t count, coll_dtype type, coll_op op,
                                     coll_comm *comm, coll_stream *stream, struct coll_call *call);
coll_status coll_make_all_to_all(const void *in, void *out, size_t count, coll_dtype type, coll_comm *comm,
                                 coll_stream *stream, struct coll_call *call);
coll_status coll_make_gather(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                             coll_stream *stream, struct coll_call *call);
coll_status coll_make_scatter(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                              coll_stream *stream, struct coll_call *call);

#endif
