/*
 * See sched.h.
 */
#include "sim/sched.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/adversary.h"
#include "sim/call.h"
#include "sim/world.h"

enum { SIZE_MAX_RANKS = 12, SLOTS = 2, SLOT_BYTES = 512, OPERATIONS_MAX = 4, DEPTH_MAX = 3, TILES_MAX = 7 };

struct sim_sched {
	const char *algo;
	/* By algorithm, size, root, ordered, uniform; NULL: not made yet. */
	struct sim_plans **plans;
	char *scratch[SIZE_MAX_RANKS][DEPTH_MAX];
	size_t scratch_bytes;
};

struct operation {
	const struct coll_algo *algo;
	struct sim_plans *plans;
	struct sim_call call;
	struct sim_buffers bufs[SIZE_MAX_RANKS];
	struct coll_reduction reduction;
	size_t counts[2 * SIZE_MAX_RANKS * SIZE_MAX_RANKS];
	size_t tile;
	uint32_t windows;
	uint32_t signature;
	uint64_t logical; /* bit per rank: runs the logical plan */
	int odd_rank;     /* calls something else; -1: nobody */
	bool again;       /* the call that its run ran last, with other buffers */
};

/* A rank: operations ended .. started - 1 are in flight, each in a run of its own. */
struct actor {
	int started, ended;
	uint32_t quiet; /* bit per operation: cannot go on before something happens */
	struct coll_run *runs[DEPTH_MAX];
};

struct scene {
	struct sim_sched *sched;
	struct coll_rng rng;
	struct sim_adversary adversary;
	struct sim_world world;
	struct operation ops[OPERATIONS_MAX];
	int nops;
	int depth;     /* operations in flight at once */
	uint32_t urge; /* per cent: start the next one rather than poll */
	int size;
	struct actor actors[SIZE_MAX_RANKS];
	struct sim_result *result;
};

/* ---- Plans ------------------------------------------------------------ */

coll_status sim_sched_create(struct sim_sched **out, const char *algo)
{
	struct sim_sched *s = calloc(1, sizeof(*s));

	if (!s)
		return COLL_ERR_MEMORY;
	s->algo = algo;
	s->plans = calloc(coll_algos_count * SIZE_MAX_RANKS * SIZE_MAX_RANKS * 4, sizeof(struct sim_plans *));
	s->scratch_bytes = (size_t)1 << 20;
	for (int i = 0; i < SIZE_MAX_RANKS * DEPTH_MAX; i++)
		s->scratch[i / DEPTH_MAX][i % DEPTH_MAX] = aligned_alloc(64, s->scratch_bytes);
	*out = s;
	return s->plans ? COLL_OK : COLL_ERR_MEMORY;
}

void sim_sched_destroy(struct sim_sched **out)
{
	struct sim_sched *s = *out;
	const size_t n = coll_algos_count * SIZE_MAX_RANKS * SIZE_MAX_RANKS * 4;

	for (size_t i = 0; i < n; i++) {
		if (!s->plans[i])
			continue;
		sim_plans_free(s->plans[i]);
		free(s->plans[i]);
	}
	for (int i = 0; i < SIZE_MAX_RANKS * DEPTH_MAX; i++)
		free(s->scratch[i / DEPTH_MAX][i % DEPTH_MAX]);
	free(s->plans);
	free(s);
	*out = NULL;
}

/* NULL when the algorithm does not do this. */
static struct sim_plans *get_plans(struct sim_sched *s, const struct coll_algo *algo, int size, int root, bool ordered,
                                   bool uniform)
{
	size_t i = (size_t)(algo - coll_algos);
	struct sim_plans **slot;

	i = ((i * SIZE_MAX_RANKS + (size_t)size - 1) * SIZE_MAX_RANKS + (size_t)root) * 4;
	slot = &s->plans[i + 2 * ordered + uniform];
	if (*slot)
		return (*slot)->size ? *slot : NULL;
	*slot = calloc(1, sizeof(**slot));
	if (!*slot || sim_plans_make(*slot, algo, size, root, ordered, uniform) != COLL_OK)
		return NULL;
	return *slot;
}

