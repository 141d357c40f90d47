/*
 * Messages of a chain whose tiles leave their slots in turns (engine/stage.h): those to or from several ranks, or in
 * both directions, that do not fit in the slots together. Why the others need none: docs/design/staged.md.
 */
#ifndef COLL_DEVCALL_STAGE_TURNS_H
#define COLL_DEVCALL_STAGE_TURNS_H

#include <stdbool.h>

#include "coll/coll.h"
#include "engine/stage.h"

struct coll_request;
struct coll_stage;

/* The messages of one chain that take turns in the slots. */
struct coll_stage_rotation {
	struct coll_stage_rotation *next; /* of s->rotations */
	struct coll_stage_turns turns;
	uint32_t first; /* number of the first tile that is gathered before any turn */
	uint32_t begin; /* of the first turn */
	uint32_t end;   /* `done` has this value when all is over */
	int nwindows, nparts;
	struct coll_stage_window *windows;
	struct coll_stage_part *parts;
	/* By window. */
	struct coll_stage_part **firsts, **lasts;
	uint32_t *tiles;
};

/* Numbers for the tiles of the messages of a chain, from `number` on. NULL: they are of one peer and direction, or too
 * many for the slots, or there is no memory; then nothing has changed. */
struct coll_stage_rotation *coll_stage_turns_assign(struct coll_stage *s, struct coll_request *first, uint32_t number);
void coll_stage_turns_close(struct coll_stage *s);

/* Enqueue what comes in front of all turns. */
coll_status coll_stage_turns_begin(struct coll_stage *s, const struct coll_stage_rotation *c, void *stream);
/* The wait for a turn, asked by this thread, or by the stream; and what comes behind it. */
bool coll_stage_turn_is_given(const struct coll_stage *s, uint32_t number);
coll_status coll_stage_turn_wait(struct coll_stage *s, uint32_t number, void *stream);
coll_status coll_stage_turn_put(struct coll_stage *s, const struct coll_stage_rotation *c, uint32_t number,
                                void *stream);

#endif
