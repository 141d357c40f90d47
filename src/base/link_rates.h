/*
 * The rates of links as users give them: "eth0:1000,eth1:250", in Mb/s. Pure.
 */
#ifndef COLL_BASE_LINK_RATES_H
#define COLL_BASE_LINK_RATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	COLL_LINK_RATES_MAX = 32,     /* entries of one list */
	COLL_LINK_NAME_BYTES = 24,    /* with the zero at the end */
	COLL_LINK_RATE_MAX = 4000000, /* Mb/s: four terabits */
};

struct coll_link_rate {
	char name[COLL_LINK_NAME_BYTES]; /* of an interface or an RDMA device */
	uint32_t mbps;
};

/* How many rates were read into list, at most COLL_LINK_RATES_MAX; an empty text has none. -1 with the reason in why:
 * a name without a rate, twice, or too long; a rate that is no number from 1 to COLL_LINK_RATE_MAX. */
int coll_link_rates_parse(const char *text, struct coll_link_rate *list, char *why, size_t why_bytes);

/* A single rate: "1000". False with the reason in why. "" is 0, unknown. */
bool coll_link_rate_parse_one(const char *text, uint32_t *mbps, char *why, size_t why_bytes);

/* The rate given for that name; 0: none. */
uint32_t coll_link_rate_of(const struct coll_link_rate *list, int count, const char *name);

#endif
