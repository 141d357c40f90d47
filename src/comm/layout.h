/*
 * Where the ranks of a communicator are, and how the links between its hosts are.
 */
#ifndef COLL_COMM_LAYOUT_H
#define COLL_COMM_LAYOUT_H

#include "core/rails.h"

struct coll_comm;
struct coll_layout;

/* The layout, or NULL where it cannot matter, by comm->host_rates. */
coll_status coll_comm_find_layout(const struct coll_comm *comm, struct coll_layout **layout);

/* The level of hosts that have one rank each, or NULL: other than a layout it is for chains alone, see facts.chain. */
coll_status coll_comm_find_chain(const struct coll_comm *comm, struct coll_layout **chain);

/* w: the transport between hosts, or NULL. The rails of its channels between hosts, by that layout; NULL on one host.
 * Without memory this rank would choose otherwise than other ranks. */
coll_status coll_comm_find_rails(const struct coll_comm *comm, const struct coll_opened_transport *w,
                                 const struct coll_layout *layout, struct coll_rails **rails);

#endif
