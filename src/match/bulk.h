/*
 * Payloads of long tagged messages.
 */
#ifndef COLL_MATCH_BULK_H
#define COLL_MATCH_BULK_H

#include "match/tags.h"

/* Advance the transfers with a peer. The lock is held. True: something moved. */
bool coll_tag_bulk(struct coll_comm *comm, struct coll_tag_peer *p);

#endif
