/*
 * Broadcast of a vector in so many blocks: the generator behind every row of that kind.
 */
#ifndef COLL_ALGOS_BROADCAST_BLOCKS_H
#define COLL_ALGOS_BROADCAST_BLOCKS_H

#include "algos/generators.h"

coll_status coll_algo_broadcast_in_blocks(const struct coll_shape *s, struct coll_builder *b, int blocks);

#endif
