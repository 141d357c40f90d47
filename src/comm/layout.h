/*
 * Where the ranks of a communicator are, and how the links between its hosts are.
 */
#ifndef COLL_COMM_LAYOUT_H
#define COLL_COMM_LAYOUT_H

#include "context/context.h"

struct coll_comm;
struct coll_layout;

/* The layout, or NULL where it cannot matter. w: the transport between hosts, or NULL. */
coll_status coll_comm_find_layout(const struct coll_comm *comm, const struct coll_opened_transport *w,
                                  struct coll_layout **layout);

/* The most streams that a link between hosts has over w, by the addresses of the first rank of each: so all ranks find
 * the same. 0: one host. */
uint32_t coll_comm_streams(const struct coll_comm *comm, const struct coll_opened_transport *w);

#endif
