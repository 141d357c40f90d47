/*
 * Generator mutants: algorithms with a mistake in their text.
 */
#include "plan/pack.h"
#include "tests/plans/mutants.h"

static uint32_t around(const struct coll_shape *s, int d)
{
	return (uint32_t)(((s->rank + d) % s->size + s->size) % s->size);
}

/* A ring all-reduce with its parameters exposed: which chunk, how many rounds, which
 * lanes; how much more the sums weigh for each rank. The right values are 0, n - 1, 0, 0 and 1. */
static coll_status weighed_ring(const struct coll_shape *s, struct coll_builder *b, int shift, int rounds,
                                uint32_t lane_up, uint32_t lane_down, int more)
{
	const int n = s->size;
	const int next = (int)around(s, 1), prev = (int)around(s, -1);

	coll_build_chunks(b, (uint32_t)n);
	for (int i = 0; i < rounds; i++) {
		uint32_t out = around(s, -i), in = around(s, -i - 1 + shift);

		coll_build_lane(b, lane_up);
		coll_build_send(b, next, i ? coll_out(out) : coll_in(out));
		coll_build_lane(b, lane_down);
		coll_build_recv_reduce(b, prev, coll_in(in), coll_out(in), COLL_INCOMING_LEFT, (uint32_t)(1 + i * more),
		                       i == n - 2);
	}
	for (int i = 0; i < n - 1; i++) {
		coll_build_send(b, next, coll_out(around(s, 1 - i)));
		coll_build_recv(b, prev, coll_out(around(s, -i)));
	}
	return coll_build_status(b);
}

static coll_status ring(const struct coll_shape *s, struct coll_builder *b, int shift, int rounds, uint32_t lane_up,
                        uint32_t lane_down)
{
	return weighed_ring(s, b, shift, rounds, lane_up, lane_down, 1);
}

static coll_status ring_weighs_alike(const struct coll_shape *s, struct coll_builder *b)
{
	return weighed_ring(s, b, 0, s->size - 1, 0, 0, 0);
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
		coll_build_recv_reduce(b, s->rank - 1, coll_in(0), coll_out(0), COLL_INCOMING_LEFT, (uint32_t)s->rank,
		                       true);
	if (s->rank + 1 < s->size)
		coll_build_send(b, s->rank + 1, coll_out(0));
	return coll_build_status(b);
}

/* The line of an exclusive scan. from: where a rank takes its result from; rank 0 too where it writes one. */
static coll_status exclusive_line(const struct coll_shape *s, struct coll_builder *b, struct coll_at from, int splice,
                                  bool first_too)
{
	coll_build_chunks(b, 1);
	if (s->rank > 0) {
		coll_build_recv(b, s->rank - 1, coll_scratch(0, 0));
		coll_build_reduce(b, 0, 1, splice, 0, coll_scratch(1, 0), false);
	}
	if (s->rank + 1 < s->size)
		coll_build_send(b, s->rank + 1, s->rank ? coll_scratch(1, 0) : coll_in(0));
	if (s->rank > 0)
		coll_build_copy(b, from, coll_out(0), true);
	else if (first_too)
		coll_build_copy(b, coll_in(0), coll_out(0), true);
	return coll_build_status(b);
}

static coll_status exclusive_scan_with_own(const struct coll_shape *s, struct coll_builder *b)
{
	return exclusive_line(s, b, coll_scratch(1, 0), 1, false);
}

static coll_status exclusive_scan_writes_first(const struct coll_shape *s, struct coll_builder *b)
{
	return exclusive_line(s, b, coll_scratch(0, 0), 1, true);
}

static coll_status exclusive_scan_own_left(const struct coll_shape *s, struct coll_builder *b)
{
	return exclusive_line(s, b, coll_scratch(0, 0), 0, false);
}

/* A line whose local reductions weigh what came, of several ranks, as this rank's own. */
static coll_status reduce_weighs_alike(const struct coll_shape *s, struct coll_builder *b)
{
	const bool last = s->rank == s->size - 1;

	coll_build_chunks(b, 1);
	if (!last) {
		coll_build_recv(b, s->rank + 1, coll_scratch(0, 0));
		coll_build_reduce(b, 0, 1, 0, 0, s->rank ? coll_scratch(1, 0) : coll_out(0), s->rank == 0);
	}
	if (s->rank > 0)
		coll_build_send(b, s->rank - 1, last ? coll_in(0) : coll_scratch(1, 0));
	return coll_build_status(b);
}

