/*
 * The decision who the members of a communicator are from now on: single-decree Paxos whose majorities leave out those
 * that have ended with their last words read. docs/design/members.md has the rules and the argument.
 *
 * Pure functions of state and event: they call nobody, and time is not among their arguments. The driver (changes.c, or
 * the explorer of tests/members) carries messages and words, and says who has ended or is suspected.
 */
#ifndef COLL_MEMBERS_DECIDE_H
#define COLL_MEMBERS_DECIDE_H

#include "members/words.h"

/* ---- A voter: every member is one ---- */

enum coll_vote { COLL_VOTE_NONE, COLL_VOTE_PROMISE, COLL_VOTE_ACCEPTED, COLL_VOTE_REFUSED };

struct coll_voter {
	struct coll_words words;
	enum coll_vote owed; /* goes to the owner of the promised ballot when all have the words */
};

/* What the driver is to do now. write: the words have changed; give them to every member of this host, and only then
 * call coll_decide_written(). answer: goes out at once. */
struct coll_voter_acts {
	bool write;
	enum coll_vote answer;
};

struct coll_voter_acts coll_decide_prepare(struct coll_voter *v, uint64_t ballot);
struct coll_voter_acts coll_decide_propose(struct coll_voter *v, uint64_t ballot, const struct coll_member_set *value);
/* Every member of this host has the words, or has ended. Returns the answer that may go now. */
enum coll_vote coll_decide_written(struct coll_voter *v);

/* ---- A proposer ---- */

/* ENDED: it will never answer again, and its last words were read. */
enum coll_standing { COLL_STANDING_LIVES, COLL_STANDING_SUSPECTED, COLL_STANDING_ENDED };

struct coll_member_state {
	enum coll_standing standing;
	struct coll_words words; /* its last words, if it has ended */
};

enum coll_ballot_phase { COLL_BALLOT_IDLE, COLL_BALLOT_PREPARES, COLL_BALLOT_PROPOSES, COLL_BALLOT_DECIDED };
enum { COLL_SAID_PROMISE = 1, COLL_SAID_ACCEPTED = 2, COLL_SAID_LEAVES = 4 };

struct coll_ballot {
	uint64_t number;
	uint64_t above; /* the highest ballot that was seen: the next one goes above it */
	enum coll_ballot_phase phase;
	int size;
	uint64_t best;                /* of the accepted ballots that the answers name, the highest */
	struct coll_member_set value; /* of that one; from PROPOSES on what is proposed */
	uint8_t said[COLL_MEMBERS_MAX];
};

void coll_decide_begin(struct coll_ballot *b, uint64_t number, int size);
/* Answers of members; those to other ballots change nothing. leaves: it lives, and will not be a member. */
void coll_decide_promised(struct coll_ballot *b, int member, uint64_t number, bool leaves,
                          const struct coll_words *words);
void coll_decide_accepted(struct coll_ballot *b, int member, uint64_t number);
/* Somebody has promised a higher ballot. */
void coll_decide_refused(struct coll_ballot *b, uint64_t promised);

/* PROPOSE: send b->value to all. DECIDED: b->value is the decision, for ever. GIVE_UP: this ballot can no longer be
 * decided; go above b->above. */
enum coll_ballot_act { COLL_ACT_WAIT, COLL_ACT_PROPOSE, COLL_ACT_DECIDED, COLL_ACT_GIVE_UP };

/* What follows from the answers so far. member: b->size of them. */
enum coll_ballot_act coll_decide_look(struct coll_ballot *b, const struct coll_member_state *member);
/* Of a ballot that waits: everybody who lives has answered, and that is no majority. Others may do better, whose last
 * words are others. */
bool coll_decide_is_stuck(const struct coll_ballot *b, const struct coll_member_state *member);

#endif