/* ---- Choosing a call -------------------------------------------------- */

static uint32_t below(struct scene *sc, uint32_t n)
{
	return coll_rng_below(&sc->rng, n);
}

static bool chance(struct scene *sc, uint32_t per_cent)
{
	return below(sc, 100) < per_cent;
}

static bool wanted(const struct sim_sched *s, const struct coll_algo *algo)
{
	const char *colon = s->algo ? strchr(s->algo, ':') : NULL;
	const char *kind = coll_plan_kind_name(algo->kind);

	if (!s->algo)
		return true;
	if (colon && (strncmp(kind, s->algo, (size_t)(colon - s->algo)) != 0 || kind[colon - s->algo]))
		return false;
	return strcmp(algo->name, colon ? colon + 1 : s->algo) == 0;
}

static void choose_type(struct scene *sc, struct operation *op)
{
	static const struct {
		coll_dtype type;
		coll_op op;
	} choices[] = {{COLL_I32, COLL_MAX},
	               {COLL_I32, COLL_AVG},
	               {COLL_U8, COLL_SUM},
	               {COLL_F64, COLL_SUM},
	               {COLL_F32, COLL_OP_PREMUL_SUM}};
	const uint32_t i = below(sc, 5);

	op->call.type = COLL_U64;
	op->call.op = COLL_SUM;
	if (chance(sc, 30)) {
		op->call.type = choices[i].type;
		op->call.op = choices[i].op;
	}
	if (op->algo->flags & COLL_ALGO_ORDERED && chance(sc, 40)) {
		op->call.type = COLL_U64;
		op->call.op = COLL_OP_USER;
	}
}

/* Counts per rank, or per pair with its transpose behind; many of them 0. */
static void choose_counts(struct scene *sc, struct operation *op)
{
	const int n = sc->size;
	const int cells = op->algo->kind == COLL_KIND_ALL_TO_ALL ? n * n : n;

	for (int i = 0; i < cells; i++)
		op->counts[i] = chance(sc, 25) ? 0 : below(sc, 1 + (uint32_t)op->call.count);
	for (int i = 0; i < n && cells == n * n; i++)
		for (int j = 0; j < n; j++)
			op->counts[n * n + j * n + i] = op->counts[i * n + j];
	op->call.counts = op->counts;
}

static bool may_be_ragged(const struct coll_algo *algo)
{
	if (algo->kind == COLL_KIND_ALL_GATHER || algo->kind == COLL_KIND_REDUCE_SCATTER)
		return algo->flags & COLL_ALGO_RAGGED;
	return coll_plan_kind_is_block(algo->kind) && algo->flags & COLL_ALGO_PAIRWISE;
}

static bool try_operation(struct scene *sc, struct operation *op)
{
	struct sim_call *c = &op->call;
	bool ragged;

	op->algo = &coll_algos[below(sc, (uint32_t)coll_algos_count)];
	if (!wanted(sc->sched, op->algo))
		return false;
	memset(c, 0, sizeof(*c));
	c->kind = op->algo->kind;
	c->size = sc->size;
	if (c->kind == COLL_KIND_REDUCE || c->kind == COLL_KIND_BROADCAST || c->kind == COLL_KIND_GATHER ||
	    c->kind == COLL_KIND_SCATTER)
		c->root = (int)below(sc, (uint32_t)sc->size);
	choose_type(sc, op);
	c->count = c->kind == COLL_KIND_BARRIER ? 1 : chance(sc, 8) ? below(sc, 2) : below(sc, 48);
	ragged = may_be_ragged(op->algo) && op->odd_rank < 0 && chance(sc, 40);
	if (ragged)
		choose_counts(sc, op);
	if (op->odd_rank >= 0 && c->count < (size_t)sc->size)
		c->count += (size_t)sc->size;
	c->in_place = coll_rng_next(&sc->rng);
	c->seed = coll_rng_next(&sc->rng);
	op->logical = chance(sc, 70) ? 0 : coll_rng_next(&sc->rng);
	op->plans = get_plans(sc->sched, op->algo, sc->size, c->root, c->op == COLL_OP_USER, !ragged);
	return op->plans != NULL;
}

