/*
 * The order in which the tiles of a chain pass through the slots.
 *
 * The messages to one rank, or from one rank, are a lane: a tile of one follows when the one before has all of its own,
 * as on host memory. So do the collectives. The lanes take turns, a tile each, and there are at most as many of them in
 * a round as slots. Rounds come one after the other; which one a message is in depends on the distance of its ranks
 * alone. Why nothing waits in a circle: docs/design/staged.md.
 */
#ifndef COLL_DEVCALL_STAGE_ORDER_H
#define COLL_DEVCALL_STAGE_ORDER_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/stage.h"

struct coll_request;

/* How far ahead of the waits what is enqueued is: each looks for the next tile by itself. */
enum coll_stage_cursor { COLL_STAGE_WAITS, COLL_STAGE_GATHERS, COLL_STAGE_CURSORS };

struct coll_stage_lane {
	struct coll_request *first, *last;
	struct coll_request *at[COLL_STAGE_CURSORS]; /* where the last search ended */
	size_t tiles;
};

struct coll_stage_round {
	size_t from; /* its first place */
	size_t end;
	int n; /* lanes that have requests */
	struct coll_stage_lane lanes[COLL_STAGE_SLOTS];
	unsigned char nth[COLL_STAGE_SLOTS]; /* those lanes, as they take turns */
};

struct coll_stage_order {
	int nrounds;
	size_t total; /* places, those without a tile too */
	struct coll_stage_round *rounds;
};

/* Room for the ranks of a communicator. False: no memory. */
bool coll_stage_order_open(struct coll_stage_order *o, int size);
void coll_stage_order_close(struct coll_stage_order *o);

/* Of the requests that pass through slots, linked by next_staged: numbers for their tiles, from `number` on. others:
 * without messages to other ranks. */
void coll_stage_order_assign(struct coll_stage_order *o, struct coll_request *first, uint32_t number, bool others);

/* The tile at a place, which is less than total. False: there is none. */
bool coll_stage_order_find(struct coll_stage_order *o, size_t place, enum coll_stage_cursor cursor,
                           struct coll_request **r, size_t *tile);

#endif
