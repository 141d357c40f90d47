/*
 * The vector collectives: check the arguments of a call and describe it, without making it. An
 * error is written to the communicator.
 */
#ifndef COLL_API_VECTOR_H
#define COLL_API_VECTOR_H

#include "core/comm.h"

coll_status coll_make_all_reduce(const void *in, void *out, size_t count, coll_dtype type, coll_op op, coll_comm *comm,
                                 coll_stream *stream, struct coll_call *call);
coll_status coll_make_exclusive_scan(const void *in, void *out, size_t count, coll_dtype type, coll_op op,
                                     coll_comm *comm, coll_stream *stream, struct coll_call *call);
coll_status coll_make_scan(const void *in, void *out, size_t count, coll_dtype type, coll_op op, coll_comm *comm,
                           coll_stream *stream, struct coll_call *call);
coll_status coll_make_reduce(const void *in, void *out, size_t count, coll_dtype type, coll_op op, int root,
                             coll_comm *comm, coll_stream *stream, struct coll_call *call);
coll_status coll_make_broadcast(const void *in, void *out, size_t count, coll_dtype type, int root, coll_comm *comm,
                                coll_stream *stream, struct coll_call *call);
/* token: the two bytes that the barrier sends and receives. */
coll_status coll_make_barrier(char token[2], coll_comm *comm, coll_stream *stream, struct coll_call *call);

#endif
