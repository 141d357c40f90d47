/*
 * Rates of links: see link_rates.h.
 */
#include "base/link_rates.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

bool coll_link_rate_parse_one(const char *text, uint32_t *mbps, char *why, size_t why_bytes)
{
	int n = 0;

	if (*text && (!isdigit((unsigned char)*text) || !coll_number_parse(text, 1, COLL_LINK_RATE_MAX, &n))) {
		snprintf(why, why_bytes, "'%.40s': expected a rate in Mb/s from 1 to %d", text, COLL_LINK_RATE_MAX);
		return false;
	}
	*mbps = (uint32_t)n;
	return true;
}

/* One "eth0:1000" of len characters. */
static bool parse_entry(const char *text, size_t len, struct coll_link_rate *rate, char *why, size_t why_bytes)
{
	/* The last colon: a name may have some ("eth0:1"). */
	const char *colon = memrchr(text, ':', len);
	const size_t n = colon ? (size_t)(colon - text) : 0;
	char number[16] = "";

	if (n == 0 || n >= sizeof(rate->name)) {
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
	return coll_link_rate_parse_one(number, &rate->mbps, why, why_bytes);
}

int coll_link_rates_parse(const char *text, struct coll_link_rate *list, char *why, size_t why_bytes)
{
	int count = 0;

	for (const char *at = text; *text;) {
		const size_t len = strcspn(at, ",");

		if (count == COLL_LINK_RATES_MAX) {
			snprintf(why, why_bytes, "more than %d rates", COLL_LINK_RATES_MAX);
			return -1;
		}
		if (!parse_entry(at, len, &list[count], why, why_bytes))
			return -1;
		if (coll_link_rate_of(list, count, list[count].name) > 0) {
			snprintf(why, why_bytes, "'%s' has two rates", list[count].name);
			return -1;
		}
		count++;
		if (at[len] == 0)
			break;
		at += len + 1;
	}
	return count;
}

uint32_t coll_link_rate_of(const struct coll_link_rate *list, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (strcmp(list[i].name, name) == 0)
			return list[i].mbps;
	return 0;
}
