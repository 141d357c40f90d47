/*
 * How long a link waits for a host that does not answer it. After an outage the network may carry other messages of
 * that host before the next try of this link comes. So while anything else is heard from the host, the link has its
 * limit once more, and no longer. Owns nothing: a transport has the times.
 */
#ifndef COLL_TRANSPORTS_COMMON_REACH_H
#define COLL_TRANSPORTS_COMMON_REACH_H

#include "transport/transport.h"

/* When the host of a peer was heard elsewhere; 0: never, or more than half of limit_ns is left until until_ns. The
 * question makes a control link to the peer. No lock of a link is held. */
static inline uint64_t coll_reach_heard_ns(const struct coll_transport_env *env, const struct coll_process_id *peer,
                                           uint64_t until_ns, uint64_t limit_ns, uint64_t now_ns)
{
	if (!env->heard_ns || now_ns + limit_ns / 2 < until_ns)
		return 0;
	return env->heard_ns(env->ctx, peer);
}

/* Whether the time of a link is over that was to be answered until until_ns, limit_ns after its last sign of life. */
static inline bool coll_reach_is_over(uint64_t until_ns, uint64_t limit_ns, uint64_t heard_ns, uint64_t now_ns)
{
	return now_ns >= until_ns && (now_ns >= heard_ns + limit_ns || now_ns >= until_ns + limit_ns);
}

#endif
