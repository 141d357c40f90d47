/*
 * When a member begins a ballot. Two ballots that run at a time cost time only, but if each overtakes the other one for
 * ever nothing is decided; docs/design/members.md argues why that ends. Pure: facts and time are arguments.
 */
#ifndef COLL_MEMBERS_TURN_H
#define COLL_MEMBERS_TURN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"

/* Of one change, over all calls that wait for it. Zero but for the random numbers at the begin. */
struct coll_turn {
	uint64_t at_ns;     /* 0: not set */
	uint64_t seen;      /* the ballot that it was set for; 0: none */
	bool yielded;       /* it was set anew, since that one is not waited for */
	unsigned overtaken; /* ballots that this member began and gave up */
	struct coll_rng rng;
};

struct coll_turn_facts {
	uint64_t now_ns;
	int self;         /* this member */
	bool lowest;      /* all below it are reported as dead, out of reach or left */
	uint64_t running; /* the highest ballot that is known here; 0: none */
	bool lost;        /* its owner is so reported, or has said that it cannot count on a majority */
};

/* Whether this member, whose own ballot does not run, is to begin one now. */
bool coll_turn_is_mine(struct coll_turn *t, const struct coll_turn_facts *f);
/* The ballot of this member was given up. */
void coll_turn_overtaken(struct coll_turn *t, uint64_t now_ns);

#endif
