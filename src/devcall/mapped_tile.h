/*
 * One tile of a direct call on this rank: what is enqueued for it between the times at which all ranks wait for each
 * other, and what the host copies. Ordinary calls (call.c) and captured ones (graphs.c) have their tiles in other
 * slots; the work is the same.
 */
#ifndef COLL_MAPPED_TILE_H
#define COLL_MAPPED_TILE_H

#include "devcall/mapped_call.h"
#include "devcall/mapped_state.h"

struct coll_mapped_tile {
	const struct coll_mapped *d;
	const struct coll_job *job;
	const struct coll_mapped_call *call;
	const struct mapped_base *base;
	size_t first;          /* element of each block, or of the vector */
	uint64_t slot, result; /* where they begin in the region of every rank */
};

/* Whether a rank has an input, or an output, in a call of that kind. */
bool coll_mapped_reads(enum coll_kind kind, bool root);
bool coll_mapped_writes(enum coll_kind kind, bool root);

/* Whether a call multiplies each input by its rank's factor: a premultiplied sum. */
bool coll_mapped_scales(const struct coll_job *job);

/* Fill the own slot; behind a sync, read those of all and write `out`. With two syncs: between them, reduce a part into
 * the slot for results. All of it is guarded. */
coll_status coll_mapped_put_fill(const struct coll_mapped_tile *t, coll_device_stream s);
coll_status coll_mapped_put_part(const struct coll_mapped_tile *t, coll_device_stream s);
coll_status coll_mapped_put_use(const struct coll_mapped_tile *t, coll_device_stream s);

/* Between a host buffer of the user (if it is one, and this rank has it) and pinned memory. */
void coll_mapped_copy_host(const struct coll_mapped_tile *t, bool out);

#endif
