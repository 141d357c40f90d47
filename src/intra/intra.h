/*
 * intranode operations over memory that all ranks of a communicator map: for ranks of
 * one host and small messages, where a plan's steps and frames cost more than the bytes.
 *
 * Every rank owns a region that all others map (an offer of the transport). It alone writes
 * it, but for places that two ranks write in turn. The regions are exchanged at the first call that could use them.
 * Whether they are used is the same on all ranks: when every rank has mapped all others and has said so. Otherwise
 * every such call runs its plan (COLL_ERR_UNSUPPORTED from poll).
 *
 * This is below the communicator: it sees ranks, links and jobs, neither errors nor
 * waiting. What an operation is, and how it waits, is engine.h's coll_intra_op; which call is made by which of them
 * is src/select/ways.c.
 */
#ifndef COLL_INTRA_INTRA_H
#define COLL_INTRA_INTRA_H

#include <stdatomic.h>

#include "engine/engine.h"
#include "transport/transport.h"

enum {
	COLL_INTRA_SIZE_MAX = 16, /* ranks: everyone reads everyone */
	/* By the central buffer: a block for each in a cell of 16 KiB (central.h). Rank 0 has a link to each. */
	COLL_CENTRAL_SIZE_MAX = 1024
};

/* How a rank's memory is made, and its peers reached. */
struct coll_intra_fabric {
	void *arg;
	/* AGAIN: still connecting; *link is valid then, too. */
	coll_status (*link)(void *arg, int peer, const struct coll_transport **t, void **link);
	coll_status (*alloc)(void *arg, size_t len_bytes, struct coll_memory *mem);
	/* All peers have been offered it: no other one maps it from now on. */
	void (*settle)(void *arg, const struct coll_memory *mem);
	void (*free)(void *arg, struct coll_memory *mem);
	/* Whether results are stored past the caches. */
	struct coll_nt *nt;
	/* Other threads want the cores of this rank now: see context/crowd.h. NULL: nobody says. Local. */
	const atomic_bool *crowded;
	/* Agreed: more ranks than cores; how long messages move that lie in plain memory. */
	bool shared_cores;
	enum coll_intra_copy { COLL_INTRA_AUTO, COLL_INTRA_CACHED, COLL_INTRA_STREAMED, COLL_INTRA_CMAED } way;
};

struct coll_intra;

/* What was done directly, since creation: for tests and reports. */
struct coll_intra_stats {
	uint64_t direct;         /* calls made so */
	uint64_t declined;       /* that would have been, had all buffers been mapped */
	uint64_t passed;         /* not even tried after such */
	uint64_t bytes_read;     /* of any rank's buffers, by this one */
	uint64_t bytes_written;  /* to any rank's */
	uint64_t bytes_streamed; /* of those: past the caches */
	uint64_t parted;         /* bytes of ours left to a peer that did not stop writing */
	uint64_t cma_read;       /* bytes that the kernel has read for us in plain memory of others */
	uint64_t streamed_in;    /* bytes that came by slots */
	uint64_t tiles;          /* that calls were cut in: cico.c */
};

#endif
