/*
 * Does the verifier see? Plans are broken on purpose, one defect at a time, and
 * every broken set of plans must be refused.
 *
 * Three families. Step mutants change one step of one rank of a real plan
 * (logical or fused), at every kind of site that a seeded choice finds, for every
 * algorithm and 2 to 8 ranks: each application must be caught. Generator mutants
 * are algorithms with a mistake in their text. Rule mutants keep the plans and
 * break the engine they run on: fewer slots, shared scratch, waits that count
 * something else. Prints each mutant and how it was first caught.
 */
#define PLAIN_OWN_MAIN

#include <stdlib.h>

#include "base/hash.h"
#include "plan/pack.h"
#include "plan/step.h"
#include "plan/verify.h"
#include "tests/plain.h"
#include "tools/plan_set.h"

enum { SITES = 16 /* per algorithm, size and mutant */, SIZE_MAX_STEPS = 8 };

static int distinct; /* mutants seen caught */
static uint64_t seed = 20261121;

/* ---- Judging ---- */

static struct coll_verify_options options(const struct plan_set *set, bool fused, uint64_t in_place)
{
	return (struct coll_verify_options){.depth = fused ? 2 : 0,
	                                    .windows = 2,
	                                    .tiles = 3,
	                                    .ordered = set->ordered,
	                                    .in_place = in_place,
	                                    .then = plan_set_plans(set, fused),
	                                    .uniform = set->lengths == PLAN_UNIFORM,
	                                    .pairwise = set->lengths == PLAN_PAIRWISE};
}

/* Whether the set is refused; why says how. */
static bool refused(const struct plan_set *set, bool fused, const struct coll_model *model, char *why, size_t why_bytes)
{
	for (int m = 0; m < 2; m++) {
		struct coll_verify_options opt = options(set, fused, m ? 0xaaaaaaaaaaaaaaaau : 0x5555555555555555u);

		if (coll_plan_verify_model(plan_set_plans(set, fused), set->size, &opt, model, why, why_bytes))
			return true;
	}
	return false;
}

static const struct coll_model truth;

/* The most demanding call that an algorithm serves. */
static bool build_demanding(struct plan_set *set, const struct coll_algo *a, int n, int root)
{
	bool ordered = a->flags & COLL_ALGO_ORDERED;
	char why[256];

	for (int l = PLAN_LENGTHS_COUNT - 1; l >= 0; l--)
		if (plan_set_serves(a, n, ordered, (enum plan_lengths)l))
			return plan_set_build(set, a, n, root, ordered, (enum plan_lengths)l, why, sizeof(why)) ==
			       COLL_OK;
	return false;
}

/* ---- Step mutants ---- */

/* Change step i of p (a private copy); false where the mutant does not apply. */
typedef bool mutate_fn(struct coll_plan *p, uint32_t i);

static struct coll_step *step_at(struct coll_plan *p, uint32_t i)
{
	return (struct coll_step *)(uintptr_t)&p->steps[i];
}

static uint32_t lane_end(const struct coll_plan *p, uint32_t i)
{
	return p->lane_first[p->steps[i].lane + 1];
}

static void drop(struct coll_plan *p, uint32_t i)
{
	const uint32_t n = coll_plan_nsteps(p), lane = p->steps[i].lane, index = i - p->lane_first[lane];

	memmove(step_at(p, i), step_at(p, i + 1), (n - i - 1) * sizeof(struct coll_step));
	for (uint32_t l = lane + 1; l <= COLL_LANES_MAX; l++)
		p->lane_first[l]--;
	for (uint32_t j = 0; j < n - 1; j++) {
		struct coll_step *s = step_at(p, j);

		if (s->wait_lane == lane && s->wait_count > index)
			s->wait_count--;
	}
}

static bool drop_send(struct coll_plan *p, uint32_t i)
{
	if (p->steps[i].op != COLL_STEP_SEND)
		return false;
	drop(p, i);
	return true;
}

static bool drop_receive(struct coll_plan *p, uint32_t i)
{
	if (p->steps[i].op != COLL_STEP_RECV && p->steps[i].op != COLL_STEP_RECV_REDUCE)
		return false;
	drop(p, i);
	return true;
}

static bool drop_copy(struct coll_plan *p, uint32_t i)
{
	if (p->steps[i].op != COLL_STEP_COPY)
		return false;
	drop(p, i);
	return true;
}

static bool drop_reduce(struct coll_plan *p, uint32_t i)
{
	if (p->steps[i].op != COLL_STEP_REDUCE)
		return false;
	drop(p, i);
	return true;
}

/* One side of one step moves to the next chunk. */
static bool shift_src(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (!(coll_step_reads_src(s->op) || s->op == COLL_STEP_REDUCE) || p->chunks == 1 ||
	    p->kind == COLL_KIND_BARRIER || (s->run == p->chunks && s->op != COLL_STEP_COPY))
		return false;
	s->src_chunk = (s->src_chunk + 1) % p->chunks;
	return true;
}

