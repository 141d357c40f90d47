/*
 * Slot policy: whether slots to one peer are filled with cached or with non-temporal stores.
 *
 * A slot that the peer has read is in its caches. A cached store must fetch or invalidate the line
 * there, and then the peer fetches it from the caches of this core. If
 * the two cores share a cache, this is the fastest way. If they do not, each line
 * crosses between caches twice, at the cost of a miss each, and non-temporal stores are several times
 * faster: the data is in memory, from where the peer's core prefetches it. In a
 * virtual machine, virtual cores move between physical ones while a program runs. So the fills are timed from time
 * to time: docs/design/shm-large.md has the measurements.
 *
 *   NEAR   cached; every few fills are timed. Slow ones in a row: TRIAL
 *   TRIAL  a few streamed fills are timed. Clearly faster: FAR. Not: NEAR, and left alone
 *          for a while, longer each time
 *   FAR    streamed. After so many bytes: PROBE
 *   PROBE  a few cached fills are timed. One is not slow: NEAR. All are: FAR
 *
 * A local fact: what is sent does not depend on it. It reads no clock: the caller passes times.
 */
#ifndef COLL_ENGINE_SLOT_POLICY_H
#define COLL_ENGINE_SLOT_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum coll_slot_policy_way { COLL_SLOT_POLICY_AUTO, COLL_SLOT_POLICY_CACHED, COLL_SLOT_POLICY_STREAMED };

/* Where the ways part; from src/select. */
struct coll_slot_policy_rule {
	enum coll_slot_policy_way way;
	size_t least_bytes;       /* shorter fills are neither timed nor streamed */
	double slow_bytes_per_ns; /* a cached fill below this rate is slow */
	double gain;              /* streamed ones must be so many times faster */
	uint64_t probe_bytes;     /* streamed between two probes */
	uint32_t fresh;           /* fills that are not judged: slots are touched for the first time */
};

enum coll_slot_policy_state {
	COLL_SLOT_POLICY_NEAR,
	COLL_SLOT_POLICY_TRIAL,
	COLL_SLOT_POLICY_FAR,
	COLL_SLOT_POLICY_PROBE
};

/* Of one peer; one thread at a time. */
struct coll_slot_policy {
	struct coll_slot_policy_rule rule;
	enum coll_slot_policy_state state;
	uint32_t fresh; /* left */
	uint32_t fills; /* in this state */
	uint32_t slow;  /* NEAR: slow ones in a row */
	double best;    /* of the timed ones of this state, bytes per ns */
	double cached;  /* what was slow */
	uint64_t left;  /* bytes: FAR: to the next probe; NEAR: not judged */
	uint64_t hold;  /* the next `left` after a TRIAL that failed */
	uint64_t turns; /* changes between cached and streamed, for tests and reports */
};

void coll_slot_policy_init(struct coll_slot_policy *p, const struct coll_slot_policy_rule *rule);

/* The next fill, of at least rule.least_bytes. timed: tell how long it took. */
bool coll_slot_policy_streams(struct coll_slot_policy *p, size_t len_bytes, bool *timed);
void coll_slot_policy_took(struct coll_slot_policy *p, size_t len_bytes, uint64_t ns);

/* Fills of which no time is known: like the others to this peer. */
static inline bool coll_slot_policy_is_far(const struct coll_slot_policy *p, size_t len_bytes)
{
	return (p->state == COLL_SLOT_POLICY_FAR || p->rule.way == COLL_SLOT_POLICY_STREAMED) &&
	       len_bytes >= p->rule.least_bytes;
}

#endif
