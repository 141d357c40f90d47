/*
 * Rates that users tell: see told.h.
 */
#include "topology/told.h"

#include <stdio.h>
#include <string.h>

#include "base/number.h"

/* Mb/s: four terabits. */
enum { RATE_MAX = 4000000 };

bool coll_told_parse_one(const char *text, uint32_t *mbps, char *why, size_t why_bytes)
{
	int n = 0;

	if (*text && !coll_number_parse(text, 1, RATE_MAX, &n)) {
		snprintf(why, why_bytes, "'%.40s': expected a rate in Mb/s from 1 to %d", text, RATE_MAX);
		return false;
	}
	*mbps = (uint32_t)n;
	return true;
}

/* One "eth0:1000" of len characters. */
static bool parse_entry(const char *text, size_t len, struct coll_told_rate *rate, char *why, size_t why_bytes)
{
	/* The last colon: a name may have some ("eth0:1"). */
	const char *colon = memrchr(text, ':', len);
	const size_t n = colon ? (size_t)(colon - text) : 0;
	char number[16] = "";

	if (n == 0 || n >= COLL_GRAPH_NAME_MAX) {
		snprintf(why, why_bytes, "'%.*s': expected NAME:RATE, as in eth0:1000,eth1:250",
		         (int)(len < 40 ? len : 40), text);
		return false;
	}
	memcpy(rate->name, text, n);
	rate->name[n] = 0;
	snprintf(number, sizeof(number), "%.*s", (int)(len - n - 1 < 15 ? len - n - 1 : 15), colon + 1);
	if (!*number) {
		snprintf(why, why_bytes, "'%s:': expected a rate in Mb/s", rate->name);
		return false;
	}
	return coll_told_parse_one(number, &rate->mbps, why, why_bytes);
}

int coll_told_parse(const char *text, struct coll_told_rate *list, char *why, size_t why_bytes)
{
	int count = 0;

	for (const char *at = text; *text;) {
		const size_t len = strcspn(at, ",");

		if (count == COLL_GRAPH_NICS_MAX) {
			snprintf(why, why_bytes, "more than %d rates", COLL_GRAPH_NICS_MAX);
			return -1;
		}
		if (!parse_entry(at, len, &list[count], why, why_bytes))
			return -1;
		for (int i = 0; i < count; i++)
			if (strcmp(list[i].name, list[count].name) == 0) {
				snprintf(why, why_bytes, "'%s' has two rates", list[i].name);
				return -1;
			}
		count++;
		if (at[len] == 0)
			break;
		at += len + 1;
	}
	return count;
}

const char *coll_told_apply(struct coll_graph *g, const struct coll_told_rate *list, int count)
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
	if (!coll_told_parse_one(rate, &mbps, why, why_bytes))
		return false;
	if (mbps && n == 0) {
		snprintf(why, why_bytes, "'%s': a rate of a site that has no name", rate);
		return false;
	}
	memcpy(g->site, site, n + 1);
	g->site_rate = (struct coll_rate){mbps, mbps ? COLL_ORIGIN_TOLD : COLL_ORIGIN_UNKNOWN};
	return true;
}