static bool shift_dst(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (!coll_step_writes_dst(s->op) || p->chunks == 1)
		return false;
	s->dst_chunk = (s->dst_chunk + 1) % p->chunks;
	return true;
}

static bool other_receiver(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (!coll_step_sends(s->op) || p->npeers < 2)
		return false;
	s->peer_send = (uint16_t)((s->peer_send + 1) % p->npeers);
	return true;
}

static bool other_sender(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (!coll_step_receives(s->op) || p->npeers < 2)
		return false;
	s->peer_recv = (uint16_t)((s->peer_recv + 1) % p->npeers);
	return true;
}

static bool drop_wait(struct coll_plan *p, uint32_t i)
{
	if (!p->steps[i].wait_count)
		return false;
	step_at(p, i)->wait_count = 0;
	return true;
}

static bool shift_wait(struct coll_plan *p, uint32_t i)
{
	if (!p->steps[i].wait_count)
		return false;
	step_at(p, i)->wait_count--;
	return true;
}

static bool wait_for_self(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	s->wait_lane = s->lane;
	s->wait_count = i - p->lane_first[s->lane] + 1;
	return true;
}

static bool wait_other_lane(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (!s->wait_count || p->nlanes < 2)
		return false;
	s->wait_lane = (uint8_t)((s->wait_lane + 1) % p->nlanes);
	/* At its own lane the wait may be implied by the order of steps; that is a drop. */
	return s->wait_count <= coll_lane_length(p, s->wait_lane) || s->wait_lane == s->lane;
}

static bool other_side(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (s->op != COLL_STEP_RECV_REDUCE && s->op != COLL_STEP_RECV_REDUCE_SEND &&
	    s->op != COLL_STEP_RECV_REDUCE_COPY_SEND)
		return false;
	s->flags ^= COLL_STEP_INCOMING_LEFT;
	return true;
}

static bool missing_final(struct coll_plan *p, uint32_t i)
{
	if (!(p->steps[i].flags & COLL_STEP_POST))
		return false;
	step_at(p, i)->flags &= (uint8_t)~COLL_STEP_POST;
	return true;
}

static bool early_final(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (s->flags & COLL_STEP_POST ||
	    !(s->op == COLL_STEP_RECV_REDUCE || s->op == COLL_STEP_REDUCE || s->op == COLL_STEP_COPY))
		return false;
	s->flags |= COLL_STEP_POST;
	return true;
}

static bool missing_scale(struct coll_plan *p, uint32_t i)
{
	if (!(p->steps[i].flags & COLL_STEP_PRE))
		return false;
	step_at(p, i)->flags &= (uint8_t)~COLL_STEP_PRE;
	return true;
}

static bool double_scale(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (s->flags & COLL_STEP_PRE || !coll_step_reads_src(s->op))
		return false;
	s->flags |= COLL_STEP_PRE;
	return true;
}

static bool longer_run(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (s->op == COLL_STEP_WAIT || s->run == p->chunks || p->chunks == 1)
		return false;
	s->run++;
	p->max_run = p->chunks;
	return s->op != COLL_STEP_COPY && s->op != COLL_STEP_REDUCE;
}

static bool shorter_run(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (s->run < 2)
		return false;
	s->run--;
	return true;
}

static bool wrong_stride(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (s->op == COLL_STEP_REDUCE || !s->group || s->group >= s->run)
		return false;
	s->stride++;
	return true;
}

static bool wrong_group(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (s->op == COLL_STEP_REDUCE || !s->group)
		return false;
	s->group = 0;
	return true;
}

static bool lost_wrap(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (!(s->flags & COLL_STEP_WRAP))
		return false;
	s->flags &= (uint8_t)~COLL_STEP_WRAP;
	return true;
}

/* Two frames of one channel that carry different chunks change places. */
static bool swap_frames(struct coll_plan *p, uint32_t i)
{
	struct coll_step *a = step_at(p, i);

	if (a->op != COLL_STEP_SEND)
		return false;
	for (uint32_t j = i + 1; j < lane_end(p, i); j++) {
		struct coll_step *b = step_at(p, j);

		if (b->op == COLL_STEP_SEND && b->peer_send == a->peer_send) {
			uint32_t chunk = a->src_chunk;

			if (a->src_chunk == b->src_chunk || a->src != b->src)
				return false;
			a->src_chunk = b->src_chunk;
			b->src_chunk = chunk;
			return true;
		}
	}
	return false;
}

