/*
 * Binding a call: from its shape to what the table of ways makes of it, and its job. This file collects the facts that
 * the table reads and makes the plan, if the table has a use for it. A shape that was
 * seen before costs a look-up in the memo: no selection, no plan, no allocation. What is chosen depends on agreed facts
 * only.
 */
#include "select/bind.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/host_rates.h"
#include "core/label.h"
#include "core/rails_text.h"
#include "core/way_name.h"
#include "device/device.h"
#include "engine/range.h"
#include "engine/run.h"
#include "select/explain.h"
#include "select/select.h"
#include "select/ways.h"

/* ---- Choice, remembered ---- */

static struct coll_select_call select_call(const struct coll_call *c, size_t elem_bytes, bool ordered)
{
	return (struct coll_select_call){.kind = c->kind,
	                                 .count = c->count,
	                                 .elem_bytes = elem_bytes,
	                                 .ordered = ordered,
	                                 .ragged = c->ragged,
	                                 .pairwise = c->pairwise};
}

/* The largest tile whose frames fit in a slot, on every rank alike: a rank's own
 * plan may hold shorter runs than another's, the algorithm's price tag has the
 * longest of all. 0: not even one element fits. */
static size_t largest_tile(const struct coll_plan *plan, const struct coll_algo *algo, const struct coll_layout *layout,
                           size_t elem_bytes, size_t slot_bytes)
{
	bool block = coll_plan_kind_is_block(plan->kind);
	struct coll_algo_cost cost;
	size_t run, each;

	coll_algo_cost(algo, plan->size, layout, &cost);
	run = (size_t)(cost.frame * (block ? 1 : plan->chunks) + 0.5);
	assert(plan->max_run <= run || plan->size == 1);
	each = slot_bytes / elem_bytes / (run ? run : 1);
	return block ? each : each * plan->chunks;
}

/* Cut count in equal tiles, none above the largest the slots allow. Lengths only
 * the ends know cannot set the tile: then it is the largest. */
static void cut_tiles(struct coll_memo *m, const struct coll_call *c, size_t largest, uint32_t windows)
{
	size_t tiles = c->count / largest + (c->count % largest != 0);

	m->tile = largest;
	if (!c->pairwise && tiles > 0)
		m->tile = c->count / tiles + (c->count % tiles != 0);
	m->windows = windows;
	if (!c->pairwise && tiles < windows)
		m->windows = tiles > 0 ? (uint32_t)tiles : 1;
}

/* What was chosen for a call. */
struct choice {
	struct coll_select_choice plan; /* by price or by COLL_ALGO, whether it is made or not */
	struct coll_ways_facts facts;
	const struct coll_ways_row *row;
};

static bool devices_reduce(const struct coll_comm *comm, const struct coll_call *c)
{
	const struct coll_op_entry *e = c->op >= COLL_OP_FIRST ? &comm->ops[c->op - COLL_OP_FIRST] : NULL;

	return coll_device_can_reduce(c->type, e ? e->code : c->op);
}

/* The conditions of the table of ways that hold, without those that depend on the plan. A frame that an earlier call
 * left is a matter of each call that begins: see call/begin.c. */
static uint32_t conditions(const struct coll_comm *comm, const struct coll_call *c, bool forced)
{
	const bool reduces = coll_plan_kind_reduces(c->kind);
	const struct {
		bool holds;
		uint32_t condition;
	} all[] = {
	        {!c->record_kind, COLL_CALL_OF_USER},
	        {!c->ragged && !c->pairwise, COLL_CALL_EQUAL},
	        {!c->pairwise, COLL_CALL_KNOWN},
	        {c->count > 0 || c->ragged, COLL_CALL_MOVES},
	        {!reduces || c->op < COLL_OP_FIRST, COLL_CALL_BUILT_IN},
	        {comm->intra != NULL, COLL_CALL_MEMORY},
	        {true, COLL_CALL_MATCHED},
	        {forced, COLL_CALL_FORCED},
	        {comm->group_op && c->record_kind == COLL_RECORD_GROUP, COLL_CALL_GROUP},
	        {comm->group_op && c->record_kind == COLL_RECORD_DESTROY, COLL_CALL_GROUP_END},
	        {comm->direct && comm->direct->on, COLL_CALL_DEVICES},
	        {!reduces || devices_reduce(comm, c), COLL_CALL_ON_DEVICES},
	};
	uint32_t holds = 0;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		holds |= all[i].holds ? all[i].condition : 0;
	return holds;
}

