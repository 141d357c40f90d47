/*
 * State that the two roles of a rendezvous share: listeners, connections without a proof
 * yet, children of the tree, the poll loop, messages. Private to rendezvous*.c.
 *
 * The tree is built in order of arrival: the root (rank 0, or the host of a unique id) assigns a parent to each new
 * rank (itself to the first FAN_OUT), so a parent always connects before its children. The root never holds more than
 * FAN_OUT connections plus those of ranks whose parent could not be reached.
 */
#ifndef COLL_BOOTSTRAP_RENDEZVOUS_STATE_H
#define COLL_BOOTSTRAP_RENDEZVOUS_STATE_H

#include <poll.h>
#include <stdlib.h>

#include "base/version.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/wire.h"

enum {
	FAN_OUT = 8,
	PENDING_MAX = 128,     /* connections that have not said who they are */
	WIRE_VERSION = 6,      /* of the frames below */
	NAMES_ITSELF = 5,      /* the first version in which an introduction names the library */
	TEXT_BYTES = 600,      /* of messages passed between ranks */
	SPARE_BYTES = 1 << 20, /* enough to say to some connections that there is no memory */
};

enum frame_type {
	FRAME_REGISTER = 1, /* newcomer to the root: struct introduction, places, payload */
	FRAME_STAY,         /* root: you are my child */
	FRAME_PARENT,       /* root: struct direction, places: go there */
	FRAME_ATTACH,       /* child to parent: struct introduction */
	FRAME_WELCOME,      /* parent to child */
	FRAME_ATTACHED,     /* up: uint32_t rank */
	FRAME_WAITING,      /* down: struct failure of the first that is missing, text */
	FRAME_FAILED,       /* up and down: struct failure, text */
	FRAME_TABLE         /* down: everything */
};

struct introduction {
	uint32_t version;
	uint32_t size;
	uint32_t rank;
	uint32_t adopt;                   /* my parent cannot be reached: take me */
	char library[COLL_LIBRARY_BYTES]; /* from version 5 on; it and what stands before it stays where it is */
	uint64_t len_bytes;
	uint64_t host; /* hash of the host id */
	unsigned char incarnation[16];
	uint32_t places_bytes;
	uint32_t timeout_ms; /* my time limit */
	uint64_t left_ms;    /* what is left of it */
};

struct direction {
	uint32_t rank; /* of the parent */
	uint32_t spare;
	uint64_t host;
};

struct failure {
	int32_t status;
	int32_t rank;
};

struct rendezvous_tries;

struct child {
	struct coll_wire wire;
	int rank;
};

struct rendezvous {
	const struct coll_rendezvous_point *how;
	struct coll_error_box *err;
	coll_status status; /* COLL_AGAIN while it lasts */
	int culprit;
	char text[TEXT_BYTES]; /* of the failure */

	struct coll_rendezvous_listeners listeners;
	bool closed;               /* no further rank is expected */
	uint64_t accept_again_ns;  /* descriptors ran out: wait until then */
	int lacking;               /* errno of that; 0: the last one that came could be accepted */
	struct coll_wire *pending; /* PENDING_MAX */
	int pending_count;
	char mute[80]; /* the last that proved the key and was closed before it had said which rank it is; "" none */
	struct rendezvous_tries *tries; /* of a member, or NULL */
	struct child *children;
	int child_count, child_cap;
	struct pollfd *polls;
	void *spare; /* given back when memory runs out, so that others can be told */
	int poll_cap;

	/* The role: called for each complete frame of a newcomer; takes the wire over
	 * by rendezvous_adopt(), or leaves it to be closed by the other end. False: close. */
	const char *arrival; /* what a newcomer's first frame is for */
	bool (*newcomer)(void *role, struct coll_wire *w, const struct coll_wire_frame *f);
	void (*from_child)(void *role, struct child *k, const struct coll_wire_frame *f);
	void (*child_lost)(void *role, const struct child *k);
	void *role;
};

/* Send the table to every child, and deliver it. */
static inline bool rendezvous_give_table(struct rendezvous *r)
{
	unsigned char *packed = NULL;
	size_t packed_bytes = 0;
	bool delivered;

	if (r->child_count > 0 && !(packed = pack_table(r->how, &packed_bytes))) {
		rendezvous_fail(r, COLL_ERR_MEMORY, r->how->rank, "no memory for the table of the job");
		rendezvous_send_failure(r);
		return false;
	}
	rendezvous_send_all(r, FRAME_TABLE, NULL, 0, packed, packed_bytes);
	delivered = rendezvous_deliver(r);
	/* Nothing is sent behind it, which would borrow it still. */
	free(packed);
	return delivered;
}

#endif
