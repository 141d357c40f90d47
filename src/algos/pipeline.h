/*
 * The pipeline of hosts: broadcast hands a vector from one host to the next, reduce collects it the
 * other way. Each host's ranks carry one lane each (levels.h), so S bytes enter a host and
 * S leave it, whatever its number of ranks, and all its NICs carry their share.
 *
 *     broadcast, hosts a b c of two ranks, root a0:   a0 -> a1 (lane 1)
 *         a0 -> b0 -> c0   lane 0      a1 -> b1 -> c1   lane 1      then an all-gather in each host
 */
#ifndef COLL_ALGOS_PIPELINE_H
#define COLL_ALGOS_PIPELINE_H

#include "algos/levels.h"

struct coll_pipeline {
	struct coll_levels levels; /* the stages inside a host */
	uint32_t level;            /* of the layout: its groups are the hosts of the chain */
	uint32_t *order;           /* groups, the root's first; those of one outer group stay together */
	uint32_t count, at;        /* groups, and the position of this rank's own */
};

/* Needs a layout. Calls coll_build_chunks(): one chunk per lane. */
coll_status coll_pipeline_init(struct coll_pipeline *c, const struct coll_shape *s, struct coll_builder *b);
void coll_pipeline_fini(struct coll_pipeline *c);

/* The rank that carries a lane in the group at a position of the chain. */
int coll_pipeline_owner(const struct coll_pipeline *c, uint32_t at, uint32_t lane);

/* The lanes from `lane` on that one rank carries at a position and one rank at another position: a frame. */
uint32_t coll_pipeline_run(const struct coll_pipeline *c, uint32_t at, uint32_t other, uint32_t lane);

/* How many ranks the groups behind this rank's own hold. */
uint32_t coll_pipeline_behind(const struct coll_pipeline *c);

/* The next lane from `lane` on that this rank carries; the number of lanes if there is none. */
uint32_t coll_pipeline_next(const struct coll_pipeline *c, uint32_t lane);

/* What a row costs: in the hosts of a layout, and between them. */
void coll_pipeline_cost(const struct coll_layout *layout, bool reduces, struct coll_algo_cost *inside,
                        struct coll_algo_cost *between, struct coll_algo_links *links);

#endif
