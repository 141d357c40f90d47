/*
 * Operations made by hand over memory that all ranks of a communicator map: for ranks of
 * one host and small messages, where a plan's steps and frames cost more than the bytes.
 *
 * Every rank owns a region that all others map (an offer of the transport). It alone writes
 * it, but for places that two ranks write in turn. The regions are exchanged at the first call that could use them.
 * Whether they are used is the same on all ranks: when every rank has mapped all others and has said so. Otherwise
 * every such call runs its plan (COLL_ERR_UNSUPPORTED from poll).
 *
 * This is below the communicator: it knows ranks, links and jobs, neither errors nor
 * waiting. What an operation is, and how it waits, is engine.h's coll_hand.
 */
#ifndef COLL_NATIVE_NATIVE_H
#define COLL_NATIVE_NATIVE_H

#include "coll/transport.h"
#include "engine/engine.h"

enum {
	COLL_NATIVE_SIZE_MAX = 16,      /* ranks: everyone reads everyone */
	COLL_HUB_SIZE_MAX = 128,        /* by the hub: central.h */
	COLL_NATIVE_BYTES_MAX = 1 << 20 /* of COLL_NATIVE_BYTES */
};

/* How a rank's memory is made, and its peers reached. */
struct coll_native_fabric {
	void *arg;
	/* AGAIN: still connecting; *link is valid then, too. */
	coll_status (*link)(void *arg, int peer, const struct coll_transport **t, void **link);
	coll_status (*alloc)(void *arg, size_t len_bytes, struct coll_memory *mem);
	void (*free)(void *arg, struct coll_memory *mem);
	/* Whether results are stored past the caches. */
	struct coll_stores *stores;
	/* How blocks move that lie in plain memory; agreed. */
	enum coll_native_copy { COLL_NATIVE_AUTO, COLL_NATIVE_CACHED, COLL_NATIVE_STREAMED, COLL_NATIVE_PULLED } way;
};

struct coll_native;

/* Nothing is shared yet. payload_bytes: COLL_NATIVE_BYTES. alone: every rank has a core. fabric is
 * copied. */
coll_status coll_native_create(struct coll_native **native, const struct coll_native_fabric *fabric,
                               const struct coll_channel_key *key, int rank, int size, size_t payload_bytes,
                               bool alone);
/* Before the links are closed. NULL inside accepted. */
void coll_native_destroy(struct coll_native **native);

/* Whether a call gains by it, by agreed facts alone: count as in struct coll_job, payload_bytes as
 * above; crowded: more ranks than cores. */
bool coll_native_serves(enum coll_kind kind, int size, bool crowded, size_t count, size_t elem_bytes,
                        size_t payload_bytes);
/* What runs it. Valid as long as native. */
const struct coll_hand *coll_native_hand(struct coll_native *native, enum coll_kind kind, size_t count,
                                         size_t elem_bytes);
/* The same for long messages in buffers that all ranks map (coll_mem_alloc): zero_copy.c. */
bool coll_native_direct_serves(enum coll_kind kind, int size, size_t count, size_t elem_bytes);
/* small: what coll_native_hand() says, where coll_native_serves(); else NULL. */
const struct coll_hand *coll_native_direct_hand(struct coll_native *native, const struct coll_hand *small);
/* The communicator has failed: its calls' buffers are the caller's from here on. NULL accepted. Nothing of it is
 * polled again. */
void coll_native_revoke(struct coll_native *native);

/* What was done directly, since creation: for tests and reports. */
struct coll_native_stats {
	uint64_t direct;         /* calls made so */
	uint64_t declined;       /* that would have been, had all buffers been mapped */
	uint64_t passed;         /* not even tried after such */
	uint64_t bytes_read;     /* of any rank's buffers, by this one */
	uint64_t bytes_written;  /* to any rank's */
	uint64_t bytes_streamed; /* of those: past the caches */
	uint64_t parted;         /* bytes of ours left to a peer that did not stop writing */
	uint64_t pulled;         /* bytes that the kernel has read for us in plain memory of others */
	uint64_t shuttled;       /* bytes that came by slots */
	uint64_t tiles;          /* that calls were cut in: cico.c */
};
const struct coll_native_stats *coll_native_stats(const struct coll_native *native);

/* Whether fastpath.h can do it: one line, or none. */
bool coll_native_is_quick(const struct coll_hand *hand);
/* The way of a call that it makes (record/way.h); of one that passes(), the first that is tried. */
uint8_t coll_native_way(const struct coll_hand *hand);
/* The ways that are tried for a job, in order, and the condition of each: "zero-copy if ...; else pair-stream (plain
 * buffers)", cut to len_bytes. What is left for the plan goes to *plan. explain.c */
void coll_native_explain(const struct coll_hand *hand, const struct coll_job *job, char *buf, size_t len_bytes,
                         const char **plan);

/* Of one rank, or of rank 0 where there are more ranks than can read each other: bytes of address space. */
size_t coll_native_region_bytes(size_t payload_bytes);

#endif
