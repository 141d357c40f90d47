/*
 * hook: a transport wrapped in faults, for tests. The wrapped table behaves as the
 * inner one but for what its text says:
 *
 *   COLL_HOOK="rule;rule;..."       rule = kind[:key=value,key=value...]
 *
 *   delay:us=200,every=7      hold back frames for 200 microseconds
 *   flip:frame=10,byte=3      flip a byte of the payload of one frame
 *   head:frame=10             change the signature in the head of one frame
 *   drop:frame=20             lose one frame: the sender believes it is sent
 *   close:frame=30            the link breaks: COLL_ERR_PEER_DEAD at this end
 *   kill:frame=50             SIGKILL to this process
 *
 * Keys. rank=N: only at that rank (default: at every rank). transport=NAME: only on
 * that transport. frame=N: the first fit frame numbered N or later; frames are numbered from 0
 * over all channels of the process on one transport, in the order in which their
 * sending begins. every=K: from there on every K-th frame (without it: once; delay: every
 * frame). us=N: the delay. byte=N: which byte, modulo the length; without it one
 * chosen by the number and seed=N. mask=N: the bits to flip (default 255, all of the byte).
 *
 * A flip needs a frame with payload that is sent by value: while one is due, frames by
 * reference are refused (COLL_ERR_UNSUPPORTED), as a transport may do at any time.
 * The faults depend on nothing but the text and the order of frames.
 */
#ifndef COLL_TRANSPORTS_HOOK_HOOK_H
#define COLL_TRANSPORTS_HOOK_HOOK_H

#include "base/error.h"
#include "transport/transport.h"

/*
 * Wrap inner by spec, at this rank: *table is complete and keeps inner's name; open
 * it with env.hook = *state. *state is freed by unwrap, after fini. A malformed spec
 * is COLL_ERR_CONFIG, with the reason in err; then both outputs are untouched. Where
 * no rule is for this rank and transport, *table is inner itself, completed, and
 * *state NULL.
 */
coll_status coll_transport_hook_wrap(const struct coll_transport *inner, const char *spec, int rank,
                                     struct coll_transport *table, void **state, struct coll_error_box *err);
void coll_transport_hook_unwrap(void *state); /* NULL accepted */

#endif
