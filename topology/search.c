/*
 * Levels: see search.h. All ranks are sorted by their places once; a group is then a run of ranks with equal keys, so
 * groups are dense and nested whatever the numbers of ranks, hosts and cores are.
 */
#include "topology/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/lanes.h"

/* A level inside the host pays from this ratio of distances on, in tenths. */
enum { PAYS_TENTHS = 15 };

static const char *const names[] = {"site", "host", "package", "numa", "l3"};

const char *coll_level_name(enum coll_level level)
{
	return names[level];
}

bool coll_search_parse_levels(const char *text, unsigned *levels, char *why, size_t why_bytes)
{
	unsigned found = 0;

	for (const char *at = text; *text;) {
		const size_t n = strcspn(at, ",");
		int level = 0;

		while (level < COLL_LEVELS && (strlen(names[level]) != n || strncmp(names[level], at, n) != 0))
			level++;
		if (level == COLL_LEVELS || found >> level) {
			snprintf(why, why_bytes,
			         level == COLL_LEVELS
			                 ? "'%.*s': expected levels of site, host, package, numa, l3"
			                 : "'%.*s': expected each level once, from the outside to the inside",
			         (int)(n < 40 ? n : 40), at);
			return false;
		}
		found |= 1u << level;
		if (at[n] == 0)
			break;
		at += n + 1;
	}
	*levels = found;
	return true;
}

bool coll_search_sites(const struct coll_graph *const *graph, int hosts, int *site)
{
	const char **name = malloc((size_t)(hosts > 0 ? hosts : 1) * sizeof(*name));
	int sites = 0;

	if (!name)
		return false;
	for (int h = 0; h < hosts; h++) {
		const char *text = graph[h] ? graph[h]->site : "";
		int i = 0;

		while (i < sites && strcmp(name[i], text) != 0)
			i++;
		if (*text && i == sites)
			name[sites++] = text;
		site[h] = *text ? i : -1;
	}
	free(name);
	return true;
}

/* ---- Order -------------------------------------------------------------- */

static int sign(int a, int b)
{
	return (a > b) - (a < b);
}

static int by_place(const void *left, const void *right, void *ctx)
{
	const struct coll_search_in *in = ctx;
	const int l = *(const int *)left, r = *(const int *)right;
	const struct coll_search_rank *a = &in->rank[l], *b = &in->rank[r];
	const struct coll_place *p = &a->place, *q = &b->place;
	int d = sign(a->site, b->site);

	d = d ? d : sign(a->host, b->host);
	d = d ? d : sign(p->package, q->package);
	d = d ? d : sign(p->numa, q->numa);
	d = d ? d : sign(p->l3, q->l3);
	d = d ? d : sign(p->core, q->core);
	return d ? d : sign(l, r);
}

static void sort_ranks(struct coll_search *s, const struct coll_search_in *in)
{
	for (int r = 0; r < in->ranks; r++)
		s->order[r] = r;
	qsort_r(s->order, (size_t)in->ranks, sizeof(int), by_place, (void *)in);
	for (int i = in->ranks - 1; i >= 0; i--) {
		s->first[in->rank[s->order[i]].host] = i;
		s->count[in->rank[s->order[i]].host]++;
	}
}

static bool check(const struct coll_search_in *in, char *why, size_t why_bytes)
{
	int *seen = calloc((size_t)in->hosts, sizeof(*seen));
	bool ok = seen != NULL;

	if (!ok)
		snprintf(why, why_bytes, "out of memory");
	for (int r = 0; ok && r < in->ranks; r++) {
		const struct coll_search_rank *a = &in->rank[r];
		const int first = a->host >= 0 && a->host < in->hosts ? seen[a->host] - 1 : -1;

		ok = a->host >= 0 && a->host < in->hosts && (first < 0 || in->rank[first].site == a->site);
		if (!ok && first >= 0)
			snprintf(why, why_bytes, "ranks %d and %d share a host, but are of sites %d and %d", first, r,
			         in->rank[first].site, a->site);
		else if (!ok)
			snprintf(why, why_bytes, "rank %d is on host %d of %d", r, a->host, in->hosts);
		else
			seen[a->host] = first < 0 ? r + 1 : seen[a->host];
	}
	for (int h = 0; ok && h < in->hosts; h++)
		if (!seen[h]) {
			snprintf(why, why_bytes, "host %d has no rank", h);
			ok = false;
		}
	free(seen);
	return ok;
}

