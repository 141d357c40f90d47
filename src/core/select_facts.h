/*
 * State of a communicator, data only: the agreed facts that selection uses. See select/select.h.
 */
#ifndef COLL_CORE_SELECT_FACTS_H
#define COLL_CORE_SELECT_FACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/transport.h"

/* Agreed facts of a communicator. */
struct coll_select_facts {
	int size;
	struct coll_transport_caps caps; /* of the slowest pair of ranks */
	double reduce_bytes_per_ns;      /* table value, not measured */
	double copy_bytes_per_ns;
	bool oversubscribed; /* more ranks than cores on some host */
	bool one_host;       /* all ranks are on one host */
	size_t slot_bytes;
	uint32_t windows_max;
	size_t scratch_bytes_max; /* per operation */
	const char *forced;       /* COLL_ALGO, "" when unset */
};

/* When to fill slots that two cores share past the caches: when fills are slower than this rate,
 * and by how much streaming then gains. For struct coll_slot_policy_rule, which gives the reasons. */
struct coll_select_far {
	size_t least_bytes;
	double slow_bytes_per_ns;
	double gain;
	uint64_t probe_bytes;
};

#endif
