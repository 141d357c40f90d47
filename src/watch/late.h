/*
 * Which ranks are late: all of them, for the error and its text.
 */
#ifndef COLL_WATCH_LATE_H
#define COLL_WATCH_LATE_H

#include "watch/watchdog.h"

enum { COLL_LATE_TEXT = 216 };

/* Rank peer is late for the call of this wait. Find the others: ask every rank, in turns, for a bounded
 * time. False: answers are missing, call it again. True: comm->late holds the list, peer included. */
bool coll_late_find(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p, int peer,
                    uint64_t now_ns);

/* "ranks 1, 2 and 5-7 have not called all_reduce; " for several ranks, "" for one. The list is cut with
 * "and N more". */
void coll_late_describe(const struct coll_comm *comm, const char *kind, char text[COLL_LATE_TEXT]);

/* The list of a text of another rank, as far as it goes; if it has none, of culprit alone. */
void coll_late_read(struct coll_comm *comm, int culprit, const char *text);

#endif
