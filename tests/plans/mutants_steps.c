/*
 * Step mutants: one step of one rank of a real plan is changed, at sites that a
 * seeded choice finds, for every algorithm and 2 to 8 ranks. Every application must
 * be refused, so a mutant applies only where it makes a difference.
 */
#include "base/hash.h"
#include "plan/pack.h"
#include "plan/step.h"
#include "tests/plans/mutants.h"

enum { SITES = 16 /* per algorithm, size, form and mutant */, RANKS_MAX = 8 };

/* Change step i of p (a private copy); false where the mutant does not apply. */
struct step_mutant;
typedef bool mutate_fn(const struct step_mutant *m, struct coll_plan *p, uint32_t i);

enum { LOGICAL = 1, FUSED = 2, ORDERED = 4, ANY = 0 };
#define OP(name) (1u << COLL_STEP_##name)

struct step_mutant {
	const char *name;
	mutate_fn *mutate;
	int forms;    /* ORDERED: only where order is demanded */
	unsigned ops; /* OP()s of steps that it applies to; ANY */
	uint8_t flag; /* of lose_flag() */
};

static uint32_t lane_end(const struct coll_plan *p, uint32_t i)
{
	return p->lane_first[p->steps[i].lane + 1];
}

static bool drop(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	mutant_drop(p, i);
	return true;
}

static bool lose_flag(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	if (!(p->steps[i].flags & m->flag))
		return false;
	mutant_step(p, i)->flags &= (uint8_t)~m->flag;
	return true;
}

/* One side of one step moves to the next chunk. */
static bool shift_src(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (!(coll_step_reads_src(s->op) || s->op == COLL_STEP_REDUCE) || p->chunks == 1 ||
	    p->kind == COLL_KIND_BARRIER || (s->run == p->chunks && s->op != COLL_STEP_COPY))
		return false;
	s->src_chunk = (s->src_chunk + 1) % p->chunks;
	return true;
}

static bool shift_dst(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (!coll_step_writes_dst(s->op) || p->chunks == 1)
		return false;
	s->dst_chunk = (s->dst_chunk + 1) % p->chunks;
	return true;
}

static bool other_receiver(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (!coll_step_sends(s->op) || p->npeers < 2)
		return false;
	s->peer_send = (uint16_t)((s->peer_send + 1) % p->npeers);
	return true;
}

static bool other_sender(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (!coll_step_receives(s->op) || p->npeers < 2)
		return false;
	s->peer_recv = (uint16_t)((s->peer_recv + 1) % p->npeers);
	return true;
}

static bool drop_wait(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	if (!p->steps[i].wait_count)
		return false;
	mutant_step(p, i)->wait_count = 0;
	return true;
}

static bool shift_wait(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	if (!p->steps[i].wait_count)
		return false;
	mutant_step(p, i)->wait_count--;
	return true;
}

static bool wait_for_self(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	s->wait_lane = s->lane;
	s->wait_count = i - p->lane_first[s->lane] + 1;
	return true;
}

static bool wait_other_lane(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (!s->wait_count || p->nlanes < 2)
		return false;
	s->wait_lane = (uint8_t)((s->wait_lane + 1) % p->nlanes);
	/* At its own lane the wait may be implied by the order of steps; that is a drop. */
	return s->wait_count <= coll_lane_length(p, s->wait_lane) || s->wait_lane == s->lane;
}

static bool other_side(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	s->flags ^= COLL_STEP_INCOMING_LEFT;
	return true;
}

static bool early_final(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (s->flags & COLL_STEP_POST ||
	    !(s->op == COLL_STEP_RECV_REDUCE || s->op == COLL_STEP_REDUCE || s->op == COLL_STEP_COPY))
		return false;
	s->flags |= COLL_STEP_POST;
	return true;
}

static bool double_scale(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (s->flags & COLL_STEP_PRE || !coll_step_reads_src(s->op))
		return false;
	s->flags |= COLL_STEP_PRE;
	return true;
}

static bool longer_run(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (s->op == COLL_STEP_WAIT || s->run == p->chunks || p->chunks == 1)
		return false;
	s->run++;
	p->max_run = p->chunks;
	return s->op != COLL_STEP_COPY && s->op != COLL_STEP_REDUCE;
}

static bool shorter_run(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (s->run < 2)
		return false;
	s->run--;
	return true;
}

static bool wrong_stride(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (s->op == COLL_STEP_REDUCE || !s->group || s->group >= s->run)
		return false;
	s->stride++;
	return true;
}

