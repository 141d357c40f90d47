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

enum { SIZE_MAX_RANKS = 12, SLOTS = 2, SLOT_BYTES = 512, OPERATIONS = 2, TILES_MAX = 7 };

struct sim_sched {
	const char *algo;
	/* By algorithm, size, root, ordered, uniform; NULL: not made yet. */
	struct sim_plans **plans;
	char *scratch[SIZE_MAX_RANKS];
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
	uint64_t logical; /* bit per rank: runs the logical plan */
	int odd_rank;     /* calls something else; -1: nobody */
};

struct scene {
	struct sim_sched *sched;
	struct coll_rng rng;
	struct sim_adversary adversary;
	struct sim_world world;
	struct operation ops[OPERATIONS];
	uint32_t windows;
	int size;
	int at[SIZE_MAX_RANKS]; /* operation each rank is in; OPERATIONS: finished */
	uint32_t quiet;         /* ranks that cannot go on before something happens */
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
	for (int r = 0; r < SIZE_MAX_RANKS; r++)
		s->scratch[r] = aligned_alloc(64, s->scratch_bytes);
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
	for (int r = 0; r < SIZE_MAX_RANKS; r++)
		free(s->scratch[r]);
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
}

/* ---- Running ---------------------------------------------------------- */

static coll_status start(struct scene *sc, int rank)
{
	const int which = sc->at[rank];
	struct operation *op = &sc->ops[which];
	struct coll_job job = {.tile = op->tile,
	                       .windows = sc->windows,
	                       .scratch = sc->sched->scratch[rank],
	                       .sequence = (uint64_t)which + 1,
	                       .signature = 0xc0 + (uint32_t)which};

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
	return coll_run_start(sc->world.ranks[rank].run, &sc->world.ranks[rank].fabric, &job);
}

static void describe(struct scene *sc, int kind, const char *format, const char *detail, int rank)
{
	struct sim_result *r = sc->result;
	size_t at = 0;

	r->what = kind;
	for (int i = 0; i < OPERATIONS; i++) {
		const struct operation *op = &sc->ops[i];

		at += (size_t)snprintf(r->why + at, sizeof(r->why) - at, "%s:%s root=%d count=%zu%s tile=%zu op=%u; ",
		                       coll_plan_kind_name(op->call.kind), op->algo->name, op->call.root,
		                       op->call.count, op->call.counts ? " ragged" : "", op->tile, op->call.op);
		if (at >= sizeof(r->why))
			return;
	}
	at += (size_t)snprintf(r->why + at, sizeof(r->why) - at, "n=%d W=%u: rank %d: ", sc->size, sc->windows, rank);
	if (at < sizeof(r->why))
		snprintf(r->why + at, sizeof(r->why) - at, format, detail);
}

/* Poll one rank; false when the seed is over. */
static bool poll_rank(struct scene *sc, int rank)
{
	bool moved;
	coll_status status;

	sc->adversary.fooled = false;
	status = coll_run_poll(sc->world.ranks[rank].run, &moved);
	sc->result->polls++;
	if (status == COLL_AGAIN) {
		if (!moved && !sc->adversary.fooled)
			sc->quiet |= 1u << rank;
		return true;
	}
	if (status == COLL_OK) {
		if (++sc->at[rank] == OPERATIONS)
			return true;
		status = start(sc, rank);
		if (status == COLL_OK)
			return true;
	}
	if (status == COLL_ERR_MISMATCH && sc->result->mismatch)
		return false;
	describe(sc, SIM_ERROR, "%s", coll_status_string(status), rank);
	return false;
}

static uint32_t unfinished(const struct scene *sc)
{
	uint32_t mask = 0;

	for (int r = 0; r < sc->size; r++)
		if (sc->at[r] < OPERATIONS)
			mask |= 1u << r;
	return mask;
}

