/*
 * See layout.h. One allocation holds a layout and all its tables.
 */
#include "plan/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

/* A rank while it is sorted: within its group of the levels before (`group`, a number in place order) by `value`,
 * then by `lead`, the lowest rank of its new group. */
struct sorted {
	uint32_t group;
	uint32_t value;
	int lead;
	int rank;
};

static int compare(uint32_t a, uint32_t b)
{
	return (a > b) - (a < b);
}

static int by_value(const void *x, const void *y)
{
	const struct sorted *a = x, *b = y;
	int c = compare(a->group, b->group);

	if (c == 0)
		c = compare(a->value, b->value);
	return c ? c : compare((uint32_t)a->rank, (uint32_t)b->rank);
}

static int by_lead(const void *x, const void *y)
{
	const struct sorted *a = x, *b = y;
	int c = compare(a->group, b->group);

	if (c == 0)
		c = compare((uint32_t)a->lead, (uint32_t)b->lead);
	return c ? c : compare((uint32_t)a->rank, (uint32_t)b->rank);
}

/* Sort the ranks by one more level; returns the number of its groups. */
static uint32_t split_once(struct sorted *s, int size, const uint32_t *group_of)
{
	uint32_t groups = 0;

	for (int i = 0; i < size; i++)
		s[i].value = group_of[s[i].rank];
	qsort(s, (size_t)size, sizeof(*s), by_value);
	for (int i = 0; i < size; i++)
		s[i].lead = i > 0 && s[i].group == s[i - 1].group && s[i].value == s[i - 1].value ? s[i - 1].lead
		                                                                                  : s[i].rank;
	qsort(s, (size_t)size, sizeof(*s), by_lead);
	for (int i = 0; i < size; i++)
		groups += i == 0 || s[i].group != s[i - 1].group || s[i].lead != s[i - 1].lead;
	return groups;
}

/* Number the groups in the order of places. */
static void renumber(struct sorted *s, int size)
{
	uint32_t before = s[0].group, next = 0;
	int lead = s[0].lead;

	for (int i = 0; i < size; i++) {
		if (s[i].group != before || s[i].lead != lead)
			next++;
		before = s[i].group;
		lead = s[i].lead;
		s[i].group = next;
	}
}

/* A level's tables from the order of places. */
static uint32_t *fill_level(struct coll_layout_level *level, const struct sorted *s, int size, uint32_t *at)
{
	uint32_t *first = at, *group_at = at + level->groups + 1;

	for (int i = size - 1; i >= 0; i--) {
		group_at[i] = s[i].group;
		first[s[i].group] = (uint32_t)i;
	}
	first[level->groups] = (uint32_t)size;
	level->first = first;
	level->group_at = group_at;
	for (uint32_t g = 0; g < level->groups; g++)
		level->most = first[g + 1] - first[g] > level->most ? first[g + 1] - first[g] : level->most;
	return group_at + size;
}

static uint64_t hash_of(const struct coll_layout *l)
{
	uint64_t h = coll_hash_combine(1, (uint64_t)(unsigned)l->size << 32 | l->nlevels);

	h = coll_hash_bytes(h, l->rank_at, (size_t)l->size * sizeof(*l->rank_at));
	for (uint32_t i = 0; i < l->nlevels; i++) {
		h = coll_hash_bytes(h, l->level[i].name, strlen(l->level[i].name));
		if (l->level[i].mbps)
			h = coll_hash_combine(h, l->level[i].mbps);
		h = coll_hash_bytes(h, l->level[i].group_at, (size_t)l->size * sizeof(*l->level[i].group_at));
	}
	for (uint32_t g = 0; g < l->level[0].groups; g++)
		h = coll_hash_combine(h, (uint64_t)(l->share ? l->share[g] + 1 : 0) << 32 |
		                                 (l->by_rate ? l->by_rate[g] + 1 : 0));
	return h;
}

/* The widths of a stage, whose levels are there. */
static void measure(struct coll_layout *l, uint32_t stage)
{
	const uint32_t parents = stage == 0 ? 1 : l->level[stage - 1].groups;
	struct coll_layout_width w = {0, UINT32_MAX};

	for (uint32_t g = 0; g < parents; g++) {
		uint32_t first;
		const uint32_t count = coll_layout_children(l, stage, g, &first);

		w.most = count > w.most ? count : w.most;
		w.fewest = count < w.fewest ? count : w.fewest;
	}
	l->width[stage] = w;
}

