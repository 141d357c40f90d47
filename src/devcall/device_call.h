/*
 * What a request has of devices: its state, and the table of its kind.
 */
#ifndef COLL_DEVCALL_DEVICE_CALL_H
#define COLL_DEVCALL_DEVICE_CALL_H

#include "devcall/mapped_call.h"
#include "device/device.h"
#include "engine/stage.h"
#include "inflight/async.h"
#include "inflight/request.h"

struct coll_device_call {
	const struct coll_request_kind *host, *launch; /* the kind that it was made as, and that in a graph */
	struct coll_device_capture capture;            /* of its stream */
	struct coll_captured *captured;                /* of a graph: runs at its launches, see capture_launch.c */
	bool enqueued;                                 /* lock: its work is in the stream, or is just being put there */
	bool direct;            /* a collective that goes direct (devcall/mapped_call.h): it has no slots */
	bool reached;           /* lock: its stream has come to its first tile */
	uint8_t shown;          /* enum coll_request_shown, from then on */
	bool over;              /* lock: its payload has left; it goes on as on the host */
	uint64_t waiting_ns;    /* lock: it has waited for its stream since then; 0: it does not */
	uint64_t lost_until_ns; /* lock: the communicator has failed, the device is waited for until then */
	struct coll_mapped_call direct_call; /* the engine has its first member */
	struct coll_intra_state ahead;       /* lock: what it has done before it was started */
	/* By half of a pair; collectives use the first. */
	struct coll_run_stage stage[2];
	size_t tiles;               /* of the longer half */
	uint32_t last;              /* `done` has this value when the device has ended the call */
	int chain_calls;            /* of the first of its chain: how many it has */
	void *stream, *user_stream; /* its work goes there; and was asked to go there */
	/* The other requests of its communicator that are submitted with it. The first of them has the others: the
	 * first of another communicator, the last, and their number (chain_calls). */
	struct coll_request *next, *next_chain, *chain_last;
	/* Of its lane (stage_order.h): the request behind it, and the tiles before it. */
	struct coll_request *next_in_lane;
	size_t lane_tiles;
	/* Of a call that has no run, the host copies the tiles itself: `from` to `to`, or to and from the slots.
	 * The payload of a tagged message, or a message of this rank to itself. */
	struct coll_stage_local {
		const char *from; /* NULL: the call has runs */
		char *to;
		size_t len_bytes;
		size_t tiles; /* lock: copied so far */
	} local;
};
static_assert(sizeof(struct coll_device_call) <= 552, "what a request has of devices");

/* A message to another rank, or from one. */
static inline bool coll_device_is_message(const struct coll_request *r)
{
	return r->is == COLL_IS_PAIR && (coll_pair_of(r)->plan[0] || coll_pair_of(r)->plan[1]);
}

/* The device handles requests of the context from now on, if it has one. */
void coll_device_attach(struct coll_context *ctx);

#endif