static bool swap_sources(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	/* Two buffers may hold the same for a last copy (Bruck's do). */
	if (p->nscratch < 2 || s->src < COLL_BUF_SCRATCH || !coll_step_reads_src(s->op) || s->op == COLL_STEP_COPY)
		return false;
	s->src = (uint8_t)(COLL_BUF_SCRATCH + (s->src - COLL_BUF_SCRATCH + 1u) % p->nscratch);
	return true;
}

/* `in` is read where the partial result in `out` was meant. */
static bool raw_for_partial(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	/* Elsewhere out may well hold the same as in. */
	if (s->src != COLL_BUF_OUT || !coll_step_reads_src(s->op) || !coll_plan_kind_reduces(p->kind))
		return false;
	s->src = COLL_BUF_IN;
	s->flags |= COLL_STEP_PRE;
	return true;
}

static bool one_input_less(struct coll_plan *p, uint32_t i)
{
	if (p->steps[i].op != COLL_STEP_REDUCE || p->steps[i].stride < 2)
		return false;
	step_at(p, i)->stride--;
	if (p->steps[i].group != COLL_NO_SPLICE && p->steps[i].group > p->steps[i].stride)
		step_at(p, i)->group--;
	return true;
}

static bool wrong_splice(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (s->op != COLL_STEP_REDUCE || s->group == COLL_NO_SPLICE)
		return false;
	s->group = (uint16_t)((s->group + 1u) % (s->stride + 1));
	return true;
}

static bool small_extent(struct coll_plan *p, uint32_t i)
{
	if (i >= p->nscratch || !p->scratch[i].count)
		return false;
	((struct coll_plan_scratch *)(uintptr_t)p->scratch)[i].count--;
	return true;
}

static bool small_table(struct coll_plan *p, uint32_t i)
{
	if (i || !p->max_in_flight)
		return false;
	p->max_in_flight--;
	return true;
}

static bool small_frames(struct coll_plan *p, uint32_t i)
{
	if (i || p->max_run < 2)
		return false;
	p->max_run--;
	return true;
}

/* ---- Step mutants of lowering ---- */

static bool lost_store(struct coll_plan *p, uint32_t i)
{
	if (p->steps[i].op != COLL_STEP_RECV_REDUCE_COPY_SEND)
		return false;
	step_at(p, i)->op = COLL_STEP_RECV_REDUCE_SEND;
	return true;
}

static bool lost_forward(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (!coll_step_is_fused(s->op) || s->op == COLL_STEP_RECV_REDUCE_SEND)
		return false;
	s->op = s->op == COLL_STEP_RECV_COPY_SEND ? COLL_STEP_RECV : COLL_STEP_RECV_REDUCE;
	return true;
}

/* What arrives is forwarded, what was to be added to it is not. */
static bool lost_reduction(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);

	if (s->op != COLL_STEP_RECV_REDUCE_COPY_SEND)
		return false;
	s->op = COLL_STEP_RECV_COPY_SEND;
	s->flags &= (uint8_t) ~(COLL_STEP_PRE | COLL_STEP_POST);
	return true;
}

static bool arm_touched(struct coll_plan *p, uint32_t i)
{
	if (p->steps[i].op != COLL_STEP_RECV || p->steps[i].flags & COLL_STEP_ARM)
		return false;
	step_at(p, i)->flags |= COLL_STEP_ARM;
	return true;
}

/* The second half of a pair is fused with the receive before the right one. */
static bool fused_too_early(struct coll_plan *p, uint32_t i)
{
	struct coll_step *a = step_at(p, i), *b = a + 1;

	if (i + 1 >= lane_end(p, i) || a->op != COLL_STEP_RECV_REDUCE || b->op != COLL_STEP_RECV_REDUCE_COPY_SEND ||
	    a->dst != b->src || a->dst_chunk != b->src_chunk)
		return false;
	a->op = COLL_STEP_RECV_REDUCE_COPY_SEND;
	a->peer_send = b->peer_send;
	b->op = COLL_STEP_RECV_REDUCE;
	return true;
}

/* A wait that the draft recomputed gets back a count of before the fusion. */
static bool wait_not_remapped(struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = step_at(p, i);
	uint32_t fused = 0;

	if (!s->wait_count)
		return false;
	for (uint32_t j = 0; j < s->wait_count; j++)
		fused += coll_step_is_fused(p->steps[p->lane_first[s->wait_lane] + j].op);
	s->wait_count += fused;
	/* An earlier step of the lane would be a longer wait than needed, not a wrong one. */
	return s->wait_count >
	       (s->wait_lane == s->lane ? i - p->lane_first[s->lane] : coll_lane_length(p, s->wait_lane));
}

enum { LOGICAL = 1, FUSED = 2, ORDERED = 4 };

