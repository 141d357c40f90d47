/*
 * Binding a call: what runs it, its job, its record.
 */
#ifndef COLL_SELECT_BIND_H
#define COLL_SELECT_BIND_H

#include "core/comm.h"

/* How calls like this one are run: valid until the next call of this function. */
coll_status coll_call_remember(struct coll_comm *comm, const struct coll_call *call, struct coll_memo **memo);

/* The job of a call, but for sequence number, scratch and reduction; its record. */
void coll_call_job(const struct coll_comm *comm, const struct coll_call *call, const struct coll_memo *memo,
                   struct coll_job *job);
void coll_call_record(const struct coll_comm *comm, const struct coll_call *call, const struct coll_job *job,
                      struct coll_record *record);

/* What the signature of its frames is mixed with, given the calls before it. In their order. */
uint32_t coll_call_salt(struct coll_comm *comm, const struct coll_call *call, const struct coll_record *record);

/* Whether a call that could be run intranode is to run its plan all the same. In their order. */
bool coll_call_by_plan(struct coll_comm *comm, const struct coll_call *call);
/* Its name, and its enum coll_record_kind: what the call is to the user. */
const char *coll_call_name(const struct coll_call *call);
uint8_t coll_call_kind(const struct coll_call *call);

/* The ways that such a call may run, as text. transport: its name, for the text. */
coll_status coll_comm_explain_call(struct coll_comm *comm, enum coll_kind kind, size_t count, coll_dtype type,
                                   const char *transport, char *buf, size_t len_bytes);

#endif