static int pick(struct scene *sc, uint32_t mask)
{
	uint32_t skip = below(sc, (uint32_t)__builtin_popcount(mask));

	while (skip-- > 0)
		mask &= mask - 1;
	return __builtin_ctz(mask);
}

/* Until all ranks have finished, or something is wrong. */
static void play(struct scene *sc)
{
	const uint32_t eager = (const uint32_t[]){5, 20, 50, 90}[below(sc, 4)];
	const bool lazy = chance(sc, 50);
	uint32_t left;

	while ((left = unfinished(sc)) != 0) {
		const bool all_quiet = (left & ~sc->quiet) == 0;

		if (all_quiet || chance(sc, eager)) {
			int rank = sim_adversary_fire(&sc->adversary, lazy);

			if (rank >= 0) {
				sc->quiet &= ~(1u << rank);
				continue;
			}
			if (all_quiet) {
				describe(sc, SIM_DEADLOCK, "%s", "nothing can happen any more", __builtin_ctz(left));
				return;
			}
		}
		if (!poll_rank(sc, pick(sc, left & ~sc->quiet)))
			return;
	}
	while (sim_adversary_fire(&sc->adversary, false) >= 0) {
	}
	if (sc->result->mismatch)
		describe(sc, SIM_WRONG, "%s", "a different call was not noticed", sc->ops[0].odd_rank);
	else if (!sim_adversary_idle(&sc->adversary))
		describe(sc, SIM_WRONG, "%s", "frames are left over", -1);
}

static void check(struct scene *sc)
{
	char why[160] = "";

	for (int i = 0; i < OPERATIONS && sc->result->what == SIM_RIGHT; i++)
		if (sim_call_check(&sc->ops[i].call, sc->ops[i].bufs, why, sizeof(why)))
			describe(sc, SIM_WRONG, i ? "second: %s" : "first: %s", why, -1);
}

static void run_scene(struct scene *sc)
{
	const size_t ref_bytes = (const size_t[]){1, 1, 64, SIZE_MAX}[below(sc, 4)];
	coll_status status;

	sc->adversary.refuse_ref = below(sc, 101);
	sc->adversary.refuse_into = below(sc, 101);
	sc->adversary.fickle = chance(sc, 50) ? 0 : below(sc, 50);
	status = sim_world_create(&sc->world, sc->size, &sim_transport, &sc->adversary, SLOTS, SLOT_BYTES, ref_bytes);
	for (int r = 0; r < sc->size && status == COLL_OK; r++)
		status = start(sc, r);
	if (status != COLL_OK)
		describe(sc, SIM_ERROR, "start: %s", coll_status_string(status), -1);
	else
		play(sc);
	if (sc->result->what == SIM_RIGHT && !sc->result->mismatch)
		check(sc);
	sc->result->events = sc->adversary.fired;
	for (int r = 0; sc->world.ranks && r < sc->size; r++)
		sc->result->by_reference += coll_run_stats(sc->world.ranks[r].run)->by_reference;
	sim_world_destroy(&sc->world);
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
	sc->windows = 1 + below(sc, 3);
	sc->ops[0].odd_rank = sc->ops[1].odd_rank = -1;
	result->mismatch = below(sc, 32) == 0;
	if (result->mismatch)
		sc->ops[below(sc, 2)].odd_rank = (int)below(sc, (uint32_t)sc->size);
	for (int i = 0; i < OPERATIONS; i++) {
		struct operation *op = &sc->ops[i];

		choose_operation(sc, op);
		sim_call_reduction(&op->call, &op->reduction);
		if (sim_call_buffers(&op->call, op->bufs) != COLL_OK)
			abort(); /* out of memory in a test */
	}
	if (sim_adversary_init(&sc->adversary, &sc->rng) == COLL_OK)
		run_scene(sc);
	sim_adversary_fini(&sc->adversary);
	for (int i = 0; i < OPERATIONS; i++)
		sim_call_free(&sc->ops[i].call, sc->ops[i].bufs);
	free(sc);
}