static const struct step_mutant {
	const char *name;
	mutate_fn *mutate;
	int forms; /* ORDERED: only where order is demanded */
} step_mutants[] = {
        {"a send is missing", drop_send, LOGICAL | FUSED},
        {"a receive is missing", drop_receive, LOGICAL | FUSED},
        {"a copy is missing", drop_copy, LOGICAL | FUSED},
        {"an n-input reduction is missing", drop_reduce, LOGICAL | FUSED},
        {"a step reads the next chunk", shift_src, LOGICAL | FUSED},
        {"a step writes the next chunk", shift_dst, LOGICAL | FUSED},
        {"a frame goes to another peer", other_receiver, LOGICAL | FUSED},
        {"a frame is expected from another peer", other_sender, LOGICAL | FUSED},
        {"a wait is missing", drop_wait, LOGICAL | FUSED},
        {"a wait counts one step too few", shift_wait, LOGICAL | FUSED},
        {"a step waits for itself", wait_for_self, LOGICAL | FUSED},
        {"a wait names another lane", wait_other_lane, LOGICAL | FUSED},
        {"the incoming operand is on the other side", other_side, LOGICAL | FUSED | ORDERED},
        {"the last reduction is not final", missing_final, LOGICAL | FUSED},
        {"a partial result is called final", early_final, LOGICAL},
        {"a contribution is not pre-scaled", missing_scale, LOGICAL | FUSED},
        {"a partial result is pre-scaled", double_scale, LOGICAL | FUSED},
        {"a run is one chunk longer", longer_run, LOGICAL | FUSED},
        {"a run is one chunk shorter", shorter_run, LOGICAL | FUSED},
        {"a stride is off by one", wrong_stride, LOGICAL | FUSED},
        {"a run with gaps has none", wrong_group, LOGICAL | FUSED},
        {"a run that wraps does not", lost_wrap, LOGICAL | FUSED},
        {"two frames of a channel change places", swap_frames, LOGICAL},
        {"a step reads the next scratch buffer", swap_sources, LOGICAL | FUSED},
        {"the raw contribution stands for the partial result", raw_for_partial, LOGICAL | FUSED},
        {"an n-input reduction leaves one out", one_input_less, LOGICAL | FUSED},
        {"the own contribution is in the wrong place", wrong_splice, LOGICAL | FUSED | ORDERED},
        {"a scratch buffer is one chunk too small", small_extent, LOGICAL | FUSED},
        {"the table of sends in flight is too small", small_table, LOGICAL | FUSED},
        {"the longest frame is longer than said", small_frames, LOGICAL | FUSED},
        {"lowering drops a store that is needed", lost_store, FUSED},
        {"lowering drops a send", lost_forward, FUSED},
        {"lowering drops a reduction", lost_reduction, FUSED},
        {"lowering arms a receive too early", arm_touched, FUSED},
        {"lowering fuses across a dependency", fused_too_early, FUSED},
        {"lowering leaves a wait's count as it was", wait_not_remapped, FUSED},
};

struct tally {
	const char *name;
	long tried;
	long caught;
	char first[320]; /* how */
};

/* Apply m to step i of one rank's plan; count and report. */
static void try_site(const struct step_mutant *m, struct plan_set *set, bool fused, int rank, uint32_t i,
                     struct tally *t)
{
	struct coll_plan **slot = fused ? &set->fused[rank] : &set->logical[rank];
	struct coll_plan *original = *slot, *copy = NULL;
	char why[256] = "";

	REQUIRE(coll_plan_copy(original, &copy) == COLL_OK);
	if (m->mutate(copy, i)) {
		t->tried++;
		*slot = copy;
		if (refused(set, fused, &truth, why, sizeof(why))) {
			if (t->caught++ == 0)
				snprintf(t->first, sizeof(t->first), "%s %s n=%d %s: %s",
				         coll_plan_kind_name(set->algo->kind), set->algo->name, set->size,
				         fused ? "fused" : "logical", why);
		} else {
			CHECK(false, "survivor: %s: %s %s n=%d root=%d %s rank %d step %u", m->name,
			      coll_plan_kind_name(set->algo->kind), set->algo->name, set->size, set->root,
			      fused ? "fused" : "logical", rank, i);
		}
		*slot = original;
	}
	coll_plan_free(copy);
}

static void try_set(const struct step_mutant *m, struct plan_set *set, struct coll_rng *rng, struct tally *t)
{
	for (int fused = 0; fused < 2; fused++) {
		if (!(m->forms & (fused ? FUSED : LOGICAL)) || (m->forms & ORDERED && !set->ordered))
			continue;
		for (int i = 0; i < SITES; i++) {
			int rank = (int)coll_rng_below(rng, (uint32_t)set->size);
			uint32_t steps = coll_plan_nsteps(plan_set_plans(set, fused)[rank]);

			if (steps)
				try_site(m, set, fused, rank, coll_rng_below(rng, steps), t);
		}
	}
}