/* Chunks into which the levels cut a vector: the lanes of all stages, see algos/levels.h. */
static uint64_t chunks_of(const struct coll_layout *l)
{
	uint64_t chunks = 1;

	for (uint32_t i = 0; i <= l->nlevels; i++) {
		uint32_t most, fewest;

		coll_layout_widths(l, i, &most, &fewest);
		chunks *= most != fewest && most > COLL_LAYOUT_LANES ? COLL_LAYOUT_LANES : most;
	}
	return chunks;
}

coll_status coll_layout_create(int size, const struct coll_layout_split *splits, uint32_t nsplits,
                               struct coll_layout **layout)
{
	const size_t n = (size_t)size;
	struct coll_layout *l;
	struct sorted *s;
	uint32_t *at, groups = 1;
	int *rank_at, *place_of;

	assert(size >= 1);
	if (nsplits > COLL_LAYOUT_LEVELS_MAX)
		return COLL_ERR_ARGUMENT;
	/* The last two tables: share and by_rate, at most an entry for each rank. */
	l = calloc(1, sizeof(*l) + 2 * n * sizeof(int) + (nsplits * (2 * n + 1) + 2 * n) * sizeof(uint32_t));
	s = calloc(n, sizeof(*s));
	if (!l || !s) {
		free(l);
		free(s);
		return COLL_ERR_MEMORY;
	}
	rank_at = (int *)(l + 1);
	place_of = rank_at + n;
	at = (uint32_t *)(place_of + n);
	for (int r = 0; r < size; r++)
		s[r].rank = r;
	l->size = size;
	for (uint32_t i = 0; i < nsplits; i++) {
		const uint32_t now = split_once(s, size, splits[i].group_of);

		if (now == groups || (now == (uint32_t)size && !splits[i].keep))
			continue; /* the order of places stands: a finer split of single ranks says nothing */
		struct coll_layout_level *level = &l->level[l->nlevels++];

		snprintf(level->name, sizeof(level->name), "%s", splits[i].name);
		level->links = splits[i].links;
		level->groups = groups = now;
		renumber(s, size);
		at = fill_level(level, s, size, at);
	}
	for (int i = 0; i < size; i++) {
		rank_at[i] = s[i].rank;
		place_of[s[i].rank] = i;
	}
	free(s);
	l->spare = at;
	l->rank_at = rank_at;
	l->place_of = place_of;
	for (uint32_t i = 0; i <= l->nlevels; i++)
		measure(l, i);
	while (l->nlevels > 1 && chunks_of(l) > COLL_LAYOUT_LANES * (uint64_t)size)
		measure(l, --l->nlevels);
	if (l->nlevels == 0) {
		free(l);
		l = NULL;
	} else {
		l->hash = hash_of(l);
	}
	*layout = l;
	return COLL_OK;
}

/* ---- Unequal links ---- */

/* The time of an all-reduce over n groups, in vectors over the unit of rates: that of the group that takes longest. */
static double time_of(const uint32_t *rate, const uint32_t *share, uint32_t parts, uint32_t n)
{
	double most = 0;

	for (uint32_t g = 0; g < n; g++) {
		const double t = (1 + (double)share[g] / parts * (n - 2)) / rate[g];

		most = t > most ? t : most;
	}
	return most;
}

/* Hand out parts one by one to the group that is done first with one more. Of equals the first. */
static void share_out(const uint32_t *rate, uint32_t *share, uint32_t parts, uint32_t n)
{
	for (uint32_t g = 0; g < n; g++)
		share[g] = 0;
	for (uint32_t i = 0; i < parts; i++) {
		uint32_t best = 0;
		double least = 0;

		for (uint32_t g = 0; g < n; g++) {
			const double t = (1 + (double)(share[g] + 1) / parts * (n - 2)) / rate[g];

			if (g == 0 || t < least) {
				best = g;
				least = t;
			}
		}
		share[best]++;
	}
}

static bool unequal(const uint32_t *rate, uint32_t n)
{
	bool differ = false;

	for (uint32_t g = 0; g < n; g++) {
		if (rate[g] == 0)
			return false;
		differ = differ || rate[g] != rate[0];
	}
	return differ;
}

