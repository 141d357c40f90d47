/*
 * The order of tiles: each has one place, messages of a lane follow each other, and streams that all ranks have filled
 * by equal groups come to their end, with more ranks than a round has lanes for.
 */
#include "devcall/stage_order.h"

#include <stdlib.h>

#include "tests/plain.h"

#include "devcall/device_call.h"

enum { MANY = 130, FIRST = 1000 };

static const struct coll_plan *const some = (const void *)&some;

/* A message of the device. */
struct message {
	struct coll_pair_request pair;
	struct coll_device_call device;
};

static void make(struct message *m, struct coll_comm *comm, int half, int peer, size_t tiles)
{
	*m = (struct message){.pair = {.request = {.comm = comm, .is = COLL_IS_PAIR, .device = &m->device}},
	                      .device = {.tiles = tiles}};
	m->pair.pair.dest = half == 0 ? peer : -1;
	m->pair.pair.source = half == 1 ? peer : -1;
	m->pair.plan[half] = some;
}

static void chain(struct message *m, int n)
{
	for (int i = 0; i < n; i++)
		m[i].device.next = i + 1 < n ? &m[i + 1].pair.request : NULL;
}

static size_t place_of(const struct message *m, size_t tile)
{
	return coll_stage_number(&m->device.stage[0], tile) - FIRST;
}

TEST(order, messages_of_a_lane_follow_each_other)
{
	struct coll_comm *comm = calloc(1, sizeof(*comm));
	struct coll_stage_order o;
	struct coll_request *found;
	struct message r[6];
	size_t tile, tiles = 0;

	comm->rank = 1;
	comm->size = 3;
	make(&r[0], comm, 0, 0, 5);
	make(&r[1], comm, 1, 2, 1);
	make(&r[2], comm, 0, 0, 2);
	make(&r[3], comm, 0, 2, 1);
	make(&r[4], comm, 1, 2, 3);
	make(&r[5], comm, 0, 0, 1);
	chain(r, 6);
	CHECK(coll_stage_order_open(&o, comm->size));
	coll_stage_order_assign(&o, &r[0].pair.request, FIRST, false);
	CHECK(place_of(&r[2], 0) > place_of(&r[0], 4) && place_of(&r[5], 0) > place_of(&r[2], 1));
	CHECK(place_of(&r[4], 0) > place_of(&r[1], 0));
	CHECK(place_of(&r[4], 0) < place_of(&r[0], 4), "lanes do not take turns");
	for (size_t j = 0; j < o.total; j++)
		if (coll_stage_order_find(&o, j, COLL_STAGE_WAITS, &found, &tile)) {
			CHECK(tile < found->device->tiles &&
			              coll_stage_number(&found->device->stage[0], tile) - FIRST == j,
			      "place %zu", j);
			tiles++;
		}
	CHECK(tiles == 13, "%zu tiles", tiles);
	/* A second one forgets the first. */
	r[0].device.next = NULL;
	coll_stage_order_assign(&o, &r[0].pair.request, FIRST, false);
	CHECK(o.total == 5 && r[0].device.last == FIRST + 5);
	coll_stage_order_assign(&o, &r[0].pair.request, FIRST, true);
	CHECK(o.total == 0);
	coll_stage_order_close(&o);
	free(comm);
}

/* ---- All to all, by messages ---- */

static struct {
	struct coll_comm *comm[MANY];
	struct coll_stage_order order[MANY];
	struct message message[MANY][2][MANY]; /* by half and peer */
	size_t done[MANY];                     /* places whose waits have ended */
} world;

static void fill(int rank)
{
	struct coll_request *last = NULL, *first = NULL;

	world.comm[rank] = calloc(1, sizeof(*world.comm[rank]));
	world.comm[rank]->rank = rank;
	world.comm[rank]->size = MANY;
	for (int peer = 0; peer < MANY; peer++)
		for (int half = 0; half < 2 && peer != rank; half++) {
			struct message *m = &world.message[rank][half][peer];
			struct coll_request *r = &m->pair.request;
			const int from = half ? peer : rank, to = half ? rank : peer;

			make(m, world.comm[rank], half, peer, 1 + (size_t)(from * 7 + to * 3) % 5);
			if (last)
				last->device->next = r;
			else
				first = r;
			last = r;
		}
	CHECK(coll_stage_order_open(&world.order[rank], MANY));
	coll_stage_order_assign(&world.order[rank], first, FIRST, false);
}

/* Nothing is buffered on the way: a tile is taken when the other rank has gathered its own part of it. */
static bool may_pass(int rank)
{
	struct coll_request *r;
	size_t tile;
	int half, peer;

	if (!coll_stage_order_find(&world.order[rank], world.done[rank], COLL_STAGE_WAITS, &r, &tile))
		return true;
	half = coll_pair_of(r)->plan[1] != NULL;
	peer = coll_pair_peer(&coll_pair_of(r)->pair, half);
	return place_of(&world.message[peer][!half][rank], tile) < world.done[peer] + COLL_STAGE_SLOTS;
}

TEST(order, an_all_to_all_of_many_ranks_comes_to_its_end)
{
	bool moved = true;

	for (int rank = 0; rank < MANY; rank++)
		fill(rank);
	while (moved) {
		moved = false;
		for (int rank = 0; rank < MANY; rank++)
			while (world.done[rank] < world.order[rank].total && may_pass(rank)) {
				world.done[rank]++;
				moved = true;
			}
	}
	for (int rank = 0; rank < MANY; rank++) {
		CHECK(world.done[rank] == world.order[rank].total, "rank %d stands at %zu of %zu", rank,
		      world.done[rank], world.order[rank].total);
		coll_stage_order_close(&world.order[rank]);
		free(world.comm[rank]);
	}
}
