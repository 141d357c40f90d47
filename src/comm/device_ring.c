/*
 * See device_ring.h.
 */
#include "comm/device_ring.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "topology/digest_read.h"
#include "topology/gpu_ring.h"
#include "topology/host_digest.h"

void coll_device_ring_by_rank(int ranks, const char *why, struct coll_device_ring *ring)
{
	*ring = (struct coll_device_ring){.ranks = ranks};
	for (int r = 0; r < ranks; r++)
		ring->order[r] = r;
	snprintf(ring->about, sizeof(ring->about), "rank order: %.80s", why);
}

/* Why no machine can tell another order than that of ranks; NULL: one might. */
static const char *pointless(const uint64_t *pci, int ranks)
{
	int same = 0, shared = 0;

	for (int r = 0; r < ranks; r++) {
		if (pci[r] == 0)
			return "the driver does not say where a device is";
		same += pci[r] == pci[0];
		for (int b = 0; b < r; b++)
			shared += pci[r] == pci[b];
	}
	if (same == ranks)
		return "one device";
	if (shared)
		return "several ranks on a device";
	return ranks <= 3 ? "so few ranks have one ring" : NULL;
}

static void take(const struct coll_gpu_paths *p, const struct coll_gpu_ring *found, struct coll_device_ring *ring)
{
	int slowest = 0, used;
	bool by_rank = true;

	*ring = (struct coll_device_ring){.ranks = found->ranks};
	memcpy(ring->order, found->order, sizeof(*ring->order) * (size_t)found->ranks);
	for (int i = 0; i < ring->ranks; i++)
		by_rank = by_rank && ring->order[i] == i;
	for (int k = 0; k < p->classes; k++)
		slowest = found->slower[k] ? k : slowest;
	used = snprintf(ring->about, sizeof(ring->about), "%s",
	                by_rank ? "rank order: no ring of GPUs is better" : "ring of GPUs:");
	for (int i = 0; i < ring->ranks && !by_rank; i++)
		used += snprintf(ring->about + used, sizeof(ring->about) - (size_t)used, " %d", ring->order[i]);
	snprintf(ring->about + used, sizeof(ring->about) - (size_t)used, "; slowest step: %s",
	         coll_gpu_via_name(p->kind[slowest].via));
}

void coll_device_ring_make(const struct coll_graph *g, const uint64_t *pci, int ranks, struct coll_device_ring *ring)
{
	const char *why = pointless(pci, ranks);
	struct coll_gpu_paths *paths = NULL;
	struct coll_gpu_ring found;
	int gpu[COLL_MAPPED_RANKS_MAX], known = 0;

	for (int r = 0; r < ranks; r++) {
		const int at = g ? coll_graph_find_gpu(g, pci[r]) : -1;

		known += at >= 0;
		gpu[r] = at >= 0 ? at : -2 - r;
	}
	if (!why && known == 0)
		why = "hwloc does not list these GPUs";
	if (!why && (!(paths = coll_gpu_paths_make(g, gpu, ranks)) || !coll_gpu_ring_make(paths, &found)))
		why = "out of memory";
	if (why)
		coll_device_ring_by_rank(ranks, why, ring);
	else
		take(paths, &found, ring);
	coll_gpu_paths_free(&paths);
}

void coll_device_ring_here(const uint64_t *pci, int ranks, struct coll_device_ring *ring)
{
	struct coll_host_digest *host = NULL;
	struct coll_graph *g = NULL;
	char why[160];

	if (!pointless(pci, ranks) && (host = malloc(sizeof(*host)))) {
		coll_host_digest_obtain(host);
		g = coll_digest_read(host->digest.bytes, host->digest.len_bytes, why, sizeof(why));
	}
	coll_device_ring_make(g, pci, ranks, ring);
	free(g);
	free(host);
}

uint32_t coll_device_ring_hash(const struct coll_device_ring *ring)
{
	uint64_t h = (uint64_t)ring->ranks;

	for (int i = 0; i < ring->ranks; i++)
		h = coll_hash_combine(h, (uint64_t)ring->order[i]);
	return (uint32_t)(h ^ h >> 32);
}

void coll_device_ring_peers(const struct coll_device_ring *ring, int rank, int *peer)
{
	struct coll_gpu_ring found = {.ranks = ring->ranks};

	for (int i = 0; i < ring->ranks; i++) {
		found.order[i] = ring->order[i];
		found.position[ring->order[i]] = i;
	}
	coll_gpu_ring_peers(&found, rank, peer);
}