static struct coll_ways_facts facts_of(const struct coll_comm *comm, const struct coll_call *c, size_t elem_bytes,
                                       bool forced)
{
	struct coll_ways_facts f = {.kind = c->kind, .size = comm->size};

	if (comm->intra)
		f = coll_ways_facts_of(comm->intra, c->kind, c->count, elem_bytes);
	f.holds = conditions(comm, c, forced);
	return f;
}

static const struct coll_intra_op *op_of(const struct coll_comm *comm, const struct coll_ways_row *row)
{
	switch (row->by) {
	case COLL_BY_INTRA: return coll_ways_op(comm->intra, row);
	case COLL_BY_DEVICES: return &comm->direct->op;
	case COLL_BY_GROUP: return comm->group_op;
	default: return NULL;
	}
}

/* The largest tile of a plan that was made, on every rank alike; 0: refused. */
static size_t tile_of(struct coll_comm *comm, const struct coll_call *c, const struct coll_memo *m,
                      const struct coll_select_choice *choice, coll_status *st)
{
	const struct coll_algo *algo = choice->algo;
	const bool block = coll_plan_kind_is_block(c->kind);
	const size_t staged =
	        comm->facts.devices ? coll_stage_tile(m->elem_bytes, block ? (size_t)comm->size : 1) : SIZE_MAX;
	const struct coll_layout *layout = coll_select_layout(&comm->facts, algo);
	const size_t wanted = choice->tile_bytes / m->elem_bytes;
	size_t largest = largest_tile(m->plan, algo, layout, m->elem_bytes, comm->slot_bytes);

	if (wanted > 0 && wanted < largest)
		largest = wanted;
	if (largest == 0)
		*st = coll_comm_refuse(comm, coll_call_name(c), COLL_ERR_CONFIG,
		                       "[COLL-1108] algorithm %s needs larger slots than %zu bytes", algo->name,
		                       comm->slot_bytes);
	else if (staged == 0)
		*st = coll_comm_refuse(
		        comm, coll_call_name(c), COLL_ERR_UNSUPPORTED,
		        "[COLL-1219] a block of each of %d ranks, of %zu bytes at least, does not fit in "
		        "the %d KiB of staging for device memory",
		        comm->size, m->elem_bytes, COLL_STAGE_SLOT_BYTES >> 10);
	return largest < staged ? largest : staged;
}

/* The plan, its tiles and its scratch memory. */
static coll_status make_plan(struct coll_comm *comm, const struct coll_call *c, bool ordered,
                             const struct coll_select_choice *choice, struct coll_memo *m)
{
	struct coll_shape shape = {.kind = c->kind,
	                           .rank = comm->rank,
	                           .size = comm->size,
	                           .root = c->root,
	                           .ordered = ordered,
	                           .uniform = !c->ragged && !c->pairwise,
	                           .layout = coll_select_layout(&comm->facts, choice->algo)};
	const uint32_t windows = choice->windows < 1 ? 1 : choice->windows;
	size_t largest;
	coll_status st = coll_plan_cache_obtain(comm->plans, &shape, choice->algo->name, choice->algo->generate,
	                                        comm->ctx->settings.verify, &m->plan);

	if (st != COLL_OK)
		return coll_comm_refuse(comm, coll_call_name(c), st, "cannot make a plan for algorithm %s: %s",
		                        choice->algo->name, coll_plan_cache_why(comm->plans));
	largest = tile_of(comm, c, m, choice, &st);
	if (st != COLL_OK) {
		coll_plan_cache_release(comm->plans, m->plan);
		m->plan = NULL;
		return st;
	}
	cut_tiles(m, c, largest, windows > COLL_WINDOWS_MAX ? COLL_WINDOWS_MAX : windows);
	m->scratch_bytes = coll_run_scratch_bytes(m->plan, m->tile, m->elem_bytes, m->windows);
	return COLL_OK;
}

