/*
 * A layout: where the ranks of a communicator are, as groups within groups.
 *
 * Level 0 is the outermost (sites, or hosts), the last one the innermost; groups of a
 * level lie within the groups of the level before. Ranks are numbered anew by *places*:
 * groups one after the other, in the order of their lowest ranks, so that a group of any
 * level is a range of places. A layout is a pure function of agreed facts, the same
 * on every rank (SEMANTICS: layouts), and does not change.
 *
 *     ranks 0..4 on hosts a b a b b      place   0 1 | 2 3 4
 *                                        rank    0 2 | 1 3 4
 *
 * Stage i of a layout of k levels lies between a group of level i - 1 (all ranks for
 * i == 0) and its children: the groups of level i in it, or its places for i == k.
 */
#ifndef COLL_PLAN_LAYOUT_H
#define COLL_PLAN_LAYOUT_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* LANES: the parts into which a stage of uneven groups cuts a vector, each carried by one rank of a group (glossary:
 * lane of a layout). More frames than this do not make a link faster. */
enum { COLL_LAYOUT_LEVELS_MAX = 6, COLL_LAYOUT_LANES = 8 };

struct coll_layout_level {
	char name[12]; /* "site", "host", "numa" ... */
	bool links;    /* what crosses it goes over the links of a host, not through memory */
	uint32_t mbps; /* of the slowest uplink of its groups that was told: level 0 only; 0: unknown, not slow */
	uint32_t groups;
	uint32_t most;            /* ranks in its largest group */
	const uint32_t *first;    /* place of each group's first rank; groups + 1 entries */
	const uint32_t *group_at; /* by place */
};

/* The most and the fewest children that a group has at a stage. */
struct coll_layout_width {
	uint32_t most, fewest;
};

struct coll_layout {
	int size;
	uint32_t nlevels; /* >= 1 */
	const int *rank_at;
	const int *place_of;
	struct coll_layout_level level[COLL_LAYOUT_LEVELS_MAX];
	struct coll_layout_width
	        width[COLL_LAYOUT_LEVELS_MAX + 1]; /* by stage: prices ask often, of thousands of hosts */
	/* Groups of level 0 whose links are unequal: of how many of the `parts` parts of a vector each group holds the
	 * sums (an all-reduce; 0: a slow group only sends and receives). NULL: equal parts. */
	const uint32_t *share;
	uint32_t parts;
	/* The same groups, those of faster links first. NULL: in their order. */
	const uint32_t *by_rate;
	uint64_t hash;   /* of everything above */
	uint32_t *spare; /* layout.c */
};

/* How one level splits the ranks: two ranks are in one group if group_of is equal for them here
 * and on all levels before. */
struct coll_layout_split {
	const char *name;
	bool links;
	bool keep;                /* although it leaves single ranks: their links differ, see coll_layout_rate() */
	const uint32_t *group_of; /* by rank, any numbers */
};

/* Levels that split nothing, or leave single ranks, are left out, and so are the innermost of several uneven levels
 * that would cut a vector into more than LANES chunks for each rank; *layout is NULL when none is left: there is
 * nothing to choose. Freed with coll_layout_destroy(). COLL_ERR_MEMORY; COLL_ERR_ARGUMENT with too many levels. */
coll_status coll_layout_create(int size, const struct coll_layout_split *splits, uint32_t nsplits,
                               struct coll_layout **layout);

/*
 * Take notice of the rates of the links of level 0, by rank (the same for all ranks of a group): any unit, 0 unknown.
 * Before the layout is used; nothing changes unless all are known, the level crosses links and is the only one that
 * does, and shares gain 5 % over equal parts.
 *
 * n groups that exchange all to all: group v with a share w of a vector of S bytes sends and receives S (1 + w (n - 2))
 * in an all-reduce. Shares are such that the largest time, that over the rate, is the least there is for up to
 * COLL_LAYOUT_PARTS parts. COLL_ERR_MEMORY.
 */
enum { COLL_LAYOUT_PARTS = 24 };
coll_status coll_layout_rate(struct coll_layout *layout, const uint32_t *rate);

/* The rates of the uplinks by which the groups of level 0 (sites) are joined, in Mb/s by rank, 0 unknown. Changes no
 * plan, but prices. Before the layout is used. */
void coll_layout_tell_uplinks(struct coll_layout *layout, const uint32_t *rate);

void coll_layout_destroy(struct coll_layout **layout); /* sets NULL; NULL inside is accepted */

/* Children of a group of level stage - 1 (0 for stage 0): [*first, *first + return value), groups of level `stage`,
 * or places. */
uint32_t coll_layout_children(const struct coll_layout *layout, uint32_t stage, uint32_t group, uint32_t *first);

/* The group of level stage - 1 that a place is in; 0 for stage 0. */
static inline uint32_t coll_layout_parent(const struct coll_layout *l, uint32_t stage, uint32_t place)
{
	assert(stage <= l->nlevels);
	return stage == 0 ? 0 : l->level[stage - 1].group_at[place];
}

static inline void coll_layout_widths(const struct coll_layout *l, uint32_t stage, uint32_t *most, uint32_t *fewest)
{
	assert(stage <= l->nlevels);
	*most = l->width[stage].most;
	*fewest = l->width[stage].fewest;
}

/* The innermost level that links cross: its groups are hosts. Without one the outermost. */
uint32_t coll_layout_hosts(const struct coll_layout *layout);

/* "host(2) x core(4)"; uneven groups as "host(2) x rank(1..3)"; shares; the rate of uplinks. */
void coll_layout_print(const struct coll_layout *layout, char *buf, size_t len_bytes);

#endif
