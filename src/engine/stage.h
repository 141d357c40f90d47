/*
 * Staging: the host memory through which the device buffers of a run pass, one tile at a time.
 *
 * The stream of the caller copies tile t of `in` into slot (number + t) and then stores number + t + 1 into `ready`.
 * The run starts the tile when it sees that. When the tile has retired it stores number + t + 1 into the `taken` word
 * of the slot, and the stream copies tile t of `out` from there. Only these words are shared, and the engine makes no
 * call of the driver. Numbers count modulo 2^32, over all runs of one communicator in the order of its calls; a group
 * of C calls assigns the numbers in turn, so that the tiles of one run are C apart.
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

/* ---- Turns ---- */

/*
 * Turns: tiles of several messages leave their slots in the order in which that happens, not in one that was fixed
 * before.
 *
 * The tiles of the messages to one rank, or from one, follow each other through a window of slots. When a run has left
 * a slot, that is a turn: the next entry of a list in pinned memory says what the device copies then, and a word has
 * the number of the turn. The stream waits for the numbers one after the other, so any message that can go on does.
 * What the device copies is the tile that was received, or the next one to be sent into the slot. Either way the slot
 * is ready for its next tile when `ready` has passed the number of the turn.
 */

/* As many as there are slots, for input and output: who waits for its turn holds a slot. */
enum { COLL_STAGE_TURNS = 2 * COLL_STAGE_SLOTS };

/* An entry of the list, as kernels read it. */
struct coll_stage_turn {
	uint64_t dst, src, len_bytes, unused;
};

struct coll_stage_turns {
	struct coll_stage_turn *list; /* pinned; by number */
	_Atomic uint32_t *given;      /* number + 1 of the last turn */
	uint32_t next;                /* number of the next one */
};

/* The slots of one peer and direction. */
struct coll_stage_window {
	struct coll_stage_turns *turns;
	uint64_t address; /* of its first slot, as kernels see it */
	bool out;
	uint32_t slots;
	/* By slot: the tile that it is for, and the number that says that it is ready. */
	struct coll_stage_place {
		uint32_t tile, number;
	} * places;
};

/* A message in its window, where the tiles of all messages count on. */
struct coll_stage_part {
	struct coll_stage_window *window;
	struct coll_stage_part *next; /* behind it */
	uint64_t user;                /* device memory, 0: the host's, of which nothing is copied */
	size_t len_bytes, tile_bytes;
	uint32_t before, tiles;
};

/* The copy between the user's memory and the slot of a tile. */
void coll_stage_part_copy(const struct coll_stage_part *p, uint32_t tile, size_t slot_bytes,
                          struct coll_stage_turn *copy);

/* ---- Runs ---- */

struct coll_run_stage {
	char *in, *out; /* slot 0 of the staged buffers, the same for calls in place; NULL: host memory, or none */
	size_t slot_bytes;
	uint32_t slots;
	uint32_t number;              /* of tile 0 */
	uint32_t apart;               /* from one tile to the next, at least 1 */
	_Atomic uint32_t *ready;      /* written by the device */
	_Atomic uint32_t *taken;      /* by slot, written by the run */
	bool direct;                  /* the data does not pass through slots: the run watches what the device does */
	struct coll_stage_part *part; /* not NULL: the tiles leave their slots in turns (see Turns) */
};

/* For coll_stage_is_ready() and coll_stage_give(), which see. */
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
