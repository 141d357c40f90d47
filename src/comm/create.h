/*
 * Creation of communicators.
 */
#ifndef COLL_COMM_CREATE_H
#define COLL_COMM_CREATE_H

#include "core/comm.h"

/* The communicator of this id and epoch, of size processes by rank (NULL: of all). It
 * is a user of the context from now on; coll_comm_free does not end that. */
coll_status coll_comm_new(struct coll_context *ctx, uint64_t id, uint32_t epoch, const int *process_of, int size,
                          struct coll_comm **comm, struct coll_error_box *err);

/* The id of the communicator of all ranks of the job. */
uint64_t coll_comm_first_id(const struct coll_context *ctx);
void coll_comm_free(struct coll_comm **comm);

#endif
