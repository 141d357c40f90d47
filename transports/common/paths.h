/*
 * What transports share that have several ways between two processes: which network an address is in, which ways are
 * worth having, and how connections are shared out to ways of unequal rates. Pure.
 */
#ifndef COLL_TRANSPORTS_COMMON_PATHS_H
#define COLL_TRANSPORTS_COMMON_PATHS_H

#include <stdbool.h>
#include <stdint.h>

enum { COLL_PATHS_MAX = 66 /* ways between two processes that are looked at */ };

/* Whether the first bits of two addresses are equal. */
bool coll_paths_same_network(const uint8_t *a, const uint8_t *b, unsigned bits);

/* A number for the network of an address, never 0. kind: networks of different kinds differ. */
uint32_t coll_paths_network(const uint8_t *ip, unsigned bits, uint32_t kind);

/* Leave those of count ways that are worth having beside the fastest: which[i] is the i-th of them; how many. A rate
 * of 0 is slow. */
unsigned coll_paths_worthwhile(const uint32_t *mbps_of, unsigned count, unsigned most, unsigned *which);

/* Give each of so many connections to a way: which[i] is the way of connection i. */
void coll_paths_apportion(const uint32_t *mbps_of, unsigned count, unsigned connections, unsigned *which);

#endif