/* ---- Which levels pay --------------------------------------------------- */

/* Ranks that follow each other in the order: a group of the level outside. */
struct run {
	const struct coll_search *s;
	const struct coll_search_in *in;
	int from, to;
};

static const struct coll_search_rank *nth(const struct run *u, int i)
{
	return &u->in->rank[u->s->order[i]];
}

static int key(const struct coll_search_rank *r, enum coll_level level)
{
	return level == COLL_LEVEL_SITE      ? r->site
	       : level == COLL_LEVEL_HOST    ? r->host
	       : level == COLL_LEVEL_PACKAGE ? r->place.package
	       : level == COLL_LEVEL_NUMA    ? r->place.numa
	                                     : r->place.l3;
}

/* Whether a group of the level begins at rank i of the order. Numbers of packages and the like are a host's own. */
static bool begins_group(const struct run *u, int i, enum coll_level level)
{
	const struct coll_search_rank *a = nth(u, i - 1), *b = nth(u, i);

	return key(a, level) != key(b, level) || (level > COLL_LEVEL_HOST && a->host != b->host);
}

static bool all_known(const struct run *u, enum coll_level level)
{
	for (int i = u->from; i < u->to; i++)
		if (key(nth(u, i), level) < 0)
			return false;
	return true;
}

/* The shortest distance between NUMA nodes of two groups of a level, and the longest inside one; 0: unknown. */
struct distances {
	int across, inside;
	bool separate; /* each group has NUMA nodes of its own */
};

static struct distances distances_of(const struct run *u, const struct coll_graph *g, enum coll_level level)
{
	struct distances d = {0, COLL_GRAPH_LOCAL, true};
	bool unknown = false, some = false;

	for (int i = u->from; i < u->to; i++)
		for (int k = i + 1; k < u->to; k++) {
			const struct coll_search_rank *a = nth(u, i), *b = nth(u, k);
			const bool same = key(a, level) == key(b, level);
			const int x = a->place.numa, y = b->place.numa;
			int far;

			/* Places repeat: a neighbour's pair says the same. */
			if (k > i + 1 && nth(u, k - 1)->place.numa == y && key(nth(u, k - 1), level) == key(b, level))
				continue;
			/* A rank that is bound to several nodes says nothing here. */
			if (x < 0 || y < 0 || x >= g->numas || y >= g->numas)
				continue;
			some = some || !same;
			if (x == y) {
				d.separate = d.separate && same;
				continue;
			}
			far = g->distance[x][y] > g->distance[y][x] ? g->distance[x][y] : g->distance[y][x];
			unknown = unknown || far == 0;
			if (same && far > d.inside)
				d.inside = far;
			if (!same && (d.across == 0 || far < d.across))
				d.across = far;
		}
	d.separate = d.separate && some;
	if (unknown || !d.separate)
		d.across = 0;
	return d;
}

