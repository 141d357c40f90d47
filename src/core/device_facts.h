/*
 * What the choice of a way reads of direct calls: whether the devices of a communicator's ranks read each other's
 * memory, and what runs a call then. src/devcall fills it at creation, src/select reads it.
 */
#ifndef COLL_CORE_DEVICE_FACTS_H
#define COLL_CORE_DEVICE_FACTS_H

#include "engine/engine.h"

enum { COLL_MAPPED_RANKS_MAX = 8 };

struct coll_comm;

struct coll_device_facts {
	bool on; /* agreed: all ranks map each other's device memory */
	struct coll_intra_op op;
	char about[160]; /* how it is mapped, or why not */
	/* Append how calls have gone so far; empty: there was none. */
	void (*describe)(const struct coll_device_facts *facts, char *buf, size_t len_bytes);
};

/* For people: "mapped by descriptors", or why the memory is not mapped. True: it is. */
bool coll_device_facts_describe(const struct coll_comm *comm, char *buf, size_t len_bytes);

#endif
