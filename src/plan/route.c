/*
 * See route.h. Routes are found in one pass over all steps; after that the route of a step
 * takes two loads.
 */
#include "plan/route.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "plan/step.h"

static uint32_t *hash_slot(struct coll_routes *r, int sender, int receiver, uint32_t lane)
{
	uint64_t key = ((uint64_t)(uint32_t)sender << 35) | ((uint64_t)(uint32_t)receiver << 3) | lane;
	uint32_t i = (uint32_t)coll_mix64(key) & (r->hash_capacity - 1);

	while (r->hash[i]) {
		const struct coll_route *c = &r->list[r->hash[i] - 1];

		if (c->sender == sender && c->receiver == receiver && c->lane == lane)
			break;
		i = (i + 1) & (r->hash_capacity - 1);
	}
	return &r->hash[i];
}

static coll_status grow(struct coll_routes *r)
{
	uint32_t capacity = r->capacity ? 2 * r->capacity : 256;
	struct coll_route *list = realloc(r->list, capacity * sizeof(*list));

	if (!list)
		return COLL_ERR_MEMORY;
	r->list = list;
	r->capacity = capacity;
	free(r->hash);
	r->hash_capacity = 2 * capacity;
	r->hash = calloc(r->hash_capacity, sizeof(*r->hash));
	if (!r->hash)
		return COLL_ERR_MEMORY;
	for (uint32_t i = 0; i < r->count; i++)
		*hash_slot(r, list[i].sender, list[i].receiver, list[i].lane) = i + 1;
	return COLL_OK;
}

/* The route's index + 1, made if need be; 0 when out of memory. */
static uint32_t route_of(struct coll_routes *r, int sender, int receiver, uint32_t lane)
{
	uint32_t *slot;

	if (r->count == r->capacity && grow(r))
		return 0;
	slot = hash_slot(r, sender, receiver, lane);
	if (!*slot) {
		r->list[r->count] = (struct coll_route){.sender = sender, .receiver = receiver, .lane = lane};
		*slot = ++r->count;
	}
	return *slot;
}

static size_t peer_at(const struct coll_routes *r, uint32_t op, int rank, uint32_t lane, uint32_t peer)
{
	return r->peer_base[op][rank] + (size_t)lane * r->plans[op][rank]->npeers + peer;
}

/* Find the routes of one rank's plan and count their frames. */
static coll_status count_frames(struct coll_routes *r, uint32_t op, int rank)
{
	const struct coll_plan *p = r->plans[op][rank];
	uint32_t n = coll_plan_nsteps(p);

	for (uint32_t i = 0; i < n; i++) {
		const struct coll_step *s = &p->steps[i];

		if (coll_step_sends(s->op)) {
			uint32_t *ch = &r->send_index[op][peer_at(r, op, rank, s->lane, s->peer_send)];

			if (!*ch)
				*ch = route_of(r, rank, p->peers[s->peer_send], s->lane);
			if (!*ch)
				return COLL_ERR_MEMORY;
			r->list[*ch - 1].frames[op]++;
		}
		if (coll_step_receives(s->op)) {
			uint32_t *ch = &r->recv_index[op][peer_at(r, op, rank, s->lane, s->peer_recv)];

			if (!*ch)
				*ch = route_of(r, p->peers[s->peer_recv], rank, s->lane);
			if (!*ch)
				return COLL_ERR_MEMORY;
			r->list[*ch - 1].receives[op]++;
		}
	}
	return COLL_OK;
}

/* senders[op]: the step behind each frame, in the order of its route. */
static coll_status list_senders(struct coll_routes *r, uint32_t op)
{
	uint32_t total = 0;
	uint32_t *fill;

	for (uint32_t c = 0; c < r->count; c++) {
		r->list[c].first[op] = total;
		total += r->list[c].frames[op];
	}
	r->senders[op] = malloc(((size_t)total + 1) * sizeof(uint32_t));
	fill = calloc((size_t)r->count + 1, sizeof(*fill));
	if (!r->senders[op] || !fill) {
		free(fill);
		return COLL_ERR_MEMORY;
	}
	for (int rank = 0; rank < r->size; rank++) {
		const struct coll_plan *p = r->plans[op][rank];

		for (uint32_t i = 0; i < coll_plan_nsteps(p); i++)
			if (coll_step_sends(p->steps[i].op)) {
				uint32_t c = coll_route_out(r, op, rank, &p->steps[i]);

				r->senders[op][r->list[c].first[op] + fill[c]++] = i;
			}
	}
	free(fill);
	return COLL_OK;
}

static coll_status open_operation(struct coll_routes *r, uint32_t op)
{
	size_t entries = 0;
	coll_status status = COLL_OK;

	r->peer_base[op] = malloc((size_t)r->size * sizeof(size_t));
	if (!r->peer_base[op])
		return COLL_ERR_MEMORY;
	for (int rank = 0; rank < r->size; rank++) {
		r->peer_base[op][rank] = entries;
		entries += (size_t)r->plans[op][rank]->nlanes * r->plans[op][rank]->npeers;
	}
	r->send_index[op] = calloc(entries + 1, sizeof(uint32_t));
	r->recv_index[op] = calloc(entries + 1, sizeof(uint32_t));
	if (!r->send_index[op] || !r->recv_index[op])
		return COLL_ERR_MEMORY;
	for (int rank = 0; rank < r->size && !status; rank++)
		status = count_frames(r, op, rank);
	return status;
}

static coll_status check_frames(const struct coll_routes *r, uint32_t op, char *why, size_t why_bytes)
{
	for (uint32_t i = 0; i < r->count; i++) {
		const struct coll_route *c = &r->list[i];

		if (c->frames[op] == c->receives[op])
			continue;
		snprintf(why, why_bytes, "rank %d sends %u frames to rank %d on lane %u, which receives %u", c->sender,
		         c->frames[op], c->receiver, c->lane, c->receives[op]);
		return COLL_ERR_INTERNAL;
	}
	return COLL_OK;
}

coll_status coll_routes_init(struct coll_routes *r, const struct coll_plan *const *plans,
                             const struct coll_plan *const *then, int size, char *why, size_t why_bytes)
{
	const uint32_t ops = then ? 2 : 1;
	coll_status status = COLL_OK;

	*r = (struct coll_routes){.plans = {plans, then}, .size = size};
	for (uint32_t op = 0; op < ops && !status; op++)
		status = open_operation(r, op);
	for (uint32_t op = 0; op < ops && !status; op++)
		status = check_frames(r, op, why, why_bytes);
	for (uint32_t op = 0; op < ops && !status; op++)
		status = list_senders(r, op);
	return status;
}

void coll_routes_fini(struct coll_routes *r)
{
	for (uint32_t op = 0; op < COLL_ROUTE_OPS; op++) {
		free(r->senders[op]);
		free(r->send_index[op]);
		free(r->recv_index[op]);
		free(r->peer_base[op]);
	}
	free(r->list);
	free(r->hash);
	*r = (struct coll_routes){0};
}