/* Walk down the table of ways: it alone decides. A row that needs no plan gets none; else the plan says how long a tile
 * is, which is the last of the facts. */
static coll_status choose(struct coll_comm *comm, const struct coll_call *c, bool ordered, bool explain,
                          struct coll_memo *m, struct choice *choice)
{
	const struct coll_select_call t = select_call(c, m->elem_bytes, ordered);
	coll_status st = coll_select_plan(&comm->facts, &t, explain, &choice->plan);

	if (st != COLL_OK)
		return coll_comm_refuse(
		        comm, coll_call_name(c), st, "[COLL-1112] no algorithm for this call%s%s: %.160s",
		        comm->facts.forced[0] ? " with COLL_ALGO=" : "", comm->facts.forced, choice->plan.why);
	choice->facts = facts_of(comm, c, m->elem_bytes, choice->plan.forced);
	choice->row = coll_ways_first(&choice->facts);
	m->way = coll_way_of_algo(choice->plan.algo);
	m->tile = c->count > 0 ? c->count : 1;
	m->windows = 1;
	if (choice->row->instead != COLL_INSTEAD_NOTHING) {
		st = make_plan(comm, c, ordered, &choice->plan, m);
		if (st != COLL_OK)
			return st;
		if (!comm->facts.devices || m->tile >= c->count)
			choice->facts.holds |= COLL_CALL_FITS_SLOT;
		choice->row = coll_ways_first(&choice->facts);
	}
	m->intra = op_of(comm, choice->row);
	/* Of more ranks that share cores those intranode are of any length. */
	m->fastpath = choice->row->by == COLL_BY_INTRA && !m->intra->passes &&
	              (comm->ctx->dedicated_cores || comm->size <= COLL_INTRA_SIZE_MAX);
	return COLL_OK;
}

/* ---- Binding ---- */

static coll_status bind_reduction(struct coll_comm *comm, const struct coll_call *c, struct coll_reduction *r,
                                  bool *ordered)
{
	const struct coll_op_entry *e = c->op >= COLL_OP_FIRST ? &comm->ops[c->op - COLL_OP_FIRST] : NULL;
	coll_status st = coll_reduce_bind(r, c->type, e ? e->code : c->op, comm->size, comm->isa);

	if (st != COLL_OK)
		return st;
	*ordered = e && !e->commutative;
	if (e) {
		r->user_fn = e->fn;
		r->user_arg = e->arg;
		r->scale = e->scale;
	}
	return COLL_OK;
}

static bool fits(const struct coll_memo *m, const struct coll_call *c)
{
	return m->valid && m->count == c->count && m->kind == c->kind && m->record_kind == c->record_kind &&
	       m->type == c->type && m->op == c->op && m->root == c->root && m->ragged == c->ragged &&
	       m->pairwise == c->pairwise;
}

/* Either of two places, that of the older use where neither is its own: two calls that take turns do not chase each
 * other away, whatever was there before. The roots of one shape lie side by side: as many as there are pairs of places
 * may take turns. */
