/*
 * The adversary: transport `sim`, a table that wraps loop. Frames become visible
 * to the receiver, slots return to the sender, completions of transfers by
 * reference arrive and announced destinations are filled only when the
 * scheduler fires the event. Within a channel frames keep their order; between
 * channels everything may be reordered.
 *
 * Ranks may end. One that fails closes its channels: what it loaned is revoked, and a
 * reader that looks at it just then learns so from view() or done(). One that dies
 * stops within any call of the transport (sim_adversary_doom()), which does nothing
 * any more; then its peers find out, each channel at a moment of its own, after the
 * frames that were on their way.
 *
 * One thread drives all of it.
 */
#ifndef COLL_SIM_ADVERSARY_H
#define COLL_SIM_ADVERSARY_H

#include "base/hash.h"
#include "transports/registry.h"

extern const struct coll_transport sim_transport;

struct sim_pipe;
struct sim_inst;

/* Planted defects: rules of transports and of comm/ that deaths need. Outside of the
 * program that shows that each is found, none is ever set. */
enum sim_mutant {
	SIM_MUTANT_NONE,
	SIM_MUTANT_NO_REVOCATION,  /* closing takes nothing back: readers go on */
	SIM_MUTANT_NO_WITHDRAWAL,  /* a failed call returns before its channels are closed */
	SIM_MUTANT_NO_NEWS,        /* a rank that fails notifies no other */
	SIM_MUTANT_NO_LINK_DOWN,   /* who waits for a dead peer is not woken */
	SIM_MUTANT_SETTLE_TWICE,   /* closing settles a completion word that is settled already */
	SIM_MUTANT_STILL_ARMED,    /* an announced destination outlives its channel */
	SIM_MUTANT_LOAN_FORGOTTEN, /* what was loaned to a rank that went is never settled */
	SIM_MUTANT_COUNT
};

/* What env->group points to. */
struct sim_adversary {
	struct coll_loop_group *loop;
	struct coll_rng *rng;
	uint32_t refuse_ref;  /* per cent of post_ref calls refused */
	uint32_t refuse_into; /* per cent of recv_into calls refused */
	/* Per cent of calls that say AGAIN although there is something: as if it had
	 * come a moment later. fooled: that happened since it was last cleared. */
	uint32_t fickle;
	bool fooled;
	enum sim_mutant mutant;
	/* Called within a view of loaned memory, after the look and before the bytes are read. */
	void (*meanwhile)(void *arg, int owner);
	void *meanwhile_arg;
	const char *broken; /* a rule of the interface that was not kept; NULL: none */
	struct sim_inst *insts;
	uint64_t graves; /* bit per rank that died */
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

/* The rank dies within this many calls of its transport, counted from now. */
void sim_adversary_doom(struct sim_adversary *a, int rank, uint64_t calls);
bool sim_adversary_dead(const struct sim_adversary *a, int rank);
/* A dead rank is cleared away: its peers will find out. As long as its channels are not
 * closed they can still read what it loaned them, as one can in mapped memory. */
void sim_adversary_bury(struct sim_adversary *a, int rank);

/* Whether every frame that was posted has been consumed. */
bool sim_adversary_idle(const struct sim_adversary *a);

#endif
