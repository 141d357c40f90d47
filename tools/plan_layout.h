/*
 * Layouts for tools and tests of plans: from a text, or at random from a seed.
 */
#ifndef COLL_TOOLS_PLAN_LAYOUT_H
#define COLL_TOOLS_PLAN_LAYOUT_H

#include "plan/layout.h"

/*
 * text: "2x4", groups of equal size, outermost level first, the last number ranks (2 hosts of 4
 * ranks); or "1,3,2", hosts of so many ranks. map: how ranks are numbered over the places: "block" (host by
 * host), "cyclic" (round the hosts) or "random:SEED". False when either is malformed or there are more than 65536
 * ranks. rates: of the links of each outermost group, "1000,1000,500" (Mb/s if these are sites), or NULL. *layout may
 * be NULL then, or when nothing tells the ranks apart; *size is the number of ranks.
 */
bool plan_layout_parse(const char *text, const char *map, const char *rates, struct coll_layout **layout, int *size);

/* Even groups, outermost level first; a last number of 1: hosts of one rank, whose level is kept. seed 0: ranks in the
 * order of places, else at random. */
bool plan_layout_even(const int *sizes, int nsizes, uint64_t seed, struct coll_layout **layout);

/* An uneven layout of 2 to most ranks (at most 256) in 1 to 3 levels, ranks numbered at random; every third one of
 * hosts with links of unequal rates. */
bool plan_layout_random(uint64_t seed, int most, struct coll_layout **layout);

#endif
