/*
 * Sums of arrays of floats, as fast as the machine makes them: the arithmetic of the floor (floor.c).
 */
#ifndef COLL_BENCH_PEERS_FLOOR_SUM_H
#define COLL_BENCH_PEERS_FLOOR_SUM_H

#include <stdbool.h>
#include <stddef.h>

/* What n_ins sources sum up to, element by element, to each of n_outs results; of one source a copy. An output may be
 * one of the sources. stream: past the caches, where the outputs allow it. */
void floor_combine(bool stream, float *const *outs, int n_outs, const float *const *ins, int n_ins, size_t count);

#endif
