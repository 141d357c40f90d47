/*
 * Rates that users tell, as text: "eth0:1000,eth1:250" in Mb/s. Pure.
 */
#ifndef COLL_TOPOLOGY_TOLD_H
#define COLL_TOPOLOGY_TOLD_H

#include "topology/graph.h"

struct coll_told_rate {
	char name[COLL_GRAPH_NAME_MAX]; /* of an interface or an RDMA device */
	uint32_t mbps;
};

/* How many rates were read into list, at most COLL_GRAPH_NICS_MAX; an empty text has none. -1 with the reason in why:
 * a name without a rate, twice, or too long; a rate that is no number from 1 to 4000000. */
int coll_told_parse(const char *text, struct coll_told_rate *list, char *why, size_t why_bytes);

/* A rate for the whole: "1000". False with the reason in why. "" is 0, unknown. */
bool coll_told_parse_one(const char *text, uint32_t *mbps, char *why, size_t why_bytes);

/* Set these rates, which also says that these NICs are used, and no others. NULL, or the first name that no NIC has. */
const char *coll_told_apply(struct coll_graph *g, const struct coll_told_rate *list, int count);

/* The host's site, and the rate of its uplink; both may be "". False with the reason in why: a name too long or with
 * characters that cannot be printed; a rate that is none; a rate without a site. */
bool coll_told_site(struct coll_graph *g, const char *site, const char *rate, char *why, size_t why_bytes);

#endif
