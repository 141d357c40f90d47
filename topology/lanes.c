/*
 * Which NIC carries what: see search.h. The NICs of a host that count are the fastest equal ones, or those whose rates
 * the user set. The k-th ones of all hosts are a rail. How parts are spread over rails is in spread.h.
 */
#include "topology/lanes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/spread.h"

enum {
	/* What a NIC of which nobody says anything counts as when NICs are compared, in Mb/s; its rate stays unknown.
	 */
	GUESS_ETHERNET = 10000,
	GUESS_FABRIC = 100000
};

/* ---- The NICs of a host ------------------------------------------------- */

/* For comparisons only. */
static uint32_t guess(const struct coll_graph_nic *n)
{
	const bool fabric = n->fabric == COLL_FABRIC_INFINIBAND || n->fabric == COLL_FABRIC_OTHER;
	const uint32_t rate = n->rate.mbps  ? n->rate.mbps
	                      : n->pci.mbps ? n->pci.mbps
	                      : fabric      ? GUESS_FABRIC
	                                    : GUESS_ETHERNET;

	return n->pci.mbps && n->pci.mbps < rate && n->rate.origin < COLL_ORIGIN_TOLD ? n->pci.mbps : rate;
}

/* Of NICs that are equally fast, those for computing go first. */
static int rank_of_kind(const struct coll_graph_nic *n)
{
	return n->made                                                                 ? 0
	       : n->fabric == COLL_FABRIC_INFINIBAND || n->fabric == COLL_FABRIC_OTHER ? 3
	       : n->transports & COLL_NIC_VERBS                                        ? 2
	                                                                               : 1;
}

static bool fits(const struct coll_graph_nic *n, unsigned transports)
{
	return n->state != COLL_NIC_DOWN && n->transports != 0 && (n->transports & transports) == transports;
}

static bool better(const struct coll_graph_nic *a, const struct coll_graph_nic *b)
{
	if (a->made != b->made)
		return b->made;
	if (guess(a) != guess(b))
		return guess(a) > guess(b);
	return rank_of_kind(a) > rank_of_kind(b);
}

static int before(const struct coll_graph *g, int i, int k)
{
	const struct coll_graph_nic *a = &g->nic[i], *b = &g->nic[k];

	if (a->rail_key != b->rail_key)
		return a->rail_key < b->rail_key;
	if (a->rate.mbps != b->rate.mbps)
		return a->rate.mbps > b->rate.mbps;
	if (a->package != b->package)
		return a->package < b->package;
	if (a->numa != b->numa)
		return a->numa < b->numa;
	return i < k;
}

static void say_rate(const struct coll_rate *r, char *text, size_t len_bytes)
{
	if (r->mbps)
		snprintf(text, len_bytes, "%u Mb/s (%s)", r->mbps, coll_origin_name(r->origin));
	else
		snprintf(text, len_bytes, "of unknown rate");
}

int coll_lanes_nics(const struct coll_graph *g, unsigned transports, int nic[COLL_GRAPH_NICS_MAX], char *why,
                    size_t why_bytes)
{
	const struct coll_graph_nic *best = NULL;
	int count = 0;
	bool set = false;
	char rate[48];

	for (int i = 0; g && i < g->nics; i++)
		set = set || (g->nic[i].set && fits(&g->nic[i], transports));
	for (int i = 0; g && i < g->nics; i++) {
		const struct coll_graph_nic *n = &g->nic[i];

		if (fits(n, transports) && n->set == set && (!best || better(n, best)))
			best = n;
	}
	for (int i = 0; best && i < g->nics; i++) {
		const struct coll_graph_nic *n = &g->nic[i];

		if (fits(n, transports) && n->set == set && (set || (!better(best, n) && n->fabric == best->fabric)))
			nic[count++] = i;
	}
	for (int i = 1; i < count; i++)
		for (int k = i; k > 0 && before(g, nic[k], nic[k - 1]); k--) {
			const int swap = nic[k];

			nic[k] = nic[k - 1];
			nic[k - 1] = swap;
		}
	if (!g || g->nics == 0) {
		snprintf(why, why_bytes, "no NIC is known");
	} else if (count == 0) {
		snprintf(why, why_bytes, "none of %d NICs is up and carries what is asked for", g->nics);
	} else if (set) {
		snprintf(why, why_bytes, "%d of %d NICs: those whose rates are set", count, g->nics);
	} else {
		say_rate(&best->rate, rate, sizeof(rate));
		snprintf(why, why_bytes, "%d of %d NICs: the %s, %s", count, g->nics,
		         g->nics == 1 ? "only one"
		         : count == 1 ? "fastest"
		                      : "fastest equal ones",
		         rate);
	}
	return count;
}

