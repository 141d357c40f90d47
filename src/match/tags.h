/*
 * Tagged messages of a communicator: envelopes, payloads, credits.
 *
 * To each rank that a message goes to or comes from there is one lane of envelopes in each direction, and one of bulk
 * frames. An envelope lane carries messages up to the eager limit whole, longer ones as an offer, and the answers to
 * offers. Its frames are always taken in, whatever this rank is waiting for, so answers never queue behind messages
 * that nobody wants:
 *
 *   eager    sender: envelope and payload ---------------> receiver: to the receive, or into the pool
 *   long     sender: OFFER ------------------------------> receiver: to a receive, or into the pool
 *            sender: <------------------------------ PULL, as soon as a receive has it
 *            sender: payload, an ordinary pair transfer -> receiver's buffer
 *
 * What bounds memory: a sender has as many cells of the receiver's pool as the share says, and waits when it has none
 * left. Cells come back, with any frame or alone, when a receive has taken the message. Payloads follow in the order
 * of the PULLs, one at a time in each direction of a pair, so both ends number them alike.
 *
 * Channels open with the first message between two ranks. Its sender wakes the other rank over the control plane,
 * since that rank cannot expect it: a driver there opens its ends.
 *
 * All functions take the lock of comm->tagged, except as they say. None blocks.
 */
#ifndef COLL_MATCH_TAGS_H
#define COLL_MATCH_TAGS_H

#include "core/comm.h"
#include "match/matcher.h"
#include "watch/watchdog.h"

enum coll_tag_state {
	COLL_TAG_IDLE,
	COLL_TAG_POSTED,  /* a receive that waits for a message */
	COLL_TAG_QUEUED,  /* a send that waits for room at its receiver */
	COLL_TAG_OFFERED, /* a send that waits for its receive */
	COLL_TAG_ANSWERS, /* a receive whose answer to an offer has not left */
	COLL_TAG_BULK,    /* its payload is under way, or behind others */
	COLL_TAG_DONE
};

/* One send or receive, in memory of its caller. Filled by coll_tag_op_send() and coll_tag_op_receive(); from then on
 * the lock guards it, until it is done. */
struct coll_tag_op {
	struct coll_posted posted; /* of a receive */
	struct coll_link link;     /* in the list that its state says */
	void *owner;               /* the caller's */
	enum coll_tag_state state;
	bool receives;
	bool refuses; /* a receive that answers DROP */
	bool probes;  /* a receive that leaves its message where it is */
	void *buf;    /* read or written, as receives says */
	size_t count; /* elements, of a receive at most */
	coll_dtype type;
	int peer;        /* to whom; from whom, COLL_MATCH_ANY: any */
	int tag;         /* COLL_MATCH_ANY: any */
	uint64_t id;     /* of its offer */
	uint32_t events; /* counts what happens to it */
	/* When it is done. Of a receive also what it got. */
	coll_status status;
	int source, got_tag; /* -1: nothing */
	size_t got_count;
	coll_dtype got_type;
	int dead; /* the process whose death has ended it, -1: none */
};

/* Make what a communicator needs for tags. Idempotent. All below but coll_tags_free() and coll_tags_poll() need it.
 * COLL_ERR_MEMORY; COLL_ERR_ABORTED: the communicator has failed. */
coll_status coll_tags_make(struct coll_comm *comm);
/* Nothing is pending, and nobody else uses the communicator. */
void coll_tags_free(struct coll_comm *comm);

/* Take in what has come, send what can be sent. One thread at a time, under the async lock. True: something moved.
 * *faulty: coll_tags_fault() may have something to say. */
bool coll_tags_poll(struct coll_comm *comm, bool *faulty);
/* The next operation that is done, in order; taken from the list. NULL: none. */
struct coll_tag_op *coll_tags_next_done(struct coll_comm *comm);

/* What an unfinished operation waits for: fills runs, or the rank. *moves changes with it and while that rank receives,
 * or sends, other messages: an operation behind many others has no step of its own for long. False: it waits for no
 * rank in particular. */
bool coll_tags_waits_for(struct coll_comm *comm, const struct coll_tag_op *op, struct coll_wait *wait, uint32_t *moves);

/* Why tags move no more. */
struct coll_tags_fault {
	coll_status status; /* OK: there is no fault */
	int peer;
	struct coll_run *run;         /* it ended with that; NULL: it was an envelope */
	const struct coll_tag_op *op; /* the operation of the run; NULL: it concerns all */
	char text[160];               /* "": none */
};
/* A fault that concerns all operations, else the end of a link on which op depends. Cheap if there is none. */
bool coll_tags_fault(struct coll_comm *comm, const struct coll_tag_op *op, struct coll_tags_fault *fault);

/* Bytes in use in all pools, and the longest payload that is sent with its envelope: for tests and inspection. */
size_t coll_tags_pool_bytes(struct coll_comm *comm);
size_t coll_tags_eager_bytes(struct coll_comm *comm);

/* ---- For src/match/ alone; the lock is held ---- */

struct coll_tag_peer; /* state.h */

/* Open the channels of a peer. wakes: it may not expect that. */
void coll_tag_open(struct coll_comm *comm, struct coll_tag_peer *p, bool wakes);
/* The first fault stays. */
void coll_tag_fail(struct coll_tags *t, coll_status status, int peer, const char *text);
/* An envelope channel of a peer reported st, which is neither OK nor AGAIN. */
void coll_tag_lost(struct coll_tags *t, struct coll_tag_peer *p, coll_status st);

#endif
