/*
 * The adversary: transport `sim`, a table that wraps loop. Frames become visible
 * to the receiver, slots return to the sender, completions of transfers by
 * reference arrive and announced destinations are filled only when the
 * scheduler fires the event. Within a channel frames keep their order; between
 * channels everything may be reordered.
 *
 * One thread drives all of it.
 */
#ifndef COLL_SIM_ADVERSARY_H
#define COLL_SIM_ADVERSARY_H

#include "base/hash.h"
#include "transports/registry.h"

extern const struct coll_transport sim_transport;

struct sim_pipe;

/* What env->hub points to. */
struct sim_adversary {
	struct coll_loop_hub *loop;
	struct coll_rng *rng;
	uint32_t refuse_ref;  /* per cent of post_ref calls refused */
	uint32_t refuse_into; /* per cent of recv_into calls refused */
	/* Per cent of calls that say AGAIN although there is something: as if it had
	 * come a moment later. fooled: that happened since it was last cleared. */
	uint32_t fickle;
	bool fooled;
	struct sim_pipe *pipes;
	/* Pipes on which something can happen. */
	struct sim_pipe **ready;
	uint32_t nready;
	uint32_t ready_cap;
	uint64_t fired;
};

coll_status sim_adversary_init(struct sim_adversary *a, struct coll_rng *rng);
void sim_adversary_fini(struct sim_adversary *a);

/* Let one thing happen that may happen; which one is random. lazy: pipes that the
 * seed made slow come last, mostly. Returns the rank that may go on now, -1 when
 * nothing can happen. (world.c names rank r {r + 1, ...}.) */
int sim_adversary_fire(struct sim_adversary *a, bool lazy);

/* Whether every frame that was posted has been consumed. */
bool sim_adversary_idle(const struct sim_adversary *a);

#endif
