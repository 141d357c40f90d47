/*
 * What a step does, by its op. Pure.
 */
#ifndef COLL_PLAN_STEP_H
#define COLL_PLAN_STEP_H

#include "plan/plan.h"

static inline bool coll_step_sends(uint8_t op)
{
	return op == COLL_STEP_SEND || op == COLL_STEP_RECV_COPY_SEND || op == COLL_STEP_RECV_REDUCE_SEND ||
	       op == COLL_STEP_RECV_REDUCE_COPY_SEND;
}

static inline bool coll_step_receives(uint8_t op)
{
	return op == COLL_STEP_RECV || op == COLL_STEP_RECV_REDUCE || op == COLL_STEP_RECV_COPY_SEND ||
	       op == COLL_STEP_RECV_REDUCE_SEND || op == COLL_STEP_RECV_REDUCE_COPY_SEND;
}

static inline bool coll_step_is_fused(uint8_t op)
{
	return op == COLL_STEP_RECV_COPY_SEND || op == COLL_STEP_RECV_REDUCE_SEND ||
	       op == COLL_STEP_RECV_REDUCE_COPY_SEND;
}

/* Reads the run at src (a REDUCE reads several buffers: not here). */
static inline bool coll_step_reads_src(uint8_t op)
{
	return op == COLL_STEP_SEND || op == COLL_STEP_RECV_REDUCE || op == COLL_STEP_COPY ||
	       op == COLL_STEP_RECV_REDUCE_SEND || op == COLL_STEP_RECV_REDUCE_COPY_SEND;
}

static inline bool coll_step_writes_dst(uint8_t op)
{
	return op == COLL_STEP_RECV || op == COLL_STEP_RECV_REDUCE || op == COLL_STEP_COPY || op == COLL_STEP_REDUCE ||
	       op == COLL_STEP_RECV_COPY_SEND || op == COLL_STEP_RECV_REDUCE_COPY_SEND;
}

static inline uint32_t coll_lane_length(const struct coll_plan *p, uint32_t lane)
{
	return p->lane_first[lane + 1] - p->lane_first[lane];
}

#endif
