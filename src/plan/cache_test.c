/*
 * The plan cache: what is equal is shared, what is pinned stays, what is old goes.
 */
#include <stdlib.h>

#include "plan/cache.h"
#include "tests/plain.h"

static int generated; /* calls of a generator: one thread */

static coll_status chain(const struct coll_shape *s, struct coll_builder *b)
{
	generated++;
	coll_build_chunks(b, 1);
	if (s->rank == 0)
		coll_build_copy(b, coll_in(0), coll_out(0), false);
	else
		coll_build_recv(b, s->rank - 1, coll_out(0));
	if (s->rank + 1 < s->size)
		coll_build_send(b, s->rank + 1, coll_out(0));
	return coll_build_status(b);
}

/* The last rank never receives: no rank alone can see it. */
static coll_status broken_chain(const struct coll_shape *s, struct coll_builder *b)
{
	if (s->rank + 1 < s->size)
		return chain(s, b);
	coll_build_chunks(b, 1);
	return coll_build_status(b);
}

static struct coll_shape shape(int rank, int root)
{
	return (struct coll_shape){.kind = COLL_KIND_BROADCAST, .rank = rank, .size = 5, .root = root, .uniform = true};
}

static const struct coll_plan *obtain(struct coll_plan_cache *c, int rank, int root)
{
	struct coll_shape s = shape(rank, root);
	const struct coll_plan *plan = NULL;

	CHECK(coll_plan_cache_obtain(c, &s, "chain", chain, false, &plan) == COLL_OK);
	return plan;
}

TEST(plan_cache, equal_shapes_share_one_plan)
{
	struct coll_plan_cache *c = NULL;
	const struct coll_plan *a, *b, *other;

	REQUIRE(coll_plan_cache_create(1 << 20, &c) == COLL_OK);
	generated = 0;
	a = obtain(c, 2, 0);
	b = obtain(c, 2, 0);
	other = obtain(c, 3, 0);
	CHECK(a == b);
	CHECK(a != other);
	CHECK(generated == 2, "%d", generated);
	CHECK(a->fused && a->steps[0].op == COLL_STEP_RECV_COPY_SEND);
	coll_plan_cache_release(c, a);
	coll_plan_cache_release(c, b);
	coll_plan_cache_release(c, other);
	CHECK(obtain(c, 2, 0) == a && generated == 2, "kept after release");
	coll_plan_cache_destroy(&c);
	CHECK(c == NULL);
}

TEST(plan_cache, drops_the_oldest_that_nobody_pins)
{
	struct coll_plan_cache_stats st;
	struct coll_plan_cache *c = NULL;
	const struct coll_plan *pinned, *p;
	size_t each;

	REQUIRE(coll_plan_cache_create(0, &c) == COLL_OK);
	pinned = obtain(c, 1, 0);
	coll_plan_cache_stats(c, &st);
	each = st.bytes;
	coll_plan_cache_destroy(&c);

	REQUIRE(coll_plan_cache_create(3 * each, &c) == COLL_OK);
	pinned = obtain(c, 1, 0);
	for (int root = 1; root < 5; root++)
		coll_plan_cache_release(c, obtain(c, 1, root));
	coll_plan_cache_stats(c, &st);
	CHECK(st.plans == 3 && st.bytes <= 3 * each && st.pinned == 1 && st.evictions == 2, "%zu plans, %d evictions",
	      st.plans, (int)st.evictions);
	generated = 0;
	CHECK(obtain(c, 1, 0) == pinned && generated == 0, "the pinned one stayed");
	coll_plan_cache_release(c, obtain(c, 1, 4));
	CHECK(generated == 0, "the youngest stayed");
	p = obtain(c, 1, 1);
	CHECK(generated == 1 && p, "the oldest went");
	CHECK(pinned->peers[0] == 0 && pinned->steps[0].op == COLL_STEP_RECV_COPY_SEND);
	coll_plan_cache_destroy(&c);
}

TEST(plan_cache, verifies_the_whole_collective_when_asked)
{
	struct coll_shape s = shape(1, 0);
	const struct coll_plan *plan = NULL;
	struct coll_plan_cache *c = NULL;

	REQUIRE(coll_plan_cache_create(1 << 20, &c) == COLL_OK);
	CHECK(coll_plan_cache_obtain(c, &s, "broken", broken_chain, true, &plan) == COLL_ERR_INTERNAL && !plan);
	CHECK(strstr(coll_plan_cache_why(c), "rank 3 sends 1 frames to rank 4"), "%s", coll_plan_cache_why(c));
	CHECK(coll_plan_cache_obtain(c, &s, "broken", broken_chain, false, &plan) == COLL_OK && plan);
	coll_plan_cache_release(c, plan);
	CHECK(coll_plan_cache_obtain(c, &s, "chain", chain, true, &plan) == COLL_OK && plan, "%s",
	      coll_plan_cache_why(c));
	coll_plan_cache_destroy(&c);
}
