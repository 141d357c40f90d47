/*
 * Memory for users.
 */
#ifndef COLL_CORE_MEMORY_H
#define COLL_CORE_MEMORY_H

#include "core/comm.h"

void coll_comm_memory_free_all(struct coll_comm *comm);

#endif
