/*
 * Defects planted on purpose. tests/multi/ compiles a few files of the library once more
 * with COLL_PLANTED defined, for the programs rounds-planted, ways_all-planted, cuda_queues-planted,
 * cuda_records-planted and cuda_graphs-planted. The campaigns of soak.py, ways_all.py, staged.py, mapped.py and
 * capture.py must find every one of them; in the library the condition is the constant false.
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
	COLL_PLANTED_EARLY_RECORD, /* a buffer is named before all ranks have mapped it */
	COLL_PLANTED_NO_TAIL,      /* a call ends while others may read its buffers */
	COLL_PLANTED_STALE_REGION, /* memory that was freed and made again counts as the old one */
	COLL_PLANTED_WRONG_OFFSET, /* a buffer that does not begin its allocation is read at the wrong place */
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
