/*
 * Which hosts share an uplink, from what pairs of them carried. Pure; of coll-tune.
 */
#ifndef COLL_TOOLS_TUNE_SITES_H
#define COLL_TOOLS_TUNE_SITES_H

#include <stdbool.h>

/* rate[from * hosts + to] in any unit while other pairs were busy, 0: not measured; rtt_ns alike, in both orders.
 * site_of gets a number for each host, from 0 in the order of hosts. Returns how many sites there are; 1: none were
 * seen; 0: out of memory. */
int tune_sites_find(int hosts, const double *rate, const double *rtt_ns, int *site_of);

#endif
