/*
 * Staging: the host memory through which the device buffers of a run pass, one tile at a time.
 *
 * The stream of the caller copies tile t of `in` into slot (number + t) and then stores number + t + 1 into `ready`.
 * The run starts the tile when it sees that. When the tile has retired it stores number + t + 1 into the `taken` word
 * of the slot, and the stream copies tile t of `out` from there. Only these words are shared, and the engine makes no
 * call of the driver. Numbers count modulo 2^32, over all runs of one communicator in the order of its calls; a group
 * of C calls deals the numbers out in turn, so that the tiles of one run are C apart.
 *
 * Slots hold the tile alone: a vector's tile begins where the slot begins, and block b of a strip lies b * job.tile
 * elements behind it. A buffer that is host memory is used where it is.
 */
#ifndef COLL_ENGINE_STAGE_H
#define COLL_ENGINE_STAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

/* Agreed facts: the tiles of all ranks of a communicator follow from them. */
enum { COLL_STAGE_SLOTS = 128 };

/* Elements of the longest tile that fits in a slot. blocks: of a buffer, 1 for vectors. 0: none fits. */
static inline size_t coll_stage_tile(size_t elem_bytes, size_t blocks)
{
	return COLL_STAGE_SLOT_BYTES / elem_bytes / blocks;
}

struct coll_run_stage {
	char *in, *out; /* slot 0 of the staged buffers, the same for calls in place; NULL: host memory, or none */
	size_t slot_bytes;
	uint32_t slots;
	uint32_t number;              /* of tile 0 */
	uint32_t apart;               /* from one tile to the next, at least 1 */
	_Atomic uint32_t *ready;      /* written by the device */
	_Atomic uint32_t *taken;      /* by slot, written by the run */
	bool direct;                  /* the data does not pass through slots: the run watches what the device does */
	struct coll_stage_part *part; /* not NULL: the tiles leave their slots in turns (turns.h) */
};

bool coll_stage_part_is_ready(const struct coll_run_stage *s, size_t tile);
void coll_stage_part_give(const struct coll_run_stage *s, size_t tile);

static inline uint32_t coll_stage_number(const struct coll_run_stage *s, size_t tile)
{
	return s->number + (uint32_t)tile * s->apart;
}

static inline char *coll_stage_slot(const struct coll_run_stage *s, char *slots, size_t tile)
{
	return slots + coll_stage_number(s, tile) % s->slots * s->slot_bytes;
}

/* Acquire: what the device stored before it is seen. */
static inline bool coll_stage_is_ready(const struct coll_run_stage *s, size_t tile)
{
	if (s->part)
		return coll_stage_part_is_ready(s, tile);
	return (int32_t)(atomic_load_explicit(s->ready, memory_order_acquire) - coll_stage_number(s, tile)) > 0;
}

/* Release: after all that the run read from the slot and wrote to it. */
static inline void coll_stage_give(const struct coll_run_stage *s, size_t tile)
{
	const uint32_t number = coll_stage_number(s, tile);

	if (s->part) {
		coll_stage_part_give(s, tile);
		return;
	}
	atomic_store_explicit(&s->taken[number % s->slots], number + 1, memory_order_release);
}

#endif
