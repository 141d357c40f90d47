/*
 * See scene.h.
 */
#include "sim/scene.h"
#include "engine/order.h"
#include "engine/range.h"
#include "engine/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { SLOTS = 2, SLOT_BYTES = 512, TILES_MAX = 7 };

/* ---- Plans ------------------------------------------------------------ */

/* Time is the scheduler's, too: it moves on by a little whenever somebody looks, so that what the engine times
 * follows from the seed. One thread runs the simulation. */
enum { LOOK_NS = 100 };

static uint64_t look(void *now_ns)
{
	return *(uint64_t *)now_ns += LOOK_NS;
}

static uint64_t now_ns;
static const struct coll_clock_source simulated = {look, &now_ns};

coll_status sim_sched_create(struct sim_sched **out, const char *algo)
{
	struct sim_sched *s = calloc(1, sizeof(*s));

	if (!s)
		return COLL_ERR_MEMORY;
	coll_clock_take(&simulated);
	s->algo = algo;
	s->plans = calloc(coll_algos_count * SIM_RANKS_MAX * SIM_RANKS_MAX * 4, sizeof(struct sim_plans *));
	s->scratch_bytes = (size_t)1 << 20;
	for (int i = 0; i < SIM_RANKS_MAX * SIM_DEPTH_MAX; i++)
		s->scratch[i / SIM_DEPTH_MAX][i % SIM_DEPTH_MAX] = aligned_alloc(64, s->scratch_bytes);
	*out = s;
	return s->plans ? COLL_OK : COLL_ERR_MEMORY;
}

void sim_sched_destroy(struct sim_sched **out)
{
	struct sim_sched *s = *out;
	const size_t n = coll_algos_count * SIM_RANKS_MAX * SIM_RANKS_MAX * 4;

	for (size_t i = 0; i < n; i++) {
		if (!s->plans[i])
			continue;
		sim_plans_free(s->plans[i]);
		free(s->plans[i]);
	}
	for (int i = 0; i < SIM_RANKS_MAX * SIM_DEPTH_MAX; i++)
		free(s->scratch[i / SIM_DEPTH_MAX][i % SIM_DEPTH_MAX]);
	free(s->plans);
	coll_clock_take(NULL);
	free(s);
	*out = NULL;
}

/* NULL when the algorithm does not do this. */
static struct sim_plans *get_plans(struct sim_sched *s, const struct coll_algo *algo, int size, int root, bool ordered,
                                   bool uniform)
{
	size_t i = (size_t)(algo - coll_algos);
	struct sim_plans **slot;

	i = ((i * SIM_RANKS_MAX + (size_t)size - 1) * SIM_RANKS_MAX + (size_t)root) * 4;
	slot = &s->plans[i + 2 * ordered + uniform];
	if (*slot)
		return (*slot)->size ? *slot : NULL;
	*slot = calloc(1, sizeof(**slot));
	if (!*slot || sim_plans_make(*slot, algo, size, root, ordered, uniform, (size + root) % 2) != COLL_OK)
		return NULL;
	return *slot;
}

/* ---- Choosing a call -------------------------------------------------- */

uint32_t sim_below(struct sim_scene *sc, uint32_t n)
{
	return coll_rng_below(&sc->rng, n);
}

