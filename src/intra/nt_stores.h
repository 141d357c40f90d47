/*
 * How a call run intranode stores its results.
 */
#ifndef COLL_INTRA_NT_STORES_H
#define COLL_INTRA_NT_STORES_H

#include "intra/enter.h"

/* nt_stores.c: how results of the call that begins are stored; bytes: as struct coll_nt_rule has them. None:
 * through the caches, where lines are that have just been read. As: it has been chosen. Direct: whichever the job
 * is. */
void coll_intra_nt_begin(struct coll_intra *n, enum coll_nt_pass pass, size_t bytes);
void coll_intra_nt_none(struct coll_intra *n);
void coll_intra_nt_as(struct coll_intra *n, bool stream);
void coll_intra_nt_direct(struct coll_intra *n, const struct coll_job *job);

/* What is copied out of slots or tiles: as a trial says, or the setting, or as is chosen. cached: it has just been read
 * where it is stored. */
void coll_intra_nt_slots(struct coll_intra *n, const struct coll_intra_state *s, size_t bytes, bool cached);

/* Around a pass; and when the call has ended. */
uint64_t coll_intra_nt_since(const struct coll_intra *n);
void coll_intra_nt_until(struct coll_intra *n, uint64_t since_ns);
void coll_intra_nt_end(struct coll_intra *n);

#endif