static struct coll_memo *memo_slot(struct coll_comm *comm, const struct coll_call *c)
{
	uint64_t h = (uint64_t)c->count * 0x9e3779b97f4a7c15u + (uint64_t)c->kind * 0xbf58476d1ce4e5b9u +
	             (uint64_t)c->type * 0xd6e8feb86659fd93u + c->op;
	const size_t pair = ((h ^ (h >> 32)) + (unsigned)c->root) % (COLL_MEMO_SLOTS / 2);
	struct coll_memo *both = &comm->memo[2 * pair];
	uint8_t *newer = &comm->memo_newer[pair];

	*newer = fits(&both[0], c) ? 0 : fits(&both[1], c) ? 1 : !*newer;
	return &both[*newer];
}

/* The ways of a call in the order in which they are tried, each with its condition. */
struct chain {
	char text[400];
};

static struct chain chain(const struct coll_comm *comm, const struct choice *choice)
{
	struct chain chain = {""};
	char device[320];
	const bool mapped = coll_device_facts_describe(comm, device, sizeof(device));
	size_t used;

	coll_explain_ways(&choice->facts, choice->plan.algo->name, chain.text, sizeof(chain.text));
	used = strlen(chain.text);
	if (choice->row->by == COLL_BY_DEVICES)
		snprintf(chain.text + used, sizeof(chain.text) - used, " (device memory %s)", device);
	else if (comm->ctx->device)
		snprintf(chain.text + used, sizeof(chain.text) - used,
		         "; staged, if a buffer is device memory (not direct: %s)", mapped ? "such a call" : device);
	return chain;
}

/* A shape not seen before, or whose memo was taken over by another. */
static coll_status memorise(struct coll_comm *comm, const struct coll_call *c, struct coll_memo *m)
{
	const bool user = coll_plan_kind_reduces(c->kind) && c->op >= COLL_OP_FIRST;
	const bool explain = comm->ctx->logger.level >= COLL_LOG_INFO;
	struct coll_memo fresh = {.valid = true,
	                          .kind = (uint8_t)c->kind,
	                          .record_kind = c->record_kind,
	                          .type = (uint8_t)c->type,
	                          .ragged = c->ragged,
	                          .pairwise = c->pairwise,
	                          .op = c->op,
	                          .elem_bytes = coll_dtype_size(c->type),
	                          .root = c->root,
	                          .count = c->count,
	                          .signature = coll_call_signature(c, comm->size)};
	struct choice choice;
	bool ordered = false;
	coll_status st = COLL_OK;

	comm->prepared_for = NULL;
	if (m->fastpath_key)
		*m->fastpath_key = 0;
	if (coll_plan_kind_reduces(c->kind))
		st = bind_reduction(comm, c, &fresh.reduction, &ordered);
	if (st != COLL_OK)
		return coll_comm_refuse(comm, coll_call_name(c), st, "this operation is not defined on %s",
		                        coll_dtype_name(c->type));
	if (user && fits(m, c) && m->ordered == ordered) {
		m->reduction = fresh.reduction; /* the number may name another function by now */
		return COLL_OK;
	}
	fresh.ordered = ordered;
	st = choose(comm, c, ordered, explain, &fresh, &choice);
	if (st != COLL_OK)
		return st;
	if (explain)
		coll_log(&comm->ctx->logger, COLL_LOG_INFO, "%s%s count=%zu bytes=%zu: %s tile=%zu windows=%u (%s)",
		         coll_comm_label(comm).text, coll_call_name(c), c->count, c->count * fresh.elem_bytes,
		         chain(comm, &choice).text, fresh.tile, fresh.windows, choice.plan.why);
	if (m->valid)
		coll_plan_cache_release(comm->plans, m->plan);
	*m = fresh;
	return COLL_OK;
}

coll_status coll_call_remember(struct coll_comm *comm, const struct coll_call *c, struct coll_memo **memo)
{
	struct coll_memo *m = comm->prepared_memo;

	if (!m || comm->prepared_for != m || !fits(m, c))
		m = memo_slot(comm, c);
	*memo = m;
	if (__builtin_expect(fits(m, c) && c->op < COLL_OP_FIRST, true))
		return COLL_OK;
	return memorise(comm, c, m);
}

