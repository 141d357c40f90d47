/*
 * A link of several sockets.
 */
#ifndef COLL_TRANSPORTS_TCP_RAILS_H
#define COLL_TRANSPORTS_TCP_RAILS_H

#include "transports/common/rails.h"
#include "transports/tcp/tcp.h"

/* Find or make the link to a peer with all of its rails, and count one handle more. */
coll_status coll_tcp_rails_open(struct tcp_inst *in, const struct coll_process_id *peer,
                                const struct coll_tcp_address *target, struct coll_peer_link **link);
/* The entry link_close. */
void coll_tcp_link_close(void *link);

/* Where rails are lost, find other ways for them, or end the link. No lock held. */
void coll_tcp_rails_tear(struct tcp_inst *in);

/* Before the links are closed: what was posted last goes over another rail if its own is lost. The service thread has
 * ended. */
void coll_tcp_rails_settle(struct tcp_inst *in);

/* The text of COLL_TCP_SOCKETS: 0 for auto; false, and 0: it is none. */
bool coll_tcp_rails_parse(const char *text, unsigned *sockets);

#endif
