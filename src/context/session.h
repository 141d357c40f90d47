/*
 * The session key: what all links of one job prove that they know.
 *
 * Every rank computes it from the random bytes that each of them put into its peer info, under the launch secret. It
 * never travels. Where there is no launch secret it is as private as the exchange of the peer infos: the socket of one
 * user, or the caller's own. Nothing needs it before a job is joined, and no listener is served before.
 */
#ifndef COLL_CONTEXT_SESSION_H
#define COLL_CONTEXT_SESSION_H

#include "base/error.h"
#include "control/peer_info.h"

/* Draw what this process puts in. */
coll_status coll_session_contribute(struct coll_peer_info *info, struct coll_error_box *err);

/* infos: of all ranks, in rank order. */
void coll_session_key(const uint64_t secret[2], const struct coll_peer_info *infos, int size, uint64_t key[2]);
/* Overwrite what they put in: nobody needs it any more. */
void coll_session_forget(struct coll_peer_info *infos, int size);

#endif
