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
	COLL_SLOW_RATE = 4,  /* a link has at most a fourth of the usual rate */
	COLL_SLOW_STAYS = 4  /* of two ranks: so many looks in a row say so before one is warned of */
};

/* others: what n peers say, at most COLL_SLOW_PEERS; those whose waits cannot be for this process count as not waiting
 * at all (`comm` 0). What others have waited longer than this process, ms; 0: it is not behind. */
uint32_t coll_slow_behind(const struct coll_slow_facts *own, const struct coll_slow_facts *others, int n);

/* Looks in a row. */
struct coll_slow_streak {
	int own, other;       /* that say that this process, or its only peer, is behind */
	uint64_t other_at_ns; /* when the peer has been named, or would have been; 0: never */
};

/* A look has found that this process is behind by behind_ms, and the only peer of two says the same of itself by
 * other_ms (not of_two: nobody is asked alone). Whether to warn of this process. With two ranks each is the median of
 * the other's peers: on a machine that others use, too, now one waits longer and now the other. So one is warned of
 * only if it stays behind, and not while the other was within again_ns. */
bool coll_slow_stays(struct coll_slow_streak *k, bool of_two, uint32_t behind_ms, uint32_t other_ms, uint64_t now_ns,
                     uint64_t again_ns);

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
