/*
 * See levels.h. Arithmetic on a layout; nothing here emits a step.
 */
#include "algos/levels.h"

#include <stdlib.h>

#include "algos/ranks.h"

/* First lane of child j of count at a stage. */
static uint32_t lane_of(const struct coll_levels *v, uint32_t stage, uint32_t j, uint32_t count)
{
	uint32_t lane = 0;

	if (stage > 0 || !v->share)
		return (uint32_t)(((uint64_t)j * v->lanes[stage] + count - 1) / count);
	for (uint32_t i = 0; i < j; i++)
		lane += v->share[i];
	return lane;
}

/* The child of count that owns a lane. */
static uint32_t child_of(const struct coll_levels *v, uint32_t stage, uint32_t lane, uint32_t count)
{
	uint32_t j = 0;

	if (stage > 0 || !v->share)
		return (uint32_t)((uint64_t)lane * count / v->lanes[stage]);
	while (lane >= v->share[j])
		lane -= v->share[j++];
	return j;
}

static uint32_t children(const struct coll_levels *v, uint32_t stage, uint32_t group, uint32_t *first)
{
	if (v->shape->layout)
		return coll_layout_children(v->shape->layout, stage, group, first);
	*first = 0;
	return (uint32_t)v->shape->size;
}

static uint32_t place_of(const struct coll_levels *v, int rank)
{
	return (uint32_t)(v->shape->layout ? v->shape->layout->place_of[rank] : rank);
}

static int rank_at(const struct coll_levels *v, uint32_t place)
{
	return v->shape->layout ? v->shape->layout->rank_at[place] : (int)place;
}

/* The child of a stage that a place is in: a group of level stage, or the place itself. */
static uint32_t child_at(const struct coll_levels *v, uint32_t stage, uint32_t place)
{
	return stage + 1 == v->stages ? place : v->shape->layout->level[stage].group_at[place];
}

static uint32_t parent_at(const struct coll_levels *v, uint32_t stage, uint32_t place)
{
	return v->shape->layout ? coll_layout_parent(v->shape->layout, stage, place) : 0;
}

/* Chunks that one lane of a stage holds: those of all stages outside it. */
static uint32_t unit(const struct coll_levels *v, uint32_t stage)
{
	uint32_t n = 1;

	for (uint32_t i = v->outer; i < stage; i++)
		n *= v->lanes[i];
	return n;
}

static uint32_t lane_at(const struct coll_levels *v, uint32_t stage, uint32_t chunk)
{
	return chunk / unit(v, stage) % v->lanes[stage];
}

int coll_levels_owner(const struct coll_levels *v, uint32_t stage, uint32_t group, uint32_t chunk)
{
	for (;; stage++) {
		uint32_t first;
		const uint32_t count = children(v, stage, group, &first);

		group = first + child_of(v, stage, lane_at(v, stage, chunk), count);
		if (stage + 1 == v->stages)
			return rank_at(v, group);
	}
}

uint32_t coll_levels_own_chunk(const struct coll_levels *v, int rank)
{
	const uint32_t place = place_of(v, rank);
	uint32_t chunk = 0;

	for (uint32_t stage = v->stages; stage-- > v->outer;) {
		uint32_t first;
		const uint32_t count = children(v, stage, parent_at(v, stage, place), &first);

		chunk = chunk * v->lanes[stage] + lane_of(v, stage, child_at(v, stage, place) - first, count);
	}
	return chunk;
}

/* start[] and block_at[] of a block kind, unless chunk, position and block are the same. */
static coll_status order_blocks(struct coll_levels *v)
{
	const uint32_t n = (uint32_t)v->shape->size;
	bool same = v->chunks == n;
	uint32_t next = 0;

	for (int r = 0; same && r < v->shape->size; r++)
		same = coll_levels_own_chunk(v, r) == (uint32_t)r;
	if (same)
		return COLL_OK;
	v->start = calloc((size_t)v->chunks + 1, sizeof(*v->start));
	v->block_at = calloc(n, sizeof(*v->block_at));
	if (!v->start || !v->block_at)
		return COLL_ERR_MEMORY;
	for (int r = 0; r < v->shape->size; r++)
		v->start[coll_levels_own_chunk(v, r)] = (uint32_t)r + 1;
	for (uint32_t c = 0; c < v->chunks; c++) {
		const uint32_t block = v->start[c];

		v->start[c] = next;
		if (block)
			v->block_at[next++] = block - 1;
	}
	v->start[v->chunks] = next;
	assert(next == n);
	for (next = 0; next < n && v->block_at[next] == next;)
		next++;
	if (next == n) {
		free(v->block_at);
		v->block_at = NULL;
	}
	if (v->chunks == n) {
		free(v->start);
		v->start = NULL;
	}
	return COLL_OK;
}

