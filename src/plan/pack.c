/*
 * See pack.h. The table of peers is what the steps mention, ascending.
 */
#include "plan/pack.h"

#include <stdlib.h>
#include <string.h>

coll_status coll_loose_push(struct coll_loose_lane *lane, const struct coll_loose_step *step)
{
	if (lane->count == lane->capacity) {
		uint32_t capacity = lane->capacity ? 2 * lane->capacity : 32;
		struct coll_loose_step *steps = realloc(lane->steps, capacity * sizeof(*steps));

		if (!steps)
			return COLL_ERR_MEMORY;
		lane->steps = steps;
		lane->capacity = capacity;
	}
	lane->steps[lane->count++] = *step;
	return COLL_OK;
}

static int compare_ranks(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;

	return (x > y) - (x < y);
}

/* The ranks that the steps mention, ascending; *count of them. NULL: no memory. */
static int *collect_peers(const struct coll_loose_lane *lanes, size_t nsteps, uint32_t *count)
{
	int *list = malloc((2 * nsteps + 1) * sizeof(int));
	size_t n = 0, unique = 0;

	if (!list)
		return NULL;
	for (uint32_t l = 0; l < COLL_LANES_MAX; l++)
		for (uint32_t i = 0; i < lanes[l].count; i++) {
			const struct coll_loose_step *s = &lanes[l].steps[i];

			/* Neighbouring steps often repeat their peers. */
			if (s->recv_from >= 0 && (i < 2 || s->recv_from != s[-2].recv_from))
				list[n++] = s->recv_from;
			if (s->send_to >= 0 && (i < 2 || s->send_to != s[-2].send_to))
				list[n++] = s->send_to;
		}
	qsort(list, n, sizeof(int), compare_ranks);
	for (size_t i = 0; i < n; i++)
		if (unique == 0 || list[unique - 1] != list[i])
			list[unique++] = list[i];
	*count = (uint32_t)unique;
	return list;
}

static uint16_t peer_index(const int *peers, uint32_t n, int rank)
{
	const int *p = rank < 0 ? NULL : bsearch(&rank, peers, n, sizeof(int), compare_ranks);

	return p ? (uint16_t)(p - peers) : 0;
}

static void copy_steps(const struct coll_loose_lane *lanes, const struct coll_plan_weight *from, struct coll_plan *plan,
                       struct coll_step *steps, uint32_t *weight_first, struct coll_plan_weight *weights)
{
	uint32_t n = 0, w = 0;

	plan->nlanes = 1;
	for (uint32_t l = 0; l < COLL_LANES_MAX; l++) {
		plan->lane_first[l] = n;
		for (uint32_t i = 0; i < lanes[l].count; i++) {
			const struct coll_loose_step *s = &lanes[l].steps[i];

			steps[n] = s->step;
			steps[n].peer_recv = peer_index(plan->peers, plan->npeers, s->recv_from);
			steps[n].peer_send = peer_index(plan->peers, plan->npeers, s->send_to);
			weight_first[n++] = w;
			for (uint32_t k = 0; k < s->weight_count; k++)
				weights[w++] = from[s->weight_first + k];
		}
		if (lanes[l].count)
			plan->nlanes = l + 1;
	}
	plan->lane_first[COLL_LANES_MAX] = n;
	weight_first[n] = w;
}

coll_status coll_plan_pack(const struct coll_plan *head, const struct coll_loose_lane lanes[COLL_LANES_MAX],
                           const struct coll_plan_scratch *scratch, const struct coll_plan_weight *weights,
                           struct coll_plan **out)
{
	struct coll_plan_weight *weigh;
	struct coll_plan_scratch *extents;
	struct coll_step *steps;
	struct coll_plan *plan;
	uint32_t *block_at;
	size_t nsteps = 0, nweights = 0, bytes;
	uint32_t npeers, *weight_first;
	int *peers, *found;

	for (uint32_t l = 0; l < COLL_LANES_MAX; l++) {
		nsteps += lanes[l].count;
		for (uint32_t i = 0; i < lanes[l].count; i++)
			nweights += lanes[l].steps[i].weight_count;
	}
	found = collect_peers(lanes, nsteps, &npeers);
	if (!found)
		return COLL_ERR_MEMORY;
	if (npeers > UINT16_MAX) {
		free(found);
		return COLL_ERR_UNSUPPORTED;
	}
	bytes = sizeof(*plan) + nsteps * sizeof(*steps) + head->nscratch * sizeof(*extents) + npeers * sizeof(*peers) +
	        (nsteps + 1) * sizeof(*weight_first) + nweights * sizeof(*weigh) +
	        (head->block_at ? head->chunks * sizeof(*block_at) : 0);
	plan = malloc(bytes);
	if (!plan) {
		free(found);
		return COLL_ERR_MEMORY;
	}
	*plan = *head;
	steps = (struct coll_step *)(plan + 1);
	extents = (struct coll_plan_scratch *)(steps + nsteps);
	peers = (int *)(extents + head->nscratch);
	weight_first = (uint32_t *)(peers + npeers);
	weigh = (struct coll_plan_weight *)(weight_first + nsteps + 1);
	block_at = (uint32_t *)(weigh + nweights);
	if (head->block_at) {
		memcpy(block_at, head->block_at, head->chunks * sizeof(*block_at));
		plan->block_at = block_at;
	}
	memcpy(peers, found, npeers * sizeof(*peers));
	free(found);
	if (head->nscratch)
		memcpy(extents, scratch, head->nscratch * sizeof(*extents));
	plan->peers = peers;
	plan->npeers = npeers;
	plan->scratch = extents;
	plan->steps = steps;
	plan->weight_first = weight_first;
	plan->weights = weigh;
	plan->bytes = bytes;
	copy_steps(lanes, weights, plan, steps, weight_first, weigh);
	*out = plan;
	return COLL_OK;
}

/* The same address within the copy. */
static const void *moved(const struct coll_plan *from, const struct coll_plan *to, const void *p)
{
	return (const char *)to + ((const char *)p - (const char *)from);
}

void coll_plan_copy_to(const struct coll_plan *plan, struct coll_plan *to)
{
	memcpy(to, plan, plan->bytes);
	to->peers = moved(plan, to, plan->peers);
	to->scratch = moved(plan, to, plan->scratch);
	to->steps = moved(plan, to, plan->steps);
	to->weight_first = moved(plan, to, plan->weight_first);
	to->weights = moved(plan, to, plan->weights);
	to->block_at = plan->block_at ? moved(plan, to, plan->block_at) : NULL;
}

coll_status coll_plan_copy(const struct coll_plan *plan, struct coll_plan **copy)
{
	struct coll_plan *p = malloc(plan->bytes);

	if (!p)
		return COLL_ERR_MEMORY;
	coll_plan_copy_to(plan, p);
	*copy = p;
	return COLL_OK;
}
