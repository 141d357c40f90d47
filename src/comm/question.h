/*
 * What two ranks tell each other to find the calls that differ: plain copies, which
 * travel in control messages.
 *
 * A rank that is kept waiting sends what it is doing and, so that one exchange is enough,
 * the calls it made before in short. The rank that is asked may be far ahead: it compares
 * with its own record of what it did and answers with the first of its calls that
 * differs, or else with the one that was asked about.
 */
#ifndef COLL_COMM_QUESTION_H
#define COLL_COMM_QUESTION_H

#include "comm/record.h"

enum coll_about {
	COLL_ABOUT_CALLS,    /* collective calls up to number `sequence` */
	COLL_ABOUT_SENT,     /* message number `sequence` that you sent me */
	COLL_ABOUT_RECEIVED, /* message number `sequence` that you received from me */
};

enum { COLL_QUESTION_STRETCHES = 14 };

/* Consecutive calls of one signature, from number first to before the next stretch. */
struct coll_stretch {
	uint64_t first;
	uint32_t signature;
	uint32_t pad;
};

struct coll_question {
	struct coll_record record; /* what the asker is doing now */
	uint64_t sequence;
	uint64_t tally; /* number of the call whose block lengths are asked for */
	uint32_t about;
	uint32_t stretches;
	struct coll_stretch stretch[COLL_QUESTION_STRETCHES]; /* oldest first, the last up to sequence */
};

struct coll_answer {
	struct coll_record record; /* what the one asked is doing now */
	struct coll_record call;   /* the call or message that is answered with; sequence 0: not on record */
	uint64_t sequence;         /* of the question */
	/* Elements to and from the asker in that call of which the question says so; tally 0: not
	 * on record, or block lengths are no matter of pairs. */
	uint64_t tally, to, from;
	uint32_t about;
	uint32_t pad;
};

#endif
