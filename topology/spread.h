/*
 * Parts over rails. Each part of what a host sends gives the same number of shares, each rail takes as many as its rate
 * is of all rates, and the sum of costs (crossings between NUMA nodes and packages) is the least: a flow. So ranks of
 * one package use the NICs of the other one as well, which "each its nearest" does not. Pure, for a search and for a
 * communicator.
 */
#ifndef COLL_TOPOLOGY_SPREAD_H
#define COLL_TOPOLOGY_SPREAD_H

#include "topology/graph.h"

enum { COLL_SHARES_MAX = 8 /* of a part */ };

struct coll_spread_in {
	int parts, rails;     /* at most COLL_GRAPH_NICS_MAX rails */
	const uint32_t *mbps; /* of each rail; one is 0: all are taken for equal */
	const long *cost;     /* [part * rails + rail]: how far the owners of the part are from the rail's NICs */
};

/* *row[part * *shares + i] is the rail of share i of a part. All rails have as many shares as their rates ask for, and
 * the sum of costs is the least. Pure. free() the row. False: out of memory. */
bool coll_spread(const struct coll_spread_in *in, int *shares, uint8_t **row);

/* The parts that hosts of these numbers of ranks have: one for each rank, or at most eight where they are uneven. */
int coll_spread_parts(const int *count, int hosts);

/* The rates, or all 1 where one is unknown. */
void coll_spread_weights(const uint32_t *mbps, int rails, uint32_t *weight);

/* The rail of the next of equal units, of which each has so many: the one that gives it most (the method of D'Hondt).
 * So for every number of units the slowest is as fast as it can be. */
int coll_spread_next(const uint32_t *weight, const int *given, int rails);

/* How many shares each part has: the fewest with which all rails together carry what they can, but for one percent.
 * capacity[k]: the shares of rail k. */
int coll_spread_shares(const uint32_t *weight, int rails, int parts, int *capacity);

#endif