/* Which buffers hold one block only. */
static struct coll_extent extent(const struct coll_call *c, const void *base, bool single, const size_t *counts,
                                 const size_t *offsets)
{
	return (struct coll_extent){.base = (char *)(uintptr_t)base,
	                            .single = single,
	                            .count = c->count,
	                            .counts = counts,
	                            .offsets = offsets,
	                            /* The only kind that a communicator serves: see coll_comm_serves(). */
	                            .mem = coll_device_memory(COLL_DEVICE_HOST)};
}

void coll_call_job(const struct coll_comm *comm, const struct coll_call *c, const struct coll_memo *memo,
                   struct coll_job *job)
{
	*job = (struct coll_job){.plan = memo->plan,
	                         .kind = (uint8_t)c->kind,
	                         .root = c->root,
	                         .intra = memo->intra,
	                         .in = extent(c, c->in, c->kind == COLL_KIND_ALL_GATHER || c->kind == COLL_KIND_GATHER,
	                                      c->in_counts, c->in_offsets),
	                         .out = extent(c, c->out,
	                                       c->kind == COLL_KIND_REDUCE_SCATTER || c->kind == COLL_KIND_SCATTER,
	                                       c->out_counts, c->out_offsets),
	                         .elem_bytes = memo->elem_bytes,
	                         .tile = memo->tile,
	                         .windows = memo->windows,
	                         .signature = c->ragged ? coll_call_signature(c, comm->size) : memo->signature,
	                         .way = memo->way,
	                         .signal = c->kind == COLL_KIND_BARRIER,
	                         .pairwise = c->pairwise};
}

/* What the plan makes of the layout: "; layout host(2) x rank(4): a host sends at most 1 x". */
static void explain_layout(const struct coll_layout *l, const struct coll_algo *algo, char *buf, size_t len_bytes)
{
	struct coll_algo_cost inside, between;
	char text[160];
	struct coll_algo_links links;
	int used;

	buf[0] = '\0';
	if (!l)
		return;
	coll_layout_print(l, text, sizeof(text));
	if (algo->split) {
		algo->split(l, &inside, &between, &links);
		used = snprintf(buf, len_bytes, "; layout %s: a host sends or receives at most %.3g x", text,
		                links.host);
		if (l->level[0].mbps && used > 0 && (size_t)used < len_bytes)
			snprintf(buf + used, len_bytes - (size_t)used, ", a %s %.3g x", l->level[0].name,
			         links.outermost);
	} else {
		snprintf(buf, len_bytes, "; layout %s: this algorithm takes no notice of it", text);
	}
}

coll_status coll_comm_explain_call(struct coll_comm *comm, enum coll_kind kind, size_t count, coll_dtype type,
                                   const char *transport, char *buf, size_t len_bytes)
{
	struct coll_call c = {.kind = kind, .count = count, .type = type};
	struct coll_memo m = {.elem_bytes = coll_dtype_size(type)};
	struct choice choice;
	char layout[256], rails[512], link[192];
	coll_status st = choose(comm, &c, false, true, &m, &choice);

	if (st != COLL_OK)
		return st;
	explain_layout(coll_select_layout(&comm->facts, choice.plan.algo), choice.plan.algo, layout, sizeof(layout));
	coll_rails_explain(comm, m.plan, m.windows, rails, sizeof(rails));
	coll_host_rates_text(comm, link, sizeof(link));
	snprintf(buf, len_bytes, "%s %s tile=%zu windows=%u transport=%s because %s%s%s%s%s", coll_plan_kind_name(kind),
	         chain(comm, &choice).text, m.tile, m.windows, transport, choice.plan.why, link[0] ? "; " : "", link,
	         layout, rails);
	coll_plan_cache_release(comm->plans, m.plan);
	return COLL_OK;
}
