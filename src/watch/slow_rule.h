/*
 * The rule by which a process finds that it, or a link of it, is far behind its peers. Pure: facts in, verdict out.
 *
 * In a collective the last to come waits for nobody, and all others wait, some of them for ranks that wait themselves.
 * So whom a rank waits for says little, and that a rank waits says that it is not the cause. A process is behind if
 * its peers have waited far longer than it has: the difference is what it was longer outside of its calls. Who copies
 * while others wait, as the root of a broadcast does, has not waited either, but was in its calls as long as they were.
 * So both count: time waited, and time in calls. Over a slow link all ranks are in their calls for equally long, so no
 * rank is behind.
 *
 * Both halves of the time must say so: one late call is no slow rank.
 */
#ifndef COLL_WATCH_SLOW_RULE_H
#define COLL_WATCH_SLOW_RULE_H

#include <stdbool.h>

#include "control/mismatch_msg.h"

enum {
	COLL_SLOW_PEERS = 8,
	COLL_SLOW_PART = 10, /* others have waited at least a tenth of the time longer */
	COLL_SLOW_MORE = 2,  /* and at least longer by half of what it has waited itself */
	COLL_SLOW_RATE = 4   /* a link has at most a fourth of the usual rate */
};

/* others: what n peers say, at most COLL_SLOW_PEERS; those whose waits cannot be for this process count as not waiting
 * at all (`comm` 0). What others have waited longer than this process, ms; 0: it is not behind. */
uint32_t coll_slow_behind(const struct coll_slow_facts *own, const struct coll_slow_facts *others, int n);

/* The usual rate of links in the job, kB/s; 0: too little is known. */
uint32_t coll_slow_median(const struct coll_slow_facts *own, const struct coll_slow_facts *others, int n);
static inline bool coll_slow_is_far_below(uint32_t kb, uint32_t median_kb)
{
	return (uint64_t)kb * COLL_SLOW_RATE <= median_kb;
}

/* Of n numbers, which are put in order, the upper median: of a host's links, half are slow where one host of four is.
 */
uint32_t coll_slow_upper_median(uint32_t *at, int n);

/* The rate of a link, kB/s, from what it carried in a time; 0: that does not show it. */
uint32_t coll_slow_rate(uint64_t bytes, uint64_t busy_us, uint32_t rtt_us);

#endif
