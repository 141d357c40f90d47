/*
 * The binding of calls in tests: see fake_select.h.
 */
#include "tests/fakes/fake_select.h"

#include <stdio.h>

#include "select/cost.h"
#include "select/explain.h"
#include "select/forced.h"
#include "select/intra.h"
#include "select/ways.h"
#include "tests/fakes/fake_plan.h"

#define WEAK __attribute__((weak))

struct fake_select fake_select;

void fake_select_reset(void)
{
	fake_select = (struct fake_select){
	        .memo = {.valid = true, .plan = &fake_plan.plan, .elem_bytes = FAKE_ELEM_BYTES, .scratch_bytes = 64}};
}

uint32_t fake_select_signature(const struct coll_call *c)
{
	return (uint32_t)c->kind << 24 | (uint32_t)c->op << 16 | (uint32_t)c->count;
}

WEAK coll_status coll_call_remember(struct coll_comm *comm, const struct coll_call *c, struct coll_memo **memo)
{
	fake_select.remembered++;
	*memo = &fake_select.memo;
	return fake_select.refuse;
}

WEAK void coll_call_job(const struct coll_comm *comm, const struct coll_call *c, const struct coll_memo *memo,
                        struct coll_job *job)
{
	*job = (struct coll_job){.plan = memo->plan,
	                         .intra = memo->intra,
	                         .in = {.base = (char *)(uintptr_t)c->in, .count = c->count, .counts = c->in_counts},
	                         .out = {.base = c->out, .count = c->count, .counts = c->out_counts},
	                         .elem_bytes = memo->elem_bytes,
	                         .windows = 1,
	                         .signature = fake_select_signature(c)};
}

WEAK coll_status coll_pair_plan(struct coll_comm *comm, int half, int peer, const struct coll_plan **plan)
{
	if (fake_select.refuse_pair)
		return fake_select.refuse_pair;
	fake_plan.pins++;
	*plan = &fake_plan.plan;
	return COLL_OK;
}

WEAK void coll_pair_job(const struct coll_comm *comm, const struct coll_pair *p, int half, const struct coll_plan *plan,
                        struct coll_job *job)
{
	*job = (struct coll_job){.plan = plan, .elem_bytes = FAKE_ELEM_BYTES, .windows = 2, .way = COLL_WAY_SEND_RECV};
}

WEAK void coll_pair_record(const struct coll_comm *comm, const struct coll_pair *p, struct coll_record *record)
{
	*record = (struct coll_record){.comm = comm->id,
	                               .sequence = comm->sequence,
	                               .active = 1,
	                               .kind = COLL_KIND_SEND_RECV,
	                               .waits_for = -1};
}

/* ---- Among themselves ---- */

WEAK coll_status coll_select_plan(const struct coll_select_facts *facts, const struct coll_select_call *call,
                                  bool explain, struct coll_select_choice *choice)
{
	fake_select.chosen++;
	*choice = fake_select.choice;
	return fake_select.no_choice;
}

WEAK void coll_select_price(const struct coll_select_facts *facts, const struct coll_select_call *call,
                            const struct coll_algo *algo, struct coll_select_price *price)
{
	*price = fake_select.prices[algo - coll_algos];
}

WEAK coll_status coll_select_forced(const char *text, enum coll_kind kind, const struct coll_algo **algo, char *why,
                                    size_t why_bytes)
{
	*algo = fake_select.forced;
	snprintf(why, why_bytes, "the fake says so");
	return fake_select.no_force;
}

/* ---- The table of ways: an intranode row for calls of up to 8 bytes, if it may pass on, and the plan ---- */

static coll_status poll(void *arg, const struct coll_job *job, struct coll_intra_state *state)
{
	return COLL_OK;
}

WEAK const struct coll_ways_row coll_ways[] = {
        {.way = COLL_WAY_DEVICE_DIRECT,
         .by = COLL_BY_DEVICES,
         .needs = COLL_CALL_DEVICES,
         .limits = "layout",
         .kinds = (1 << COLL_KIND_COUNT) - 1,
         .ranks_max = 8,
         .max = SIZE_MAX,
         .instead = COLL_INSTEAD_NOTHING},
        {.way = COLL_WAY_ZERO_COPY,
         .by = COLL_BY_INTRA,
         .needs = COLL_CALL_INTRANODE,
         .kinds = 1 << COLL_KIND_ALL_REDUCE | 1 << COLL_KIND_BARRIER,
         .ranks_min = 2,
         .ranks_max = 4,
         .buffers = COLL_BUFFERS_MAPPED,
         .max = 8,
         .limits = "layout",
         .instead = COLL_INSTEAD_NEXT,
         .op = {.poll = poll}},
        {.way = COLL_WAY_GROUP_BARRIER,
         .by = COLL_BY_GROUP,
         .needs = COLL_CALL_GROUP,
         .limits = "layout",
         .kinds = 1 << COLL_KIND_BARRIER,
         .ranks_max = INT32_MAX,
         .max = SIZE_MAX,
         .instead = COLL_INSTEAD_NOTHING},
        {.way = COLL_WAY_PLAN,
         .kinds = (1 << COLL_KIND_COUNT) - 1,
         .ranks_max = INT32_MAX,
         .limits = "prices",
         .max = SIZE_MAX},
};
WEAK const size_t coll_ways_count = 4;
WEAK const char *const coll_ways_conditions[] = {"a condition"};
WEAK const size_t coll_ways_nconditions = 1;

WEAK bool coll_ways_serves(const struct coll_ways_row *row, const struct coll_ways_facts *facts)
{
	return row->kinds >> facts->kind & 1 && facts->bytes <= row->max && !(row->needs & ~facts->holds);
}

WEAK const struct coll_ways_row *coll_ways_first(const struct coll_ways_facts *facts)
{
	const struct coll_ways_row *row = coll_ways;

	while (!coll_ways_serves(row, facts))
		row++;
	return row;
}

WEAK const struct coll_ways_row *coll_ways_next(const struct coll_ways_facts *facts, const struct coll_ways_row *row)
{
	return &coll_ways[3];
}

WEAK void coll_ways_bind(struct coll_intra *intra)
{
	fake_select.bound++;
	intra->ops[1] = coll_ways[1].op;
}

WEAK struct coll_ways_facts coll_ways_facts_of(const struct coll_intra *intra, enum coll_kind kind, size_t count,
                                               size_t elem_bytes)
{
	return (struct coll_ways_facts){
	        .kind = kind, .size = 4, .bytes = count * elem_bytes, .holds = COLL_CALL_INTRANODE};
}

WEAK const struct coll_intra_op *coll_ways_op(const struct coll_intra *intra, const struct coll_ways_row *row)
{
	return &intra->ops[row - coll_ways];
}

WEAK bool coll_ways_share(int size)
{
	return size > 1 && size < 5;
}

WEAK void coll_explain_ways(const struct coll_ways_facts *facts, const char *plan, char *buf, size_t len_bytes)
{
	snprintf(buf, len_bytes, "intranode; else %s", plan);
}
