/*
 * A link of several sockets.
 */
#ifndef COLL_TRANSPORTS_TCP_RAILS_H
#define COLL_TRANSPORTS_TCP_RAILS_H

#include "transports/tcp/tcp.h"

/* Find or make the link to a peer with all of its rails, and count one handle more. */
coll_status coll_tcp_rails_open(struct tcp_inst *in, const struct coll_process_id *peer,
                                const struct coll_tcp_address *target, struct tcp_link **link);

/* The rail that carries a channel; the same at both ends. */
struct tcp_link *coll_tcp_rails_of(struct tcp_link *l, const struct coll_channel_key *key);

/* The entry link_status: of all rails together. */
coll_status coll_tcp_rails_status(void *link);

/* One rail has broken: so do the others, and the link. No lock held. */
void coll_tcp_rails_tear(struct tcp_inst *in);

/* The text of COLL_TCP_SOCKETS: 0 for auto; false, and 0: it is none. */
bool coll_tcp_rails_parse(const char *text, unsigned *sockets);

#endif
