/*
 * What happens to one job of coll-faults: its shape and its faults, all from one number. Whoever leaves some of the
 * faults out gets the other ones unchanged.
 */
#ifndef COLL_SIM_FAULTS_PLAN_H
#define COLL_SIM_FAULTS_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum { PLAN_MEMBERS_MAX = 48, PLAN_FAULTS_MAX = 24 };

enum plan_kind {
	PLAN_KILL,   /* at that moment */
	PLAN_DIE_IN, /* within one of its next calls of the system */
	PLAN_STOP,   /* and goes on later */
	PLAN_CUT,    /* its host is out of reach */
	PLAN_PART,   /* the hosts form two sides */
	PLAN_DEAF,   /* nothing arrives at its host; it is heard */
	PLAN_MUTE,   /* the reverse */
	PLAN_RESET,  /* all its connections end */
	PLAN_FULL,   /* its Unix listener takes nobody */
	PLAN_NOISE,  /* a stranger connects to its listener, and sends garbage or nothing */
	PLAN_KINDS
};

struct plan_fault {
	uint64_t at_ns, for_ns; /* since the first call; for_ns: of kinds that last */
	enum plan_kind kind;
	int who;
	uint32_t arg; /* sides; calls */
};

struct plan {
	uint64_t seed;
	int members, hosts;
	int host_of[PLAN_MEMBERS_MAX];
	/* When its program makes the call by itself, after the first one; and how long after the communicator has
	 * ended it does. The leaver has destroyed the communicator before. */
	uint64_t call_ns[PLAN_MEMBERS_MAX], late_ns[PLAN_MEMBERS_MAX];
	int leaver;               /* -1: none */
	bool first_calls_at_once; /* links were not made yet */
	bool shows_ends;          /* the system has descriptors of processes */
	bool gentle;              /* no fault is long enough for a suspicion of who lives */
	uint64_t unreachable_ms;
	int nfaults;
	struct plan_fault fault[PLAN_FAULTS_MAX];
};

/* members 0: drawn, too. */
void plan_draw(struct plan *p, uint64_t seed, int members);
const char *plan_kind_name(enum plan_kind kind);
void plan_print(const struct plan *p);

#endif
