/*
 * Deaths in the seeded scheduler: one rank of a scene, sometimes two, die within some
 * call of their transport. The reaction of the library is
 * modelled: a rank whose call fails, or that receives a note of a failure, closes its channels,
 * notifies the others and returns. From that moment on its buffers belong to its caller, and
 * hold poison. So do the buffers of operations that have completed.
 *
 * Required of the others: every operation in flight ends, with an error, or with OK and
 * then with the complete and right result. No rank writes to memory after its owner has it
 * back. No completion word is settled twice. Runs that were cancelled work again in a new world.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/run.h"
#include "sim/scene.h"

enum { POISON = 0xdb };

enum fate { ALIVE, FAILED, DEAD };

struct tragedy {
	struct sim_scene sc;
	enum fate fate[SIM_RANKS_MAX];
	uint32_t haste;                                /* per cent: notes arrive before any other event */
	uint32_t told;                                 /* ranks to which a note of a failure is in flight */
	bool notes;                                    /* the control plane reports a death, not links alone */
	bool stays;                                    /* what a dead rank loaned can still be read */
	bool spent[SIM_OPERATIONS_MAX][SIM_RANKS_MAX]; /* buffers that hold poison */
};

static void blame(struct tragedy *t, int kind, const char *what, int rank)
{
	if (t->sc.result->what == SIM_RIGHT)
		sim_describe(&t->sc, kind, "%s", what, rank);
}

/* ---- Memory ----------------------------------------------------------- */

/* The caller has its buffers back and writes what it likes. */
static void spend(struct tragedy *t, int rank, int which)
{
	struct sim_buffers *b = &t->sc.ops[which].bufs[rank];

	memset(b->raw, POISON, b->raw_bytes);
	t->spent[which][rank] = true;
}

static void check_spent(struct tragedy *t)
{
	for (int i = 0; i < t->sc.nops * t->sc.size; i++) {
		const int which = i / t->sc.size, rank = i % t->sc.size;
		const struct sim_buffers *b = &t->sc.ops[which].bufs[rank];

		for (size_t k = 0; t->spent[which][rank] && k < b->raw_bytes; k++)
			if ((unsigned char)b->raw[k] != POISON) {
				blame(t, SIM_WRONG, "written to after its call had returned", rank);
				return;
			}
	}
}

/* ---- Ends ------------------------------------------------------------- */

static uint32_t others_alive(const struct tragedy *t, int rank)
{
	uint32_t mask = 0;

	for (int r = 0; r < t->sc.size; r++)
		if (r != rank && t->fate[r] == ALIVE)
			mask |= 1u << r;
	return mask;
}

/* All ranks must have entered a barrier that one of them leaves. */
static bool all_entered(const struct tragedy *t, int which)
{
	for (int r = 0; r < t->sc.size; r++)
		if (t->sc.actors[r].started <= which)
			return false;
	return true;
}

/* Operations up to `which` have ended with OK. */
static void succeed(struct tragedy *t, int rank, int which)
{
	struct sim_actor *a = &t->sc.actors[rank];
	char why[160] = "";

	for (; a->ended <= which; a->ended++) {
		const struct sim_operation *op = &t->sc.ops[a->ended];

		if (coll_run_poll(a->runs[a->ended % t->sc.depth], NULL) != COLL_OK)
			blame(t, SIM_WRONG, "ended before the operation before it", rank);
		if (sim_call_check_rank(&op->call, rank, &op->bufs[rank], why, sizeof(why)))
			blame(t, SIM_WRONG, why, rank);
		if (op->call.kind == COLL_KIND_BARRIER && !all_entered(t, a->ended))
			blame(t, SIM_WRONG, "left a barrier that some rank has not entered", rank);
		t->sc.result->survived_right += t->fate[rank] != DEAD;
		spend(t, rank, a->ended);
	}
}

/* No run of the rank touches its channels any more; those that were in flight end. (Some
 * may have retired and not been polled since: those without bytes do when they start.) */
static void cancel_runs(struct tragedy *t, int rank)
{
	struct sim_actor *a = &t->sc.actors[rank];

	for (int d = 0; d < t->sc.depth; d++)
		coll_run_cancel(a->runs[d], COLL_ERR_ABORTED);
	for (int i = a->ended; i < a->started; i++) {
		const coll_status status = coll_run_poll(a->runs[i % t->sc.depth], NULL);

		if (status == COLL_OK)
			succeed(t, rank, i);
		else if (status == COLL_AGAIN)
			blame(t, SIM_WRONG, "a cancelled operation has not ended", rank);
		else
			t->sc.result->survived_error += t->fate[rank] == FAILED;
	}
}

