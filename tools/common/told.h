/*
 * What users tell, taken into a graph: rates of NICs (base/link_rates.h reads them), a site. Pure.
 */
#ifndef COLL_TOOLS_TOLD_H
#define COLL_TOOLS_TOLD_H

#include <assert.h>

#include "base/link_rates.h"
#include "topology/graph.h"

static_assert((int)COLL_LINK_NAME_BYTES == (int)COLL_GRAPH_NAME_MAX &&
                      (int)COLL_LINK_RATES_MAX == (int)COLL_GRAPH_NICS_MAX,
              "a list of rates fits a graph");

/* Set these rates, which also says that these NICs are used, and no others. NULL, or the first name that no NIC has. */
const char *coll_told_apply(struct coll_graph *g, const struct coll_link_rate *list, int count);

/* The host's site, and the rate of its uplink; both may be "". False with the reason in why: a name too long or with
 * characters that cannot be printed; a rate that is none; a rate without a site. */
bool coll_told_site(struct coll_graph *g, const char *site, const char *rate, char *why, size_t why_bytes);

#endif
