/*
 * Memory for users.
 */
#ifndef COLL_CORE_MEMORY_H
#define COLL_CORE_MEMORY_H

#include "core/comm.h"

/* Whether the communicator serves memory of this kind: UNSUPPORTED, with the reason in its error, if it does
 * not. kind: the call; what: the argument. Nothing is read. Free where the process has host memory only. */
coll_status coll_comm_serves(struct coll_comm *comm, const char *kind, const char *what, const void *ptr,
                             size_t len_bytes);

/* Memory of coll_mem_alloc() that a device may still use is not freed any more. */
void coll_comm_memory_forget(struct coll_comm *comm, const void *ptr);
void coll_comm_memory_free_all(struct coll_comm *comm);

#endif
