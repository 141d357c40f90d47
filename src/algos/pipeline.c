/*
 * See pipeline.h.
 */
#include "algos/pipeline.h"

#include <stdlib.h>

#include "algos/ranks.h"

/* The i-th group of level 0: the root's, then the others, faster ones first. A slow group at the end of the pipeline
 * sends nothing on. */
static uint32_t by_rate(const struct coll_layout *l, uint32_t root, uint32_t i)
{
	for (uint32_t k = 0, seen = 1; i > 0; k++) {
		if (l->by_rate[k] == root)
			continue;
		if (seen++ == i)
			return l->by_rate[k];
	}
	return root;
}

/* Append the groups of the chain's level below a group of level stage - 1; those of the root come first. */
static void append(struct coll_pipeline *c, const struct coll_layout *l, uint32_t stage, uint32_t group, int root_place)
{
	uint32_t first, begin = 0;
	const uint32_t count = coll_layout_children(l, stage, group, &first);
	const uint32_t root = l->level[stage].group_at[root_place];

	if (root >= first && root < first + count)
		begin = root - first;
	for (uint32_t i = 0; i < count; i++) {
		const uint32_t child = l->by_rate && stage == 0 ? by_rate(l, root, i) : first + (begin + i) % count;

		if (stage == c->level)
			c->order[c->count++] = child;
		else
			append(c, l, stage + 1, child, root_place);
	}
}

coll_status coll_pipeline_init(struct coll_pipeline *c, const struct coll_shape *s, struct coll_builder *b)
{
	const struct coll_layout *l = s->layout;
	uint32_t own;
	coll_status status;

	*c = (struct coll_pipeline){.count = 0};
	if (!l)
		return COLL_ERR_UNSUPPORTED;
	c->level = coll_layout_hosts(l);
	status = coll_levels_init(&c->levels, s, b, c->level + 1);
	if (status)
		return status;
	c->order = calloc(l->level[c->level].groups, sizeof(*c->order));
	if (!c->order)
		return COLL_ERR_MEMORY;
	append(c, l, 0, 0, l->place_of[s->root]);
	own = l->level[c->level].group_at[l->place_of[s->rank]];
	while (c->order[c->at] != own)
		c->at++;
	return COLL_OK;
}

void coll_pipeline_fini(struct coll_pipeline *c)
{
	coll_levels_fini(&c->levels);
	free(c->order);
	c->order = NULL;
}

int coll_pipeline_owner(const struct coll_pipeline *c, uint32_t at, uint32_t lane)
{
	return coll_levels_owner(&c->levels, c->level + 1, c->order[at], lane);
}

uint32_t coll_pipeline_run(const struct coll_pipeline *c, uint32_t at, uint32_t other, uint32_t lane)
{
	const int here = coll_pipeline_owner(c, at, lane), there = coll_pipeline_owner(c, other, lane);
	uint32_t run = 1;

	while (lane + run < c->levels.chunks && coll_pipeline_owner(c, at, lane + run) == here &&
	       coll_pipeline_owner(c, other, lane + run) == there)
		run++;
	return run;
}

uint32_t coll_pipeline_behind(const struct coll_pipeline *c)
{
	const uint32_t *first = c->levels.shape->layout->level[c->level].first;
	uint32_t ranks = 0;

	for (uint32_t i = c->at + 1; i < c->count; i++)
		ranks += first[c->order[i] + 1] - first[c->order[i]];
	return ranks;
}

uint32_t coll_pipeline_next(const struct coll_pipeline *c, uint32_t lane)
{
	while (lane < c->levels.chunks && coll_pipeline_owner(c, c->at, lane) != c->levels.shape->rank)
		lane++;
	return lane;
}

void coll_pipeline_cost(const struct coll_layout *l, bool reduces, struct coll_algo_cost *inside,
                        struct coll_algo_cost *between, struct coll_algo_links *links)
{
	const uint32_t level = coll_layout_hosts(l);
	double lanes = 1, fewest_lanes = 1, rounds = 0;
	bool uneven = false;

	for (uint32_t i = level + 1; i <= l->nlevels; i++) {
		uint32_t most, fewest;

		coll_layout_widths(l, i, &most, &fewest);
		uneven = uneven || most != fewest;
		if (most != fewest && most > COLL_LEVELS_LANES)
			most = COLL_LEVELS_LANES;
		lanes *= most;
		fewest_lanes *= fewest;
		rounds += coll_ceil_log2((int)most);
	}
	const double most = (lanes - 1) / lanes, carried = coll_max(1, lanes / fewest_lanes);

	/* The root scatters or collects besides. */
	*inside = (struct coll_algo_cost){
	        .rounds = lanes > 1 ? rounds + 1 : 0,
	        .frames = lanes > 1 ? 2 * rounds + lanes - 1 : 0,
	        .sent = 2 * most,
	        .received = 2 * most,
	        .reduced = reduces ? most : 0,
	        .copied = reduces ? 0 : most,
	        .frame = lanes > 1 ? 0.5 : 0, /* floor(M / 2) of M lanes */
	        .scratch = reduces ? 1 : 0,
	};
	*between = (struct coll_algo_cost){
	        .rounds = l->level[level].groups - 1,
	        .frames = 2 * carried,
	        .sent = carried / lanes,
	        .received = carried / lanes,
	        .reduced = reduces ? carried / lanes : 0,
	        .copied = reduces ? 0 : carried / lanes,
	        .frame = uneven ? 1 : 1 / lanes,
	};
	/* Groups of a site follow each other in the chain: the vector comes in once and goes out once. */
	*links = (struct coll_algo_links){1, 1};
}
