/*
 * Levels inside hosts: see inside.h.
 */
#include "comm/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "topology/digest_read.h"

/* ---- Cards -------------------------------------------------------------- */

struct coll_inside_info coll_inside_info_of(const uint8_t *digest, size_t len_bytes, const cpu_set_t *cpus)
{
	struct coll_inside_info c = {0, 0, -1, -1, -1, -1, 0};
	char why[100];
	struct coll_graph *g = len_bytes ? coll_digest_read(digest, len_bytes, why, sizeof(why)) : NULL;

	if (g) {
		const struct coll_place p = coll_graph_place(g, cpus);

		c.hash = coll_digest_hash(digest, len_bytes);
		c.len_bytes = (uint32_t)len_bytes;
		c.package = (int16_t)p.package;
		c.numa = (int16_t)p.numa;
		c.l3 = (int16_t)p.l3;
		c.core = (int16_t)p.core;
	}
	free(g);
	return c;
}

int coll_inside_digests(const struct coll_inside_info *infos, int ranks, int *digest_of, int *sender)
{
	int digests = 0;

	for (int r = 0; r < ranks; r++) {
		int d = 0;

		digest_of[r] = -1;
		if (infos[r].len_bytes == 0)
			continue;
		while (d < digests &&
		       (infos[sender[d]].hash != infos[r].hash || infos[sender[d]].len_bytes != infos[r].len_bytes))
			d++;
		if (d == digests)
			sender[digests++] = r;
		digest_of[r] = d;
	}
	return digests;
}

/* ---- Levels ------------------------------------------------------------- */

struct work {
	const struct coll_inside_in *in;
	struct coll_graph **graph;            /* by digest */
	const struct coll_graph **host_graph; /* by host; NULL: unknown */
	int *first;                           /* by host: its lowest rank */
	struct coll_search_rank *rank;
};

static bool read_digests(const struct work *w, int *culprit, char *why, size_t why_bytes)
{
	for (int d = 0; d < w->in->digests; d++) {
		const struct coll_inside_info *c = &w->in->infos[w->in->sender[d]];
		char reason[120];

		*culprit = w->in->sender[d];
		if (c->len_bytes > COLL_DIGEST_MAX || coll_digest_hash(w->in->bytes[d], c->len_bytes) != c->hash) {
			snprintf(why, why_bytes, "the digest of rank %d is not what it announced", *culprit);
			return false;
		}
		w->graph[d] = coll_digest_read(w->in->bytes[d], c->len_bytes, reason, sizeof(reason));
		if (!w->graph[d] && *reason) {
			snprintf(why, why_bytes, "the digest of rank %d is damaged: %s", *culprit, reason);
			return false;
		}
		*culprit = -1;
		if (!w->graph[d]) {
			snprintf(why, why_bytes, "out of memory");
			return false;
		}
	}
	return true;
}

static bool lies_within(int index, int count)
{
	return index >= -1 && index < count;
}

static bool check_place(const struct coll_inside_info *c, const struct coll_graph *g)
{
	if (!lies_within(c->package, g->packages) || !lies_within(c->numa, g->numas) || !lies_within(c->l3, g->l3s) ||
	    !lies_within(c->core, g->cores))
		return false;
	return c->core < 0 || (g->core[c->core].package == c->package && g->core[c->core].numa == c->numa &&
	                       g->core[c->core].l3 == c->l3);
}

/* Ranks of a host that see different machines: nothing is known of any of them. */
static void find_hosts(const struct work *w, struct coll_inside *out)
{
	const struct coll_inside_in *in = w->in;

	for (int h = 0; h < in->hosts; h++)
		w->first[h] = -1;
	for (int r = 0; r < in->ranks; r++) {
		int *first = &w->first[in->host_of[r]];

		if (*first < 0) {
			*first = r;
			w->host_graph[in->host_of[r]] = in->digest_of[r] < 0 ? NULL : w->graph[in->digest_of[r]];
		} else if (in->digest_of[r] != in->digest_of[*first]) {
			w->host_graph[in->host_of[r]] = NULL;
			if (out->mixed[0] < 0) {
				out->mixed[0] = *first;
				out->mixed[1] = r;
			}
		}
	}
}

static bool find_places(const struct work *w, int *culprit, char *why, size_t why_bytes)
{
	for (int r = 0; r < w->in->ranks; r++) {
		const struct coll_inside_info *c = &w->in->infos[r];
		const int host = (int)w->in->host_of[r];

		w->rank[r] = (struct coll_search_rank){-1, host, {-1, -1, -1, -1, -1}};
		if (w->in->digest_of[r] >= 0 && !check_place(c, w->graph[w->in->digest_of[r]])) {
			*culprit = r;
			snprintf(why, why_bytes, "the place of rank %d is not on its host", r);
			return false;
		}
		if (w->host_graph[host])
			w->rank[r].place = (struct coll_place){c->core, c->l3, c->numa, c->package, -1};
	}
	return true;
}