/* The rank's communicator is lost: what the library does before the call returns, and what
 * the caller does then. */
static void withdraw(struct tragedy *t, int rank)
{
	const struct sim_actor *a = &t->sc.actors[rank];

	t->fate[rank] = FAILED;
	t->told &= ~(1u << rank);
	if (t->sc.adversary.mutant != SIM_MUTANT_NO_WITHDRAWAL)
		sim_world_close(&t->sc.world, rank);
	cancel_runs(t, rank);
	for (int i = a->ended; i < a->started; i++) {
		memset(t->sc.sched->scratch[rank][i % t->sc.depth], POISON, t->sc.ops[i].scratch_bytes[rank]);
		spend(t, rank, i);
	}
}

/* An operation of the rank has failed: so do those behind it, without a look at their
 * channels; then the communicator. */
static void fail(struct tragedy *t, int rank, int which, coll_status status)
{
	const struct sim_actor *a = &t->sc.actors[rank];

	if (status != COLL_ERR_PEER_DEAD && status != COLL_ERR_ABORTED)
		blame(t, SIM_ERROR, coll_status_string(status), rank);
	if (t->sc.result->deaths == 0)
		blame(t, SIM_ERROR, "failed although no rank died", rank);
	for (int i = which + 1; i < a->started; i++)
		if (coll_run_poll(a->runs[i % t->sc.depth], NULL) != status)
			blame(t, SIM_WRONG, "goes on though the operation before has failed", rank);
	withdraw(t, rank);
	if (t->sc.adversary.mutant != SIM_MUTANT_NO_NEWS)
		t->told |= others_alive(t, rank);
}

static void die(struct tragedy *t, int rank)
{
	t->fate[rank] = DEAD;
	t->told &= ~(1u << rank);
	t->sc.result->deaths++;
	sim_adversary_bury(&t->sc.adversary, rank);
	if (!t->stays) {
		sim_world_close(&t->sc.world, rank);
		cancel_runs(t, rank);
		for (int i = t->sc.actors[rank].ended; i < t->sc.actors[rank].started; i++)
			spend(t, rank, i);
	}
	if (t->notes)
		t->told |= others_alive(t, rank);
}

/* ---- Playing ---------------------------------------------------------- */

static void act(struct tragedy *t, int rank)
{
	struct sim_scene *sc = &t->sc;
	const uint32_t mask = sim_restless(&sc->actors[rank]);
	int which = sc->actors[rank].started;
	coll_status status;

	if (!mask || (sim_can_start(sc, rank) && sim_chance(sc, sc->urge))) {
		if (sim_start(sc, rank) != COLL_OK)
			blame(t, SIM_ERROR, "cannot start", rank);
		return;
	}
	which = sim_pick(sc, mask);
	status = sim_poll(sc, rank, which);
	if (sim_adversary_dead(&sc->adversary, rank))
		die(t, rank);
	else if (status == COLL_OK)
		succeed(t, rank, which);
	else if (status != COLL_AGAIN)
		fail(t, rank, which, status);
}

/* While a rank reads memory of another one, a note of a failure reaches the owner. */
static void meanwhile(void *arg, int owner)
{
	struct tragedy *t = arg;

	if (t->told >> owner & 1 && sim_chance(&t->sc, 50))
		withdraw(t, owner);
}

/* Ranks alive whose operations have not all ended, or those of them that can go on. */
static uint32_t unfinished(const struct tragedy *t, bool active)
{
	uint32_t mask = 0;

	for (int r = 0; r < t->sc.size; r++) {
		const struct sim_actor *a = &t->sc.actors[r];

		if (t->fate[r] == ALIVE && a->ended < t->sc.nops &&
		    (!active || sim_restless(a) || sim_can_start(&t->sc, r)))
			mask |= 1u << r;
	}
	return mask;
}

/* One thing outside the ranks; false when nothing can happen. */
static bool happen(struct tragedy *t, bool lazy)
{
	int rank;

	if (t->told && sim_chance(&t->sc, t->haste)) {
		withdraw(t, sim_pick(&t->sc, t->told));
		return true;
	}
	rank = sim_adversary_fire(&t->sc.adversary, lazy);
	if (rank >= 0)
		t->sc.actors[rank].quiet = 0;
	else if (t->told)
		withdraw(t, sim_pick(&t->sc, t->told));
	else
		return false;
	return true;
}

