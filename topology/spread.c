/*
 * See spread.h.
 */
#include "topology/spread.h"

#include <stdlib.h>
#include <string.h>

enum { PARTS_UNEVEN_MAX = 8 };

int coll_spread_parts(const int *count, int hosts)
{
	bool even = true;
	int most = 0;

	for (int h = 0; h < hosts; h++) {
		even = even && count[h] == count[0];
		most = count[h] > most ? count[h] : most;
	}
	return even || most < PARTS_UNEVEN_MAX ? most : PARTS_UNEVEN_MAX;
}

/* ---- Shares ------------------------------------------------------------- */

enum {
	WORTHWHILE_PC = 101, /* more shares must gain so much, in percent of what fewer carry */
	FRACTION_BITS = 20
};

int coll_spread_next(const uint32_t *weight, const int *given, int rails)
{
	int best = 0;

	for (int k = 1; k < rails; k++)
		if ((uint64_t)weight[k] * (unsigned)(given[best] + 1) >
		    (uint64_t)weight[best] * (unsigned)(given[k] + 1))
			best = k;
	return best;
}

void coll_spread_weights(const uint32_t *mbps, int rails, uint32_t *weight)
{
	bool known = true;

	for (int k = 0; k < rails; k++)
		known = known && mbps[k] > 0;
	for (int k = 0; k < rails; k++)
		weight[k] = known ? mbps[k] : 1;
}

/* What so many equal units carry together: the slowest rail sets the pace. */
static uint64_t rate_of(const uint32_t *weight, const int *given, int rails, int units)
{
	uint64_t least = UINT64_MAX;

	for (int k = 0; k < rails; k++)
		if (given[k] > 0 && ((uint64_t)weight[k] << FRACTION_BITS) / (unsigned)given[k] < least)
			least = ((uint64_t)weight[k] << FRACTION_BITS) / (unsigned)given[k];
	return least * (unsigned)units;
}

int coll_spread_shares(const uint32_t *weight, int rails, int parts, int *capacity)
{
	uint64_t rate[COLL_SHARES_MAX + 1] = {0}, best = 0;
	int given[COLL_SHARES_MAX + 1][COLL_GRAPH_NICS_MAX] = {{0}}, shares = COLL_SHARES_MAX;

	for (int s = 1; s <= COLL_SHARES_MAX; s++) {
		memcpy(given[s], given[s - 1], sizeof(given[s]));
		for (int i = 0; i < parts; i++)
			given[s][coll_spread_next(weight, given[s], rails)]++;
		rate[s] = rate_of(weight, given[s], rails, s * parts);
		best = rate[s] > best ? rate[s] : best;
	}
	for (int s = COLL_SHARES_MAX; s >= 1; s--)
		if (rate[s] * WORTHWHILE_PC >= best * 100)
			shares = s;
	memcpy(capacity, given[shares], (size_t)rails * sizeof(*capacity));
	return shares;
}

/* ---- The flow ----------------------------------------------------------- */

/* Parts whose crossings are alike are one source. */
struct source {
	int shares;
	const long *cost;
	int flow[COLL_GRAPH_NICS_MAX];
};

struct flow {
	struct source *source;
	int *of; /* the source of each part */
	int sources, rails;
	int capacity[COLL_GRAPH_NICS_MAX]; /* left */
};

static bool find_sources(struct flow *f, const struct coll_spread_in *in, int shares)
{
	f->source = calloc((size_t)in->parts, sizeof(*f->source));
	f->of = malloc((size_t)in->parts * sizeof(*f->of));
	f->rails = in->rails;
	if (!f->source || !f->of)
		return false;
	for (int part = 0; part < in->parts; part++) {
		const long *cost = &in->cost[(size_t)part * (size_t)in->rails];
		int same = 0;

		while (same < f->sources && memcmp(f->source[same].cost, cost, (size_t)in->rails * sizeof(*cost)) != 0)
			same++;
		f->source[same].cost = cost;
		f->sources += same == f->sources;
		f->source[same].shares += shares;
		f->of[part] = same;
	}
	return true;
}

/* The cheapest way to move a share from rail i to rail k: the source that has one there and gains most; -1: none. */
static int mover(const struct flow *f, int i, int k, long *cost)
{
	int best = -1;

	for (int c = 0; c < f->sources; c++) {
		const long d = f->source[c].cost[k] - f->source[c].cost[i];

		if (f->source[c].flow[i] > 0 && (best < 0 || d < *cost)) {
			best = c;
			*cost = d;
		}
	}
	return best;
}

/*
 * Successive shortest paths: send what a source still has along the cheapest path to a rail with room, which may push
 * others' shares from rail to rail. Costs of paths never become negative, so Bellman and Ford's method ends.
 */
static void send_some(struct flow *f, struct source *from, int *left)
{
	long far[COLL_GRAPH_NICS_MAX], cost = 0;
	int via[COLL_GRAPH_NICS_MAX], who[COLL_GRAPH_NICS_MAX], end = -1, amount = *left;

	for (int k = 0; k < f->rails; k++) {
		far[k] = from->cost[k];
		via[k] = -1;
	}
	for (int round = 0, changed = 1; changed && round < f->rails; round++) {
		changed = 0;
		for (int i = 0; i < f->rails; i++)
			for (int k = 0; k < f->rails; k++) {
				const int c = i == k ? -1 : mover(f, i, k, &cost);

				if (c >= 0 && far[i] + cost < far[k]) {
					far[k] = far[i] + cost;
					via[k] = i;
					who[k] = c;
					changed = 1;
				}
			}
	}
	for (int k = 0; k < f->rails; k++)
		if (f->capacity[k] > 0 && (end < 0 || far[k] < far[end]))
			end = k;
	amount = f->capacity[end] < amount ? f->capacity[end] : amount;
	for (int k = end; via[k] >= 0; k = via[k])
		if (f->source[who[k]].flow[via[k]] < amount)
			amount = f->source[who[k]].flow[via[k]];
	f->capacity[end] -= amount;
	int k = end;
	for (; via[k] >= 0; k = via[k]) {
		f->source[who[k]].flow[via[k]] -= amount;
		f->source[who[k]].flow[k] += amount;
	}
	from->flow[k] += amount;
	*left -= amount;
}

/* A source's shares, part by part in the order of rails: at most rails - 1 parts of it lie on two. */
static void cut_rows(struct flow *f, const struct coll_spread_in *in, int shares, uint8_t *row)
{
	for (int part = 0; part < in->parts; part++) {
		struct source *c = &f->source[f->of[part]];

		for (int k = 0, left = shares; left > 0; k += c->flow[k] == 0)
			for (; left > 0 && c->flow[k] > 0; c->flow[k]--, left--)
				*row++ = (uint8_t)k;
	}
}

bool coll_spread(const struct coll_spread_in *in, int *shares, uint8_t **row)
{
	struct flow f = {.sources = 0};
	uint32_t weight[COLL_GRAPH_NICS_MAX];
	bool ok;

	coll_spread_weights(in->mbps, in->rails, weight);
	*shares = coll_spread_shares(weight, in->rails, in->parts, f.capacity);
	*row = malloc((size_t)in->parts * (size_t)*shares);
	ok = *row && find_sources(&f, in, *shares);
	for (int c = 0; ok && c < f.sources; c++)
		for (int left = f.source[c].shares; left > 0;)
			send_some(&f, &f.source[c], &left);
	if (ok)
		cut_rows(&f, in, *shares, *row);
	free(f.source);
	free(f.of);
	return ok;
}
