/*
 * Calls that differ between ranks: what to ask a rank, how to answer, and what the answer
 * says. The record of past calls is the flight recorder's; the messages are the control
 * plane's; what becomes of a difference is watchdog.c's.
 */
#ifndef COLL_WATCH_MISMATCH_H
#define COLL_WATCH_MISMATCH_H

#include "control/mismatch_msg.h"
#include "core/comm.h"

/* What to ask about an operation: all collective calls up to it, or that message of the
 * pair. mine: what this rank is doing now. entry: the operation's, NULL: not recorded.
 * newest: no message of a higher number is meant. */
void coll_mismatch_question(const struct coll_comm *comm, const struct coll_record *mine,
                            const struct coll_entry *entry, uint64_t newest, struct coll_mismatch_msg *q);

/* Answer process's question; false: no such communicator here. Any thread. */
bool coll_mismatch_answer(void *ctx, int process, const struct coll_mismatch_msg *q, struct coll_answer *a);

/* Whether the answer of rank peer shows a call that differs from this rank's: then *text
 * names both ranks and both calls. */
bool coll_mismatch_differs(const struct coll_comm *comm, int peer, const struct coll_mismatch_msg *q,
                           const struct coll_answer *a, char *text, size_t len_bytes);

/* Whether it shows that rank peer made the very call that was asked about. */
bool coll_mismatch_agrees(const struct coll_comm *comm, int peer, const struct coll_mismatch_msg *q,
                          const struct coll_answer *a);

/* "calls differ: rank A calls X, rank B calls Y" */
void coll_mismatch_text(const struct coll_comm *comm, const struct coll_record *mine, int peer,
                        const struct coll_record *theirs, char *text, size_t len_bytes);

#endif