static void show(const struct tally *t)
{
	printf("%-52s %6ld of %6ld caught: %s\n", t->name, t->caught, t->tried, t->first);
	CHECK(t->tried > 0, "%s: applies nowhere", t->name);
	CHECK(t->caught == t->tried, "%s: %ld survive", t->name, t->tried - t->caught);
	distinct += t->caught > 0;
}

static void steps_that_are_wrong_are_refused(void)
{
	struct coll_rng rng = {seed};

	for (size_t k = 0; k < sizeof(step_mutants) / sizeof(step_mutants[0]); k++) {
		struct tally t = {.name = step_mutants[k].name};

		for (size_t a = 0; a < coll_algos_count; a++)
			for (int n = 2; n <= SIZE_MAX_STEPS; n++) {
				int root = plan_kind_has_root(coll_algos[a].kind)
				                   ? (int)coll_rng_below(&rng, (uint32_t)n)
				                   : 0;
				struct plan_set set;

				if (!build_demanding(&set, &coll_algos[a], n, root))
					continue;
				try_set(&step_mutants[k], &set, &rng, &t);
				plan_set_free(&set);
			}
		show(&t);
	}
}

/* ---- Generator mutants ---- */

static uint32_t around(const struct coll_shape *s, int d)
{
	return (uint32_t)(((s->rank + d) % s->size + s->size) % s->size);
}

/* A ring all-reduce with its parameters exposed: which chunk, how many rounds, which
 * lanes. The right values are 0, n - 1, 0 and 0. */
static coll_status ring(const struct coll_shape *s, struct coll_builder *b, int shift, int rounds, uint32_t lane_up,
                        uint32_t lane_down)
{
	const int n = s->size;
	const int next = (int)around(s, 1), prev = (int)around(s, -1);

	coll_build_chunks(b, (uint32_t)n);
	for (int i = 0; i < rounds; i++) {
		uint32_t out = around(s, -i), in = around(s, -i - 1 + shift);

		coll_build_lane(b, lane_up);
		coll_build_send(b, next, i ? coll_out(out) : coll_in(out));
		coll_build_lane(b, lane_down);
		coll_build_recv_reduce(b, prev, coll_in(in), coll_out(in), COLL_INCOMING_LEFT, i == n - 2);
	}
	for (int i = 0; i < n - 1; i++) {
		coll_build_send(b, next, coll_out(around(s, 1 - i)));
		coll_build_recv(b, prev, coll_out(around(s, -i)));
	}
	return coll_build_status(b);
}

static coll_status ring_right(const struct coll_shape *s, struct coll_builder *b)
{
	return ring(s, b, 0, s->size - 1, 0, 0);
}

static coll_status ring_wrong_chunk(const struct coll_shape *s, struct coll_builder *b)
{
	return ring(s, b, s->rank == 1, s->size - 1, 0, 0);
}

static coll_status ring_one_round_short(const struct coll_shape *s, struct coll_builder *b)
{
	return ring(s, b, 0, s->size - 2, 0, 0);
}

static coll_status ring_once_around_too_far(const struct coll_shape *s, struct coll_builder *b)
{
	return ring(s, b, 0, s->size, 0, 0);
}

static coll_status ring_crossed_lanes(const struct coll_shape *s, struct coll_builder *b)
{
	return ring(s, b, 0, s->size - 1, 0, 1);
}

static coll_status ring_one_rank_on_another_lane(const struct coll_shape *s, struct coll_builder *b)
{
	return ring(s, b, 0, s->size - 1, s->rank == 0, s->rank == 0);
}

/* Everybody gets every vector and adds them beginning with its own: right sums,
 * but each rank rounds in another order. */
static coll_status oneshot_own_first(const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_chunks(b, 1);
	for (int d = 1; d < s->size; d++)
		coll_build_send(b, (int)around(s, d), coll_in(0));
	for (int d = 1; d < s->size; d++)
		coll_build_recv(b, (int)around(s, -d), coll_scratch((uint32_t)d - 1, 0));
	coll_build_reduce(b, 0, (uint32_t)s->size - 1, 0, 0, coll_out(0), true);
	return coll_build_status(b);
}

/* Each waits for the other before it answers. */
static coll_status both_receive_first(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;

	coll_build_chunks(b, (uint32_t)n);
	coll_build_copy(b, coll_in((uint32_t)s->rank), coll_out((uint32_t)s->rank), false);
	for (int d = 1; d < n; d++) {
		coll_build_recv(b, (int)around(s, -d), coll_out(around(s, -d)));
		coll_build_send(b, (int)around(s, d), coll_in((uint32_t)s->rank));
	}
	return coll_build_status(b);
}

