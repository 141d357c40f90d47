/*
 * Rates that users tell: see told.h.
 */
#include "tools/common/told.h"

#include <stdio.h>
#include <string.h>

const char *coll_told_apply(struct coll_graph *g, const struct coll_link_rate *list, int count)
{
	for (int i = 0; i < count; i++)
		if (coll_graph_find_nic(g, list[i].name) < 0)
			return list[i].name;
	for (int i = 0; i < count; i++) {
		struct coll_graph_nic *n = &g->nic[coll_graph_find_nic(g, list[i].name)];

		n->rate = (struct coll_rate){list[i].mbps, COLL_ORIGIN_TOLD};
		n->set = true;
	}
	return NULL;
}

bool coll_told_site(struct coll_graph *g, const char *site, const char *rate, char *why, size_t why_bytes)
{
	const size_t n = strlen(site);
	uint32_t mbps = 0;

	if (n >= COLL_GRAPH_NAME_MAX) {
		snprintf(why, why_bytes, "'%.40s': expected a name of at most %d characters", site,
		         COLL_GRAPH_NAME_MAX - 1);
		return false;
	}
	for (size_t i = 0; i < n; i++)
		if (site[i] <= ' ' || site[i] >= 127) {
			snprintf(why, why_bytes, "a name of a site has a blank, or what is not ASCII");
			return false;
		}
	if (!coll_link_rate_parse_one(rate, &mbps, why, why_bytes))
		return false;
	if (mbps && n == 0) {
		snprintf(why, why_bytes, "'%s': a rate of a site that has no name", rate);
		return false;
	}
	memcpy(g->site, site, n + 1);
	g->site_rate = (struct coll_rate){mbps, mbps ? COLL_ORIGIN_TOLD : COLL_ORIGIN_UNKNOWN};
	return true;
}
