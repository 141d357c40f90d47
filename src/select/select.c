/*
 * The choice: among the rows that can serve a call, the cheapest by the closed
 * form of cost.c, or the one COLL_ALGO forces. The same facts give the same
 * answer on every rank. A row must be clearly cheaper to displace one that stands
 * before it in the table, so that choices do not flap between near equals and
 * fewest rounds at fewest bytes is what long vectors get.
 */
#include <stdio.h>

#include "base/limits.h"
#include "select/cost.h"
#include "select/forced.h"
#include "select/price.h"

/* "Clearly": the model is not truer than this. */
#define CLEARLY 0.95

/* Why a row cannot serve a call; NULL when it can. */
static const char *obstacle(const struct coll_algo *a, const struct coll_select_facts *f,
                            const struct coll_select_call *call)
{
	if (!a->cost && !coll_select_layout(f, a))
		return a->flags & COLL_ALGO_CHAIN
		               ? "it needs several hosts, three if each has one rank, and COLL_LAYOUT=auto"
		               : "it needs several hosts with several ranks on some of them, and COLL_LAYOUT=auto";
	if (a->max_size > 0 && f->size > a->max_size)
		return "there are too many ranks for it";
	if (call->ordered && coll_plan_kind_reduces(a->kind) && !(a->flags & COLL_ALGO_ORDERED))
		return "it does not keep the order of operands, and the operation is not commutative";
	if (call->pairwise && !(a->flags & COLL_ALGO_PAIRWISE))
		return "it needs all block lengths, and each rank has only its own";
	if (call->ragged && !(a->flags & COLL_ALGO_RAGGED))
		return "it needs blocks of one length";
	return NULL;
}

struct ranking {
	const struct coll_algo *first;
	const struct coll_algo *second;
	struct coll_select_price first_price;
	struct coll_select_price second_price;
};

/* Whether price b displaces price a: what fits in memory first, lean rows next,
 * then time. */
static bool displaces(const struct coll_select_price *b, const struct coll_select_price *a, double clearly)
{
	if (b->fits != a->fits)
		return b->fits;
	if (b->lean != a->lean)
		return b->lean;
	return b->ns < clearly * a->ns;
}

static void second_best(struct ranking *r, const struct coll_algo *a, const struct coll_select_price *price)
{
	if (r->second && !displaces(price, &r->second_price, 1))
		return;
	r->second = a;
	r->second_price = *price;
}

static void rank_row(struct ranking *r, const struct coll_algo *a, const struct coll_select_price *price)
{
	if (r->first && !displaces(price, &r->first_price, CLEARLY)) {
		second_best(r, a, price);
		return;
	}
	if (r->first)
		second_best(r, r->first, &r->first_price);
	r->first = a;
	r->first_price = *price;
}

/* Several hosts, joined by something else than memory: what the busiest rank sends is what counts. */
static bool has_links(const struct coll_select_facts *f)
{
	return f->caps.cross_host && !f->one_host;
}

static bool is_short(const struct coll_select_call *call)
{
	return call->kind == COLL_KIND_BARRIER || call->count * call->elem_bytes <= COLL_LEADERS_MAX;
}

/* Chains are chosen where links are known to be slower than what a rank does besides: there they were measured. */
static bool is_guess(const struct coll_select_facts *f, const struct coll_algo *a)
{
	return !f->layout && !f->link_mbps && (a->flags & COLL_ALGO_CHAIN);
}

static void rank_rows(const struct coll_select_facts *f, const struct coll_select_call *call, struct ranking *r)
{
	*r = (struct ranking){.first = NULL};
	for (size_t i = 0; i < coll_algos_count; i++) {
		const struct coll_algo *a = &coll_algos[i];
		struct coll_select_price price;

		if (a->kind != call->kind || obstacle(a, f, call) || is_guess(f, a) ||
		    ((a->flags & COLL_ALGO_LINKS) && !has_links(f)) ||
		    ((a->flags & COLL_ALGO_SHORT) && !is_short(call)))
			continue;
		coll_select_price(f, call, a, &price);
		rank_row(r, a, &price);
	}
}

static void choose(struct coll_select_choice *choice, const struct coll_algo *a, const struct coll_select_price *price)
{
	choice->algo = a;
	choice->cost_ns = price->ns;
	choice->windows = price->windows;
	choice->tile_bytes = price->tile_bytes;
}

static coll_status select_forced(const struct coll_select_facts *f, const struct coll_select_call *call,
                                 const struct coll_algo *forced, bool explain, struct coll_select_choice *choice)
{
	const char *why_not = obstacle(forced, f, call);
	struct coll_select_price price;
	struct ranking r;

	if (why_not) {
		snprintf(choice->why, sizeof(choice->why), "COLL_ALGO forces %s, but %s", forced->name, why_not);
		return COLL_ERR_CONFIG;
	}
	coll_select_price(f, call, forced, &price);
	choose(choice, forced, &price);
	choice->forced = true;
	if (explain) {
		rank_rows(f, call, &r);
		snprintf(choice->why, sizeof(choice->why), "forced by COLL_ALGO: %s %.2f us; by price: %s %.2f us",
		         forced->name, price.ns / 1e3, r.first->name, r.first_price.ns / 1e3);
	}
	return COLL_OK;
}

static void explain_ranking(const struct ranking *r, char *why, size_t why_bytes)
{
	const struct coll_algo_cost *c = &r->first_price.cost;
	int len = snprintf(why, why_bytes, "%s %.2f us (%.0f rounds, sends %.3g x)", r->first->name,
	                   r->first_price.ns / 1e3, c->rounds, c->sent);

	if (len > 0 && (size_t)len < why_bytes && r->second)
		snprintf(why + len, why_bytes - (size_t)len, "; %s %s %.2f us (%.0f rounds, sends %.3g x)",
		         r->first_price.lean && !r->second_price.lean ? "preferred to" : "next", r->second->name,
		         r->second_price.ns / 1e3, r->second_price.cost.rounds, r->second_price.cost.sent);
}

coll_status coll_select_plan(const struct coll_select_facts *facts, const struct coll_select_call *call, bool explain,
                             struct coll_select_choice *choice)
{
	const struct coll_algo *forced = NULL;
	struct ranking r;
	coll_status status;

	*choice = (struct coll_select_choice){.algo = NULL};
	status = coll_select_forced(facts->forced ? facts->forced : "", call->kind, &forced, choice->why,
	                            sizeof(choice->why));
	if (status)
		return status;
	if (forced)
		return select_forced(facts, call, forced, explain, choice);
	rank_rows(facts, call, &r);
	if (!r.first) {
		snprintf(choice->why, sizeof(choice->why), "no algorithm serves this call");
		return COLL_ERR_UNSUPPORTED;
	}
	choose(choice, r.first, &r.first_price);
	if (explain)
		explain_ranking(&r, choice->why, sizeof(choice->why));
	return COLL_OK;
}
