/*
 * What transports share that have several ways between two processes: which addresses are in one network, and how the
 * channels of a link are shared out to ways of unequal rates. Pure.
 */
#ifndef COLL_TRANSPORTS_COMMON_PATHS_H
#define COLL_TRANSPORTS_COMMON_PATHS_H

#include <stdbool.h>
#include <stdint.h>

enum {
	COLL_PATHS_MAX = 16,       /* ways between two processes that are looked at */
	COLL_PATHS_SHARES_MAX = 8, /* of one link */
};

/* Whether the first bits of two addresses are equal. */
bool coll_paths_same_network(const uint8_t *a, const uint8_t *b, unsigned bits);

/* Apportion equal shares of a link to count ways of these rates, all known and below 2^24: which[i] is the way of share
 * i. How many shares there are: set, or (0) the fewest with which the link is within 3 % of the fastest. *mbps: the
 * rate of all together. */
unsigned coll_paths_apportion(const uint32_t *mbps_of, unsigned count, unsigned set,
                              unsigned which[COLL_PATHS_SHARES_MAX], uint32_t *mbps);

#endif
