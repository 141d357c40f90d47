/*
 * What two ranks tell each other to find the calls that differ: plain copies, which
 * travel in control messages.
 *
 * A rank that is kept waiting sends what it is doing and, so that one exchange is enough,
 * the calls it made before in short. The rank that is asked may be far ahead: it compares
 * with its own record of what it did and answers with the first of its calls that
 * differs, or else with the one that was asked about.
 */
#ifndef COLL_CONTROL_MISMATCH_MSG_H
#define COLL_CONTROL_MISMATCH_MSG_H

#include <assert.h>

#include "record/record.h"

enum coll_about {
	COLL_ABOUT_CALLS,    /* collective calls up to number `sequence` */
	COLL_ABOUT_SENT,     /* message number `sequence` that you sent me */
	COLL_ABOUT_RECEIVED, /* message number `sequence` that you received from me */
	COLL_ABOUT_NOTHING,  /* what you are doing now */
	COLL_ABOUT_TAGS,     /* the same; and open your channels, since I send you tagged messages */
	COLL_ABOUT_JOB,      /* what holds your process up: `call` (kind is valid if it is active), `third`, the process
	                      * waited      for, `wait`, nanoseconds since it began, `in_stream`, 0 or the number of its
	                      * stream */
	COLL_ABOUT_SLOW,     /* how your process has come on lately: `slow` */
	COLL_ABOUT_DUMP,     /* the one that asks has failed because of your process: keep a dump */
	COLL_ABOUT_END
};

enum { COLL_MISMATCH_CALL_RUNS = 14 };

/* Consecutive calls of one signature, from number first to before the next call run. */
struct coll_call_run {
	uint64_t first;
	uint32_t signature;
	uint32_t pad;
};

/* What must come from the rank that is waited for. */
enum coll_need {
	COLL_NEEDS_CALL,    /* collective call number `number`: its frames, to me */
	COLL_NEEDS_ROOM,    /* the same, to take frames from me */
	COLL_NEEDS_MESSAGE, /* message number `number` to me: it sends */
	COLL_NEEDS_TAKER,   /* message number `number` from me: it receives */
};

/* A wait that does not move: see deadlock.h. */
struct coll_blocked {
	struct coll_record call; /* of the wait */
	uint64_t issued;         /* collective calls made on the communicator so far, this one included */
	uint64_t number;
	uint64_t shown_ns; /* when it was shown, by this process's clock */
	int32_t peer;      /* rank waited for; -1: none of this is valid */
	uint32_t need;     /* enum coll_need */
	uint32_t unmoved_ms;
	uint32_t blocked; /* the communicator's thread is in a call that cannot return before this ends */
	uint32_t alone;   /* and nothing else is pending on the communicator */
	uint32_t pad;
};

/*
 * What a process says of the last seconds, and what it finds of itself beside others: see watch/slow.h. Halves of that
 * time come one after the other.
 */
enum { COLL_SLOW_LINKS = 4 };
struct coll_slow_facts {
	uint64_t comm;         /* of which the calls have waited the longest; 0: none did */
	uint32_t half_ms[2];   /* 0: it has not looked for so long yet */
	uint32_t waited_ms[2]; /* calls stood still */
	uint32_t in_call_ms[2];
	uint32_t behind_ms;    /* of both halves, others have waited for it; 0: it is not behind */
	int32_t waits_for;     /* process that it has waited for most since the start; -1: none */
	uint32_t waits_for_ms; /* how long */
	uint32_t usual_kb;     /* rate of its links to other hosts, kB/s: the upper median; 0: not known */
	uint32_t median_kb;    /* of those of others */
	struct {
		int32_t process; /* -1: none */
		uint32_t kb;
	} slow[COLL_SLOW_LINKS]; /* its links that are far behind that */
};

struct coll_mismatch_msg {
	struct coll_record record; /* the current call of the rank that asks */
	uint64_t wait;             /* identifies the wait of the rank that asks, since its last movement */
	int32_t third;             /* the rank whose messages with the one asked are to be counted */
	uint32_t pad;
	uint64_t sequence;
	uint64_t pair_counts; /* number of the call whose block lengths are asked for */
	uint32_t about;
	uint32_t call_runs;
	struct coll_call_run call_run[COLL_MISMATCH_CALL_RUNS]; /* oldest first, the last up to sequence */
};

static_assert(sizeof(struct coll_slow_facts) <= sizeof(struct coll_blocked), "an answer is no longer than before");

struct coll_answer {
	struct coll_record record; /* what the one asked is doing now */
	struct coll_record call;   /* the call or message that is answered with; sequence 0: not on record */
	uint64_t sequence;         /* of the question */
	/* Elements to and from the rank that asks, in the call that the question names; pair counts 0: not
	 * recorded, or the call has no block lengths per pair. */
	uint64_t pair_counts, to, from;
	uint64_t wait; /* of the question */
	union {
		struct coll_blocked blocked; /* of the one asked, on this communicator */
		struct coll_slow_facts slow;
	};
	uint64_t sent, received; /* messages that it has begun to send to, to receive from third */
	int32_t third;
	uint32_t in_stream; /* it has made a collective call that its stream of a device has not come to */
	struct coll_record
	        abroad; /* its call on another communicator that waits for the rank that asks; not active: none */
	uint32_t about;
	uint32_t pad;
};

#endif
