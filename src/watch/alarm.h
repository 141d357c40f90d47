/*
 * What the control plane has told, done to a communicator and its waits.
 */
#ifndef COLL_WATCH_ALARM_H
#define COLL_WATCH_ALARM_H

#include "watch/watchdog.h"

/* Look at the alarm alone: cheap, for every idle poll. AGAIN never; OK: nothing. On an
 * error the communicator has failed: for all calls, or, if a member has died (comm->ended is OK), for collectives
 * and for what needs that member. */
coll_status coll_comm_heed_alarm(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p);

/* The same before a call: kind is its name. Clears the bit of comm->attention. */
coll_status coll_comm_attend(struct coll_comm *comm, const char *kind);

/* Sets that bit of a communicator of the context (0: of all): there is a new note. */
void coll_comm_alert(void *ctx, uint64_t comm);
/* Whether it is set. */
bool coll_comm_needs_note(void *ctx, uint64_t comm);

/* Stamps the error of the communicator, and says after how long in which call. */
void coll_wait_describe(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p,
                        char circumstances[180]);

/* Before a rank is blamed by time alone: this process may have been stopped or its service
 * thread starved, and the note that names who died first may lie unread. False: look again. */
bool coll_comm_caught_up(struct coll_comm *comm, bool *done);

#endif
