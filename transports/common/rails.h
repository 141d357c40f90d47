/*
 * Links of several connections, for transports whose links may have more than one way. Each connection is a rail: a
 * link of its own in the table, with its own handshake, queue, channels and lock, under the peer's id and the rail's
 * number (part). The first is the link that users hold; it points to the others. A channel belongs to one rail, which
 * its key names, so nothing has to be put in order.
 *
 * Invariant: the rails of a link are opened together and closed together, under the table's lock. What a rail is made
 * of, and what its end means for the others, are the transport's business.
 */
#ifndef COLL_TRANSPORTS_COMMON_RAILS_H
#define COLL_TRANSPORTS_COMMON_RAILS_H

#include "transports/common/link_table.h"

/* What differs between transports. Each with the lock of r held. */
struct coll_link_rails_table {
	/* Read what has come: perhaps the peer has closed r. */
	void (*drain)(struct coll_peer_link *r);
	/* r is in use from now on, over the way of this number. */
	void (*aim)(struct coll_peer_link *r, const void *ways, unsigned number);
	/* Its last handle was given back: say goodbye. */
	void (*bye)(struct coll_peer_link *r);
	/* Before its lock is released, by code that may have changed it. */
	void (*leave)(struct coll_peer_link *r);
};

/* Find or make the link to a peer with all of its rails, and count one handle more. ways are passed on to aim. */
coll_status coll_link_rails_open(struct coll_link_table *t, const struct coll_link_rails_table *table,
                                 const struct coll_process_id *peer, unsigned rails, const void *ways,
                                 struct coll_peer_link **link);
void coll_link_rails_close(struct coll_link_table *t, const struct coll_link_rails_table *table,
                           struct coll_peer_link *link);

/* The rail that carries a channel; the same at both ends. */
struct coll_peer_link *coll_link_rails_of(struct coll_peer_link *l, const struct coll_channel_key *key);

/* The entry link_status: that of the first rail, unless another has broken. One that is still connecting delays no
 * other: the frames of its channels wait in its queue. */
coll_status coll_link_rails_status(void *link);

/* A link of several rails may have lost one. Any lock held. */
void coll_link_rails_notice(struct coll_link_table *t);

/* Judge the rails of each link of several since the last notice. They stay meanwhile: they are swept and used again
 * under the table's lock only, which is held while judge runs. No lock held. */
void coll_link_rails_look(struct coll_link_table *t, void (*judge)(struct coll_peer_link *const *rail, unsigned count));

#endif