static void play(struct tragedy *t)
{
	struct sim_scene *sc = &t->sc;
	const uint32_t eager = (const uint32_t[]){5, 20, 50, 90}[sim_below(sc, 4)];
	const bool lazy = sim_chance(sc, 50);

	while (unfinished(t, false) && sc->result->what == SIM_RIGHT) {
		const uint32_t mask = unfinished(t, true);

		if ((!mask || sim_chance(sc, eager)) && happen(t, lazy))
			continue;
		if (!mask) {
			blame(t, SIM_DEADLOCK, "hangs", __builtin_ctz(unfinished(t, false)));
			return;
		}
		act(t, sim_pick(sc, mask));
	}
	while (sc->result->what == SIM_RIGHT && happen(t, lazy)) {
	}
}

/* How many calls of its transport a rank makes, very roughly. */
static uint32_t calls(const struct sim_scene *sc, int rank)
{
	uint32_t sum = 4;

	for (int i = 0; i < sc->nops; i++)
		sum += coll_plan_nsteps(sc->ops[i].plans->fused[rank]) *
		       (uint32_t)(sc->ops[i].call.count / sc->ops[i].tile + 1) * 3;
	return sum;
}

/* The first of those who are to die. */
static int doom(struct tragedy *t, uint64_t at)
{
	const int victims = 1 + (t->sc.size > 2 && sim_chance(&t->sc, 25));
	const int first = (int)sim_below(&t->sc, (uint32_t)t->sc.size);

	for (int v = 0; v < victims; v++) {
		const int rank = (first + v * (1 + (int)sim_below(&t->sc, (uint32_t)t->sc.size - 1))) % t->sc.size;

		const uint64_t any = 1 + sim_below(&t->sc, calls(&t->sc, rank));

		sim_adversary_doom(&t->sc.adversary, rank, at && v == 0 ? at : any);
	}
	return first;
}

/* The survivors make a new world and use their old runs. */
static void go_on(struct tragedy *t, struct sim_sched *s, uint64_t seed)
{
	struct sim_scene *sc = calloc(1, sizeof(*sc));
	int survivors = 0, next = 0;

	for (int r = 0; r < t->sc.size; r++) {
		if (t->fate[r] == DEAD)
			continue;
		survivors++;
		sim_world_close(&t->sc.world, r);
		cancel_runs(t, r);
	}
	if (survivors < 2 || !sc || !sim_scene_make(sc, s, ~seed, survivors, t->sc.result)) {
		free(sc);
		return;
	}
	if (sim_scene_open(sc) != COLL_OK)
		blame(t, SIM_ERROR, "no new world", -1);
	for (int r = 0; r < t->sc.size && next < sc->size; r++) {
		if (t->fate[r] == DEAD)
			continue;
		for (int d = 0; d < sc->depth && d < t->sc.depth; d++) {
			struct coll_run *fresh = sc->actors[next].runs[d];

			sc->actors[next].runs[d] = t->sc.actors[r].runs[d];
			t->sc.actors[r].runs[d] = fresh;
		}
		next++;
	}
	sim_play(sc);
	sim_scene_free(sc);
	free(sc);
}

void sim_deaths_run(struct sim_sched *s, uint64_t seed, int max_size, uint64_t at, int mutant,
                    struct sim_result *result)
{
	struct tragedy *t = calloc(1, sizeof(*t));

	*result = (struct sim_result){0};
	if (!t || max_size > SIM_RANKS_MAX || !sim_scene_make(&t->sc, s, seed, max_size, result))
		abort(); /* out of memory in a test */
	t->sc.adversary.mutant = (enum sim_mutant)mutant;
	t->sc.adversary.meanwhile = meanwhile;
	t->sc.adversary.meanwhile_arg = t;
	t->haste = (const uint32_t[]){2, 10, 30, 80}[sim_below(&t->sc, 4)];
	t->notes = sim_chance(&t->sc, 50);
	t->stays = sim_chance(&t->sc, 30);
	if (sim_scene_open(&t->sc) == COLL_OK) {
		const int first = doom(t, at);

		play(t);
		result->outlived = t->fate[first] != DEAD;
	} else {
		blame(t, SIM_ERROR, "no world", -1);
	}
	check_spent(t);
	if (t->sc.adversary.broken)
		blame(t, SIM_WRONG, t->sc.adversary.broken, -1);
	if (result->what == SIM_RIGHT && sim_chance(&t->sc, 20))
		go_on(t, s, seed);
	sim_scene_free(&t->sc);
	free(t);
}
