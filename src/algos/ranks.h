/*
 * Arithmetic on ranks that several generators share. Pure, and independent of plans.
 */
#ifndef COLL_ALGOS_RANKS_H
#define COLL_ALGOS_RANKS_H

#include <stdint.h>

#include "plan/build.h"

/* x modulo n, in 0 .. n-1 for any x >= -n. */
static inline int coll_mod(int x, int n)
{
	return (x + n) % n;
}

/* The rank at a distance (-size <= distance) around the circle of ranks. */
static inline int coll_peer_at(const struct coll_shape *s, int distance)
{
	return coll_mod(s->rank + distance, s->size);
}

/* Largest k with 2^k <= n, and smallest k with 2^k >= n; n >= 1. */
static inline int coll_floor_log2(int n)
{
	return 31 - __builtin_clz((unsigned)n);
}

static inline int coll_ceil_log2(int n)
{
	return coll_floor_log2(n) + ((n & (n - 1)) != 0);
}

/* Position of a peer's data in a rank-ordered list that leaves out this rank. */
static inline uint32_t coll_index_without(const struct coll_shape *s, int peer)
{
	return (uint32_t)(peer < s->rank ? peer : peer - 1);
}

static inline double coll_max(double a, double b)
{
	return a > b ? a : b;
}

/*
 * Folding any n to a power of two. With rem = n - 2^k (k = floor(log2 n)), the
 * first 2 * rem ranks form pairs (2i, 2i+1); the odd one hands its data to the
 * even one and waits for the result. The 2^k others are numbered in rank order,
 * so a contiguous group of virtual ranks is a contiguous group of ranks:
 *
 *     n = 6:  rank  0 <- 1   2 <- 3   4   5
 *             virt  0        1        2   3
 */
struct coll_fold {
	int pow2;
	int rem;
	int virt; /* of this rank; -1: folded away */
};

static inline struct coll_fold coll_fold_of(const struct coll_shape *s)
{
	struct coll_fold f = {.pow2 = 1 << coll_floor_log2(s->size)};

	f.rem = s->size - f.pow2;
	if (s->rank >= 2 * f.rem)
		f.virt = s->rank - f.rem;
	else
		f.virt = s->rank % 2 == 0 ? s->rank / 2 : -1;
	return f;
}

/* The longest chain of frames when the folded ranks send and receive in one frame each and
 * the others exchange in log2 rounds. It is one frame more than the rounds, and another one
 * more when a folded pair is the mirror image of another. */
static inline int coll_fold_rounds(int n)
{
	int pow2 = 1 << coll_floor_log2(n);

	return coll_ceil_log2(n) + (n - pow2 > pow2 / 2);
}

/* First rank of virtual rank v; v == pow2 gives n. */
static inline int coll_fold_rank(const struct coll_fold *f, int v)
{
	return v < f->rem ? 2 * v : v + f->rem;
}

/* The first rank of the group of `mask` virtual ranks, a power of two, that v is in, and the first after it. */
static inline int coll_fold_first(const struct coll_fold *f, int v, int mask)
{
	return coll_fold_rank(f, v & -mask);
}

static inline int coll_fold_end(const struct coll_fold *f, int v, int mask)
{
	return coll_fold_rank(f, (v & -mask) + mask);
}

/* Whether this (virtual) rank took over its neighbour's data. */
static inline bool coll_fold_has_extra(const struct coll_fold *f)
{
	return f->virt >= 0 && f->virt < f->rem;
}

#endif
