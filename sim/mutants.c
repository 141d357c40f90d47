/*
 * Does the seeded scheduler see what it is for? This program links an engine that
 * was compiled with its planted defects switchable (engine/state.h) and shows, for
 * each of them, the first seed that finds it. Defects may also crash: every one
 * runs in a process of its own. Exit status 1 when a defect survives, or when the
 * engine without defects fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/state.h"
#include "sim/adversary.h"
#include "sim/scheduler.h"

int coll_engine_mutant;

enum { SEEDS = 20000, MAX_SIZE = 7, TIMEOUT_S = 300 };

/* Exit statuses of the child; a sanitizer that ends it has one of its own. */
enum { SURVIVED, CAUGHT, CANNOT_RUN };

static const char *const names[] = {
        [MUTANT_NONE] = "none",
        [MUTANT_IGNORE_WAITS] = "waits are ignored",
        [MUTANT_RETIRE_REF_EARLY] = "a SEND by reference retires when posted",
        [MUTANT_SHARE_SCRATCH] = "all windows share one scratch slice",
        [MUTANT_NEXT_TILE_EARLY] = "tile t+W starts before the SENDs of tile t retire",
        [MUTANT_OVERTAKE_PARKED] = "a later SEND passes one without a slot",
        [MUTANT_FUSED_OVERTAKES] = "a fused step passes a SEND without a slot",
        [MUTANT_DONE_BEFORE_REDUCE] = "a slot is given back before it is read",
        [MUTANT_DONE_BEFORE_SLOT] = "a view is given back before there is a slot",
        [MUTANT_SKIP_SIGNATURE] = "frames are not compared with the call",
        [MUTANT_CUT_DROPS_REMAINDER] = "the cut forgets the remainder",
        [MUTANT_COUNT_STARTED] = "WAIT counts started steps",
        [MUTANT_ONE_CHANNEL] = "all windows share one channel",
        [MUTANT_DROP_PARKED] = "a SEND without a slot counts as sent",
        [MUTANT_SWAP_OPERANDS] = "the incoming operand is always the right one",
        [MUTANT_RECV_INTO_EARLY] = "a RECV retires when announced",
        [MUTANT_EMPTY_FRAMES] = "a step of no bytes sends a frame",
        [MUTANT_FORWARD_UNREDUCED] = "a fused step forwards what came in",
        [MUTANT_IGNORE_AFTER] = "an operation does not wait for the one before",
        [MUTANT_LEAVE_PARKED] = "a lane is left while a SEND has no slot",
        [MUTANT_LEAVE_FIRST_TILE] = "a lane is left before its last tile",
        [MUTANT_LEAVE_UNCHAINED] = "only the operation right before is looked at",
        [MUTANT_LEAVE_LAST_STEP] = "a lane is left before its last step has started",
        [MUTANT_RETIRE_UNORDERED] = "an operation ends before the one before",
        [MUTANT_LAND_IN_PLACE] = "a whole vector comes on the input",
        [MUTANT_LAND_ON_OPERAND] = "what is taken comes on the other operand",
        [MUTANT_POST_BEFORE_DONE] = "a fused step posts before it has checked its view",
        [MUTANT_DONE_UNCHECKED] = "a revoked view is not noticed",
        [MUTANT_LOST_IS_RECEIVED] = "a destination that was given up counts as filled",
        [MUTANT_DEAD_IS_DONE] = "a step whose peer is dead counts as retired",
        [MUTANT_FORGET_FAILED_AFTER] = "a failure is not passed on to the next operation",
        [MUTANT_CANCEL_KEEPS] = "a cancelled run keeps its channels",
};
static_assert(sizeof(names) / sizeof(names[0]) == MUTANT_COUNT, "a name for every defect");

static const char *const world_names[] = {
        [SIM_MUTANT_NONE] = "none, with deaths",
        [SIM_MUTANT_NO_REVOCATION] = "what a failed rank loaned is not revoked",
        [SIM_MUTANT_NO_WITHDRAWAL] = "a failed call returns before its channels are closed",
        [SIM_MUTANT_NO_NEWS] = "a rank that fails notifies no other",
        [SIM_MUTANT_NO_LINK_DOWN] = "who waits for a dead peer is not woken",
        [SIM_MUTANT_SETTLE_TWICE] = "a completion comes twice",
        [SIM_MUTANT_STILL_ARMED] = "an announced destination outlives its channel",
        [SIM_MUTANT_LOAN_FORGOTTEN] = "what was loaned to a dead rank stays loaned",
};
static_assert(sizeof(world_names) / sizeof(world_names[0]) == SIM_MUTANT_COUNT, "a name for every defect");

/* One planted defect: of the engine, or of the world around it. */
struct defect {
	int engine;
	int world;
	bool deaths; /* only deaths show it */
	const char *name;
};

/* In the child: print the first seed that fails. */
static int hunt(const struct defect *d)
{
	struct sim_sched *s;

	coll_engine_mutant = d->engine;
	alarm(TIMEOUT_S);
	/* A frame that is posted too early must reach a rank that completes: trees have such ranks. */
	if (sim_sched_create(&s, d->engine == MUTANT_POST_BEFORE_DONE ? "tree" : NULL) != COLL_OK)
		return CANNOT_RUN;
	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		struct sim_result r;

		if (d->deaths)
			sim_deaths_run(s, seed, MAX_SIZE - 1, 0, d->world, &r);
		else
			sim_sched_run(s, seed, MAX_SIZE, &r);
		if (r.what == SIM_RIGHT)
			continue;
		printf("seed %u: %s\n", seed, r.why);
		return CAUGHT;
	}
	sim_sched_destroy(&s);
	return SURVIVED;
}

/* 0 survived, 1 caught. */
static int try_defect(const struct defect *d)
{
	int state = 0;
	pid_t pid;

	printf("%-56s ", d->name);
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		/* A sanitizer that finds the planted defect first is right; its report is not shown. */
		if (d->engine + d->world && !freopen("/dev/null", "w", stderr))
			_exit(CANNOT_RUN);
		state = hunt(d);
		fflush(stdout);
		_exit(state);
	}
	if (pid < 0 || waitpid(pid, &state, 0) != pid)
		return 0;
	if (WIFSIGNALED(state))
		printf("ended by signal %d\n", WTERMSIG(state));
	else if (WEXITSTATUS(state) == SURVIVED)
		printf("survived %d seeds\n", SEEDS);
	else if (WEXITSTATUS(state) == CANNOT_RUN)
		printf("could not run\n");
	else if (WEXITSTATUS(state) != CAUGHT)
		printf("ended by a sanitizer, status %d\n", WEXITSTATUS(state));
	fflush(stdout);
	return WIFSIGNALED(state) || (WEXITSTATUS(state) != SURVIVED && WEXITSTATUS(state) != CANNOT_RUN);
}

int main(void)
{
	int passed = 0, failed = 0;

	for (int i = 0; i < MUTANT_COUNT + SIM_MUTANT_COUNT; i++) {
		const bool world = i >= MUTANT_COUNT;
		const struct defect d = {.engine = world ? MUTANT_NONE : i,
		                         .world = world ? i - MUTANT_COUNT : SIM_MUTANT_NONE,
		                         .deaths = world || i >= MUTANT_FAILURES,
		                         .name = world ? world_names[i - MUTANT_COUNT] : names[i]};
		const bool right = try_defect(&d) == (d.engine + d.world != 0);

		passed += right;
		failed += !right;
	}
	printf("%d passed, %d failed, 0 skipped\n", passed, failed);
	return failed > 0;
}
