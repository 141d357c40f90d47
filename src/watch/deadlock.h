/*
 * Circles of waiting: ranks of one communicator, each in a call that cannot return before
 * the next has made another call, which it never will (docs/design/mismatch.md has the
 * argument). Messages and collectives do not wait for each other, so ranks that differ in
 * them share no number by which the difference could be found otherwise.
 *
 * A wait that does not move shows whom it waits for and for what: the stall. It is hidden
 * before anything moves or ends, so whoever reads one knows that this very wait is still on.
 * One writer at a time (the inline wait, or a driver with the async lock), any readers.
 */
#ifndef COLL_WATCH_DEADLOCK_H
#define COLL_WATCH_DEADLOCK_H

#include "core/blocked_state.h"

struct coll_comm;
struct coll_wait_timer;
struct coll_peer_state;

void coll_deadlock_show(struct coll_comm *comm, struct coll_wait_timer *p, const struct coll_blocked *s);
/* The wait moves or ends; nothing when it did not show. */
void coll_deadlock_hide(struct coll_comm *comm, struct coll_wait_timer *p);
/* What a communicator shows; false: nothing. Any thread. */
bool coll_deadlock_look(const struct coll_comm *comm, struct coll_blocked *s);

/* Two ranks of the circle of which one waits for a call that the other has not made. */
struct coll_deadlock {
	int waiting, missing;
	char text[400];
};

/* Whether rank peer, whose answer is *state, waits for this rank, whose wait shows *mine,
 * directly or through others, for ever. Asks those others. */
bool coll_deadlock_closes(struct coll_comm *comm, const struct coll_wait_timer *p, const struct coll_blocked *mine,
                          int peer, const struct coll_peer_state *state, struct coll_deadlock *circle);

#endif
