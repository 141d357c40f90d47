/*
 * Flow: what every chunk holds, symbolically, while the plans of all ranks run.
 *
 * Fed by coll_replay_run(): frames carry values (value.h) from the memory of one
 * rank to that of another, and at the end every rank must hold its result.
 */
#ifndef COLL_PROOF_FLOW_H
#define COLL_PROOF_FLOW_H

#include "proof/verify.h"

struct coll_flow;

/* frames: how many the replay counts. */
coll_status coll_flow_create(struct coll_flow **flow, const struct coll_plan *const *plans, int size, uint32_t frames,
                             const struct coll_verify_options *opt, char *why, size_t why_bytes);
void coll_flow_destroy(struct coll_flow **flow);

/* A coll_replay_fn; arg is the flow. */
bool coll_flow_step(void *flow, int rank, uint32_t step, uint32_t frame_in, uint32_t frame_out);

/* After the replay: every rank holds its result. */
coll_status coll_flow_check(struct coll_flow *flow);
/* Why coll_flow_step() said false: COLL_ERR_INTERNAL, or out of memory. */
coll_status coll_flow_status(const struct coll_flow *flow);

#endif
