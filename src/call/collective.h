/*
 * Collectives as requests.
 */
#ifndef COLL_CALL_COLLECTIVE_H
#define COLL_CALL_COLLECTIVE_H

#include "inflight/request.h"

/* Make a request for a call, without submitting it. On failure the call is refused. */
coll_status coll_collective_make(struct coll_comm *comm, const struct coll_call *call,
                                 struct coll_collective_request **out);

/* Fill a new or used request for a call. Pins the plan. */
coll_status coll_collective_bind(struct coll_collective_request *c, const struct coll_call *call);

/* Room for packed data. */
coll_status coll_collective_need_pack(struct coll_collective_request *c, size_t bytes);

/* Begin the call: make its record and the signature of its frames. */
void coll_collective_sign(struct coll_collective_request *c);

/* What kinds of collectives have in common. start: run() starts wait.runs[0] when the collective has its place among
 * those that run. */
void coll_collective_enter(struct coll_request *r);
coll_status coll_collective_start(struct coll_request *r, coll_status (*run)(struct coll_collective_request *c));
coll_status coll_collective_run(struct coll_collective_request *c);
enum coll_limit coll_collective_limited(struct coll_request *r);
void coll_collective_leave(struct coll_request *r);
void coll_collective_recycle(struct coll_request *r);
void coll_collective_fini(struct coll_request *r);

#endif
