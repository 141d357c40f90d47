/*
 * What the links of each host of a communicator carry, and who says so: the user, a table that was measured, or the
 * system, in this order. From peer infos and settings that are agreed, so equal on all ranks. What nobody says is
 * unknown, never slow. It decides nothing: shares of hosts (comm/layout.h) and prices (select/cost.h) read it.
 */
#ifndef COLL_CORE_HOST_RATES_H
#define COLL_CORE_HOST_RATES_H

#include "context/context.h"

struct coll_comm;

/* mbps is what the transports take the links for, and is believed if origin is known. */
struct coll_host_rate {
	uint32_t mbps;  /* one direction, of all rails together; 0: unknown */
	uint8_t origin; /* enum coll_rate_origin */
	int rank;       /* of the host whose card limits it */
	char card[24];  /* that card, where its name is known; else "" */
};

struct coll_host_rates {
	uint32_t hosts;
	int slowest;  /* of those whose rate is believed; -1: none */
	bool unequal; /* all are known, and two differ by a tenth */
	struct coll_host_rate of[];
};

/* w: the transport between hosts. NULL: out of memory. */
struct coll_host_rates *coll_host_rates_find(const struct coll_comm *comm, const struct coll_opened_transport *w);

/* The slowest, or NULL. rates may be NULL. */
const struct coll_host_rate *coll_host_rates_slowest(const struct coll_host_rates *rates);

/* "link 100 Mb/s (told by eth0 of host b), from COLL_LINK_RATES"; "" on one host. */
void coll_host_rates_text(const struct coll_comm *comm, char *buf, size_t len_bytes);

#endif
