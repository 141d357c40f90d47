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
#ifndef COLL_ENGINE_TURNS_H
#define COLL_ENGINE_TURNS_H

#include "engine/stage.h"

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

#endif
