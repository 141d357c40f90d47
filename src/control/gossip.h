/*
 * Notes.
 */
#ifndef COLL_CONTROL_GOSSIP_H
#define COLL_CONTROL_GOSSIP_H

#include "control/control.h"
#include "control/state.h"

/* Tell everyone (and ourselves). Any thread. False: it was known. */
bool coll_control_report(struct coll_control *c, const struct coll_note *note);

/* A communicator of this process has failed (kind FAIL), or goes on without a killed member (DEATH): status, process to
 * blame, text. Any thread. */
void coll_control_state_error(struct coll_control *c, const struct coll_note *error);

/* This process makes a call although it has stated an error, so it does not end because of that. certain: it is not
 * that of a thread which has not heard of the error. False: it cannot be told yet. */
bool coll_control_goes_on(struct coll_control *c, bool certain);

/* The failure reported for a communicator, if any. */
bool coll_control_failure(struct coll_control *c, uint64_t comm, struct coll_note *note);

/* The process that found the failure of a communicator first, as far as this one can tell: it logs it; -1: not decided
 * yet. */
int coll_control_first(struct coll_control *c, uint64_t comm);

/* What holds for all communicators (deaths, lost links), in order of arrival: the one after
 * *at, NULL for the first; false: there are no more. Facts are never forgotten. */
bool coll_control_fact(struct coll_control *c, const struct coll_held_note **at, struct coll_note *note);

/* Whether a death may be reported: a note of a better informed rank has had its time, and what came was read. */
bool coll_control_settled(struct coll_control *c, const struct coll_held_note *death);

/* Number i of all notes kept; the numbers change as old failures are forgotten. */
bool coll_control_note(struct coll_control *c, int i, struct coll_note *note);

/* Keep a new note, set off the alarm and pass it on to all but the process it came from.
 * False: it is not new. */
bool coll_control_spread(struct coll_control *c, const struct coll_note *n, int from);

/* Of the notes of a failure that of n->origin was the first, says the rank that decides. */
void coll_control_on_first(struct coll_control *c, const struct coll_note *n, int from);

/* A process was found dead by this one. */
void coll_control_death(struct coll_control *c, int peer, const char *cause);

/* Write what is queued and the notes the link has not been given yet, as far as it takes
 * them. False: it is broken. */
bool coll_control_write(struct coll_control *c, struct coll_control_link *l);
bool coll_control_untold(const struct coll_control *c, const struct coll_control_link *l);
void coll_control_forget_all(struct coll_control *c);

#endif
