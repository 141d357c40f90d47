/*
 * A scene: one seed's world, its operations and its ranks, before anything happens,
 * and the little things that can happen to a rank. What is played there is scheduler.c's
 * and deaths.c's.
 */
#ifndef COLL_SIM_SCENE_H
#define COLL_SIM_SCENE_H

#include "sim/adversary.h"
#include "sim/call.h"
#include "sim/scheduler.h"
#include "sim/world.h"

enum { SIM_RANKS_MAX = 12, SIM_OPERATIONS_MAX = 4, SIM_DEPTH_MAX = 3 };

struct sim_sched {
	const char *algo;
	/* By algorithm, size, root, ordered, uniform; NULL: not made yet. */
	struct sim_plans **plans;
	char *scratch[SIM_RANKS_MAX][SIM_DEPTH_MAX];
	size_t scratch_bytes;
};

struct sim_operation {
	const struct coll_algo *algo;
	struct sim_plans *plans;
	struct sim_call call;
	struct sim_buffers bufs[SIM_RANKS_MAX];
	struct coll_reduction reduction;
	size_t counts[2 * SIM_RANKS_MAX * SIM_RANKS_MAX];
	size_t scratch_bytes[SIM_RANKS_MAX];
	size_t tile;
	uint32_t windows;
	uint32_t signature;
	uint64_t logical; /* bit per rank: runs the logical plan */
	int odd_rank;     /* makes a different call; -1: none */
	bool again;       /* the call that its run ran last, with other buffers */
};

/* A rank: operations ended .. started - 1 are in flight, each in a run of its own. */
struct sim_actor {
	int started, ended;
	uint32_t quiet; /* bit per operation: cannot go on before something happens */
	struct coll_run *runs[SIM_DEPTH_MAX];
};

struct sim_scene {
	struct sim_sched *sched;
	struct coll_rng rng;
	struct sim_adversary adversary;
	struct sim_world world;
	struct sim_operation ops[SIM_OPERATIONS_MAX];
	int nops;
	int depth;     /* operations in flight at once */
	uint32_t urge; /* per cent: start the next one rather than poll */
	int size;
	struct sim_actor actors[SIM_RANKS_MAX];
	struct sim_result *result;
};

/* Choose everything that the seed decides; max_size ranks at most. False: no memory. */
bool sim_scene_make(struct sim_scene *sc, struct sim_sched *s, uint64_t seed, int max_size, struct sim_result *result);
/* Make the world and the runs. */
coll_status sim_scene_open(struct sim_scene *sc);
/* The converse of both; adds up the counts of result. */
void sim_scene_free(struct sim_scene *sc);

uint32_t sim_below(struct sim_scene *sc, uint32_t n);
bool sim_chance(struct sim_scene *sc, uint32_t per_cent);
/* One of the bits of a mask that is not 0. */
int sim_pick(struct sim_scene *sc, uint32_t mask);

/* Whether a rank may start its next operation, and start it behind the one before, which
 * may have retired. */
bool sim_can_start(const struct sim_scene *sc, int rank);
coll_status sim_start(struct sim_scene *sc, int rank);
/* Operations in flight that a poll may move. */
uint32_t sim_restless(const struct sim_actor *a);
/* Poll one of them. */
coll_status sim_poll(struct sim_scene *sc, int rank, int which);

/* Play to the end and check the results: scheduler.c. */
void sim_play(struct sim_scene *sc);

/* What came out, with the scenario. */
void sim_describe(struct sim_scene *sc, int kind, const char *format, const char *detail, int rank);

#endif
