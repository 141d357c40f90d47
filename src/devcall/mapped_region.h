/*
 * The memory of direct calls: made, offered to the other ranks, mapped, agreed upon, let go. docs/design/direct.md
 * argues it. Whether a communicator has it is agreed when the communicator is created.
 */
#ifndef COLL_MAPPED_REGION_H
#define COLL_MAPPED_REGION_H

#include "core/comm.h"
#include "device/device.h"

struct coll_mapped;

/* What a communicator has for direct calls; NULL: nothing was tried. */
static inline struct coll_mapped *coll_mapped_of(const struct coll_comm *comm)
{
	return (struct coll_mapped *)(void *)comm->direct;
}

/* What the ranks exchange, in rank order. */
struct coll_mapped_export {
	uint32_t can, pid;
	uint64_t process[2]; /* equal within a process */
	uint64_t device;     /* these three are of use in this process alone */
	uint64_t shared;
	uint64_t page_at;
	uint64_t pci; /* the address of the device; 0: unknown */
	struct coll_device_export region;
	char why[64]; /* not can */
};
struct coll_mapped_verdict {
	uint32_t mapped;
	uint32_t order; /* equal on ranks that have found the same order of reading */
	char why[60];
};
/* Whom this rank reads first, second ...: itself, then the others. */
struct coll_mapped_order {
	int peer[COLL_MAPPED_RANKS_MAX];
	const char *about; /* for people */
};

/* Whether the communicator may have direct calls. Agreed, without an exchange. */
bool coll_mapped_eligible(const struct coll_comm *comm);
/* Make this rank's memory, and say what others need to map it. The communicator is eligible. */
void coll_mapped_offer(struct coll_comm *comm, struct coll_mapped_export *export);
/* Map the memory of all others, which do the same. Bounded by the time for creation. */
void coll_mapped_map(struct coll_comm *comm, const struct coll_mapped_export *exports,
                     struct coll_mapped_verdict *mine);
/* All ranks have said whether they could: from now on calls go direct, or never. */
void coll_mapped_agree(struct coll_comm *comm, const struct coll_mapped_verdict *verdicts,
                       const struct coll_mapped_order *order);
/* The streams of this rank have ended their work, or never will (stuck: then memory stays). keep: NULL, or who gets the
 * memory of the device, since launches of graphs may still touch it. */
void coll_mapped_destroy(struct coll_comm *comm, bool stuck, struct coll_device_region *keep);
/* Under which a descriptor of a region of the user's memory goes to another process. */
struct coll_channel_key coll_mapped_region_key(const struct coll_mapped *d, int place, uint32_t generation);

#endif