bool coll_levels_round(const struct coll_layout *l, uint32_t stage, bool block)
{
	bool uneven = false;

	if (!l || !block || stage >= l->nlevels || !l->level[stage].links)
		return false;
	for (uint32_t i = stage + 1; i <= l->nlevels; i++) {
		uint32_t most, fewest;

		coll_layout_widths(l, i, &most, &fewest);
		uneven = uneven || most != fewest;
	}
	return uneven;
}

coll_status coll_levels_init(struct coll_levels *v, const struct coll_shape *s, struct coll_builder *b, uint32_t outer)
{
	const bool block = coll_plan_kind_is_block(s->kind);
	uint64_t chunks = 1;
	coll_status status = COLL_OK;

	*v = (struct coll_levels){.shape = s, .stages = s->layout ? s->layout->nlevels + 1 : 1, .outer = outer};
	for (uint32_t i = 0; i < v->stages; i++) {
		uint32_t most = (uint32_t)s->size, fewest = most;

		if (s->layout)
			coll_layout_widths(s->layout, i, &most, &fewest);
		if (most != fewest && !block && most > COLL_LEVELS_LANES)
			most = COLL_LEVELS_LANES;
		if (i == 0 && outer == 0 && !block && s->layout && s->layout->share) {
			v->share = s->layout->share;
			most = s->layout->parts;
		}
		v->lanes[i] = i < outer ? 1 : most;
		chunks *= v->lanes[i];
		if (chunks > COLL_LEVELS_CHUNKS_MAX)
			return COLL_ERR_UNSUPPORTED;
	}
	v->chunks = (uint32_t)chunks;
	if (block)
		status = order_blocks(v);
	if (status)
		return status;
	coll_build_chunks(b, block ? (uint32_t)s->size : v->chunks);
	if (v->block_at)
		coll_build_order(b, v->block_at);
	return COLL_OK;
}

void coll_levels_fini(struct coll_levels *v)
{
	free(v->start);
	free(v->block_at);
	free(v->rings);
	*v = (struct coll_levels){.shape = NULL};
}

static coll_status push(struct coll_levels *v, uint32_t at, const struct coll_ring *r)
{
	if (at >= v->rings_capacity) {
		const uint32_t capacity = v->rings_capacity ? 2 * v->rings_capacity : 8;
		struct coll_ring *rings = realloc(v->rings, capacity * sizeof(*rings));

		if (!rings)
			return COLL_ERR_MEMORY;
		v->rings = rings;
		v->rings_capacity = capacity;
	}
	v->rings[at] = *r;
	return COLL_OK;
}

coll_status coll_levels_rings(struct coll_levels *v, uint32_t stage, uint32_t *count)
{
	const uint32_t place = place_of(v, v->shape->rank), own = child_at(v, stage, place);
	struct coll_ring r = {.levels = v, .stage = stage, .span = unit(v, stage) * v->lanes[stage]};
	coll_status status = COLL_OK;

	r.count = (int)children(v, stage, parent_at(v, stage, place), &r.first);
	r.me = (int)(own - r.first);
	*count = 0;
	for (; r.base < v->chunks && !status; r.base += r.span)
		if (stage + 1 == v->stages || coll_levels_owner(v, stage + 1, own, r.base) == v->shape->rank)
			status = push(v, (*count)++, &r);
	return status;
}

int coll_ring_peer(const struct coll_ring *r, int distance)
{
	const struct coll_levels *v = r->levels;
	const uint32_t child = r->first + (uint32_t)coll_mod(r->me + distance, r->count);

	return r->stage + 1 == v->stages ? rank_at(v, child) : coll_levels_owner(v, r->stage + 1, child, r->base);
}

uint32_t coll_ring_held(const struct coll_ring *r, int distance)
{
	const uint32_t child = r->first + (uint32_t)coll_mod(r->me + distance, r->count);
	const uint32_t *first;

	if (r->stage + 1 == r->levels->stages)
		return 1;
	first = r->levels->shape->layout->level[r->stage].first;
	return first[child + 1] - first[child];
}

struct coll_ring_run coll_ring_run(const struct coll_ring *r, int first, int len)
{
	const struct coll_levels *v = r->levels;
	const uint32_t lanes = v->lanes[r->stage], each = r->span / lanes, count = (uint32_t)r->count;
	const uint32_t from = (uint32_t)coll_mod(r->me + first, r->count), to = from + (uint32_t)len;
	const uint32_t low = r->base + lane_of(v, r->stage, from, count) * each;
	const uint32_t high = r->base + lane_of(v, r->stage, to <= count ? to : to - count, count) * each;
	struct coll_ring_run run = {.pieces = 0, .span = r->span};
	const uint32_t end = r->base + r->span;

