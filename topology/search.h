/*
 * What follows from the graphs of hosts and the places of ranks: levels (groups of ranks that are near each other), and
 * which NIC carries what. Pure: the same input gives the same output, on every rank. It decides nothing else: who reads
 * it may ignore it.
 */
#ifndef COLL_TOPOLOGY_SEARCH_H
#define COLL_TOPOLOGY_SEARCH_H

#include "topology/graph.h"

/* From the outside to the inside. */
enum coll_level { COLL_LEVEL_SITE, COLL_LEVEL_HOST, COLL_LEVEL_PACKAGE, COLL_LEVEL_NUMA, COLL_LEVEL_L3, COLL_LEVELS };

enum { COLL_SEARCH_WHY = 200 };

struct coll_search_rank {
	int site; /* -1: none told; the ranks of a host agree */
	int host; /* from 0 to hosts - 1 */
	struct coll_place place;
};

struct coll_search_in {
	int ranks, hosts;
	const struct coll_search_rank *rank;
	const struct coll_graph *const *graph; /* of each host; NULL: unknown */
	unsigned forced;                       /* bits 1 << level: these levels and no others; 0: those that pay */
	unsigned transports;                   /* bits that a NIC must carry (COLL_NIC_TCP, ...); 0: any */
	bool levels_only;                      /* nothing about NICs is asked for */
};

struct coll_search_level {
	enum coll_level level;
	int groups;
	int *group; /* of each rank, from 0 to groups - 1; inner groups lie inside outer ones, and are numbered along
	               them */
};

/*
 * Lanes. What a host sends is cut in equal parts. Where all hosts have equally many ranks each rank owns one, in the
 * order of places; else there are as many as the largest host has ranks, at most 8, and part i of a host with p ranks
 * belongs to its rank i p / parts. A lane carries some of the shares of one part over one rail; a part has several
 * lanes where NICs are more than ranks, or unequal. A rail joins one NIC of each host. See spread.h.
 */
struct coll_search_lane {
	int part, rail, shares;
};

struct coll_search {
	int ranks, hosts;
	int levels;
	struct coll_search_level level[COLL_LEVELS];
	char level_why[COLL_LEVELS][COLL_SEARCH_WHY]; /* of each level, those that are not there as well */

	int *order;                      /* all ranks by site, host and place */
	int *first, *count;              /* of each host: where its ranks begin in order, and how many they are */
	int parts, rails, lanes, shares; /* shares: of each part */
	int *owner;                      /* [host * parts + part]: a rank */
	int *nic;                        /* [host * rails + rail]: index in the host's graph; -1: none is known */
	struct coll_search_lane *lane;
	uint32_t *host_mbps; /* of the NICs in use together; 0: not all are known */
	int *rank_nic;       /* of each rank, that of its largest lane; -1: it owns none, or none is known */
	char (*host_why)[COLL_SEARCH_WHY]; /* which NICs, and why these */
	char rail_why[COLL_SEARCH_WHY];
};

const char *coll_level_name(enum coll_level level);

/* "host,numa" as bits; an empty text is 0. False with the reason in why. */
bool coll_search_parse_levels(const char *text, unsigned *levels, char *why, size_t why_bytes);

/* NULL with the reason in why: ranks contradict each other, or out of memory. */
struct coll_search *coll_search_run(const struct coll_search_in *in, char *why, size_t why_bytes);

/* Numbers for the sites of hosts, by their names: site[h] is -1 where a host tells none. False: out of memory. */
bool coll_search_sites(const struct coll_graph *const *graph, int hosts, int *site);

void coll_search_free(struct coll_search **s);

#endif
