/*
 * The beginning and the end of a call: its number is taken, its record, the salt of its frames and its entry in the
 * flight recorder are made here, whichever way it is issued (blocking, request, persistent). Only the fast path, which
 * does the same while its message travels, has a shortened copy (call/fastpath.c).
 */
#ifndef COLL_PROGRESS_BEGIN_H
#define COLL_PROGRESS_BEGIN_H

#include "core/comm.h"
#include "watch/watchdog.h"

/* A collective begins; calls of a communicator begin in their order. job has everything but what is decided here:
 * whether its plan runs although `intra` could, and the signature of its frames, made of `signature`. *record is
 * filled; it names the call `shown`. */
void coll_begin_collective(struct coll_comm *comm, const struct coll_call *call, const struct coll_call *shown,
                           uint8_t flags, const struct coll_intra_op *intra, uint32_t signature, struct coll_job *job,
                           struct coll_record *record);

/* Its entry in the flight recorder; stream: its number, 0: none. NULL: not recorded. */
struct coll_entry *coll_begin_entry(struct coll_comm *comm, const struct coll_call *call,
                                    const struct coll_record *record, uint32_t signature, uint8_t way, uint16_t stream);

/* The same of one half of a message, number `sequence` between the two. */
struct coll_entry *coll_begin_pair_entry(struct coll_comm *comm, const struct coll_pair *pair, int half,
                                         uint64_t sequence, uint16_t stream);

/* A call that runs in this thread: wait for its run, then close record and entry. small: it may end in its first polls,
 * and is not timed then. */
coll_status coll_finish_inline(struct coll_comm *comm, const struct coll_wait *wait, struct coll_record *record,
                               bool small);

#endif