coll_status coll_layout_rate(struct coll_layout *l, const uint32_t *rate_of)
{
	const uint32_t n = l->level[0].groups;
	uint32_t *share = l->spare, *by_rate = share + n, best = 0;
	uint32_t *rate;
	double least, largest = 1;

	if (!l->level[0].links || (l->nlevels > 1 && l->level[1].links))
		return COLL_OK;
	rate = calloc(n, sizeof(*rate));
	if (!rate)
		return COLL_ERR_MEMORY;
	for (uint32_t g = 0; g < n; g++)
		rate[g] = rate_of[l->rank_at[l->level[0].first[g]]];
	if (!unequal(rate, n)) {
		free(rate);
		return COLL_OK;
	}
	/* Insertion keeps equals in order; hosts of unequal rates are few. */
	for (uint32_t g = 0; g < n; g++) {
		uint32_t at = g;

		for (; at > 0 && rate[by_rate[at - 1]] < rate[g]; at--)
			by_rate[at] = by_rate[at - 1];
		by_rate[at] = g;
	}
	l->by_rate = by_rate;
	for (uint32_t g = 0; g < n; g++)
		share[g] = 1;
	least = 0.95 * time_of(rate, share, n, n);
	for (uint32_t parts = 1; n > 2 && parts <= COLL_LAYOUT_PARTS; parts++) {
		double time, most = 0;

		share_out(rate, share, parts, n);
		time = time_of(rate, share, parts, n);
		for (uint32_t g = 0; g < n; g++)
			most = (double)share[g] / parts > most ? (double)share[g] / parts : most;
		/* Of equal times that of the smaller shares. */
		if (time < 0.999 * least || (best && time < 1.001 * least && most < 0.999 * largest)) {
			least = time < least ? time : least;
			largest = most;
			best = parts;
		}
	}
	if (best) {
		share_out(rate, share, best, n);
		l->share = share;
		l->parts = best;
	}
	free(rate);
	l->hash = hash_of(l);
	return COLL_OK;
}

void coll_layout_tell_uplinks(struct coll_layout *l, const uint32_t *rate)
{
	struct coll_layout_level *level = &l->level[0];

	level->mbps = 0;
	for (int r = 0; r < l->size; r++)
		if (rate[r] && (level->mbps == 0 || rate[r] < level->mbps))
			level->mbps = rate[r];
	l->hash = hash_of(l);
}

void coll_layout_destroy(struct coll_layout **layout)
{
	free(*layout);
	*layout = NULL;
}

uint32_t coll_layout_children(const struct coll_layout *l, uint32_t stage, uint32_t group, uint32_t *first)
{
	uint32_t begin = 0, end = (uint32_t)l->size;

	assert(stage <= l->nlevels);
	if (stage > 0) {
		begin = l->level[stage - 1].first[group];
		end = l->level[stage - 1].first[group + 1];
	}
	if (stage == l->nlevels) {
		*first = begin;
		return end - begin;
	}
	*first = l->level[stage].group_at[begin];
	return l->level[stage].group_at[end - 1] + 1 - *first;
}

uint32_t coll_layout_hosts(const struct coll_layout *l)
{
	uint32_t level = 0;

	for (uint32_t i = 0; i < l->nlevels; i++)
		if (l->level[i].links)
			level = i;
	return level;
}

void coll_layout_print(const struct coll_layout *l, char *buf, size_t len_bytes)
{
	size_t used = 0;

	if (len_bytes)
		buf[0] = '\0';
	for (uint32_t i = 0; i <= l->nlevels && used < len_bytes; i++) {
		const char *name = i < l->nlevels ? l->level[i].name : "rank";
		uint32_t most, fewest;

		coll_layout_widths(l, i, &most, &fewest);
		if (most == fewest)
			used += (size_t)snprintf(buf + used, len_bytes - used, "%s%s(%u)", i ? " x " : "", name, most);
		else
			used += (size_t)snprintf(buf + used, len_bytes - used, "%s%s(%u..%u)", i ? " x " : "", name,
			                         fewest, most);
	}
	for (uint32_t g = 0; l->share && g < l->level[0].groups && used < len_bytes; g++)
		used += (size_t)snprintf(buf + used, len_bytes - used, "%s%u", g ? ":" : ", shares ", l->share[g]);
	if (l->level[0].mbps && used < len_bytes)
		snprintf(buf + used, len_bytes - used, ", uplinks of %u Mb/s", l->level[0].mbps);
}
