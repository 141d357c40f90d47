/*
 * Private to changes.c and proposal.c: what a process keeps of changes. Guarded by the lock of the control plane.
 */
#ifndef COLL_MEMBERS_CHANGES_STATE_H
#define COLL_MEMBERS_CHANGES_STATE_H

#include "base/clock.h"
#include "core/comm.h"
#include "members/decide.h"
#include "members/turn.h"
#include "members/wire.h"

/* Words that a process of this host has left here. */
struct coll_left_words {
	struct coll_left_words *next;
	int process;
	struct coll_words words;
};

struct coll_change {
	struct coll_change *next;
	uint64_t comm;
	int size;
	struct coll_voter voter;
	int owner; /* process that gets the owed answer */
	bool decided, taken;
	bool words_lost;              /* there was no memory for some: nobody's last words are known */
	struct coll_member_set value; /* decided */
	struct coll_left_words *words;
	uint64_t yielded;               /* the highest ballot whose owner cannot count on a majority; 0: none */
	struct coll_proposal *proposal; /* from the first call on until it is decided; NULL: none */
	bool given[];                   /* by process of the context: has the words of the voter, or has ended */
};

struct coll_changes {
	struct coll_change *first;
	int count;
};

/* It outlives its calls: one that ends without a decision is gone on with by the next. */
struct coll_proposal {
	struct coll_context *ctx;
	struct coll_change *change;
	int calls; /* that wait now */
	int rank, size;
	struct coll_turn turn;
	struct coll_ballot ballot;
	uint64_t yield_ns; /* when a ballot that is stuck says so again */
	int process[COLL_MEMBERS_MAX];
	struct coll_member_state member[COLL_MEMBERS_MAX];
	uint64_t sent_ns[COLL_MEMBERS_MAX];              /* when it was last asked in this phase; 0: not yet */
	struct coll_uptime unanswered[COLL_MEMBERS_MAX]; /* since it was asked and has not answered */
};

#endif