static bool keep_levels(const struct coll_search *s, struct coll_inside *out)
{
	for (int i = 0; i < s->levels; i++) {
		const struct coll_search_level *l = &s->level[i];
		uint32_t *group_of;

		if (l->level <= COLL_LEVEL_HOST)
			continue;
		group_of = malloc((size_t)s->ranks * sizeof(*group_of));
		if (!group_of)
			return false;
		for (int r = 0; r < s->ranks; r++)
			group_of[r] = (uint32_t)l->group[r];
		out->level[out->levels] = l->level;
		out->group_of[out->levels++] = group_of;
	}
	for (int i = 0; i < COLL_INSIDE_LEVELS_MAX; i++)
		memcpy(out->why[i], s->level_why[COLL_LEVEL_PACKAGE + i], COLL_SEARCH_WHY);
	return true;
}

static bool search(const struct work *w, struct coll_inside *out, int *culprit, char *why, size_t why_bytes)
{
	const struct coll_search_in in = {.ranks = w->in->ranks,
	                                  .hosts = w->in->hosts,
	                                  .rank = w->rank,
	                                  .graph = w->host_graph,
	                                  .forced = w->in->forced,
	                                  .levels_only = true};
	struct coll_search *s;
	bool ok;

	find_hosts(w, out);
	if (!find_places(w, culprit, why, why_bytes))
		return false;
	*culprit = -1;
	s = coll_search_run(&in, why, why_bytes);
	ok = s && keep_levels(s, out);
	if (s && !ok)
		snprintf(why, why_bytes, "out of memory");
	coll_search_free(&s);
	return ok;
}

bool coll_inside_find(const struct coll_inside_in *in, struct coll_inside *out, int *culprit, char *why,
                      size_t why_bytes)
{
	const size_t digests = in->digests > 0 ? (size_t)in->digests : 1;
	struct work w = {.in = in,
	                 .graph = calloc(digests, sizeof(*w.graph)),
	                 .host_graph = calloc((size_t)in->hosts, sizeof(*w.host_graph)),
	                 .first = calloc((size_t)in->hosts, sizeof(*w.first)),
	                 .rank = calloc((size_t)in->ranks, sizeof(*w.rank))};
	bool ok = w.graph && w.host_graph && w.first && w.rank;

	*out = (struct coll_inside){.mixed = {-1, -1}};
	*culprit = -1;
	if (!ok)
		snprintf(why, why_bytes, "out of memory");
	ok = ok && read_digests(&w, culprit, why, why_bytes) && search(&w, out, culprit, why, why_bytes);
	for (int d = 0; w.graph && d < in->digests; d++)
		free(w.graph[d]);
	free(w.graph);
	free((void *)w.host_graph);
	free(w.first);
	free(w.rank);
	if (!ok)
		coll_inside_free(out);
	return ok;
}

void coll_inside_free(struct coll_inside *s)
{
	for (int i = 0; i < s->levels; i++)
		free(s->group_of[i]);
	s->levels = 0;
}

/* ---- Agreement ---------------------------------------------------------- */

struct coll_inside_fingerprint coll_inside_fingerprint_of(const struct coll_layout *layout)
{
	struct coll_inside_fingerprint p = {0, {0}};

	if (!layout)
		return p;
	p.all = layout->hash;
	for (uint32_t i = 0; i < layout->nlevels; i++) {
		const struct coll_layout_level *l = &layout->level[i];
		enum coll_level level = COLL_LEVEL_SITE;
		uint64_t h = l->links + 2 * (uint64_t)l->mbps;

		while (level + 1 < COLL_LEVELS && strcmp(l->name, coll_level_name(level)) != 0)
			level++;
		for (int r = 0; r < layout->size; r++)
			h = coll_hash_combine(h, l->group_at[layout->place_of[r]]);
		p.level[level] = h;
	}
	return p;
}

int coll_inside_compare(const struct coll_inside_fingerprint *fingerprints, int ranks, const char **level)
{
	for (int r = 1; r < ranks; r++) {
		if (memcmp(&fingerprints[r], &fingerprints[0], sizeof(fingerprints[r])) == 0)
			continue;
		*level = "shares";
		for (enum coll_level l = COLL_LEVELS; l-- > COLL_LEVEL_SITE;)
			if (fingerprints[r].level[l] != fingerprints[0].level[l])
				*level = coll_level_name(l);
		return r;
	}
	return -1;
}
