/*
 * A run.
 */
#ifndef COLL_ENGINE_RUN_H
#define COLL_ENGINE_RUN_H

#include "engine/engine.h"

/* A run able to execute any plan whose state fits; grows (allocates) in start
 * only when a plan needs more than any before it. */
coll_status coll_run_create(struct coll_run **run);
void coll_run_destroy(struct coll_run **run);

/* Bind job (copied) and make ready. Nothing is sent yet. */
coll_status coll_run_start(struct coll_run *run, const struct coll_fabric *fabric, const struct coll_job *job);

/* Start once more what was started last and has retired with OK: the same job but
 * for the two bases and the sequence number. Cannot fail. */
void coll_run_restart(struct coll_run *run, const void *in, void *out, uint64_t sequence);

/* After a start or restart: what is run intranode has been begun already, elsewhere. */
void coll_run_begun(struct coll_run *run, const struct coll_intra_state *state);

/*
 * Cancel a run: its channels have been closed, so nothing settles its completion words any more
 * and no peer reads the memory it loaned. A run that has not ended yet ends with status (an
 * error). In any state it releases its fabric, and may be started again or
 * destroyed. Every run that used the fabric since its channels were opened must be
 * cancelled before any of them is polled or started again.
 */
void coll_run_cancel(struct coll_run *run, coll_status status);

/* Advance. OK: retired, sends included (idempotent). AGAIN: waiting; *moved (may
 * be NULL) says whether any step started or retired in this call. Error: the
 * first one met; the run must then be quiesced by closing its channels. */
coll_status coll_run_poll(struct coll_run *run, bool *moved);

/* The way of the run (record/way.h), while it runs and afterwards: of what does the work, intranode or
 * by plan. COLL_WAY_UNKNOWN: not decided yet, or never started. */
uint8_t coll_run_way(const struct coll_run *run);

/* Whether completion words are out: then polls alone do not finish the run, the transports'
 * progress has to settle them. */
bool coll_run_awaits_progress(const struct coll_run *run);

/* Whether it has nothing to do before the stream of its caller has gone on: no tile that may start is unfinished,
 * or it has retired. */
bool coll_run_waits_for_stream(const struct coll_run *run);
const struct coll_run_stats *coll_run_stats(const struct coll_run *run);

#endif
