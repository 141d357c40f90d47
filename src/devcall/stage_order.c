/*
 * See stage_order.h. Pure but for the numbers, which it writes into the requests.
 */
#include "devcall/stage_order.h"

#include <stdlib.h>

#include "devcall/device_call.h"

/* Two lanes for each distance. */
enum { DISTANCES = COLL_STAGE_SLOTS / 2 };

bool coll_stage_order_open(struct coll_stage_order *o, int size)
{
	o->nrounds = (size + DISTANCES - 1) / DISTANCES;
	o->rounds = calloc((size_t)o->nrounds, sizeof(*o->rounds));
	return o->rounds != NULL;
}

void coll_stage_order_close(struct coll_stage_order *o)
{
	free(o->rounds);
	o->rounds = NULL;
}

/* From the sender to the receiver, the same on both. A message and its reply are with the send. Distance 0: what is no
 * message to another rank. */
static int distance_of(const struct coll_request *r, int half)
{
	const int peer = coll_pair_peer(&coll_pair_of(r)->pair, half), rank = r->comm->rank, size = r->comm->size;

	return half == 0 ? (peer - rank + size) % size : (rank - peer + size) % size;
}

static void append(struct coll_stage_order *o, struct coll_request *r)
{
	const bool message = coll_device_is_message(r);
	const int half = message ? !coll_pair_of(r)->plan[0] : r->is != COLL_IS_COLLECTIVE;
	const int distance = message ? distance_of(r, half) : 0;
	const int lane = 2 * (distance % DISTANCES) + half;
	struct coll_stage_round *round = &o->rounds[distance / DISTANCES];
	struct coll_stage_lane *l = &round->lanes[lane];

	if (!l->first)
		round->nth[round->n++] = (unsigned char)lane;
	r->device->next_in_lane = NULL;
	r->device->lane_tiles = l->tiles;
	l->tiles += r->device->tiles;
	if (l->first)
		l->last->device->next_in_lane = r;
	else
		l->first = r;
	l->last = r;
}

/* Tiles of lane i are the round's places i, i + n ... */
static void number_lane(struct coll_stage_round *round, int i, uint32_t number)
{
	const uint32_t apart = (uint32_t)round->n, begin = number + (uint32_t)(round->from + (size_t)i);
	struct coll_stage_lane *l = &round->lanes[round->nth[i]];

	for (struct coll_request *r = l->first; r; r = r->device->next_in_lane) {
		for (int half = 0; half < 2; half++) {
			r->device->stage[half].number = begin + (uint32_t)r->device->lane_tiles * apart;
			r->device->stage[half].apart = apart;
		}
		r->device->last = r->device->stage[0].number + (uint32_t)(r->device->tiles - 1) * apart + 1;
	}
	for (int k = 0; k < COLL_STAGE_CURSORS; k++)
		l->at[k] = l->first;
}

static void place_round(struct coll_stage_round *round, size_t from)
{
	size_t longest = 0;

	for (int i = 0; i < round->n; i++) {
		const size_t tiles = round->lanes[round->nth[i]].tiles;

		longest = tiles > longest ? tiles : longest;
	}
	round->from = from;
	round->end = from + longest * (size_t)round->n;
}

void coll_stage_order_assign(struct coll_stage_order *o, struct coll_request *first, uint32_t number, bool others)
{
	for (int k = 0; k < o->nrounds; k++)
		while (o->rounds[k].n > 0)
			o->rounds[k].lanes[o->rounds[k].nth[--o->rounds[k].n]] = (struct coll_stage_lane){NULL};
	for (struct coll_request *r = first; r; r = r->device->next)
		if (!r->device->direct && !(others && coll_device_is_message(r)))
			append(o, r);
	o->total = 0;
	for (int k = 0; k < o->nrounds; k++) {
		place_round(&o->rounds[k], o->total);
		o->total = o->rounds[k].end;
		for (int i = 0; i < o->rounds[k].n; i++)
			number_lane(&o->rounds[k], i, number);
	}
}

bool coll_stage_order_find(struct coll_stage_order *o, size_t place, enum coll_stage_cursor cursor,
                           struct coll_request **r, size_t *tile)
{
	struct coll_stage_round *round = o->rounds;
	struct coll_stage_lane *l;
	size_t i;

	while (place >= round->end)
		round++;
	place -= round->from;
	l = &round->lanes[round->nth[place % (size_t)round->n]];
	i = place / (size_t)round->n;
	if (i >= l->tiles)
		return false;
	if (l->at[cursor]->device->lane_tiles > i)
		l->at[cursor] = l->first;
	while (i - l->at[cursor]->device->lane_tiles >= l->at[cursor]->device->tiles)
		l->at[cursor] = l->at[cursor]->device->next_in_lane;
	*r = l->at[cursor];
	*tile = i - (*r)->device->lane_tiles;
	return true;
}
