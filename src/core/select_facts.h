/*
 * What selection reads of a communicator: found once, at creation. Data only; src/select uses it.
 */
#ifndef COLL_CORE_SELECT_FACTS_H
#define COLL_CORE_SELECT_FACTS_H

#include <stdbool.h>

#include "plan/layout.h"
#include "transport/transport.h"

/* Agreed facts of a communicator. */
struct coll_select_facts {
	int size;
	struct coll_transport_caps caps; /* of the slowest pair of the communicator */
	uint32_t link_mbps; /* of the links of the slowest host, as somebody says: in caps; 0: nobody does */
	/* Where the ranks are; NULL: nothing tells them apart. Then also, for pairs of one host: */
	const struct coll_layout *layout;
	/* Without one, of several hosts of one rank: their level, for rows with COLL_ALGO_CHAIN alone. */
	const struct coll_layout *chain;
	struct coll_transport_caps inside;
	int local_max;              /* ranks of the host that has most */
	double reduce_bytes_per_ns; /* table value, not measured */
	double copy_bytes_per_ns;
	bool oversubscribed; /* more ranks than cores on some host */
	bool one_host;       /* all ranks are on one */
	bool devices;        /* some rank has a device, so its buffers pass through slots of staging */
	size_t slot_bytes;
	uint32_t windows_max;
	size_t scratch_bytes_max; /* per operation */
	const char *forced;       /* COLL_ALGO, "" when unset */
};

#endif
