/*
 * Direct calls: devices of one host that read each other's memory, so that device data does not cross host memory.
 * docs/design/direct.md argues them.
 *
 * Invariants:
 *  - Whether a call goes direct follows from agreed facts of the call. A rank that brings host memory copies it into
 * its own device slots.
 *  - Each rank has slots in device memory that all others read, and a page of words in host memory that all others
 *    write. The streams of a rank wait for words of its own page only.
 *  - What is enqueued is a valid serial order, segment by segment: see coll_mapped_put().
 *  - Drivers read and write words and host buffers. They do not call the device.
 */
#ifndef COLL_MAPPED_CALL_H
#define COLL_MAPPED_CALL_H

#include "devcall/mapped_region.h"

/* What runs a direct call. */
coll_status coll_mapped_poll(void *arg, const struct coll_job *job, struct coll_intra_state *s);
void coll_mapped_where(void *arg, const struct coll_job *job, const struct coll_intra_state *s,
                       struct coll_run_where *where);
bool coll_mapped_is(const struct coll_comm *comm, const struct coll_intra_op *op);

struct coll_mapped_call;
/* The copies of host memory that its stream waits for, from s->done on. True: some were made. They are made in the
 * order of calls. */
bool coll_mapped_copy(struct coll_mapped *d, const struct coll_job *job, const struct coll_mapped_call *call,
                      struct coll_intra_state *s);

/* One call. The engine has the first member as job.stage. */
struct coll_mapped_call {
	struct coll_run_stage stage;
	bool in_host, out_host; /* these pass through pinned memory */
	bool kept;              /* this rank does not write its input before the call ends */
	bool one_shot;          /* an all-reduce in which each rank may reduce all inputs itself: agreed */
	uint32_t syncs;         /* of a tile: times at which all ranks wait for each other */
	uint32_t sync;          /* number of the last one before the call */
	uint32_t turn;          /* number of its first tile, whose parity says which slots it uses; of captured calls,
	                         * of its first sync in the graph */
	uint32_t id;            /* of captured calls: what their streams say when they come to a sync */
	size_t tile, tiles;     /* elements; number of them */
	/* Long calls: ranks may read the buffers of others (records.h). */
	bool long_;
	uint32_t tail;   /* 1: a sync behind the last tile, since buffers may be read until then */
	uint32_t number; /* of its records */
	struct coll_mapped_buffer {
		uintptr_t base; /* of the allocation; 0: others cannot have it */
		size_t offset, len_bytes;
		uint64_t id;
		uint64_t word; /* of the record; 0: none */
	} in;
};

/* False: the call moves nothing, and is made as others are. captured: see graphs.h. */
bool coll_mapped_prepare(struct coll_comm *comm, const struct coll_job *job, bool in_host, bool out_host, bool captured,
                         struct coll_mapped_call *call);
/* Give it its numbers, in the order of calls. */
void coll_mapped_assign(struct coll_comm *comm, struct coll_mapped_call *call);
/* Before the first call of several is put into streams: last is the last one. False: a rank has left the communicator,
 * nothing may be enqueued, and the communicator is going to fail. */
bool coll_mapped_claim(struct coll_comm *comm, const struct coll_mapped_call *last);

/*
 * What is enqueued for a call, cut where a stream waits for other ranks: each segment but the first begins with such a
 * wait. A thread that drives several ranks enqueues segment k of all of them before segment k + 1 of any.
 */
size_t coll_mapped_segments(const struct coll_mapped_call *call);
/* Whether a segment need not wait any more, and the wait itself. */
bool coll_mapped_has_come(const struct coll_comm *comm, const struct coll_mapped_call *call, size_t segment);
coll_status coll_mapped_put_wait(const struct coll_comm *comm, const struct coll_mapped_call *call, size_t segment,
                                 coll_device_stream stream);
/* A segment without its wait. waits: with that of the next one. ended: written when the device has ended the call. */
coll_status coll_mapped_put(struct coll_comm *comm, const struct coll_job *job, const struct coll_mapped_call *call,
                            size_t segment, bool waits, struct coll_device_word ended, coll_device_stream stream);

/* The word that says that all of the calls which were enqueued have ended, for a chain that is broken off. Their
 * number: 0 if the communicator has no direct calls. */
int coll_mapped_left_word(const struct coll_comm *comm, struct coll_device_word *word);

/* Whether a stream waits until the host has copied something of the call. */
static inline bool coll_mapped_copies(const struct coll_mapped_call *call)
{
	return call->in_host || call->out_host;
}

/* Whether the call waits for this rank's stream, and for no other rank. */
bool coll_mapped_waits_for_stream(const struct coll_comm *comm, const struct coll_mapped_call *call);
/* The communicator has failed: this rank's streams go on, and write nothing. A word that a late peer writes undoes
 * that, so it is said again until the streams have drained. */
void coll_mapped_release(struct coll_comm *comm);
/* And then: whether no other rank reads the user's memory any more. over: it has been waited for; from now on
 * this rank's memory is worth nothing to the others. */
bool coll_mapped_is_let_go(struct coll_comm *comm, bool over);

#endif
