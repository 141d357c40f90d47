/*
 * Messages that the control plane carries for those above it, unread: from process to process over a proved link, and
 * words that outlive their writer (words.h). The functions are called with the lock held, unless they say otherwise.
 */
#ifndef COLL_CONTROL_CARRY_H
#define COLL_CONTROL_CARRY_H

#include "control/words.h"

/* Queue a message for a process. False: there is no link yet, or its queue is full; one is made, and the caller repeats
 * the message. */
bool coll_control_carry(struct coll_control *c, int peer, const uint8_t bytes[COLL_CARRIED_BYTES]);

/* Whether a process of this host has ended for certain, and all words that it left here were read after that. Looks, at
 * most once per COLL_DELAY_LIVENESS_RECONNECT_MS, if the end was not seen yet. */
bool coll_control_has_ended(struct coll_control *c, int peer);

/* Whether it is reported as dead or out of reach, or has left the job. */
bool coll_control_is_reported(const struct coll_control *c, int peer);

/* Takes the lock of c, for functions of this file. */
void coll_control_lock(struct coll_control *c);

#endif
