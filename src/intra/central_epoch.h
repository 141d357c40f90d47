/*
 * An epoch of the central buffer.
 */
#ifndef COLL_INTRA_CENTRAL_EPOCH_H
#define COLL_INTRA_CENTRAL_EPOCH_H

#include "intra/central.h"

/* Whether epoch may be entered: AGAIN, the one it takes is not done. */
coll_status coll_central_may_enter(struct coll_intra *n, uint32_t epoch);

/* This rank's cell (or line) of the epoch is full; true: it was the last, and all have been told. */
bool coll_central_arrive(struct coll_intra *n, const struct coll_job *job, uint32_t epoch,
                         const struct central_part *part);

/* Turn is done, by calls like this one; then this may wake others: central.c. AGAIN; MISMATCH: s->bad_frame and
 * s->pending say whose is different. */
coll_status coll_central_done(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s,
                              uint32_t epoch);

/* The same for the root's part alone. */
coll_status coll_central_sent(struct coll_intra *n, const struct coll_job *job, struct coll_intra_state *s,
                              uint32_t epoch, uint32_t root);

/* Who has not done its part of an epoch, or what it does for the others as the last of a count: a rank other than
 * this one, if there is any. */
uint32_t coll_central_late(const struct coll_intra *n, uint32_t epoch);

#endif
