/*
 * Defects planted on purpose. tests/multi/ compiles a few files of the library once more
 * with COLL_PLANTED defined, for the programs rounds-planted, ways_all-planted, cuda_queues-planted,
 * cuda_records-planted and cuda_graphs-planted. The campaigns of soak.py, ways_all.py, staged.py, mapped.py and
 * capture.py, and members-explore must find every one of them; in the library the condition is the constant false.
 */
#ifndef COLL_BASE_PLANTED_H
#define COLL_BASE_PLANTED_H

enum coll_planted {
	COLL_PLANTED_NONE,
	COLL_PLANTED_WRONG_RANK, /* a death is blamed on the rank after the dead one */
	COLL_PLANTED_DEAF,       /* a rank whose peer dies waits on */
	COLL_PLANTED_NAMED_FILE, /* shared memory has a name too, which is never removed */
	COLL_PLANTED_WRONG_BYTE, /* a result that came late has a wrong byte */
	COLL_PLANTED_SILENT_END, /* destroy swallows the failure of its barrier */
	COLL_PLANTED_WRONG_ROW,  /* where zero copy declines the plan is run, whatever row of the table serves */
	/* Of device memory, for the program cuda_queues-planted. */
	COLL_PLANTED_LATE_KERNEL,   /* kernels are launched for the first time by calls */
	COLL_PLANTED_PAGEABLE_COPY, /* a copy into memory that is not pinned */
	COLL_PLANTED_LATE_STREAM,   /* a stream is created by a call */
	COLL_PLANTED_HOST_TOUCH,    /* the host reads device memory */
	COLL_PLANTED_STALE_WORDS,   /* the words of a call are those of the call before */
	/* Of buffers in place, for the program cuda_records-planted. */
	COLL_PLANTED_EARLY_RECORD,  /* a buffer is named before all ranks have mapped it */
	COLL_PLANTED_NO_TAIL,       /* a call ends while others may read its buffers */
	COLL_PLANTED_STALE_REGION,  /* memory that was freed and made again counts as the old one */
	COLL_PLANTED_WRONG_OFFSET,  /* a buffer that does not begin its allocation is read at the wrong place */
	COLL_PLANTED_KEPT_IN_PLACE, /* an input that its rank overwrites is said to stay as it is */
	/* Of captured calls that go direct, for the program cuda_graphs-planted. */
	COLL_PLANTED_EARLY_TAKEN, /* a rank reads the slots of others before they have come */
	COLL_PLANTED_EARLY_CLEAR, /* a rank fills its slot before all have left it */
	/* Of src/match/, for the program tags-planted, which counts through them. */
	COLL_PLANTED_MATCH_FIRST,
	COLL_PLANTED_MATCH_TAG = COLL_PLANTED_MATCH_FIRST, /* the tag does not count */
	COLL_PLANTED_MATCH_SOURCE,                         /* a receive takes what waits, of any source */
	COLL_PLANTED_MATCH_NEWEST,                         /* and the message that arrived last */
	COLL_PLANTED_MATCH_POSTED,                         /* the receive that was posted later wins */
	COLL_PLANTED_MATCH_CANCEL,                         /* a receive that was taken back still matches */
	COLL_PLANTED_MATCH_CREDIT,                         /* cells of messages that waited are never given back */
	COLL_PLANTED_MATCH_CUT,                            /* a message that is too long is cut, silently */
	COLL_PLANTED_MATCH_TYPE,                           /* types are not compared */
	COLL_PLANTED_MATCH_OVERTAKE, /* of the messages that wait for room the last one leaves first */
	COLL_PLANTED_MATCH_BULK,     /* payloads leave in the order of offers, not of requests */
	COLL_PLANTED_MATCH_SILENT,   /* the sender does not learn that its long message is refused */
	COLL_PLANTED_MATCH_END,
	/* Of src/members/, for the program members-explore, which counts through them. */
	COLL_PLANTED_DECIDE_FIRST,
	COLL_PLANTED_DECIDE_UNREAD = COLL_PLANTED_DECIDE_FIRST, /* who has ended does not count, and its last words are
	                                                         * not looked at */
	COLL_PLANTED_DECIDE_ANSWERS_ONLY,                       /* any number of promises is enough */
	COLL_PLANTED_DECIDE_KEEPS_PROMISED,                     /* accepting does not raise what was promised */
	COLL_PLANTED_DECIDE_OWN_VALUE,                          /* what others have accepted is not taken over */
	COLL_PLANTED_DECIDE_LOWEST,                             /* of several, that of the lowest ballot is */
	COLL_PLANTED_DECIDE_LATE_ACCEPT,                        /* a ballot below the promised one is accepted */
	COLL_PLANTED_DECIDE_EARLY_ANSWER,                       /* the answer goes before the words are written */
	COLL_PLANTED_DECIDE_HALF,                               /* half of the voters are enough */
	COLL_PLANTED_DECIDE_WORDS_ACCEPT, /* that last words name this ballot counts as an answer */
	COLL_PLANTED_DECIDE_GOES_ON,      /* a ballot goes on though last words name a higher one */
	COLL_PLANTED_DECIDE_SUSPECTED,    /* who is suspected does not count */
	COLL_PLANTED_DECIDE_FORGETS,      /* a promise forgets what was accepted */
	COLL_PLANTED_DETECT_EARLY,        /* who has ended is not counted before its words were read */
	COLL_PLANTED_DETECT_OTHER_HOST,   /* nor if it was on another host */
	COLL_PLANTED_DETECT_REPORTED,     /* nor if it is only reported as dead */
	COLL_PLANTED_DECIDE_END,
	/* Of src/members/ and what it stands on, for the program coll-faults-planted, which finds those above as well.
	 */
	COLL_PLANTED_CHANGE_FIRST,
	COLL_PLANTED_CHANGE_AT_ONCE = COLL_PLANTED_CHANGE_FIRST, /* answers do not wait until all of the host have the
	                                                          * words */
	COLL_PLANTED_CHANGE_AGAIN_GIVEN,  /* who could not take the words now counts as having them */
	COLL_PLANTED_CHANGE_GIVEN_ONCE,   /* who has had some words gets no others */
	COLL_PLANTED_CHANGE_FIRST_WORDS,  /* of the words of a process the first ones are kept */
	COLL_PLANTED_CHANGE_WRONG_OWNER,  /* answers go to who asked first */
	COLL_PLANTED_CHANGE_LEAVERS,      /* who has destroyed the communicator does not say so */
	COLL_PLANTED_CHANGE_NO_END,       /* a promise does not end the communicator */
	COLL_PLANTED_CHANGE_NEEDS_CALL,   /* a voter answers only while its program is in the call */
	COLL_PLANTED_CHANGE_NEXT_MEMBER,  /* an answer counts as that of the next member */
	COLL_PLANTED_CHANGE_YES,          /* a refusal counts as an acceptance */
	COLL_PLANTED_CHANGE_NO_ACCEPTED,  /* a promise does not say what was accepted */
	COLL_PLANTED_CHANGE_MUTE_DECIDED, /* who has the decision does not answer with it */
	COLL_PLANTED_CHANGE_FORGETS,      /* a call that ends takes the voter with it */
	COLL_PLANTED_CHANGE_ONE_NUMBER,   /* the next ballot has the number of the last */
	COLL_PLANTED_CHANGE_ASKS_ONCE,    /* who does not answer is not asked again */
	COLL_PLANTED_CHANGE_REPORTED,     /* who is reported as dead counts as ended */
	COLL_PLANTED_CHANGE_NO_WORDS,     /* last words are not looked at */
	COLL_PLANTED_CHANGE_FIRST_ONLY,   /* nobody but member 0 begins ballots */
	COLL_PLANTED_CHANGE_HASTY,        /* who has not answered at once is suspected */
	COLL_PLANTED_CHANGE_PATIENT,      /* nobody is suspected for silence */
	COLL_PLANTED_CHANGE_OTHER_VALUE,  /* what is proposed is who lives now, not what was fixed */
	COLL_PLANTED_CHANGE_UNREAD,       /* words that wait behind an end are not read */
	COLL_PLANTED_CHANGE_NOT_LEFT,     /* words count as written that were not sent */
	COLL_PLANTED_CHANGE_CALL_ALONE,   /* a call that ends takes its ballot and its turn with it */
	COLL_PLANTED_CHANGE_NO_YIELD,     /* a ballot that is stuck does not say so */
	COLL_PLANTED_CHANGE_AT_LOST,      /* a ballot whose owner is reported dead is overtaken at once */
	COLL_PLANTED_CHANGE_END,
	/* No defect, but what a busy machine does: nothing may be made of it. */
	COLL_PLANTED_SLOW_JUDGE, /* time passes before a question is answered, and more before the answer is looked at
	                          */
	/* Nor this, for the program cuda_ends. */
	COLL_PLANTED_MANY_NUMBERS /* each call takes as many numbers as many calls would */
};

#ifdef COLL_PLANTED
extern enum coll_planted coll_planted;
#define planted(which) (coll_planted == COLL_PLANTED_##which)
#else
#define planted(which) false
#endif

#endif