/* A block goes through a rank that does not know its length. */
static coll_status gather_by_chain(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;
	const uint32_t own = (uint32_t)s->rank;
	const uint8_t dst = s->rank == 0 ? COLL_BUF_OUT : COLL_BUF_SCRATCH;

	coll_build_chunks(b, (uint32_t)n);
	coll_build_copy(b, coll_in(own), (struct coll_at){dst, own}, false);
	if (s->rank < n - 1) {
		coll_build_run(b, (uint32_t)(n - 1 - s->rank), 0, 0, false);
		coll_build_recv(b, s->rank + 1, (struct coll_at){dst, own + 1});
	}
	if (s->rank > 0) {
		coll_build_run(b, (uint32_t)(n - s->rank), 0, 0, false);
		coll_build_send(b, s->rank - 1, (struct coll_at){dst, own});
	}
	return coll_build_status(b);
}

/* Blocks are kept by distance, and blocks differ in length. */
static coll_status gather_by_distance(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;

	coll_build_chunks(b, (uint32_t)n);
	for (int d = 1; d < n; d++)
		coll_build_send(b, (int)around(s, d), coll_in((uint32_t)s->rank));
	for (int d = 1; d < n; d++) {
		coll_build_recv(b, (int)around(s, -d), coll_scratch(0, (uint32_t)d));
		coll_build_copy(b, coll_scratch(0, (uint32_t)d), coll_out(around(s, -d)), false);
	}
	coll_build_copy(b, coll_in((uint32_t)s->rank), coll_out((uint32_t)s->rank), false);
	return coll_build_status(b);
}

/* Pairs of ranks that exchange in place without putting a block aside. */
static coll_status alltoall_not_aside(const struct coll_shape *s, struct coll_builder *b)
{
	const int n = s->size;

	coll_build_chunks(b, (uint32_t)n);
	for (int d = 1; d < n; d++) {
		coll_build_send(b, (int)around(s, d), coll_in(around(s, d)));
		coll_build_recv(b, (int)around(s, -d), coll_out(around(s, -d)));
	}
	coll_build_copy(b, coll_in((uint32_t)s->rank), coll_out((uint32_t)s->rank), false);
	return coll_build_status(b);
}

static coll_status barrier_one_round_short(const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_chunks(b, 1);
	for (int d = 1; 2 * d < s->size; d *= 2) {
		coll_build_send(b, (int)around(s, d), coll_in(0));
		coll_build_recv(b, (int)around(s, -d), coll_scratch(0, 0));
	}
	return coll_build_status(b);
}

/* The result of a scan is passed on as the partial sum. */
static coll_status scan_passes_the_result_on(const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_chunks(b, 1);
	if (s->rank == 0)
		coll_build_copy(b, coll_in(0), coll_out(0), true);
	else
		coll_build_recv_reduce(b, s->rank - 1, coll_in(0), coll_out(0), COLL_INCOMING_LEFT, true);
	if (s->rank + 1 < s->size)
		coll_build_send(b, s->rank + 1, coll_out(0));
	return coll_build_status(b);
}

/* A rank that has no out uses it. */
static coll_status reduce_through_out(const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_chunks(b, 1);
	if (s->rank == s->size - 1)
		coll_build_send(b, s->rank - 1, coll_in(0));
	else
		coll_build_recv_reduce(b, s->rank + 1, coll_in(0), coll_out(0), COLL_INCOMING_RIGHT, s->rank == 0);
	if (s->rank > 0 && s->rank < s->size - 1)
		coll_build_send(b, s->rank - 1, coll_out(0));
	return coll_build_status(b);
}

/* A ring where each adds twice what it has. */
static coll_status reduce_adds_twice(const struct coll_shape *s, struct coll_builder *b)
{
	const bool last = s->rank == s->size - 1;

	coll_build_chunks(b, 1);
	if (!last) {
		coll_build_recv_reduce(b, s->rank + 1, coll_in(0), coll_scratch(0, 0), COLL_INCOMING_RIGHT, false);
		coll_build_recv_reduce(b, s->rank + 1, coll_scratch(0, 0), s->rank ? coll_scratch(0, 0) : coll_out(0),
		                       COLL_INCOMING_RIGHT, s->rank == 0);
	}
	for (int i = 0; i < 2 && s->rank > 0; i++)
		coll_build_send(b, s->rank - 1, last ? coll_in(0) : coll_scratch(0, 0));
	return coll_build_status(b);
}

