/*
 * What is enqueued for the staged calls of a batch: a chain for each communicator. A chain has in this order
 *
 *  - what calls that pass through slots have in front of their first wait,
 *  - direct calls, one after the other,
 *  - the rest of the calls that pass through slots, in a fixed order,
 *  - messages that take turns (stage_turns.h),
 *
 * and is cut into pieces in front of each wait for the engine or for other ranks.
 */
#ifndef COLL_DEVCALL_STAGE_CHAIN_H
#define COLL_DEVCALL_STAGE_CHAIN_H

#include "devcall/stage.h"

/* After their submission: put their work into their streams. An error of the device fails the communicator. */
void coll_stage_enqueue(const struct coll_batch *b);

/* In blocking calls, their thread enqueues the next piece as soon as that need not wait any more: again and again while
 * it waits, and then once that it does not wait any more. */
void coll_stage_pace(struct coll_comm *comm);
void coll_stage_end_pace(struct coll_comm *comm);

#endif