static bool wrong_group(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (s->op == COLL_STEP_REDUCE || !s->group)
		return false;
	s->group = 0;
	return true;
}

/* Two frames of one channel that carry different chunks change places. */
static bool swap_frames(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *a = mutant_step(p, i);

	for (uint32_t j = i + 1; j < lane_end(p, i); j++) {
		struct coll_step *b = mutant_step(p, j);

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

static bool swap_sources(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	/* Two buffers may hold the same for a last copy (Bruck's do). */
	if (p->nscratch < 2 || s->src < COLL_BUF_SCRATCH || !coll_step_reads_src(s->op) || s->op == COLL_STEP_COPY)
		return false;
	s->src = (uint8_t)(COLL_BUF_SCRATCH + (s->src - COLL_BUF_SCRATCH + 1u) % p->nscratch);
	return true;
}

/* `in` is read where the partial result in `out` was meant. */
static bool raw_for_partial(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	/* Elsewhere out may well hold the same as in. */
	if (s->src != COLL_BUF_OUT || !coll_step_reads_src(s->op) || !coll_plan_kind_reduces(p->kind))
		return false;
	s->src = COLL_BUF_IN;
	s->flags |= COLL_STEP_PRE;
	return true;
}

static bool one_input_less(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	if (p->steps[i].stride < 2)
		return false;
	mutant_step(p, i)->stride--;
	if (p->steps[i].group != COLL_NO_SPLICE && p->steps[i].group > p->steps[i].stride)
		mutant_step(p, i)->group--;
	return true;
}

static bool wrong_splice(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (s->group == COLL_NO_SPLICE)
		return false;
	s->group = (uint16_t)((s->group + 1u) % (s->stride + 1));
	return true;
}

static bool small_extent(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	if (i >= p->nscratch || !p->scratch[i].count)
		return false;
	((struct coll_plan_scratch *)(uintptr_t)p->scratch)[i].count--;
	return true;
}

static bool small_table(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	if (i || !p->max_in_flight)
		return false;
	p->max_in_flight--;
	return true;
}

static bool small_frames(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	if (i || p->max_run < 2)
		return false;
	p->max_run--;
	return true;
}

/* ---- Step mutants of lowering ---- */

static bool lost_store(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	mutant_step(p, i)->op = COLL_STEP_RECV_REDUCE_SEND;
	return true;
}

static bool lost_forward(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	if (!coll_step_is_fused(s->op) || s->op == COLL_STEP_RECV_REDUCE_SEND)
		return false;
	s->op = s->op == COLL_STEP_RECV_COPY_SEND ? COLL_STEP_RECV : COLL_STEP_RECV_REDUCE;
	return true;
}

/* What arrives is forwarded, what was to be added to it is not. */
static bool lost_reduction(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);

	s->op = COLL_STEP_RECV_COPY_SEND;
	s->flags &= (uint8_t) ~(COLL_STEP_PRE | COLL_STEP_POST);
	return true;
}

static bool arm_touched(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	if (p->steps[i].flags & COLL_STEP_ARM)
		return false;
	mutant_step(p, i)->flags |= COLL_STEP_ARM;
	return true;
}

/* The second half of a pair is fused with the receive before the right one. */
static bool fused_too_early(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *a = mutant_step(p, i), *b = a + 1;

	if (i + 1 >= lane_end(p, i) || a->op != COLL_STEP_RECV_REDUCE || b->op != COLL_STEP_RECV_REDUCE_COPY_SEND ||
	    a->dst != b->src || a->dst_chunk != b->src_chunk)
		return false;
	a->op = COLL_STEP_RECV_REDUCE_COPY_SEND;
	a->peer_send = b->peer_send;
	b->op = COLL_STEP_RECV_REDUCE;
	return true;
}

/* A wait that the draft recomputed gets back a count of before the fusion. */
static bool wait_not_remapped(const struct step_mutant *m, struct coll_plan *p, uint32_t i)
{
	struct coll_step *s = mutant_step(p, i);
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

static const struct step_mutant step_mutants[] = {
        {"a send is missing", drop, LOGICAL | FUSED, OP(SEND)},
        {"a receive is missing", drop, LOGICAL | FUSED, OP(RECV) | OP(RECV_REDUCE)},
        {"a copy is missing", drop, LOGICAL | FUSED, OP(COPY)},
        {"an n-input reduction is missing", drop, LOGICAL | FUSED, OP(REDUCE)},
        {"a step reads the next chunk", shift_src, LOGICAL | FUSED},
        {"a step writes the next chunk", shift_dst, LOGICAL | FUSED},
        {"a frame goes to another peer", other_receiver, LOGICAL | FUSED},
        {"a frame is expected from another peer", other_sender, LOGICAL | FUSED},
        {"a wait is missing", drop_wait, LOGICAL | FUSED},
        {"a wait counts one step too few", shift_wait, LOGICAL | FUSED},
        {"a step waits for itself", wait_for_self, LOGICAL | FUSED},
        {"a wait names another lane", wait_other_lane, LOGICAL | FUSED},
        {"the incoming operand is on the other side", other_side, LOGICAL | FUSED | ORDERED,
         OP(RECV_REDUCE) | OP(RECV_REDUCE_SEND) | OP(RECV_REDUCE_COPY_SEND)},
        {"the last reduction is not final", lose_flag, LOGICAL | FUSED, ANY, COLL_STEP_POST},
        {"a partial result is called final", early_final, LOGICAL},
        {"a contribution is not pre-scaled", lose_flag, LOGICAL | FUSED, ANY, COLL_STEP_PRE},
        {"a partial result is pre-scaled", double_scale, LOGICAL | FUSED},
        {"a run is one chunk longer", longer_run, LOGICAL | FUSED},
        {"a run is one chunk shorter", shorter_run, LOGICAL | FUSED},
        {"a stride is off by one", wrong_stride, LOGICAL | FUSED},
        {"a run with gaps has none", wrong_group, LOGICAL | FUSED},
        {"a run that wraps does not", lose_flag, LOGICAL | FUSED, ANY, COLL_STEP_WRAP},
        {"two frames of a channel change places", swap_frames, LOGICAL, OP(SEND)},
        {"a step reads the next scratch buffer", swap_sources, LOGICAL | FUSED},
        {"the raw contribution stands for the partial result", raw_for_partial, LOGICAL | FUSED},
        {"an n-input reduction leaves one out", one_input_less, LOGICAL | FUSED, OP(REDUCE)},
        {"the own contribution is in the wrong place", wrong_splice, LOGICAL | FUSED | ORDERED, OP(REDUCE)},
        {"a scratch buffer is one chunk too small", small_extent, LOGICAL | FUSED},
        {"the table of sends in flight is too small", small_table, LOGICAL | FUSED},
        {"the longest frame is longer than said", small_frames, LOGICAL | FUSED},
        {"lowering drops a store that is needed", lost_store, FUSED, OP(RECV_REDUCE_COPY_SEND)},
        {"lowering drops a send", lost_forward, FUSED},
        {"lowering drops a reduction", lost_reduction, FUSED, OP(RECV_REDUCE_COPY_SEND)},
        {"lowering arms a receive too early", arm_touched, FUSED, OP(RECV)},
        {"lowering fuses across a dependency", fused_too_early, FUSED},
        {"lowering leaves a wait's count as it was", wait_not_remapped, FUSED},
};

/* Apply m to step i of one rank's plan; count and report. */
static void try_site(const struct step_mutant *m, struct plan_set *set, bool fused, int rank, uint32_t i,
                     struct pair_counts *t)
{
	struct coll_plan **slot = fused ? &set->fused[rank] : &set->logical[rank];
	struct coll_plan *original = *slot, *copy = NULL;
	char why[256] = "";

	REQUIRE(coll_plan_copy(original, &copy) == COLL_OK);
	if ((m->ops == ANY || m->ops >> copy->steps[i].op & 1) && m->mutate(m, copy, i)) {
		t->tried++;
		*slot = copy;
		if (mutant_refused(set, fused, why, sizeof(why))) {
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

static void try_set(const struct step_mutant *m, struct plan_set *set, struct coll_rng *rng, struct pair_counts *t)
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

void mutants_wrong_steps_are_refused(void)
{
	struct coll_rng rng = {mutant_seed};

	for (size_t k = 0; k < sizeof(step_mutants) / sizeof(step_mutants[0]); k++) {
		struct pair_counts t = {.name = step_mutants[k].name};

		for (size_t a = 0; a < coll_algos_count; a++)
			for (int n = 2; n <= RANKS_MAX; n++) {
				int root = plan_kind_has_root(coll_algos[a].kind)
				                   ? (int)coll_rng_below(&rng, (uint32_t)n)
				                   : 0;
				struct plan_set set;

				if (!mutant_build(&set, &coll_algos[a], n, root))
					continue;
				try_set(&step_mutants[k], &set, &rng, &t);
				plan_set_free(&set);
			}
		mutant_show(&t, true);
	}
}
