/*
 * What differs between kinds of requests: one table of functions for each. Drivers, queues and fronts call a request
 * through its table and name none of its functions.
 *
 *   kind        struct                   table in
 *   collective  coll_collective_request  call/collective.c; merged ones: call/group.c; operations: call/persistent.c
 *   pair        coll_pair_request        call/exchange.c
 *   tag         coll_tag_request         call/tag_kind.c
 *   event       coll_event_wait          event.c
 *   device      any of the first three   devcall/device_call.c: it has memory of a device, or is in a stream of one
 *   launch      any of the first two     devcall/capture_launch.c: it belongs to a graph, and runs at each launch
 *
 * Whether a request has to do with a device is found out before it is submitted. From then on it has one table to its
 * end. It is recycled as what it was made for.
 */
#ifndef COLL_INFLIGHT_KIND_H
#define COLL_INFLIGHT_KIND_H

#include "core/comm.h"

struct coll_request;

/* Whose deadlines count. Of collectives that follow each other only the oldest one's. */
enum coll_limit { COLL_UNLIMITED, COLL_LIMITED_OLDEST, COLL_LIMITED_EACH, COLL_LIMITED_MESSAGE };

/* What the thread that waits for a request has come to. */
enum coll_attend { COLL_WAIT_BEGINS, COLL_WAIT_LOOKS, COLL_WAIT_ENDS };

/* Functions that may be NULL do nothing. All but the last four are called under the async lock. */
struct coll_request_kind {
	const char *name;
	/* A thread that submits it need not wait for it: drivers look at once. */
	bool leaves;
	/* Its end may depend on a device, which wakes nobody up: whoever waits asks its driver now and then. */
	bool asks;
	/* It may be waited for in a later call than the one that submits it. */
	bool later;
	/* A call of a group may be merged with others. */
	bool merges;

	/* It is submitted: takes its numbers and its places in queues, makes its record. */
	void (*enter)(struct coll_request *r);
	/* Nothing blocks it any more. May end it. An error fails the communicator. */
	coll_status (*start)(struct coll_request *r);
	/* Look once at one that runs. True: it moved, or ended. NULL: others move it. */
	bool (*poll)(struct coll_request *r);
	/* Whether deadlines count for one that runs; fills what it waits for. */
	enum coll_limit (*limited)(struct coll_request *r);
	/* Nothing moves: whether a deadline has passed. NULL: coll_drive_inspect(). */
	coll_status (*inspect)(struct coll_request *r, uint64_t now_ns);
	/* The communicator has failed: whether the memory may be the user's again. False: poll() ends it later. NULL:
	 * it may. */
	bool (*left)(const struct coll_request *r);
	/* A member has died, and nothing is read or written for it any more: what of the request needs it is given up.
	 * True: that was all, and it has ended. NULL: nothing needs it. Collectives end without that. */
	bool (*lose_dead)(struct coll_request *r);
	/* It ends: what has waited for it in queues goes on. */
	void (*leave)(struct coll_request *r);

	/* The communicator's thread waits for it. BEGINS may end it. */
	void (*attend)(struct coll_request *r, enum coll_attend at);
	/* It has ended, or was not submitted: back to where it came from. */
	void (*recycle)(struct coll_request *r);
	/* Free what it has, but not the request. */
	void (*fini)(struct coll_request *r);
};

#endif
