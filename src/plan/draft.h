/*
 * A draft: a plan under construction, shared by the builder and by lowering.
 *
 * Steps are appended in program order (as if each one completed before the next
 * began) and go to the lane they name. The draft finds every hazard between
 * lanes, and between a SEND and a later write of its source, and gives steps the
 * waits that are not implied already; `in` and `out` count as one buffer, chunk
 * by chunk. It also keeps the table of peers, scratch extents and bounds.
 */
#ifndef COLL_PLAN_DRAFT_H
#define COLL_PLAN_DRAFT_H

#include "plan/pack.h"

struct coll_draft_lane {
	struct coll_loose_lane loose;
	/* What the lane can rely on now, and could when each of its steps started: lane m has
	 * retired at least its first known[m] steps. */
	uint32_t known[COLL_LANES_MAX];
	uint32_t (*at_start)[COLL_LANES_MAX];
	uint32_t at_start_capacity;
	/* SENDs of this lane: how many, how many of them known retired, where that
	 * search stands, and the most in flight at once. */
	uint32_t sends;
	uint32_t retired_sends;
	uint32_t retired_scan;
	uint32_t most_in_flight;
};

/* The last steps that accessed one chunk of one buffer; indices are + 1, 0 is none. */
struct coll_draft_place {
	uint64_t key;
	uint32_t writer;
	uint32_t writer_lane;
	uint32_t readers[COLL_LANES_MAX]; /* since that write, any kind */
	uint32_t sends[COLL_LANES_MAX];   /* since that write, SENDs only */
	uint32_t held;                    /* contributions that it holds; 0: not known, it was received */
};

struct coll_draft {
	coll_status status; /* sticky */
	uint32_t chunks;
	const uint32_t *block_at; /* as in a plan; not owned */
	bool arm;                 /* mark RECVs whose destination nothing touched before */
	struct coll_draft_lane lanes[COLL_LANES_MAX];
	struct coll_draft_place *places; /* open addressing, power of two */
	size_t places_capacity;
	size_t places_used;
	struct coll_plan_weight *weights; /* of all steps */
	uint32_t nweights, weights_capacity;
	uint64_t *scratch_used[COLL_SCRATCH_MAX]; /* bit per chunk */
	uint32_t nscratch;
	uint32_t max_run;
};

/* A zeroed draft is valid; fini accepts it too. */
void coll_draft_fini(struct coll_draft *d);

/* step->lane, op, buffers, chunks, run and flags are set; peers come as ranks,
 * waits are computed. Reducing receives: incoming has how many contributions the
 * incoming chunks hold, up to the end of the run (own is not read); else NULL. */
void coll_draft_append(struct coll_draft *d, const struct coll_step *step, int recv_from, int send_to,
                       const struct coll_plan_weight *incoming);

/* Copy everything into one allocation. head gives kind, algo, rank, size, root and
 * fused. */
coll_status coll_draft_finish(struct coll_draft *d, const struct coll_plan *head, struct coll_plan **plan);

#endif