static const struct generator_mutant {
	const char *name;
	enum coll_kind kind;
	coll_algo_fn generate;
	enum plan_lengths lengths;
	int least; /* ranks from which on it is wrong */
	bool ordered;
} generator_mutants[] = {
        {"ring: one rank adds the wrong chunk", COLL_KIND_ALL_REDUCE, ring_wrong_chunk, PLAN_UNIFORM, 3},
        {"ring: one round too few", COLL_KIND_ALL_REDUCE, ring_one_round_short, PLAN_UNIFORM, 3},
        {"ring: contributions go round twice", COLL_KIND_ALL_REDUCE, ring_once_around_too_far, PLAN_UNIFORM, 2},
        {"ring: sends on one lane, receives on another", COLL_KIND_ALL_REDUCE, ring_crossed_lanes, PLAN_UNIFORM, 2},
        {"ring: one rank uses another lane", COLL_KIND_ALL_REDUCE, ring_one_rank_on_another_lane, PLAN_UNIFORM, 2},
        {"ring: not in rank order", COLL_KIND_ALL_REDUCE, ring_right, PLAN_UNIFORM, 3, true},
        {"one-shot: each rank rounds in its own order", COLL_KIND_ALL_REDUCE, oneshot_own_first, PLAN_UNIFORM, 3},
        {"all-gather: everybody receives first", COLL_KIND_ALL_GATHER, both_receive_first, PLAN_UNIFORM, 2},
        {"gather: a block passes a rank that does not know its length", COLL_KIND_GATHER, gather_by_chain,
         PLAN_PAIRWISE, 3},
        {"all-gather: blocks lie where others have their length", COLL_KIND_ALL_GATHER, gather_by_distance, PLAN_RAGGED,
         2},
        {"all-to-all: no block put aside in place", COLL_KIND_ALL_TO_ALL, alltoall_not_aside, PLAN_UNIFORM, 2},
        {"barrier: one round too few", COLL_KIND_BARRIER, barrier_one_round_short, PLAN_UNIFORM, 2},
        {"scan: the result is passed on", COLL_KIND_SCAN, scan_passes_the_result_on, PLAN_UNIFORM, 2},
        {"reduce: a rank uses a buffer that it has not", COLL_KIND_REDUCE, reduce_through_out, PLAN_UNIFORM, 3},
        {"reduce: contributions are added twice", COLL_KIND_REDUCE, reduce_adds_twice, PLAN_UNIFORM, 2},
};

static bool build_with(struct plan_set *set, struct coll_algo *a, const struct generator_mutant *m, int n)
{
	char why[256];

	*a = (struct coll_algo){.kind = m->kind, .name = "mutant", .generate = m->generate};
	return plan_set_build(set, a, n, 0, m->ordered, m->lengths, why, sizeof(why)) == COLL_OK;
}

static void generators_that_are_wrong_are_refused(void)
{
	for (size_t k = 0; k < sizeof(generator_mutants) / sizeof(generator_mutants[0]); k++) {
		const struct generator_mutant *m = &generator_mutants[k];
		struct tally t = {.name = m->name};

		for (int n = m->least; n <= 12; n++) {
			struct coll_algo algo;
			struct plan_set set;
			char why[256] = "";

			REQUIRE(build_with(&set, &algo, m, n), "%s n=%d does not build", m->name, n);
			t.tried++;
			if (refused(&set, false, &truth, why, sizeof(why))) {
				if (t.caught++ == 0)
					snprintf(t.first, sizeof(t.first), "n=%d: %s", n, why);
			} else {
				CHECK(false, "survivor: %s n=%d", m->name, n);
			}
			plan_set_free(&set);
		}
		show(&t);
	}
}

/* The bases of the mutants above are right: what is refused is the mutation. */
static void what_is_right_is_accepted(void)
{
	static const struct generator_mutant bases[] = {
	        {"ring", COLL_KIND_ALL_REDUCE, ring_right, PLAN_UNIFORM, 2},
	        {"chain", COLL_KIND_GATHER, gather_by_chain, PLAN_RAGGED, 2},
	        {"by distance", COLL_KIND_ALL_GATHER, gather_by_distance, PLAN_UNIFORM, 2},
	};
	char why[256];

	for (size_t k = 0; k < sizeof(bases) / sizeof(bases[0]); k++)
		for (int n = 2; n <= 12; n++) {
			struct coll_algo algo;
			struct plan_set set;

			REQUIRE(build_with(&set, &algo, &bases[k], n));
			for (int fused = 0; fused < 2; fused++)
				CHECK(!refused(&set, fused, &truth, why, sizeof(why)), "%s n=%d fused=%d: %s",
				      bases[k].name, n, fused, why);
			plan_set_free(&set);
		}
}

/* ---- Rule mutants ---- */

/* A broken rule must be noticed with some algorithm and some n <= 12. */
static void try_rule(const char *name, const struct coll_model *model, uint32_t depth, bool fused)
{
	struct tally t = {.name = name};
	char why[256] = "";

	for (size_t a = 0; a < coll_algos_count; a++)
		for (int n = 2; n <= 12; n++) {
			struct plan_set set;
			struct coll_verify_options opt;

			if (!build_demanding(&set, &coll_algos[a], n, 0))
				continue;
			opt = options(&set, fused, 0x5555555555555555u);
			if (fused)
				opt.depth = depth;
			t.tried++;
			if (coll_plan_verify_model(plan_set_plans(&set, fused), n, &opt, model, why, sizeof(why)) &&
			    t.caught++ == 0)
				snprintf(t.first, sizeof(t.first), "%s %s n=%d: %s",
				         coll_plan_kind_name(coll_algos[a].kind), coll_algos[a].name, n, why);
			plan_set_free(&set);
		}
	printf("%-52s %6ld of %6ld caught: %s\n", t.name, t.caught, t.tried, t.first);
	CHECK(t.caught > 0, "survivor: %s", name);
	distinct += t.caught > 0;
}

