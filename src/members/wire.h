/*
 * Messages about a change of members, as they travel: over proved control links, and words over a connection of their
 * own (control/carry.h). Packed and parsed here; what came from a member is checked as far as it can be without state.
 */
#ifndef COLL_MEMBERS_WIRE_H
#define COLL_MEMBERS_WIRE_H

#include "control/words.h"
#include "members/words.h"

enum coll_change_kind {
	COLL_CHANGE_PREPARE = 1,
	COLL_CHANGE_PROMISE,
	COLL_CHANGE_PROPOSE,
	COLL_CHANGE_ACCEPTED,
	COLL_CHANGE_REFUSED,
	COLL_CHANGE_DECIDED,
	COLL_CHANGE_WORDS,
	COLL_CHANGE_YIELD, /* the owner of the ballot cannot count on a majority: nobody need wait for it */
	COLL_CHANGE_KINDS
};

struct coll_change_msg {
	enum coll_change_kind kind;
	bool leaves;             /* PROMISE: it lives, and has destroyed the communicator */
	int size;                /* of the communicator */
	uint64_t comm;           /* its id */
	uint64_t ballot;         /* all but DECIDED and WORDS */
	struct coll_words words; /* PROMISE, WORDS; REFUSED: promised; PROPOSE, DECIDED: value */
};

void coll_change_pack(const struct coll_change_msg *m, uint8_t bytes[COLL_CARRIED_BYTES]);
/* False: no member of this version sends that. */
bool coll_change_parse(struct coll_change_msg *m, const uint8_t bytes[COLL_CARRIED_BYTES]);

#endif