bool sim_chance(struct sim_scene *sc, uint32_t per_cent)
{
	return sim_below(sc, 100) < per_cent;
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

static void choose_type(struct sim_scene *sc, struct sim_operation *op)
{
	static const struct {
		coll_dtype type;
		coll_op op;
	} choices[] = {{COLL_I32, COLL_MAX},
	               {COLL_I32, COLL_AVG},
	               {COLL_U8, COLL_SUM},
	               {COLL_F16, COLL_AVG},
	               {COLL_F32, COLL_OP_PREMUL_SUM}};
	const uint32_t i = sim_below(sc, 5);

	op->call.type = COLL_U64;
	op->call.op = COLL_SUM;
	if (sim_chance(sc, 30)) {
		op->call.type = choices[i].type;
		op->call.op = choices[i].op;
	}
	/* The interface refuses it. */
	if (op->call.op == COLL_AVG && !coll_plan_kind_averages(op->algo->kind))
		op->call.op = COLL_SUM;
	if (op->algo->flags & COLL_ALGO_ORDERED && sim_chance(sc, 40)) {
		op->call.type = COLL_U64;
		op->call.op = COLL_OP_USER;
	}
}

/* Counts per rank, or per pair with its transpose behind; many of them 0. */
static void choose_counts(struct sim_scene *sc, struct sim_operation *op)
{
	const int n = sc->size;
	const int cells = op->algo->kind == COLL_KIND_ALL_TO_ALL ? n * n : n;

	for (int i = 0; i < cells; i++)
		op->counts[i] = sim_chance(sc, 25) ? 0 : sim_below(sc, 1 + (uint32_t)op->call.count);
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

static bool try_operation(struct sim_scene *sc, struct sim_operation *op)
{
	struct sim_call *c = &op->call;
	bool ragged;

	op->algo = &coll_algos[sim_below(sc, (uint32_t)coll_algos_count)];
	if (!wanted(sc->sched, op->algo))
		return false;
	memset(c, 0, sizeof(*c));
	c->kind = op->algo->kind;
	c->size = sc->size;
	if (c->kind == COLL_KIND_REDUCE || c->kind == COLL_KIND_BROADCAST || c->kind == COLL_KIND_GATHER ||
	    c->kind == COLL_KIND_SCATTER)
		c->root = (int)sim_below(sc, (uint32_t)sc->size);
	choose_type(sc, op);
	c->count = c->kind == COLL_KIND_BARRIER ? 1 : sim_chance(sc, 8) ? sim_below(sc, 2) : sim_below(sc, 48);
	ragged = may_be_ragged(op->algo) && op->odd_rank < 0 && sim_chance(sc, 40);
	if (ragged)
		choose_counts(sc, op);
	if (op->odd_rank >= 0 && c->count < (size_t)sc->size)
		c->count += (size_t)sc->size;
	c->in_place = coll_rng_next(&sc->rng);
	c->seed = coll_rng_next(&sc->rng);
	op->logical = sim_chance(sc, 70) ? 0 : coll_rng_next(&sc->rng);
	op->plans = get_plans(sc->sched, op->algo, sc->size, c->root, c->op == COLL_OP_USER, !ragged);
	return op->plans != NULL;
}

static void choose_operation(struct sim_scene *sc, struct sim_operation *op)
{
	size_t most;

	while (!try_operation(sc, op)) {
	}
	most = sim_plans_tile(op->plans, coll_dtype_size(op->call.type), SLOT_BYTES);
	op->tile = 1 + sim_below(sc, 12);
	if (op->tile * TILES_MAX < op->call.count)
		op->tile = op->call.count / TILES_MAX + 1;
	if (op->tile > most)
		op->tile = most;
	op->windows = 1 + sim_below(sc, 3);
}

/* The call of an earlier operation once more, with other buffers. */
static void repeat_operation(struct sim_scene *sc, struct sim_operation *op, const struct sim_operation *earlier)
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

static void choose_operations(struct sim_scene *sc)
{
	for (int i = 0; i < sc->nops; i++) {
		struct sim_operation *op = &sc->ops[i];
		const struct sim_operation *earlier = i < sc->depth ? NULL : op - sc->depth;

		op->signature = 0xc0 + (uint32_t)i;
		if (earlier && earlier->odd_rank < 0 && op->odd_rank < 0 && sim_chance(sc, 30))
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
coll_status sim_start(struct sim_scene *sc, int rank)
{
	struct sim_actor *a = &sc->actors[rank];
	const int which = a->started++;
	struct coll_run *run = a->runs[which % sc->depth];
	struct sim_operation *op = &sc->ops[which];
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
	op->scratch_bytes[rank] = coll_run_scratch_bytes(job.plan, job.tile, job.elem_bytes, job.windows);
	if (op->scratch_bytes[rank] > sc->sched->scratch_bytes)
		return COLL_ERR_MEMORY;
	memset(job.scratch, 0xdd, op->scratch_bytes[rank]);
	if (!op->again)
		return coll_run_start(run, &sc->world.ranks[rank].fabric, &job);
	coll_run_restart(run, job.in.base, job.out.base, job.sequence);
	coll_run_follow(run, job.after);
	return COLL_OK;
}

void sim_describe(struct sim_scene *sc, int kind, const char *format, const char *detail, int rank)
{
	struct sim_result *r = sc->result;
	size_t at = 0;

	r->what = kind;
	for (int i = 0; i < sc->nops; i++) {
		const struct sim_operation *op = &sc->ops[i];

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

bool sim_can_start(const struct sim_scene *sc, int rank)
{
	const struct sim_actor *a = &sc->actors[rank];

	return a->started < sc->nops && a->started - a->ended < sc->depth;
}

/* Operations in flight that a poll may move. */
uint32_t sim_restless(const struct sim_actor *a)
{
	return ((1u << a->started) - (1u << a->ended)) & ~a->quiet;
}

int sim_pick(struct sim_scene *sc, uint32_t mask)
{
	uint32_t skip = sim_below(sc, (uint32_t)__builtin_popcount(mask));

	while (skip-- > 0)
		mask &= mask - 1;
	return __builtin_ctz(mask);
}

/* Poll one operation of a rank; its status. */
coll_status sim_poll(struct sim_scene *sc, int rank, int which)
{
	struct sim_actor *a = &sc->actors[rank];
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

/* ---- Life ------------------------------------------------------------- */

bool sim_scene_make(struct sim_scene *sc, struct sim_sched *s, uint64_t seed, int max_size, struct sim_result *result)
{
	now_ns = 0;
	*sc = (struct sim_scene){.sched = s, .result = result, .rng.state = coll_mix64(seed)};
	sc->size = 2 + (int)sim_below(sc, (uint32_t)max_size - 1);
	sc->nops = 2 + (int)sim_below(sc, SIM_OPERATIONS_MAX - 1);
	sc->depth = 1 + (int)sim_below(sc, SIM_DEPTH_MAX);
	for (int i = 0; i < sc->nops; i++)
		sc->ops[i].odd_rank = -1;
	if (result->mismatch)
		sc->ops[sim_below(sc, (uint32_t)sc->nops)].odd_rank = (int)sim_below(sc, (uint32_t)sc->size);
	choose_operations(sc);
	return sim_adversary_init(&sc->adversary, &sc->rng) == COLL_OK;
}

static coll_status create_runs(struct sim_scene *sc)
{
	coll_status status = COLL_OK;

	for (int r = 0; r < sc->size; r++)
		for (int d = 0; d < sc->depth && status == COLL_OK; d++)
			status = coll_run_create(&sc->actors[r].runs[d]);
	return status;
}

static void destroy_runs(struct sim_scene *sc)
{
	for (int i = 0; i < sc->size * SIM_DEPTH_MAX; i++) {
		struct coll_run **run = &sc->actors[i / SIM_DEPTH_MAX].runs[i % SIM_DEPTH_MAX];

		if (*run)
			sc->result->by_reference += coll_run_stats(*run)->by_reference;
		coll_run_destroy(run);
	}
}

coll_status sim_scene_open(struct sim_scene *sc)
{
	const size_t ref_bytes = (const size_t[]){1, 1, 64, SIZE_MAX}[sim_below(sc, 4)];
	coll_status status;

	sc->adversary.refuse_ref = sim_below(sc, 101);
	sc->adversary.refuse_into = sim_below(sc, 101);
	sc->adversary.fickle = sim_chance(sc, 50) ? 0 : sim_below(sc, 50);
	sc->urge = (const uint32_t[]){2, 20, 60, 100}[sim_below(sc, 4)];
	status = sim_world_create(&sc->world, sc->size, &sim_transport, &sc->adversary, SLOTS, SLOT_BYTES, ref_bytes);
	return status == COLL_OK ? create_runs(sc) : status;
}

void sim_scene_free(struct sim_scene *sc)
{
	sc->result->events += sc->adversary.fired;
	sim_world_destroy(&sc->world);
	destroy_runs(sc);
	sim_adversary_fini(&sc->adversary);
	for (int i = 0; i < sc->nops; i++)
		sim_call_free(&sc->ops[i].call, sc->ops[i].bufs);
}
