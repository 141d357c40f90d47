/*
 * The order of reading that follows from a machine made by hand: four GPUs, with links between 0-2, 2-1, 1-3 and 3-0.
 */
#include "comm/device_ring.h"

#include <stdlib.h>
#include <string.h>

#include "tests/plain.h"

enum { RANKS = 4 };

static const uint64_t at[RANKS] = {0x1100, 0x2100, 0x3100, 0x4100};

static struct coll_graph *crossed(void)
{
	static const int links[][2] = {{0, 2}, {2, 1}, {1, 3}, {3, 0}};
	struct coll_graph *g = coll_graph_new();

	for (int i = 0; i < RANKS; i++) {
		struct coll_graph_gpu *gpu = coll_graph_add_gpu(g);

		gpu->address = at[i];
		gpu->pci_root = 0;
	}
	for (int i = 0; i < 4; i++)
		g->link_mbps[links[i][0]][links[i][1]] = g->link_mbps[links[i][1]][links[i][0]] = 400000;
	g->link_origin = COLL_ORIGIN_TOLD;
	return g;
}

static bool is(const struct coll_device_ring *ring, const char *order, const char *about)
{
	bool good = ring->ranks == (int)strlen(order) && strcmp(ring->about, about) == 0;

	for (int i = 0; i < ring->ranks && good; i++)
		good = ring->order[i] == order[i] - '0';
	CHECK(good, "%s", ring->about);
	return good;
}

TEST(device_ring, links_order_ranks)
{
	struct coll_graph *g = crossed();
	struct coll_device_ring ring, other;
	int peer[COLL_MAPPED_RANKS_MAX];

	coll_device_ring_make(g, at, RANKS, &ring);
	CHECK(is(&ring, "0213", "ring of GPUs: 0 2 1 3; slowest step: link of GPUs"));
	coll_device_ring_peers(&ring, 2, peer);
	CHECK(peer[0] == 2 && peer[1] == 1 && peer[2] == 3 && peer[3] == 0);
	coll_device_ring_by_rank(RANKS, "a test", &other);
	CHECK(is(&other, "0123", "rank order: a test"));
	CHECK(coll_device_ring_hash(&ring) != coll_device_ring_hash(&other));
	coll_device_ring_peers(&other, 2, peer);
	CHECK(peer[0] == 2 && peer[1] == 3 && peer[2] == 0 && peer[3] == 1);
	free(g);
}

/* At each step every device is read by one rank. */
TEST(device_ring, nobody_queues)
{
	struct coll_graph *g = crossed();
	struct coll_device_ring ring;
	int peer[COLL_MAPPED_RANKS_MAX];

	coll_device_ring_make(g, at, RANKS, &ring);
	for (int step = 0; step < RANKS; step++) {
		unsigned read = 0;

		for (int r = 0; r < RANKS; r++) {
			coll_device_ring_peers(&ring, r, peer);
			read |= 1u << peer[step];
		}
		CHECK(read == (1u << RANKS) - 1);
	}
	free(g);
}

TEST(device_ring, what_is_not_told_is_rank_order)
{
	const uint64_t unknown[RANKS] = {0x1100, 0, 0x3100, 0x4100}, one[RANKS] = {7, 7, 7, 7};
	const uint64_t shared[RANKS] = {0x1100, 0x2100, 0x1100, 0x2100}, others[RANKS] = {1, 2, 3, 4};
	struct coll_graph *g = crossed();
	struct coll_device_ring ring;

	coll_device_ring_make(g, unknown, RANKS, &ring);
	CHECK(is(&ring, "0123", "rank order: the driver does not say where a device is"));
	coll_device_ring_make(g, one, RANKS, &ring);
	CHECK(is(&ring, "0123", "rank order: one device"));
	coll_device_ring_make(g, shared, RANKS, &ring);
	CHECK(is(&ring, "0123", "rank order: several ranks on a device"));
	coll_device_ring_make(g, others, RANKS, &ring);
	CHECK(is(&ring, "0123", "rank order: hwloc does not list these GPUs"));
	coll_device_ring_make(NULL, at, RANKS, &ring);
	CHECK(is(&ring, "0123", "rank order: hwloc does not list these GPUs"));
	coll_device_ring_make(g, at, 3, &ring);
	CHECK(is(&ring, "012", "rank order: so few ranks have one ring"));
	g->link_origin = COLL_ORIGIN_UNKNOWN;
	memset(g->link_mbps, 0, sizeof(g->link_mbps));
	coll_device_ring_make(g, at, RANKS, &ring);
	CHECK(is(&ring, "0123", "rank order: no ring of GPUs is better; slowest step: one host bridge"));
	free(g);
}
