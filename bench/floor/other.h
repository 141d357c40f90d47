/*
 * What the other process of cuda_floor does for each part.
 */
#ifndef COLL_BENCH_FLOOR_OTHER_H
#define COLL_BENCH_FLOOR_OTHER_H

#include "floor.h"

bool floor_pair_other(const struct floor_order *o);
void floor_mapped_other(const struct floor_order *o, int descriptor, struct floor_answer *a);

#endif
