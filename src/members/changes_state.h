/*
 * Private to changes.c and proposal.c: what a process keeps of changes. Guarded by the lock of the control plane.
 */
#ifndef COLL_MEMBERS_CHANGES_STATE_H
#define COLL_MEMBERS_CHANGES_STATE_H

#include "base/clock.h"
#include "base/hash.h"
#include "core/comm.h"
#include "members/decide.h"
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
	struct coll_proposal *proposal; /* of the call that waits here; NULL: none */
	bool given[];                   /* by process of the context: has the words of the voter, or has ended */
};

struct coll_changes {
	struct coll_change *first;
	int count;
};

struct coll_proposal {
	struct coll_comm *comm;
	struct coll_change *change;
	struct coll_ballot ballot;
	struct coll_member_state member[COLL_MEMBERS_MAX];
	uint64_t sent_ns[COLL_MEMBERS_MAX]; /* when it was last asked in this phase; 0: not yet */
	bool heard[COLL_MEMBERS_MAX];       /* it has answered this call */
	struct coll_uptime silence;         /* since all were asked first */
	uint64_t turn_ns;                   /* when this one begins a ballot, if no other decides */
	uint64_t seen;                      /* the ballot that this was set for */
	struct coll_rng rng;
};

#endif
