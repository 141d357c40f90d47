/*
 * The last error of a process: it says it on its links, so that its end can be explained where nobody knows of that
 * error.
 */
#ifndef COLL_CONTROL_LAST_ERROR_H
#define COLL_CONTROL_LAST_ERROR_H

#include "control/control.h"
#include "control/state.h"

/* Whether this process has stated one lately. c may be NULL. */
bool coll_control_has_erred(struct coll_control *c);

/* Whether a communicator of this process was lost lately, or a host is out of reach. c may be NULL. */
bool coll_control_is_parted(struct coll_control *c);

/* The error that a process ended after, as far as it is known: status, process to blame, text. presumed: it is not
 * known how it ended, so what was reported last is taken for the cause. False: none is known. Any thread. */
bool coll_control_end_cause(struct coll_control *c, int process, bool presumed, struct coll_note *why);

/* ---- With the lock held ---- */

/* For coll_control_state_error(). False: no memory, or it has not joined. */
bool coll_control_keep_error(struct coll_control *c, const struct coll_note *error);

/* For coll_control_goes_on(). True: there is no error that this process may end because of. */
bool coll_control_outlives_error(struct coll_control *c, bool certain);

bool coll_control_error_unsaid(const struct coll_control *c, const struct coll_control_link *l);
void coll_control_say_error(const struct coll_control *c, struct coll_control_link *l);
bool coll_control_on_error(struct coll_control *c, const struct coll_control_link *l, struct coll_stated_error *e);

/* A process has ended without a goodbye: complete the note of its death. */
void coll_control_explain(const struct coll_control *c, struct coll_note *death);
void coll_control_forget_errors(struct coll_control *c);

#endif
