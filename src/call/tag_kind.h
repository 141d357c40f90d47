/*
 * The kind of request that a tagged message is: what drivers do with it while it is in flight. tag.c makes these
 * requests and ends them for their callers.
 */
#ifndef COLL_CALL_TAG_KIND_H
#define COLL_CALL_TAG_KIND_H

#include "inflight/request.h"
#include "match/tags.h"

struct coll_tag_send {
	struct coll_tag_request tag;
	struct coll_tag_op op;
	size_t pack_cap;
};

/* A posted receive. */
struct coll_tag_receive {
	struct coll_tag_request tag;
	struct coll_tag_op op;
	struct coll_context *ctx; /* retained */
	int rank, size;           /* of the receiver, for texts */
	uint64_t waited_until_ns; /* the end of its last wait; 0: none. Of the thread that waits */
	/* Into device memory. The message comes to `host`. While to_device is in a list, the communicator exists. */
	void *device, *host;
	struct coll_link to_device; /* comm->inflight.to_device; async lock, and changed by who has the copier */
	coll_status brought;
	struct coll_failure *why; /* it has ended with the communicator, which may be destroyed by now */
};

/* Both kinds have it behind the request. */
static_assert(offsetof(struct coll_tag_send, op) == offsetof(struct coll_tag_receive, op), "one place for both");

static inline struct coll_tag_op *coll_tag_op_of(const struct coll_request *r)
{
	return &COLL_ENTRY(coll_tag_of(r), struct coll_tag_send, tag)->op;
}

static inline struct coll_tag_receive *coll_tag_receive_of(const struct coll_request *r)
{
	return COLL_ENTRY(coll_tag_of(r), struct coll_tag_receive, tag);
}

extern const struct coll_request_kind coll_tag_kind;

/* End a send to this rank itself for which no receive can be posted any more. The lock is held. False: it is none, or
 * it has a receive or room in the pool. */
bool coll_tag_kind_end_stranded(struct coll_request *r, coll_status status);

/* The drivers of a context move its tagged messages from now on. */
void coll_tag_kind_attach(struct coll_context *ctx);

#endif
