/*
 * What the kernel has counted of a link.
 */
#ifndef COLL_TRANSPORTS_TCP_COUNTS_H
#define COLL_TRANSPORTS_TCP_COUNTS_H

#include "transport/transport.h"

/* The entry link_counts of the table. Any thread. */
bool coll_tcp_link_counts(void *link, struct coll_link_counts *counts);

#endif
