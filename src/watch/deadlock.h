/*
 * Deadlocks: cycles of ranks of one communicator, each in a call that cannot return before
 * the next rank makes another call, which it never will (docs/design/mismatch.md has the
 * argument). Messages and collectives do not wait for each other. So ranks that differ in
 * them have no common call number that would show the difference.
 *
 * A wait that does not move publishes its blocked state: the rank it waits for, and the call. The state is
 * hidden before anything moves or ends, so a reader that finds it can rely on the wait being current.
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

/* Two ranks of the cycle of which one waits for a call that the other has not made. */
struct coll_deadlock {
	int waiting, missing;
	char text[400];
};

/* Whether rank peer, whose answer is *state, waits for this rank, whose wait shows *mine,
 * directly or through others, for ever. Asks those others. */
bool coll_deadlock_closes(struct coll_comm *comm, const struct coll_wait_timer *p, const struct coll_blocked *mine,
                          int peer, const struct coll_peer_state *state, struct coll_deadlock *cycle);

#endif
