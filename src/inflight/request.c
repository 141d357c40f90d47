/*
 * Requests as objects: see request.h. Owns the pools. What a request does is in the table of its kind.
 */
#include "inflight/request.h"

#include <stdlib.h>

#include "inflight/async.h"
#include "inflight/lock.h"

void coll_request_init(struct coll_request *r, struct coll_comm *comm, const struct coll_request_kind *kind,
                       enum coll_request_is is)
{
	*r = (struct coll_request){.comm = comm, .kind = kind, .is = is};
	coll_list_init(&r->all);
	coll_list_init(&r->running);
	coll_list_init(&r->item);
}

void coll_request_fini(struct coll_request *r)
{
	if (r->kind->fini)
		r->kind->fini(r);
	free(r->device);
	r->device = NULL;
}

/* Take back what drivers have ended. */
static void recycle_done(struct coll_comm *comm)
{
	struct coll_request *r;

	coll_async_lock(comm->ctx);
	r = comm->inflight.done;
	comm->inflight.done = NULL;
	pthread_mutex_unlock(&comm->ctx->async->lock);
	while (r) {
		struct coll_request *next = r->next;

		coll_request_recycle(r);
		r = next;
	}
}

struct coll_request *coll_request_take(struct coll_comm *comm, const struct coll_request_kind *kind,
                                       enum coll_request_is is, size_t bytes)
{
	struct coll_request **spare = &comm->inflight.spare[is], *r;

	if (!*spare)
		recycle_done(comm);
	r = *spare;
	if (r) {
		*spare = r->next;
		r->next = NULL;
		r->kind = kind;
		r->held = false;
		return r;
	}
	r = calloc(1, bytes);
	if (r)
		coll_request_init(r, comm, kind, is);
	return r;
}

void coll_request_give(struct coll_request *r)
{
	struct coll_request **spare = &r->comm->inflight.spare[r->is];

	r->next = *spare;
	*spare = r;
}
