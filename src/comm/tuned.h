/*
 * COLL_TUNE_FILE: the table that coll-tune wrote, read by rank 0 and sent to all by the first communicator.
 */
#ifndef COLL_COMM_TUNED_H
#define COLL_COMM_TUNED_H

#include "core/comm.h"

/* Whether there is a table to be had. An agreed fact. */
bool coll_comm_tuned_matters(const struct coll_comm *comm);

/* Sets comm->ctx->tuned. A table that cannot be read, or is of other hosts or of another transport, is left out, and
 * rank 0 warns of it. All ranks call it, and all succeed or the communicator fails. */
coll_status coll_comm_tuned_share(struct coll_comm *comm);

/* The name by which a table knows the host of a process: its host name, or where several hosts have the same the text
 * of COLL_HOST_ID. */
void coll_comm_tuned_name(const struct coll_context *ctx, int process, char *buf, size_t len_bytes);

#endif