static void choose_operation(struct scene *sc, struct operation *op)
{
	size_t most;

	while (!try_operation(sc, op)) {
	}
	most = sim_plans_tile(op->plans, coll_dtype_size(op->call.type), SLOT_BYTES);
	op->tile = 1 + below(sc, 12);
	if (op->tile * TILES_MAX < op->call.count)
		op->tile = op->call.count / TILES_MAX + 1;
	if (op->tile > most)
		op->tile = most;
	op->windows = 1 + below(sc, 3);
}

/* The call of an earlier operation once more, with other buffers. */
static void repeat_operation(struct scene *sc, struct operation *op, const struct operation *earlier)
{
	op->algo = earlier->algo;
	op->plans = earlier->plans;
	op->call = earlier->call;
	op->tile = earlier->tile;
	op->windows = earlier->windows;
	op->signature = earlier->signature;
	op->logical = earlier->logical;
	op->again = true;
	op->call.in_place = coll_rng_next(&sc->rng);
	op->call.seed = coll_rng_next(&sc->rng);
}

static void choose_operations(struct scene *sc)
{
	for (int i = 0; i < sc->nops; i++) {
		struct operation *op = &sc->ops[i];
		const struct operation *earlier = i < sc->depth ? NULL : op - sc->depth;

		op->signature = 0xc0 + (uint32_t)i;
		if (earlier && earlier->odd_rank < 0 && op->odd_rank < 0 && chance(sc, 30))
			repeat_operation(sc, op, earlier);
		else
			choose_operation(sc, op);
		sim_call_reduction(&op->call, &op->reduction);
		if (sim_call_buffers(&op->call, op->bufs) != COLL_OK)
			abort(); /* out of memory in a test */
	}
}

/* ---- Running ---------------------------------------------------------- */

/* Start a rank's next operation behind the one before, which may have retired. */
static coll_status start(struct scene *sc, int rank)
{
	struct actor *a = &sc->actors[rank];
	const int which = a->started++;
	struct coll_run *run = a->runs[which % sc->depth];
	struct operation *op = &sc->ops[which];
	struct coll_job job = {.tile = op->tile,
	                       .windows = op->windows,
	                       .scratch = sc->sched->scratch[rank][which % sc->depth],
	                       .sequence = (uint64_t)which + 1,
	                       .signature = op->signature,
	                       .after = which && sc->depth > 1 ? a->runs[(which - 1) % sc->depth] : NULL};

	job.plan = op->logical >> rank & 1 ? op->plans->logical[rank] : op->plans->fused[rank];
	sim_call_bind(&op->call, rank, &op->bufs[rank], &op->reduction, &job);
	if (rank == op->odd_rank) {
		if (op->call.seed & 1)
			job.signature ^= 1;
		else
			job.sequence += 5;
	}
	if (coll_run_scratch_bytes(job.plan, job.tile, job.elem_bytes, job.windows) > sc->sched->scratch_bytes)
		return COLL_ERR_MEMORY;
	memset(job.scratch, 0xdd, coll_run_scratch_bytes(job.plan, job.tile, job.elem_bytes, job.windows));
	if (!op->again)
		return coll_run_start(run, &sc->world.ranks[rank].fabric, &job);
	coll_run_restart(run, job.in.base, job.out.base, job.sequence);
	coll_run_follow(run, job.after);
	return COLL_OK;
}

