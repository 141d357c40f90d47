/*
 * Asks.
 */
#ifndef COLL_CONTROL_PING_H
#define COLL_CONTROL_PING_H

#include "control/control.h"
#include "control/state.h"

/* A caller waits for a process: ask it, again and again until it is not renewed for a
 * while. One question per process, communicator and what it is about: a new one replaces
 * the old. */
void coll_control_ask(struct coll_control *c, int peer, const struct coll_mismatch_msg *q);

/* About what (enum coll_about) was asked on a communicator; -1: the newest answer of any,
 * comm 0: on any. */
void coll_control_peer(struct coll_control *c, int peer, uint64_t comm, int about, struct coll_peer_state *state);
void coll_control_on_ping(struct coll_control *c, struct coll_control_link *l, const struct coll_mismatch_msg *q);
void coll_control_on_pong(struct coll_control *c, struct coll_control_link *l, const struct coll_answer *answer);
void coll_control_send_pings(struct coll_control *c, uint64_t now);

/* When the last message came from any process of its host; 0: never. If that is long ago, and there is no link to
 * this one, one is made. */
uint64_t coll_control_heard_ns(struct coll_control *c, int peer);

/* A link is up: send the pings that are due over it now. */
void coll_control_ask_again(struct coll_control *c, int peer);

#endif
