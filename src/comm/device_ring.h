/*
 * The order in which ranks read each other's devices in direct calls: the ring of the paths between the devices
 * (topology/gpu_ring.h), where this host tells them; else rank order. Pure but for coll_device_ring_here().
 *
 * The order changes no result. Ranks with one order do not queue at one device, so what each has found is compared
 * when a communicator is created.
 */
#ifndef COLL_COMM_DEVICE_RING_H
#define COLL_COMM_DEVICE_RING_H

#include "devcall/mapped_region.h"
#include "topology/graph.h"

struct coll_device_ring {
	int ranks;
	int order[COLL_MAPPED_RANKS_MAX]; /* from rank 0 on */
	char about[96]; /* "ring of GPUs: 0 2 1 3; slowest step: PCI switch", or why it is rank order */
};

/* pci[r]: the address of the device of rank r (coll_pci_address()); 0: unknown. g: this host; NULL: unknown. */
void coll_device_ring_make(const struct coll_graph *g, const uint64_t *pci, int ranks, struct coll_device_ring *ring);
/* The same on this host, which is read only where it can matter. */
void coll_device_ring_here(const uint64_t *pci, int ranks, struct coll_device_ring *ring);
/* Rank order, and why. */
void coll_device_ring_by_rank(int ranks, const char *why, struct coll_device_ring *ring);

/* Equal for equal orders. */
uint32_t coll_device_ring_hash(const struct coll_device_ring *ring);
/* Whom `rank` reads first, second ...: itself, then along the ring. */
void coll_device_ring_peers(const struct coll_device_ring *ring, int rank, int *peer);

#endif
