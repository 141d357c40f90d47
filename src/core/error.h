/*
 * Errors of a communicator.
 */
#ifndef COLL_CORE_ERROR_H
#define COLL_CORE_ERROR_H

#include "core/comm.h"

struct coll_note;

struct coll_rank_name coll_comm_name(const struct coll_comm *comm, int rank);

/* Fail the communicator: keep the error, report it to the other ranks, return status. */
coll_status coll_comm_fail(struct coll_comm *comm, coll_status status, int culprit, const char *cause,
                           const char *circumstances);
/* The same, to blame a process of the job, which need not be a member; -1: nobody. */
coll_status coll_comm_fail_for(struct coll_comm *comm, coll_status status, int process, const char *cause,
                               const char *circumstances);

/* A member has died: what needs it ends, messages and groups among the living go on. status, process: as above, since
 * it may have ended because of another. Returns `failed`. */
coll_status coll_comm_lose_member(struct coll_comm *comm, int rank, coll_status status, int process, const char *cause,
                                  const char *circumstances);

/* The reason of an abort by coll_config.interrupt. */
#define COLL_INTERRUPTED "interrupted"

/* Abort the communicator. Its note is queued for the control links: the caller flushes them. Any
 * thread may call it, with any lock held but that of the control plane. False: it was aborted before. */
bool coll_comm_abort_locally(struct coll_comm *comm, int exit_status, const char *reason);

/* Refuse a call. The communicator stays usable. */
coll_status coll_comm_refuse(struct coll_comm *comm, const char *kind, coll_status status, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

/* Refuse a call that needs a dead member, and name it. */
coll_status coll_comm_refuse_dead(struct coll_comm *comm, const char *kind, int rank);
/* The sentence about a process that is known to be dead. name: what to call it. */
void coll_death_text(const struct coll_context *ctx, int process, const char *name, char *text, size_t len_bytes);

/* The same of one that has ended, or that leaves, after an error of its own. */
void coll_ended_text(const struct coll_context *ctx, int process, const char *name, const struct coll_note *error,
                     char *text, size_t len_bytes);

/* The call that was refused last failed because of this rank: coll_last_error() names it. */
void coll_comm_refused_for(struct coll_comm *comm, int culprit);
/* And these were late: those for which a child that was to be made has failed. */
void coll_comm_refused_late(struct coll_comm *comm, const struct coll_comm *child);

#endif