static void describe(struct scene *sc, int kind, const char *format, const char *detail, int rank)
{
	struct sim_result *r = sc->result;
	size_t at = 0;

	r->what = kind;
	for (int i = 0; i < sc->nops; i++) {
		const struct operation *op = &sc->ops[i];

		at += (size_t)snprintf(
		        r->why + at, sizeof(r->why) - at, "%s:%s root=%d count=%zu%s tile=%zu W=%u op=%u; ",
		        coll_plan_kind_name(op->call.kind), op->algo->name, op->call.root, op->call.count,
		        op->call.counts ? " ragged" : "", op->tile, op->windows, op->call.op);
		if (at >= sizeof(r->why))
			return;
	}
	at += (size_t)snprintf(r->why + at, sizeof(r->why) - at, "n=%d depth=%d: rank %d: ", sc->size, sc->depth, rank);
	if (at < sizeof(r->why))
		snprintf(r->why + at, sizeof(r->why) - at, format, detail);
}

static bool can_start(const struct scene *sc, int rank)
{
	const struct actor *a = &sc->actors[rank];

	return a->started < sc->nops && a->started - a->ended < sc->depth;
}

/* Operations in flight that a poll may move. */
static uint32_t restless(const struct actor *a)
{
	return ((1u << a->started) - (1u << a->ended)) & ~a->quiet;
}

static int pick(struct scene *sc, uint32_t mask)
{
	uint32_t skip = below(sc, (uint32_t)__builtin_popcount(mask));

	while (skip-- > 0)
		mask &= mask - 1;
	return __builtin_ctz(mask);
}

/* Poll one operation of a rank; its status. */
static coll_status poll_one(struct scene *sc, int rank, int which)
{
	struct actor *a = &sc->actors[rank];
	bool moved;
	coll_status status;

	sc->adversary.fooled = false;
	status = coll_run_poll(a->runs[which % sc->depth], &moved);
	sc->result->polls++;
	if (moved || status != COLL_AGAIN)
		a->quiet = 0;
	else if (!sc->adversary.fooled)
		a->quiet |= 1u << which;
	return status;
}

/* Operation `which` has retired: so have all before it. (Some may not have been polled
 * since: those without bytes retire when they start.) */
static bool end_until(struct scene *sc, int rank, int which)
{
	struct actor *a = &sc->actors[rank];

	for (; a->ended <= which; a->ended++)
		if (coll_run_poll(a->runs[a->ended % sc->depth], NULL) != COLL_OK)
			return false;
	return true;
}

/* Let one rank start or poll something; false when the seed is over. */
static bool act(struct scene *sc, int rank)
{
	const uint32_t mask = restless(&sc->actors[rank]);
	coll_status status;

	if (!mask || (can_start(sc, rank) && chance(sc, sc->urge))) {
		status = start(sc, rank);
	} else {
		const int which = pick(sc, mask);

		status = poll_one(sc, rank, which);
		if (status == COLL_OK && !end_until(sc, rank, which)) {
			describe(sc, SIM_WRONG, "%s", "ended before the operation before it", rank);
			return false;
		}
	}
	if (status == COLL_OK || status == COLL_AGAIN)
		return true;
	if (status != COLL_ERR_MISMATCH || !sc->result->mismatch)
		describe(sc, SIM_ERROR, "%s", coll_status_string(status), rank);
	return false;
}

static bool finished(const struct scene *sc)
{
	for (int r = 0; r < sc->size; r++)
		if (sc->actors[r].ended < sc->nops)
			return false;
	return true;
}

/* Ranks that can do something. */
static uint32_t active(const struct scene *sc)
{
	uint32_t mask = 0;

	for (int r = 0; r < sc->size; r++)
		if (restless(&sc->actors[r]) || can_start(sc, r))
			mask |= 1u << r;
	return mask;
}

/* Until all ranks have finished, or something is wrong. */
static void play(struct scene *sc)
{
	const uint32_t eager = (const uint32_t[]){5, 20, 50, 90}[below(sc, 4)];
	const bool lazy = chance(sc, 50);

	sc->urge = (const uint32_t[]){2, 20, 60, 100}[below(sc, 4)];
	while (!finished(sc)) {
		const uint32_t mask = active(sc);

		if (!mask || chance(sc, eager)) {
			int rank = sim_adversary_fire(&sc->adversary, lazy);

			if (rank >= 0) {
				sc->actors[rank].quiet = 0;
				continue;
			}
			if (!mask) {
				describe(sc, SIM_DEADLOCK, "%s", "nothing can happen any more", -1);
				return;
			}
		}
		if (!act(sc, pick(sc, mask)))
			return;
	}
	while (sim_adversary_fire(&sc->adversary, false) >= 0) {
	}
	if (sc->result->mismatch)
		describe(sc, SIM_WRONG, "%s", "a different call was not noticed", -1);
	else if (!sim_adversary_idle(&sc->adversary))
		describe(sc, SIM_WRONG, "%s", "frames are left over", -1);
}