static void engines_that_are_wrong_are_noticed(void)
{
	try_rule("engine: one slot per channel under fused steps", &truth, 1, true);
	try_rule("engine: a lane stops at a send", &(struct coll_model){.blocking_send = true}, 0, false);
	try_rule("engine: windows share a slice of scratch", &(struct coll_model){.shared_scratch = true}, 0, false);
	try_rule("engine: a tile ends before its sends", &(struct coll_model){.early_reuse = true}, 0, false);
	try_rule("engine: waits count started steps", &(struct coll_model){.wait_for_start = true}, 0, false);
	try_rule("engine: waits are ignored", &(struct coll_model){.ignore_waits = true}, 2, true);
	try_rule("engine: every receive is armed at once", &(struct coll_model){.arm_all = true}, 2, true);
}

/* ---- A fusion that holds up others ---- */

/* Rank 1 reads what rank 0 sends only after it has heard from rank 2, who answers
 * only rank 0's last frame. By then two frames of rank 0 lie in both slots, so a
 * third frame must not hold up its lane. */
static coll_status held_up(const struct coll_shape *s, struct coll_builder *b)
{
	const uint32_t own = (uint32_t)s->rank;

	coll_build_chunks(b, 3);
	coll_build_copy(b, coll_in(own), coll_out(own), false);
	switch (s->rank) {
	case 0:
		coll_build_send(b, 1, coll_in(0));
		coll_build_send(b, 1, coll_in(0));
		coll_build_recv(b, 1, coll_out(1));
		coll_build_send(b, 1, coll_out(1));
		coll_build_send(b, 2, coll_in(0));
		coll_build_recv(b, 2, coll_out(2));
		break;
	case 1:
		coll_build_send(b, 0, coll_in(1));
		coll_build_send(b, 2, coll_in(1));
		coll_build_recv(b, 2, coll_out(2));
		coll_build_recv(b, 0, coll_out(0));
		coll_build_recv(b, 0, coll_scratch(0, 0));
		coll_build_recv(b, 0, coll_scratch(0, 1));
		break;
	default:
		coll_build_recv(b, 0, coll_out(0));
		coll_build_recv(b, 1, coll_out(1));
		coll_build_send(b, 1, coll_in(2));
		coll_build_send(b, 0, coll_in(2));
	}
	return coll_build_status(b);
}

static void a_fusion_that_holds_up_others_is_not_made_and_would_be_refused(void)
{
	static const struct generator_mutant m = {"held up", COLL_KIND_ALL_GATHER, held_up, PLAN_RAGGED, 3};
	struct tally t = {.name = "lowering fuses a frame that holds up others", .tried = 1};
	struct coll_plan *p, *copy = NULL;
	struct coll_algo algo;
	struct plan_set set;
	char why[256] = "";

	REQUIRE(build_with(&set, &algo, &m, 3));
	for (int fused = 0; fused < 2; fused++)
		CHECK(!refused(&set, fused, &truth, why, sizeof(why)), "fused %d: %s", fused, why);
	p = set.fused[0];
	REQUIRE(coll_plan_copy(p, &copy) == COLL_OK);
	REQUIRE(copy->steps[3].op == COLL_STEP_RECV && copy->steps[4].op == COLL_STEP_SEND);
	step_at(copy, 3)->op = COLL_STEP_RECV_COPY_SEND;
	step_at(copy, 3)->flags = 0;
	step_at(copy, 3)->peer_send = copy->steps[4].peer_send;
	drop(copy, 4);
	set.fused[0] = copy;
	t.caught = refused(&set, true, &truth, t.first, sizeof(t.first));
	show(&t);
	coll_plan_free(p);
	plan_set_free(&set);
}

int main(void)
{
	printf("seed %llu\n", (unsigned long long)seed);
	PLAIN_RUN(what_is_right_is_accepted);
	PLAIN_RUN(steps_that_are_wrong_are_refused);
	PLAIN_RUN(generators_that_are_wrong_are_refused);
	PLAIN_RUN(engines_that_are_wrong_are_noticed);
	PLAIN_RUN(a_fusion_that_holds_up_others_is_not_made_and_would_be_refused);
	printf("%d distinct mutants caught\n", distinct);
	if (distinct < 20)
		return 1;
	return plain_summary();
}
