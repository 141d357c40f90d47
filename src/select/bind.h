/*
 * Binding a call: what runs it, its job.
 */
#ifndef COLL_SELECT_BIND_H
#define COLL_SELECT_BIND_H

#include "core/comm.h"

/* How calls like this one are run: valid until the next call of this function. */
coll_status coll_call_remember(struct coll_comm *comm, const struct coll_call *call, struct coll_memo **memo);

/* The job of a call, but for sequence number, scratch and reduction. */
void coll_call_job(const struct coll_comm *comm, const struct coll_call *call, const struct coll_memo *memo,
                   struct coll_job *job);

/* The ways that such a call may run, as text. transport: its name, for the text. */
coll_status coll_comm_explain_call(struct coll_comm *comm, enum coll_kind kind, size_t count, coll_dtype type,
                                   const char *transport, char *buf, size_t len_bytes);

#endif
