/*
 * A rank that has ended while others wait for it: whom to blame, and why. It may have ended because of an error, which
 * is then the verdict of those who did not see that error: on other communicators, without the culprit.
 */
#ifndef COLL_WATCH_LEFT_H
#define COLL_WATCH_LEFT_H

#include "control/mismatch_msg.h"
#include "core/comm.h"

struct coll_end {
	coll_status status;
	int process; /* to blame, of the job */
	char text[400];
};

/* It has left. presumed: nobody listens where it did. */
void coll_left_describe(struct coll_comm *comm, int rank, bool presumed, struct coll_end *e);

/* It has an error of its own, which it may end after: describe that. False: none is known. */
bool coll_left_after_error(struct coll_comm *comm, int rank, bool presumed, struct coll_end *e);

/* The same, if its answer says that it destroys the communicator. */
bool coll_destroys_after_error(struct coll_comm *comm, int rank, const struct coll_answer *a, struct coll_end *e);

/* There is a note of its death. */
void coll_died_describe(struct coll_comm *comm, int rank, struct coll_end *e);

#endif
