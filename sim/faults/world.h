/*
 * One job of coll-faults: members that are processes of the simulated machine, each with its control plane and its
 * voter, and a program that makes one call. The data path is not there: a program that does not call computes.
 */
#ifndef COLL_SIM_FAULTS_WORLD_H
#define COLL_SIM_FAULTS_WORLD_H

#include "core/comm.h"
#include "members/words.h"
#include "sim/faults/plan.h"

/* What happened, counted over jobs: the suite asks that each did often enough. */
enum world_count {
	WORLD_DECIDED,    /* jobs */
	WORLD_UNDECIDED,  /* jobs without a majority at the end */
	WORLD_LAST_WORDS, /* decisions that left out the dead, as their last words were read */
	WORLD_TAKEN_OVER, /* ballots that proposed what another one had begun */
	WORLD_GIVEN_UP,   /* ballots */
	WORLD_EXCLUDED,   /* members that live and are out */
	WORLD_LEAVERS,    /* of these, those that had asked for it */
	WORLD_COUNTS
};

struct outcome {
	bool done;
	char violation[240]; /* "": none */
	uint64_t trace;      /* of all that happened, in its order */
	uint64_t count[WORLD_COUNTS];
	double virtual_s;
	double healed_s; /* from the end of the faults to the last decision; 0: it came before, or never */
};

struct member {
	struct plan *plan;
	int rank;
	struct sim_process *process;
	struct coll_context *ctx; /* of the library: what src/members uses of it */
	struct coll_comm *comm;
	struct coll_settings settings;
	struct coll_logger logger;
	atomic_uint alarm;
	bool opened, joined, calls;
	bool ended;
	bool was_stopped;
	uint64_t ended_ns, alert_ns;
	bool decided; /* its program has the decision */
	struct coll_member_set value;
};

struct world {
	const struct plan *plan;
	struct outcome *outcome;
	struct member member[PLAN_MEMBERS_MAX];
	struct coll_peer_info peer_infos[PLAN_MEMBERS_MAX];
	uint64_t begun_ns;      /* when faults begin to count */
	uint64_t first_call_ns; /* 0: nobody has called yet */
	uint64_t healed_ns;     /* 0: faults may still come */
	bool decided;
	struct coll_member_set value;
	uint64_t decided_ns; /* the last member's */
};

/* Of this process: one job is all that it runs. faults: a bit for each that happens. */
void world_run(const struct plan *p, uint32_t faults, struct outcome *o);

/* ---- checks.c ---- */

/* The first one counts; the job ends. */
void check_violation(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A member has a decision: its program, or the voter alone. */
void check_decision(struct world *w, const struct member *m, const struct coll_member_set *value);
/* A message that m gets. */
void check_message(struct world *w, const struct member *m, const uint8_t *bytes);
/* Whether all who live must come to a decision, now that no fault is left. */
bool check_can_decide(const struct world *w);
bool check_all_decided(const struct world *w);
void check_end(struct world *w);

#endif
