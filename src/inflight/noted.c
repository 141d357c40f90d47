/*
 * The group of a thread: see noted.h. Owns the list, not what becomes of its calls.
 */
#include "inflight/noted.h"

#include "inflight/request.h"

_Thread_local struct coll_group coll_group __attribute__((tls_model("initial-exec")));

void coll_noted_add(struct coll_request *r, struct coll_stream *stream)
{
	r->stream = stream;
	r->held |= !stream;
	r->noted = true;
	r->status = COLL_OK;
	r->next_noted = NULL;
	if (coll_group.last)
		coll_group.last->next_noted = r;
	else
		coll_group.first = r;
	coll_group.last = r;
	coll_group.calls++;
}

bool coll_noted_has(const struct coll_comm *comm, const struct coll_stream *stream)
{
	for (const struct coll_request *r = coll_group.first; r; r = r->next_noted)
		if ((comm && r->comm == comm) || (stream && r->stream == stream))
			return true;
	return false;
}