	if (!v->start) { /* one piece, wrapping or not */
		const uint32_t n = to > count ? end - low + high - r->base : high - low;

		if (n > 0)
			run = (struct coll_ring_run){
			        .pieces = 1, .chunk = {low < end ? low : r->base}, .len = {n}, .span = r->span};
		return run;
	}
	run.span = v->start[v->chunks];
	for (int piece = 0; piece < (to > count ? 2 : 1); piece++) {
		const uint32_t a = v->start[piece ? r->base : low];
		const uint32_t z = v->start[piece ? high : to > count ? end : high];

		if (z > a) {
			run.chunk[run.pieces] = a;
			run.len[run.pieces++] = z - a;
		}
	}
	return run;
}

/* What the busiest group of level 0 sends or receives: of blocks those of all others, once. */
static double outermost(const struct coll_layout *l, bool block, int phases, double host)
{
	const struct coll_layout_level *level = &l->level[0];
	uint32_t fewest = (uint32_t)l->size;

	if (!block)
		return coll_layout_hosts(l) == 0 ? host : phases * (level->groups - 1) / (double)level->groups;
	for (uint32_t g = 0; g < level->groups; g++)
		fewest =
		        level->first[g + 1] - level->first[g] < fewest ? level->first[g + 1] - level->first[g] : fewest;
	return phases * (double)((uint32_t)l->size - fewest);
}

/* One stage of the most children, for the rank that carries most: its part of the vector, in `carried` frames. */
static void add_stage(struct coll_algo_cost *c, double most, int phases, double part, double carried, bool uneven,
                      bool round)
{
	/* A run covers half of the children: of fewer children than lanes that may be one lane more. */
	const double half = uneven ? (double)(((int)most + 1) / 2) : (double)((int)most / 2);

	const double rounds = round ? most - 1 : coll_ceil_log2((int)most);

	c->rounds += phases * rounds;
	c->frames += 2 * phases * rounds * carried;
	c->sent += phases * part * carried;
	c->received += phases * part * carried;
	c->frame = coll_max(c->frame, part * half / (most - 1));
}

/* The outermost stage with unequal shares, an exchange of all with all; the group that carries most. Returns what it
 * sends and receives, of one vector in all its lanes. */
static double add_shares(struct coll_algo_cost *c, const struct coll_layout *l, double of_rank, double carried)
{
	const double others = l->level[0].groups - 1.0;
	double most = 0, sent;

	for (uint32_t g = 0; g < l->level[0].groups; g++)
		most = coll_max(most, (double)l->share[g] / l->parts);
	sent = 1 + most * (others - 1);
	c->rounds += 2;
	c->frames += 4 * others * carried;
	c->sent += sent * of_rank * carried;
	c->received += sent * of_rank * carried;
	c->frame = coll_max(c->frame, most * of_rank);
	return sent;
}

void coll_levels_cost(const struct coll_layout *l, bool block, int phases, struct coll_algo_cost *inside,
                      struct coll_algo_cost *between, struct coll_algo_links *crossing)
{
	double of_rank = 1, of_host = 1, carried = 1, local = 1, outer = 1;

	*inside = *between = (struct coll_algo_cost){.rounds = 0};
	*crossing = (struct coll_algo_links){0, 0};
	for (uint32_t i = 0; i < l->nlevels; i++) {
		uint32_t most, fewest;

		coll_layout_widths(l, i, &most, &fewest);
		outer *= most;
	}
	for (uint32_t i = l->nlevels + 1; i-- > 0;) {
		const bool links = i < l->nlevels && l->level[i].links;
		uint32_t most, fewest;

		coll_layout_widths(l, i, &most, &fewest);
		const bool capped = most != fewest && !block && most > COLL_LEVELS_LANES;

		if (capped)
			most = COLL_LEVELS_LANES;
		if (!links)
			local *= most;
		if (most > 1 && block) {
			add_stage(links ? between : inside, most, phases, (most - 1) * outer, carried, most != fewest,
			          coll_levels_round(l, i, true));
			if (links)
				crossing->host += phases * (most - 1) * outer * local;
		} else if (i == 0 && l->share) {
			crossing->host += add_shares(between, l, of_rank, carried) * of_host;
		} else if (most > 1) {
			add_stage(links ? between : inside, most, phases, (most - 1) / (double)most * of_rank, carried,
			          capped || most != fewest, false);
			if (links)
				crossing->host += phases * (most - 1) / (double)most * of_host;
		}
		of_rank /= most;
		if (links) /* of a site with few hosts each carries more */
			of_host *= (double)((most + fewest - 1) / fewest) / most;
		carried *= (double)((most + fewest - 1) / fewest);
		if (i > 0) {
			coll_layout_widths(l, i - 1, &most, &fewest);
			outer /= most;
		}
	}
	crossing->outermost = outermost(l, block, phases, crossing->host);
}