static void check(struct scene *sc)
{
	char why[160] = "";

	for (int i = 0; i < sc->nops && sc->result->what == SIM_RIGHT; i++)
		if (sim_call_check(&sc->ops[i].call, sc->ops[i].bufs, why, sizeof(why)))
			describe(sc, SIM_WRONG, (const char *const[]){"1st: %s", "2nd: %s", "3rd: %s", "4th: %s"}[i],
			         why, -1);
}

static coll_status create_runs(struct scene *sc)
{
	coll_status status = COLL_OK;

	for (int r = 0; r < sc->size; r++)
		for (int d = 0; d < sc->depth && status == COLL_OK; d++)
			status = coll_run_create(&sc->actors[r].runs[d]);
	return status;
}

static void destroy_runs(struct scene *sc)
{
	for (int i = 0; i < sc->size * DEPTH_MAX; i++) {
		struct coll_run **run = &sc->actors[i / DEPTH_MAX].runs[i % DEPTH_MAX];

		if (*run)
			sc->result->by_reference += coll_run_stats(*run)->by_reference;
		coll_run_destroy(run);
	}
}

static void run_scene(struct scene *sc)
{
	const size_t ref_bytes = (const size_t[]){1, 1, 64, SIZE_MAX}[below(sc, 4)];
	coll_status status;

	sc->adversary.refuse_ref = below(sc, 101);
	sc->adversary.refuse_into = below(sc, 101);
	sc->adversary.fickle = chance(sc, 50) ? 0 : below(sc, 50);
	status = sim_world_create(&sc->world, sc->size, &sim_transport, &sc->adversary, SLOTS, SLOT_BYTES, ref_bytes);
	if (status == COLL_OK)
		status = create_runs(sc);
	if (status != COLL_OK)
		describe(sc, SIM_ERROR, "start: %s", coll_status_string(status), -1);
	else
		play(sc);
	if (sc->result->what == SIM_RIGHT && !sc->result->mismatch)
		check(sc);
	sc->result->events = sc->adversary.fired;
	sim_world_destroy(&sc->world);
	destroy_runs(sc);
}

void sim_sched_run(struct sim_sched *s, uint64_t seed, int max_size, struct sim_result *result)
{
	struct scene *sc = calloc(1, sizeof(*sc));

	*result = (struct sim_result){0};
	if (!sc || max_size > SIZE_MAX_RANKS) {
		result->what = SIM_ERROR;
		free(sc);
		return;
	}
	sc->sched = s;
	sc->result = result;
	sc->rng.state = coll_mix64(seed);
	sc->size = 2 + (int)below(sc, (uint32_t)max_size - 1);
	sc->nops = 2 + (int)below(sc, OPERATIONS_MAX - 1);
	sc->depth = 1 + (int)below(sc, DEPTH_MAX);
	for (int i = 0; i < sc->nops; i++)
		sc->ops[i].odd_rank = -1;
	result->mismatch = below(sc, 32) == 0;
	if (result->mismatch)
		sc->ops[below(sc, (uint32_t)sc->nops)].odd_rank = (int)below(sc, (uint32_t)sc->size);
	choose_operations(sc);
	if (sim_adversary_init(&sc->adversary, &sc->rng) == COLL_OK)
		run_scene(sc);
	sim_adversary_fini(&sc->adversary);
	for (int i = 0; i < sc->nops; i++)
		sim_call_free(&sc->ops[i].call, sc->ops[i].bufs);
	free(sc);
}