int coll_lanes_crossing(const struct coll_place *place, const struct coll_graph_nic *nic)
{
	if (place->package >= 0 && nic->package >= 0 && place->package != nic->package)
		return 2;
	if (place->numa < 0 || nic->numa < 0 || place->numa == nic->numa)
		return 0;
	/* Without packages another NUMA node may be another package. */
	return place->package >= 0 && nic->package >= 0 ? 1 : 2;
}

/* ---- Rails -------------------------------------------------------------- */

struct choice {
	int nic[COLL_GRAPH_NICS_MAX];
	int count;
};

/* Whether all hosts have the same subnets, each equally often: then NICs of one subnet are a rail. */
static bool keyed(const struct coll_search_in *in, const struct choice *c)
{
	for (int h = 0; h < in->hosts; h++) {
		if (c[h].count != c[0].count)
			return false;
		for (int k = 0; k < c[h].count; k++) {
			const uint32_t a = in->graph[h]->nic[c[h].nic[k]].rail_key;

			if (a == 0 || a != in->graph[0]->nic[c[0].nic[k]].rail_key)
				return false;
		}
	}
	return c[0].count > 0;
}

/* NICs sort by subnet, then rate, then place; without common subnets, by rate and place alone. */
static void sort_without_keys(const struct coll_graph *g, struct choice *c)
{
	for (int i = 1; i < c->count; i++)
		for (int k = i; k > 0; k--) {
			const struct coll_graph_nic *a = &g->nic[c->nic[k]], *b = &g->nic[c->nic[k - 1]];
			const int swap = c->nic[k];
			const bool first = a->rate.mbps != b->rate.mbps ? a->rate.mbps > b->rate.mbps
			                   : a->package != b->package   ? a->package < b->package
			                   : a->numa != b->numa         ? a->numa < b->numa
			                                                : c->nic[k] < c->nic[k - 1];

			if (!first)
				break;
			c->nic[k] = c->nic[k - 1];
			c->nic[k - 1] = swap;
		}
}

/* Choose NICs on each host, and join the k-th ones to rails. */
static bool find_rails(struct coll_search *s, const struct coll_search_in *in)
{
	struct choice *c = calloc((size_t)in->hosts, sizeof(*c));
	int least = COLL_GRAPH_NICS_MAX;
	bool by_key, ok = c != NULL;

	for (int h = 0; ok && h < in->hosts; h++) {
		c[h].count = coll_lanes_nics(in->graph[h], in->transports, c[h].nic, s->host_why[h], COLL_SEARCH_WHY);
		s->rails = c[h].count > s->rails ? c[h].count : s->rails;
		least = c[h].count < least ? c[h].count : least;
	}
	by_key = ok && keyed(in, c);
	for (int h = 0; ok && !by_key && h < in->hosts; h++)
		if (in->graph[h])
			sort_without_keys(in->graph[h], &c[h]);
	s->rails = s->rails ? s->rails : 1;
	s->nic = ok ? malloc((size_t)in->hosts * (size_t)s->rails * sizeof(int)) : NULL;
	ok = s->nic != NULL;
	for (int h = 0; ok && h < in->hosts; h++) {
		uint64_t sum = 0;
		bool known = c[h].count > 0;

		for (int k = 0; k < s->rails; k++)
			s->nic[h * s->rails + k] = c[h].count ? c[h].nic[k % c[h].count] : -1;
		for (int k = 0; k < c[h].count; k++) {
			known = known && in->graph[h]->nic[c[h].nic[k]].rate.mbps > 0;
			sum += in->graph[h]->nic[c[h].nic[k]].rate.mbps;
		}
		s->host_mbps[h] = known && sum <= UINT32_MAX ? (uint32_t)sum : 0;
	}
	if (ok && least == 0)
		snprintf(s->rail_why, sizeof(s->rail_why), "%d: of some host no NIC is known", s->rails);
	else if (ok && least < s->rails)
		snprintf(s->rail_why, sizeof(s->rail_why),
		         "%d: hosts have %d to %d NICs, some of which serve several rails", s->rails, least, s->rails);
	else if (ok)
		snprintf(s->rail_why, sizeof(s->rail_why), "%d: %s", s->rails,
		         s->rails == 1 ? "one NIC of each host"
		         : by_key      ? "NICs of one subnet"
		                       : "the k-th NIC of each host, by rate and place (subnets do not tell)");
	free(c);
	return ok;
}

/* ---- Of a search -------------------------------------------------------- */