/* Whether a level inside the host pays there. The reason is a part of a sentence. */
static bool pays(const struct run *u, enum coll_level level, char *why)
{
	const struct coll_graph *g = u->in->graph[nth(u, u->from)->host];
	struct distances d;
	bool l3 = true;

	if (!g) {
		snprintf(why, COLL_SEARCH_WHY, "nothing is known of the host");
		return false;
	}
	if (level == COLL_LEVEL_L3) {
		int from = u->from;

		for (int i = u->from + 1; i <= u->to; i++)
			if (i == u->to || begins_group(u, i, level)) {
				l3 = l3 && i - from > 1;
				from = i;
			}
		snprintf(why, COLL_SEARCH_WHY,
		         l3 ? "several ranks share each L3 cache (assumed to pay)" : "some L3 cache has one rank only");
		return l3;
	}
	d = distances_of(u, g, level);
	if (d.across > 0) {
		const bool pay = d.across * 10 > d.inside * PAYS_TENTHS;

		snprintf(why, COLL_SEARCH_WHY, "memory across is %s%d.%d times as far as inside (%s)",
		         pay ? "" : "only ", d.across / d.inside, d.across * 10 / d.inside % 10,
		         coll_origin_name(g->distance_origin));
		return pay;
	}
	for (int i = u->from; i < u->to; i++)
		l3 = l3 && nth(u, i)->place.l3 >= 0;
	if (level == COLL_LEVEL_PACKAGE) {
		snprintf(why, COLL_SEARCH_WHY,
		         d.separate ? "each package has memory of its own (no distance is told: assumed to pay)"
		         : l3       ? "each package has caches of its own (no distance is told: assumed to pay)"
		                    : "the packages share their memory, and no cache of them is told");
		return d.separate || l3;
	}
	/* NUMA nodes of one package may be near each other. Where nobody says what a package is, they may be packages.
	 */
	if (nth(u, u->from)->place.package >= 0) {
		snprintf(why, COLL_SEARCH_WHY, "no distance between the NUMA nodes is told");
		return false;
	}
	snprintf(why, COLL_SEARCH_WHY, "no packages and no distances are told: NUMA nodes are assumed to be far");
	return d.separate;
}

/* ---- Groups ------------------------------------------------------------- */

/* Whether this run falls apart at a level. */
static bool split_run(const struct run *u, enum coll_level level, bool forced, char *why)
{
	int pieces = 1;
	char reason[COLL_SEARCH_WHY] = "";
	bool ok;

	for (int i = u->from + 1; i < u->to; i++)
		pieces += begins_group(u, i, level);
	if (pieces == 1 && level > COLL_LEVEL_HOST && u->to - u->from > 1 && key(nth(u, u->from), level) < 0)
		snprintf(why, COLL_SEARCH_WHY, "no place of the ranks is known (ranks that are not bound?)");
	if (pieces == 1)
		return false;
	if (level <= COLL_LEVEL_HOST)
		return true;
	if (!all_known(u, level)) {
		snprintf(why, COLL_SEARCH_WHY, "it is not known where each rank runs (ranks that are not bound?)");
		return false;
	}
	if (pieces == u->to - u->from) {
		snprintf(why, COLL_SEARCH_WHY, "each group would be one rank");
		return false;
	}
	ok = forced || pays(u, level, reason);
	snprintf(why, COLL_SEARCH_WHY, "%s", forced ? "forced" : reason);
	return ok;
}

/* Write the groups of a level below those of outer; returns how many. */
static int group_level(const struct coll_search *s, const struct coll_search_in *in, enum coll_level level, bool forced,
                       const int *outer, int *group, char *why)
{
	int groups = 0;
	bool kept = false;

	for (int from = 0, to; from < s->ranks; from = to) {
		char reason[COLL_SEARCH_WHY] = "";
		struct run u = {s, in, from, from};
		bool split;

		for (to = from + 1; to < s->ranks && outer[s->order[to]] == outer[s->order[from]];)
			to++;
		u.to = to;
		split = split_run(&u, level, forced, reason);
		for (int i = from; i < to; i++) {
			groups += i == from || (split && begins_group(&u, i, level));
			group[s->order[i]] = groups - 1;
		}
		/* The reason for a level that is there goes before reasons against it elsewhere. */
		if (*reason && (!*why || (split && !kept)))
			memcpy(why, reason, COLL_SEARCH_WHY);
		kept = kept || split;
	}
	return groups;
}

