/*
 * What the first communicator of a context asks before the program has it: what is inside the hosts (survey.h), and
 * what was measured between them (tuned.h). Its layout, rails and prices follow; those of later communicators do so
 * from the start.
 */
#ifndef COLL_COMM_REFINE_H
#define COLL_COMM_REFINE_H

#include "core/comm.h"

/* All ranks call it. It is idle, and has made no call of the program. All succeed or the communicator fails. */
coll_status coll_comm_refine(struct coll_comm *comm);

#endif