/* Of each rail the slowest NIC on it (0: some rate is unknown), and how far each part is from each rail. */
static void fill(const struct coll_search *s, const struct coll_search_in *in, uint32_t *mbps, long *cost)
{
	for (int k = 0; k < s->rails; k++) {
		mbps[k] = UINT32_MAX;
		for (int h = 0; h < s->hosts; h++) {
			const int i = s->nic[h * s->rails + k];
			const uint32_t rate = i < 0 ? 0 : in->graph[h]->nic[i].rate.mbps;

			mbps[k] = rate < mbps[k] ? rate : mbps[k];
			for (int part = 0; i >= 0 && part < s->parts; part++)
				cost[part * s->rails + k] += coll_lanes_crossing(
				        &in->rank[s->owner[h * s->parts + part]].place, &in->graph[h]->nic[i]);
		}
	}
}

/* Shares of one part on one rail are a lane. */
static bool find_lanes(struct coll_search *s, const uint8_t *row)
{
	s->lane = malloc((size_t)s->parts * (size_t)s->rails * sizeof(*s->lane));
	for (int i = 0; s->lane && i < s->parts * s->shares; i++)
		if (i % s->shares && row[i] == row[i - 1])
			s->lane[s->lanes - 1].shares++;
		else
			s->lane[s->lanes++] = (struct coll_search_lane){i / s->shares, row[i], 1};
	return s->lane != NULL;
}

/* Of each rank the NIC of its largest lane. */
static bool name_nics(struct coll_search *s)
{
	int *most = calloc((size_t)s->ranks, sizeof(*most));

	if (!most)
		return false;
	for (int r = 0; r < s->ranks; r++)
		s->rank_nic[r] = -1;
	for (int h = 0; h < s->hosts; h++)
		for (int i = 0; i < s->lanes; i++) {
			const int owner = s->owner[h * s->parts + s->lane[i].part];

			if (s->lane[i].shares > most[owner]) {
				most[owner] = s->lane[i].shares;
				s->rank_nic[owner] = s->nic[h * s->rails + s->lane[i].rail];
			}
		}
	free(most);
	return true;
}

bool coll_lanes_assign(struct coll_search *s, const struct coll_search_in *in)
{
	uint32_t mbps[COLL_GRAPH_NICS_MAX];
	uint8_t *row = NULL;
	long *cost = NULL;
	bool ok;

	s->parts = coll_spread_parts(s->count, s->hosts);
	s->owner = malloc((size_t)s->hosts * (size_t)s->parts * sizeof(int));
	ok = s->owner && find_rails(s, in);
	for (int h = 0; ok && h < s->hosts; h++)
		for (int part = 0; part < s->parts; part++)
			s->owner[h * s->parts + part] =
			        s->order[s->first[h] + (int)((long)part * s->count[h] / s->parts)];
	ok = ok && (cost = calloc((size_t)s->parts * (size_t)s->rails, sizeof(*cost)));
	if (ok)
		fill(s, in, mbps, cost);
	ok = ok && coll_spread(&(struct coll_spread_in){s->parts, s->rails, mbps, cost}, &s->shares, &row) &&
	     find_lanes(s, row) && name_nics(s);
	free(row);
	free(cost);
	return ok;
}

/* ---- In words ----------------------------------------------------------- */

void coll_lanes_why(const struct coll_search *s, const struct coll_search_in *in, int rank, char *why, size_t why_bytes)
{
	const struct coll_search_rank *r = &in->rank[rank];
	const struct coll_graph *g = in->graph[r->host];
	const int i = s->rank_nic[rank];
	int near = 0, used[COLL_GRAPH_NICS_MAX] = {0}, nics = 0, crossing;

	for (int k = 0; k < s->rails; k++) {
		const int n = s->nic[r->host * s->rails + k];

		if (n < 0 || used[n]++)
			continue;
		nics++;
		near += i >= 0 &&
		        coll_lanes_crossing(&r->place, &g->nic[n]) < coll_lanes_crossing(&r->place, &g->nic[i]);
	}
	if (i < 0) {
		snprintf(why, why_bytes,
		         s->host_mbps[r->host] || nics ? "another rank of the host sends for it" : "no NIC is known");
		return;
	}
	crossing = coll_lanes_crossing(&r->place, &g->nic[i]);
	if (nics == 1)
		snprintf(why, why_bytes, "%s: the only NIC in use", g->nic[i].name);
	else if (r->place.numa < 0 && r->place.package < 0)
		snprintf(why, why_bytes, "%s: its share; the place of the rank is not known", g->nic[i].name);
	else if (g->nic[i].numa < 0 && g->nic[i].package < 0)
		snprintf(why, why_bytes, "%s: its share; the place of the NIC is not known", g->nic[i].name);
	else if (crossing == 0)
		snprintf(why, why_bytes, "%s: near the rank", g->nic[i].name);
	else
		snprintf(why, why_bytes, "%s: in another %s; %s", g->nic[i].name,
		         crossing == 2 ? "package" : "NUMA node",
		         near ? "nearer ones have their share of ranks" : "none in use is nearer");
}
