/*
 * Memory for users.
 */
#ifndef COLL_CORE_MEMORY_H
#define COLL_CORE_MEMORY_H

#include "core/comm.h"

/* Whether an argument is host memory: UNSUPPORTED for memory of a device, ARGUMENT for memory that its
 * device cannot use, with the reason in its error. kind: the call; what: the argument. Nothing is read. Free where the
 * rank has no device. */
coll_status coll_comm_serves(struct coll_comm *comm, const char *kind, const char *what, const void *ptr,
                             size_t len_bytes);
/* The same for buffers that may be memory of the rank's device. */
coll_status coll_comm_takes(struct coll_comm *comm, const char *kind, const char *what, const void *ptr,
                            size_t len_bytes);

void coll_comm_memory_free_all(struct coll_comm *comm);

#endif
