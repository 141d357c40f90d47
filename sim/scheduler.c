/*
 * See scheduler.h.
 */
#include "sim/scheduler.h"
#include "engine/run.h"

#include <stdlib.h>

#include "sim/scene.h"

/* Operation `which` has retired: so have all before it. (Some may not have been polled
 * since: those without bytes retire when they start.) */
static bool end_until(struct sim_scene *sc, int rank, int which)
{
	struct sim_actor *a = &sc->actors[rank];

	for (; a->ended <= which; a->ended++)
		if (coll_run_poll(a->runs[a->ended % sc->depth], NULL) != COLL_OK)
			return false;
	return true;
}

/* Let one rank start or poll something; false when the seed is over. */
static bool act(struct sim_scene *sc, int rank)
{
	const uint32_t mask = sim_restless(&sc->actors[rank]);
	coll_status status;

	if (!mask || (sim_can_start(sc, rank) && sim_chance(sc, sc->urge))) {
		status = sim_start(sc, rank);
	} else {
		const int which = sim_pick(sc, mask);

		status = sim_poll(sc, rank, which);
		if (status == COLL_OK && !end_until(sc, rank, which)) {
			sim_describe(sc, SIM_WRONG, "%s", "ended before the operation before it", rank);
			return false;
		}
	}
	if (status == COLL_OK || status == COLL_AGAIN)
		return true;
	if (status != COLL_ERR_MISMATCH || !sc->result->mismatch)
		sim_describe(sc, SIM_ERROR, "%s", coll_status_string(status), rank);
	return false;
}

static bool finished(const struct sim_scene *sc)
{
	for (int r = 0; r < sc->size; r++)
		if (sc->actors[r].ended < sc->nops)
			return false;
	return true;
}

/* Ranks that can do something. */
static uint32_t active(const struct sim_scene *sc)
{
	uint32_t mask = 0;

	for (int r = 0; r < sc->size; r++)
		if (sim_restless(&sc->actors[r]) || sim_can_start(sc, r))
			mask |= 1u << r;
	return mask;
}

/* Until all ranks have finished, or something is wrong. */
static void play(struct sim_scene *sc)
{
	const uint32_t eager = (const uint32_t[]){5, 20, 50, 90}[sim_below(sc, 4)];
	const bool lazy = sim_chance(sc, 50);

	while (!finished(sc)) {
		const uint32_t mask = active(sc);

		if (!mask || sim_chance(sc, eager)) {
			int rank = sim_adversary_fire(&sc->adversary, lazy);

			if (rank >= 0) {
				sc->actors[rank].quiet = 0;
				continue;
			}
			if (!mask) {
				sim_describe(sc, SIM_DEADLOCK, "%s", "nothing can happen any more", -1);
				return;
			}
		}
		if (!act(sc, sim_pick(sc, mask)))
			return;
	}
	while (sim_adversary_fire(&sc->adversary, false) >= 0) {
	}
	if (sc->result->mismatch)
		sim_describe(sc, SIM_WRONG, "%s", "a different call was not noticed", -1);
	else if (!sim_adversary_idle(&sc->adversary))
		sim_describe(sc, SIM_WRONG, "%s", "frames are left over", -1);
}

static void check(struct sim_scene *sc)
{
	char why[160] = "";

	for (int i = 0; i < sc->nops && sc->result->what == SIM_RIGHT; i++)
		if (sim_call_check(&sc->ops[i].call, sc->ops[i].bufs, why, sizeof(why)))
			sim_describe(sc, SIM_WRONG,
			             (const char *const[]){"1st: %s", "2nd: %s", "3rd: %s", "4th: %s"}[i], why, -1);
}

void sim_play(struct sim_scene *sc)
{
	play(sc);
	if (sc->result->what == SIM_RIGHT && !sc->result->mismatch)
		check(sc);
}

void sim_sched_run(struct sim_sched *s, uint64_t seed, int max_size, struct sim_result *result)
{
	struct sim_scene *sc = calloc(1, sizeof(*sc));
	coll_status status;

	*result = (struct sim_result){.mismatch = coll_mix64(~seed) % 32 == 0};
	if (!sc || max_size > SIM_RANKS_MAX || !sim_scene_make(sc, s, seed, max_size, result))
		abort(); /* out of memory in a test */
	status = sim_scene_open(sc);
	if (status == COLL_OK)
		sim_play(sc);
	else
		sim_describe(sc, SIM_ERROR, "start: %s", coll_status_string(status), -1);
	sim_scene_free(sc);
	free(sc);
}