/* A rank that has no out uses it. */
static coll_status reduce_through_out(const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_chunks(b, 1);
	if (s->rank == s->size - 1)
		coll_build_send(b, s->rank - 1, coll_in(0));
	else
		coll_build_recv_reduce(b, s->rank + 1, coll_in(0), coll_out(0), COLL_INCOMING_RIGHT,
		                       (uint32_t)(s->size - 1 - s->rank), s->rank == 0);
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
		coll_build_recv_reduce(b, s->rank + 1, coll_in(0), coll_scratch(0, 0), COLL_INCOMING_RIGHT, 1, false);
		coll_build_recv_reduce(b, s->rank + 1, coll_scratch(0, 0), s->rank ? coll_scratch(0, 0) : coll_out(0),
		                       COLL_INCOMING_RIGHT, 1, s->rank == 0);
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
        {"ring: a sum weighs as much as one contribution", COLL_KIND_ALL_REDUCE, ring_weighs_alike, PLAN_UNIFORM, 3},
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
        {"exclusive_scan: with this rank's own", COLL_KIND_EXCLUSIVE_SCAN, exclusive_scan_with_own, PLAN_UNIFORM, 2},
        {"exclusive_scan: rank 0 writes a result", COLL_KIND_EXCLUSIVE_SCAN, exclusive_scan_writes_first, PLAN_UNIFORM,
         1},
        {"exclusive_scan: not in rank order", COLL_KIND_EXCLUSIVE_SCAN, exclusive_scan_own_left, PLAN_UNIFORM, 3, true},
        {"reduce: a local sum weighs as much as one contribution", COLL_KIND_REDUCE, reduce_weighs_alike, PLAN_UNIFORM,
         3},
        {"reduce: a rank uses a buffer that it has not", COLL_KIND_REDUCE, reduce_through_out, PLAN_UNIFORM, 3},
        {"reduce: contributions are added twice", COLL_KIND_REDUCE, reduce_adds_twice, PLAN_UNIFORM, 2},
};

static bool build_with(struct plan_set *set, struct coll_algo *a, const struct generator_mutant *m, int n)
{
	char why[256];

	*a = (struct coll_algo){.kind = m->kind, .name = "mutant", .generate = m->generate};
	return plan_set_build(set, a, n, 0, m->ordered, m->lengths, why, sizeof(why)) == COLL_OK;
}

void mutants_wrong_generators_are_refused(void)
{
	for (size_t k = 0; k < sizeof(generator_mutants) / sizeof(generator_mutants[0]); k++) {
		const struct generator_mutant *m = &generator_mutants[k];
		struct pair_counts t = {.name = m->name};

		for (int n = m->least; n <= 12; n++) {
			struct coll_algo algo;
			struct plan_set set;
			char why[256] = "";

			REQUIRE(build_with(&set, &algo, m, n), "%s n=%d does not build", m->name, n);
			t.tried++;
			if (mutant_refused(&set, false, why, sizeof(why))) {
				if (t.caught++ == 0)
					snprintf(t.first, sizeof(t.first), "n=%d: %s", n, why);
			} else {
				CHECK(false, "survivor: %s n=%d", m->name, n);
			}
			plan_set_free(&set);
		}
		mutant_show(&t, true);
	}
}

/* The bases of the mutants above are right: what is refused is the mutation. */
void mutants_what_is_right_is_accepted(void)
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
				CHECK(!mutant_refused(&set, fused, why, sizeof(why)), "%s n=%d fused=%d: %s",
				      bases[k].name, n, fused, why);
			plan_set_free(&set);
		}
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

void mutants_a_fusion_that_holds_up_others_is_not_made_and_would_be_refused(void)
{
	static const struct generator_mutant m = {"held up", COLL_KIND_ALL_GATHER, held_up, PLAN_RAGGED, 3};
	struct pair_counts t = {.name = "lowering fuses a frame that holds up others", .tried = 1};
	struct coll_plan *p, *copy = NULL;
	struct coll_algo algo;
	struct plan_set set;
	char why[256] = "";

	REQUIRE(build_with(&set, &algo, &m, 3));
	for (int fused = 0; fused < 2; fused++)
		CHECK(!mutant_refused(&set, fused, why, sizeof(why)), "fused %d: %s", fused, why);
	p = set.fused[0];
	REQUIRE(coll_plan_copy(p, &copy) == COLL_OK);
	REQUIRE(copy->steps[3].op == COLL_STEP_RECV && copy->steps[4].op == COLL_STEP_SEND);
	mutant_step(copy, 3)->op = COLL_STEP_RECV_COPY_SEND;
	mutant_step(copy, 3)->flags = 0;
	mutant_step(copy, 3)->peer_send = copy->steps[4].peer_send;
	mutant_drop(copy, 4);
	set.fused[0] = copy;
	t.caught = mutant_refused(&set, true, t.first, sizeof(t.first));
	mutant_show(&t, true);
	coll_plan_free(p);
	plan_set_free(&set);
}
