/*
 * Messages between two ranks as requests.
 */
#ifndef COLL_CALL_EXCHANGE_H
#define COLL_CALL_EXCHANGE_H

#include "inflight/request.h"

/* Make a request for a call, without submitting it. On failure the call is refused. */
coll_status coll_exchange_make(struct coll_comm *comm, const struct coll_pair *pair, struct coll_request **out);

#endif
