/*
 * The direct path: ranks of one host whose devices map each other's memory exchange device data without crossing host
 * memory. docs/design/direct.md argues it.
 *
 * Invariants:
 *  - Whether a communicator has it is agreed when the communicator is created. Whether a call uses it follows from
 *    agreed facts of the call. A rank that brings host memory copies it into its own device slots.
 *  - Each rank has slots in device memory that all others read, and a page of words in host memory that all others
 *    write. The streams of a rank wait for words of its own page only.
 *  - What is enqueued is a valid serial order, segment by segment: see coll_direct_put().
 *  - Drivers read and write words and host buffers. They do not call the device.
 */
#ifndef COLL_DIRECT_DIRECT_H
#define COLL_DIRECT_DIRECT_H

#include "core/comm.h"
#include "device/device.h"

enum { COLL_DIRECT_RANKS_MAX = 8 };

/* ---- Life: regions.c ---- */

/* What the ranks tell each other, in rank order. */
struct coll_direct_card {
	uint32_t can, pid;
	uint64_t process[2]; /* equal within a process */
	uint64_t device;     /* these three are of use in this process alone */
	uint64_t shared;
	uint64_t page_at;
	struct coll_device_card region;
	char why[64]; /* not can */
};
struct coll_direct_verdict {
	uint32_t mapped;
	char why[60];
};

/* Whether the communicator may have a direct path. Agreed, without an exchange. */
bool coll_direct_eligible(const struct coll_comm *comm);
/* Make this rank's memory, and say what others need to map it. The communicator is eligible. */
void coll_direct_offer(struct coll_comm *comm, struct coll_direct_card *card);
/* Map the memory of all others, which do the same. Bounded by the time for creation. */
void coll_direct_map(struct coll_comm *comm, const struct coll_direct_card *cards, struct coll_direct_verdict *mine);
/* All ranks have said whether they could: from now on calls go direct, or never. */
void coll_direct_agree(struct coll_comm *comm, const struct coll_direct_verdict *verdicts);
/* The streams of this rank have ended their work, or never will (stuck: then memory stays). */
void coll_direct_destroy(struct coll_comm *comm, bool stuck);
/* For people: "direct by descriptors", or "staged: " and why. */
void coll_direct_describe(const struct coll_comm *comm, char *buf, size_t len_bytes);

/* ---- Calls: call.c ---- */

/* What runs a call that goes direct; NULL: the call does not. Agreed. */
const struct coll_intra_op *coll_direct_find(const struct coll_comm *comm, const struct coll_call *call);
bool coll_direct_is(const struct coll_comm *comm, const struct coll_intra_op *op);

/* One call. The engine has the first member as job.stage. */
struct coll_direct_call {
	struct coll_run_stage stage;
	bool in_host, out_host; /* these pass through pinned memory */
	uint32_t syncs;         /* of a tile: times at which all ranks wait for each other */
	uint32_t sync;          /* number of the last one before the call */
	uint32_t turn;          /* number of its first tile, whose parity says which slots it uses */
	size_t tile, tiles;     /* elements; number of them */
};

/* False: the call moves nothing, and is made as others are. */
bool coll_direct_prepare(const struct coll_comm *comm, const struct coll_job *job, bool in_host, bool out_host,
                         struct coll_direct_call *call);
/* Give it its numbers, in the order of calls. */
void coll_direct_deal(struct coll_comm *comm, struct coll_direct_call *call);
/* Before the first call of several is put into streams: last is the last one. False: a rank has left the communicator,
 * nothing may be enqueued, and the communicator is going to fail. */
bool coll_direct_claim(struct coll_comm *comm, const struct coll_direct_call *last);
/*
 * What is enqueued for a call, cut where a stream waits for other ranks: each segment but the last ends with such a
 * wait. A thread that drives several ranks enqueues segment k of all of them before segment k + 1 of any.
 */
size_t coll_direct_segments(const struct coll_direct_call *call);
coll_status coll_direct_put(struct coll_comm *comm, const struct coll_job *job, const struct coll_direct_call *call,
                            size_t segment, coll_device_stream stream);

/* Whether the device has ended the call. */
bool coll_direct_ended(const struct coll_comm *comm, const struct coll_direct_call *call);
/* Whether it has ended all calls. */
bool coll_direct_drained(const struct coll_comm *comm);
/* Whether the call waits for this rank's stream, and for no other rank. */
bool coll_direct_waits_for_stream(const struct coll_comm *comm, const struct coll_direct_call *call);
/* The communicator has failed: this rank's streams go on, and write nothing. A word that a late peer writes undoes
 * that, so it is said again until the streams have drained. */
void coll_direct_release(struct coll_comm *comm);

#endif
