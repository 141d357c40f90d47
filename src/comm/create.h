/*
 * Creation of communicators.
 */
#ifndef COLL_COMM_CREATE_H
#define COLL_COMM_CREATE_H

#include "core/comm.h"

/* Create the communicator with this id and epoch. process_of lists its `size` processes by rank
 * (NULL: all processes). The communicator counts as a user of the context. coll_comm_free() does
 * not end that use. */
coll_status coll_comm_new(struct coll_context *ctx, uint64_t id, uint32_t epoch, const int *process_of, int size,
                          struct coll_comm **comm, struct coll_error_box *err);

/* One line in the log about a new communicator. */
void coll_comm_describe(const struct coll_comm *comm);

/* The id of the communicator that contains all ranks of the job. */
uint64_t coll_comm_first_id(const struct coll_context *ctx);
void coll_comm_free(struct coll_comm **comm);

/* In a forked child: free the memory of the communicator, and nothing else. Ends its use of the context. */
void coll_comm_forget(struct coll_comm *comm);

#endif
