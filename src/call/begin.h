/*
 * The beginning and the end of a call.
 *
 * This file takes the number of a call and makes its record, the salt of its frames and its flight
 * recorder entry. All ways to issue a call use it: blocking, request and persistent. The only
 * exception is the fast path, which does the same work while its message travels. It has a
 * shortened copy in call/fastpath.c.
 */
#ifndef COLL_CALL_BEGIN_H
#define COLL_CALL_BEGIN_H

#include "core/comm.h"
#include "watch/watchdog.h"

/* Begin a collective. The calls of a communicator begin in their order. job is complete except for
 * two members that are decided here. One is whether the plan runs although `intra` could. The other
 * is the signature of the frames, which derives from `signature`. Fills *record, which names the
 * call `shown`. */
void coll_begin_collective(struct coll_comm *comm, const struct coll_call *call, const struct coll_call *shown,
                           uint8_t flags, const struct coll_intra_op *intra, uint32_t signature, struct coll_job *job,
                           struct coll_record *record);

/* The record of a call, without flags of how it was issued. */
void coll_begin_record(const struct coll_comm *comm, const struct coll_call *call, const struct coll_job *job,
                       struct coll_record *record);

/* The salt of its signature, given the calls before it, whose order this call joins. */
uint32_t coll_begin_salt(struct coll_comm *comm, const struct coll_call *call, const struct coll_record *record);

/* Make the flight recorder entry. stream: its number, 0: none. NULL: the call is not recorded. */
struct coll_entry *coll_begin_entry(struct coll_comm *comm, const struct coll_call *call,
                                    const struct coll_record *record, uint32_t signature, uint8_t way, uint16_t stream);

/* The same for one half of a message. sequence: its number between the two ranks. */
struct coll_entry *coll_begin_pair_entry(struct coll_comm *comm, const struct coll_pair *pair, int half,
                                         uint64_t sequence, uint16_t stream);

/* The same of a message with a tag, as its record has it. */
struct coll_entry *coll_begin_tag_entry(struct coll_comm *comm, const struct coll_record *record, uint16_t stream);

/* End a call that runs in this thread: wait for its run, then close the record and the entry.
 * small: the call may end in its first polls, and then it is not timed. */
coll_status coll_finish_inline(struct coll_comm *comm, const struct coll_wait *wait, struct coll_record *record,
                               bool small);
/* What follows such a wait, which has ended with st. */
void coll_end_inline(struct coll_comm *comm, const struct coll_wait *wait, struct coll_record *record, coll_status st);

#endif
