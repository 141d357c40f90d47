/*
 * The seeded scheduler: one seed is one world of n ranks, two to four operations in
 * a row, up to three of them in flight at once on every rank, and one order of all events that have no fixed order.
 * Everything follows from the seed: algorithms, counts, tiles, windows, and when a rank starts the next operation;
 * which ranks run in place or from the logical plan; which frames are refused by reference; and which rank to poll or
 * which event to fire next. Channels have two slots, the minimum.
 */
#ifndef COLL_SIM_SCHED_H
#define COLL_SIM_SCHED_H

#include "sim/plans.h"

struct sim_sched; /* plans kept from seed to seed */

struct sim_result {
	enum { SIM_RIGHT, SIM_WRONG, SIM_DEADLOCK, SIM_ERROR } what;
	char why[320]; /* the scenario and what is wrong; "" when right */
	uint64_t events;
	uint64_t polls;
	uint64_t by_reference;
	/* Deaths: how many there were, and how the operations of the others ended. */
	uint64_t deaths, survived_right, survived_error;
	bool outlived; /* the first that was to die finished before */
	bool mismatch; /* the seed planted a call that differs; its refusal is right */
};

/* Engine defects worth a look want particular calls: NULL for any; otherwise only
 * algorithms of this name ("ring", or "all_reduce:ring"). */
coll_status sim_sched_create(struct sim_sched **s, const char *algo);
void sim_sched_destroy(struct sim_sched **s);

/* Run one seed; n in [2, max_size]. */
void sim_sched_run(struct sim_sched *s, uint64_t seed, int max_size, struct sim_result *result);

/* The same with deaths (deaths.c): one rank, or two, die within some call of their
 * transport: the first one in its call number `at`, 0: a random one. mutant: see
 * adversary.h, 0 for none. */
void sim_deaths_run(struct sim_sched *s, uint64_t seed, int max_size, uint64_t at, int mutant,
                    struct sim_result *result);

#endif