static void describe_sizes(const struct coll_search *s, const int *group, int groups, char *text, size_t len_bytes)
{
	int least = s->ranks, most = 0, size = 0;

	for (int i = 0; i < s->ranks; i++) {
		size++;
		if (i + 1 == s->ranks || group[s->order[i + 1]] != group[s->order[i]]) {
			least = size < least ? size : least;
			most = size > most ? size : most;
			size = 0;
		}
	}
	if (least == most)
		snprintf(text, len_bytes, "%d groups of %d ranks", groups, most);
	else
		snprintf(text, len_bytes, "%d groups of %d to %d ranks", groups, least, most);
}

static bool find_levels(struct coll_search *s, const struct coll_search_in *in)
{
	const int *outer = s->rank_nic; /* all 0 until lanes are assigned */
	int outer_groups = 1;

	for (enum coll_level level = COLL_LEVEL_SITE; level < COLL_LEVELS; level++) {
		const bool forced = in->forced >> level & 1;
		char *why = s->level_why[level], reason[COLL_SEARCH_WHY] = "", sizes[64];
		int *group = malloc((size_t)s->ranks * sizeof(*group)), groups;

		if (!group)
			return false;
		groups = group_level(s, in, level, forced, outer, group, reason);
		if (in->forced && !forced)
			snprintf(why, COLL_SEARCH_WHY, "not among the levels that are forced");
		else if (groups == outer_groups)
			snprintf(why, COLL_SEARCH_WHY, "%s",
			         *reason                                            ? reason
			         : level == COLL_LEVEL_SITE && in->rank[0].site < 0 ? "no sites are told"
			                                                            : "does not split the ranks");
		else if (groups == s->ranks)
			snprintf(why, COLL_SEARCH_WHY, "each group would be one rank");
		else {
			describe_sizes(s, group, groups, sizes, sizeof(sizes));
			snprintf(why, COLL_SEARCH_WHY, "%s%s%.120s", sizes, *reason ? ": " : "", reason);
			s->level[s->levels++] = (struct coll_search_level){level, groups, group};
			outer = group;
			outer_groups = groups;
			continue;
		}
		free(group);
	}
	return true;
}

/* ---- Everything --------------------------------------------------------- */

struct coll_search *coll_search_run(const struct coll_search_in *in, char *why, size_t why_bytes)
{
	struct coll_search *s;

	if (in->ranks < 1 || in->hosts < 1) {
		snprintf(why, why_bytes, "%d ranks on %d hosts", in->ranks, in->hosts);
		return NULL;
	}
	if (!check(in, why, why_bytes))
		return NULL;
	s = calloc(1, sizeof(*s));
	if (!s)
		goto out_of_memory;
	s->ranks = in->ranks;
	s->hosts = in->hosts;
	s->order = malloc((size_t)in->ranks * sizeof(int));
	s->first = malloc((size_t)in->hosts * sizeof(int));
	s->count = calloc((size_t)in->hosts, sizeof(int));
	s->rank_nic = calloc((size_t)in->ranks, sizeof(int));
	s->host_mbps = calloc((size_t)in->hosts, sizeof(*s->host_mbps));
	s->host_why = calloc((size_t)in->hosts, sizeof(*s->host_why));
	if (!s->order || !s->first || !s->count || !s->rank_nic || !s->host_mbps || !s->host_why)
		goto out_of_memory;
	sort_ranks(s, in);
	if (find_levels(s, in) && (in->levels_only || coll_lanes_assign(s, in)))
		return s;
out_of_memory:
	snprintf(why, why_bytes, "out of memory");
	coll_search_free(&s);
	return NULL;
}

void coll_search_free(struct coll_search **p)
{
	struct coll_search *s = *p;

	if (!s)
		return;
	for (int i = 0; i < s->levels; i++)
		free(s->level[i].group);
	free(s->order);
	free(s->first);
	free(s->count);
	free(s->owner);
	free(s->nic);
	free(s->lane);
	free(s->host_mbps);
	free(s->rank_nic);
	free(s->host_why);
	free(s);
	*p = NULL;
}
