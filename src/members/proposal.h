/*
 * A call that waits until the members of a communicator are decided.
 */
#ifndef COLL_MEMBERS_PROPOSAL_H
#define COLL_MEMBERS_PROPOSAL_H

#include "core/comm.h"
#include "members/words.h"

struct coll_proposal;

/* This process wants the members of comm to be decided: a call begins, or goes on with what the last one has not
 * ended. MEMORY: nothing was begun. ARGUMENT: the decision was taken
 * by coll_change_take() before. */
coll_status coll_change_begin(struct coll_comm *comm, struct coll_proposal **p);
/* One look. OK: it is decided. AGAIN: not yet; *moved: look again at once. */
coll_status coll_change_step(struct coll_proposal *p, bool *moved);
/* The decision, which is there. It is taken once. */
void coll_change_take(struct coll_proposal *p, struct coll_member_set *members);
/* The call ends; the voter stays, and what is not decided. *p may be NULL. */
void coll_change_end(struct coll_proposal **p);

#endif
