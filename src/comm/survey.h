/*
 * What is inside the hosts of a job: asked once, by the first communicator, before the program has it. Each rank sends
 * 24 bytes, and each distinct digest of a host is sent to all ranks once. Nothing is read or sent where it cannot
 * matter: on one host, on hosts of few ranks, with COLL_LAYOUT=flat.
 */
#ifndef COLL_COMM_SURVEY_H
#define COLL_COMM_SURVEY_H

#include "core/comm.h"

/* Whether levels inside hosts can matter. An agreed fact. */
bool coll_survey_matters(const struct coll_comm *comm);

/* Fills comm->ctx->inside. All ranks call it, and all succeed or the communicator fails. */
coll_status coll_survey_run(struct coll_comm *comm);

/* Levels that were forced, and cannot be there whatever the survey finds: rank 0 says so. */
void coll_survey_warn(const struct coll_comm *comm);

/* All ranks have derived this layout (NULL: none), or the communicator fails. */
coll_status coll_survey_compare(struct coll_comm *comm, const struct coll_layout *layout);

/* What each rank has, in rank order: len_bytes, a multiple of 4, before the program has the communicator. */
coll_status coll_survey_gather(struct coll_comm *comm, const void *in, void *out, size_t len_bytes);

/* From one rank to all, in place, before the program has the communicator. */
coll_status coll_survey_send(struct coll_comm *comm, int root, void *bytes, size_t len_bytes);

/* Lines for people: the layout, its levels and why, where the topology of this host comes from. */
void coll_survey_describe(const struct coll_comm *comm, char *buf, size_t len_bytes);

#endif
