/*
 * Direct calls in CUDA graphs (devcall/capture.h): the devices read each other's slots, and the hosts pass on who has
 * come, and who has left. docs/design/capture.md argues it.
 *
 * Invariants:
 *  - A stream waits for words that the host alone writes, in memory that stays as long as the graph.
 *  - A slot is filled when all ranks have left it: the host says so by CLEAR.
 *  - What is enqueued is guarded, also what fills the own slot. So a graph that outlives its communicator touches no
 *    memory of other ranks.
 */
#ifndef COLL_MAPPED_GRAPHS_H
#define COLL_MAPPED_GRAPHS_H

#include <stdatomic.h>
#include <stdint.h>

#include "devcall/mapped_region.h"

struct coll_mapped_call;

/* Two: while the ranks leave one, they fill the other. */
enum { COLL_MAPPED_GRAPH_SLOTS = 2 };

/* By the number of a sync. */
struct coll_mapped_words {
	_Alignas(64) _Atomic uint32_t full[COLL_MAPPED_GRAPH_SLOTS]; /* device: id of the call that waits there; 0 */
	_Alignas(64) _Atomic uint32_t go[COLL_MAPPED_GRAPH_SLOTS];   /* host */
};
/* Of `full`: the stream waits until the host has copied its input. */
#define COLL_MAPPED_COPY ((uint32_t)1 << 31)

/* Pinned memory that captured calls of the communicator have one after the other, and that stays with their graphs. */
struct coll_mapped_ring {
	struct coll_mapped_words *words;
	char *in, *out;
	uint64_t words_at, in_at, out_at, guard_at; /* as kernels see them */
};

/* ---- The communicator's thread ---- */

/* Before the first capture. Nothing, if calls do not go direct. */
void coll_mapped_graphs_open(struct coll_comm *comm, const struct coll_mapped_ring *ring);
/* Give a call the number of its first sync in the graph, which is equal on all ranks. Returns that of the next call. */
uint32_t coll_mapped_graph_assign(struct coll_mapped_call *call, uint32_t sync);
/* All of the call, in a stream that is being captured. */
coll_status coll_mapped_graph_put(const struct coll_comm *comm, const struct coll_job *job,
                                  const struct coll_mapped_call *call, coll_device_stream stream);

/* ---- Drivers; the lock is held ---- */

/* The id of a call that the device has come to; 0: none. For one that has no run yet. */
uint32_t coll_mapped_graph_reached(const struct coll_comm *comm);
/* What runs it. */
const struct coll_intra_op *coll_mapped_graph_op(const struct coll_comm *comm);
coll_status coll_mapped_graph_poll(void *arg, const struct coll_job *job, struct coll_intra_state *s);
void coll_mapped_graph_where(void *arg, const struct coll_job *job, const struct coll_intra_state *s,
                             struct coll_run_where *where);
/* Whether the call that runs waits for this rank's stream, and for no other rank. */
bool coll_mapped_graph_waits_for_stream(const struct coll_comm *comm);
/* The guard is set: all streams pass, for good. */
void coll_mapped_graphs_release(struct coll_comm *comm);
/* And whether the device has left the memory of other ranks, which are told. */
bool coll_mapped_graphs_have_left(struct coll_mapped *d);

#endif
