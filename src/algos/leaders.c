/*
 * Short calls between hosts: the ranks of a host meet at one of them, its leader; the leaders exchange; each leader
 * hands the result to its host. One frame on a host's links each way and round, where a plan among all ranks sends
 * one for each rank. Commutative operations. Leaders: the root in its own host, else the lowest
 * rank of the host. Long vectors do not come here: a leader is its host's bottleneck.
 *
 *     all_reduce, 3 hosts      members -> leader, doubling among 3 leaders, leader -> members
 *     barrier                  the same with signals and dissemination
 *     reduce, broadcast        members -> leader, halving tree of leaders (or the other way)
 */
#include <stdlib.h>

#include "algos/doubling.h"
#include "algos/generators.h"
#include "algos/ranks.h"
#include "algos/tree.h"

struct team {
	const struct coll_layout *layout;
	uint32_t level; /* its groups are the hosts */
	int hosts, own; /* and this rank's */
	int *leaders;   /* by host */
	bool leads;
	uint32_t first, end; /* places of the own host */
};

static coll_status team_init(struct team *t, const struct coll_shape *s, bool rooted)
{
	const struct coll_layout *l = s->layout;
	const struct coll_layout_level *level;

	*t = (struct team){.layout = l, .level = l ? coll_layout_hosts(l) : 0};
	if (!l)
		return COLL_ERR_UNSUPPORTED;
	level = &l->level[t->level];
	t->hosts = (int)level->groups;
	t->own = (int)level->group_at[l->place_of[s->rank]];
	t->first = level->first[t->own];
	t->end = level->first[t->own + 1];
	t->leaders = calloc((size_t)t->hosts, sizeof(*t->leaders));
	if (!t->leaders)
		return COLL_ERR_MEMORY;
	for (int h = 0; h < t->hosts; h++)
		t->leaders[h] = l->rank_at[level->first[h]];
	if (rooted)
		t->leaders[level->group_at[l->place_of[s->root]]] = s->root;
	t->leads = t->leaders[t->own] == s->rank;
	return COLL_OK;
}

static int member(const struct team *t, uint32_t place)
{
	return t->layout->rank_at[place];
}

/* Sum up what the members of the host have. `more` operands come from elsewhere; where none does the last is final.
 * Returns where the sum is. */
static struct coll_at sum_up(const struct team *t, const struct coll_shape *s, struct coll_builder *b, int more)
{
	struct coll_at sum = coll_in(0);
	uint32_t left = t->end - t->first - 1;

	for (uint32_t p = t->first; p < t->end; p++) {
		const bool last = left == 1 && more == 0;

		if (member(t, p) == s->rank)
			continue;
		coll_build_recv_reduce(b, member(t, p), sum, last ? coll_out(0) : coll_scratch(2, 0),
		                       COLL_INCOMING_RIGHT, 1, last);
		sum = coll_scratch(2, 0);
		left--;
	}
	return sum;
}

static void hand_out(const struct team *t, const struct coll_shape *s, struct coll_builder *b, struct coll_at from)
{
	for (uint32_t p = t->first; p < t->end; p++)
		if (member(t, p) != s->rank)
			coll_build_send(b, member(t, p), from);
}

/* What a leader and what a member does. */
typedef void part_fn(const struct team *t, const struct coll_shape *s, struct coll_builder *b);

static coll_status build(const struct coll_shape *s, struct coll_builder *b, bool rooted, part_fn *lead,
                         part_fn *follow)
{
	struct team t;
	coll_status status = team_init(&t, s, rooted);

	if (status)
		return status;
	coll_build_chunks(b, 1);
	(t.leads ? lead : follow)(&t, s, b);
	free(t.leaders);
	return coll_build_status(b);
}

static void lead_all_reduce(const struct team *t, const struct coll_shape *s, struct coll_builder *b)
{
	coll_doubling(b, t->hosts, t->own, t->leaders, t->layout->level[t->level].first, sum_up(t, s, b, 1));
	hand_out(t, s, b, coll_out(0));
}

static void follow_all_reduce(const struct team *t, const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_send(b, t->leaders[t->own], coll_in(0));
	coll_build_recv(b, t->leaders[t->own], coll_out(0));
}

coll_status coll_algo_allreduce_leaders(const struct coll_shape *s, struct coll_builder *b)
{
	return build(s, b, false, lead_all_reduce, follow_all_reduce);
}

static void lead_barrier(const struct team *t, const struct coll_shape *s, struct coll_builder *b)
{
	for (uint32_t p = t->first; p < t->end; p++)
		if (member(t, p) != s->rank)
			coll_build_recv(b, member(t, p), coll_scratch(0, 0));
	for (int d = 1; d < t->hosts; d *= 2) {
		coll_build_send(b, t->leaders[coll_mod(t->own + d, t->hosts)], coll_in(0));
		coll_build_recv(b, t->leaders[coll_mod(t->own - d, t->hosts)], coll_scratch(0, 0));
	}
	hand_out(t, s, b, coll_in(0));
}

static void follow_barrier(const struct team *t, const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_send(b, t->leaders[t->own], coll_in(0));
	coll_build_recv(b, t->leaders[t->own], coll_scratch(0, 0));
}

coll_status coll_algo_barrier_leaders(const struct coll_shape *s, struct coll_builder *b)
{
	return build(s, b, false, lead_barrier, follow_barrier);
}

/* The place of this rank's host in the halving tree of hosts below the root's. */
static struct coll_tree_place tree_of(const struct team *t, const struct coll_shape *s)
{
	const struct coll_layout_level *level = &t->layout->level[coll_layout_hosts(t->layout)];
	struct coll_tree_place place;

	coll_tree_halving(t->hosts, (int)level->group_at[t->layout->place_of[s->root]], t->own, &place);
	return place;
}

/* So few frames through memory take less time than one over a link, for which they would wait. Of more ranks the other
 * hosts come first: the way to them is the longer one. */
enum { NEAR_FIRST_MAX = 8 };

static void lead_broadcast(const struct team *t, const struct coll_shape *s, struct coll_builder *b)
{
	const struct coll_at have = s->rank == s->root ? coll_in(0) : coll_out(0);
	const struct coll_tree_place at = tree_of(t, s);

	const bool near_first = t->end - t->first <= NEAR_FIRST_MAX;

	if (at.parent >= 0)
		coll_build_recv(b, t->leaders[at.parent], coll_out(0));
	if (near_first)
		hand_out(t, s, b, have);
	for (int i = 0; i < at.children; i++)
		coll_build_send(b, t->leaders[at.child[i].leader], have);
	if (!near_first)
		hand_out(t, s, b, have);
	if (s->rank == s->root)
		coll_build_copy(b, coll_in(0), coll_out(0), false);
}

static void follow_broadcast(const struct team *t, const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_recv(b, t->leaders[t->own], coll_out(0));
}

coll_status coll_algo_broadcast_leaders(const struct coll_shape *s, struct coll_builder *b)
{
	return build(s, b, true, lead_broadcast, follow_broadcast);
}

static void lead_reduce(const struct team *t, const struct coll_shape *s, struct coll_builder *b)
{
	const struct coll_tree_place at = tree_of(t, s);
	const uint32_t *before = t->layout->level[t->level].first;
	struct coll_at sum = sum_up(t, s, b, at.children + (at.parent >= 0));

	for (int i = at.children - 1; i >= 0; i--) {
		const bool last = i == 0 && at.parent < 0;

		coll_build_recv_reduce(b, t->leaders[at.child[i].leader], sum, last ? coll_out(0) : coll_scratch(2, 0),
		                       COLL_INCOMING_RIGHT, before[at.child[i].end] - before[at.child[i].first], last);
		sum = coll_scratch(2, 0);
	}
	if (at.parent >= 0)
		coll_build_send(b, t->leaders[at.parent], sum);
}

static void follow_reduce(const struct team *t, const struct coll_shape *s, struct coll_builder *b)
{
	coll_build_send(b, t->leaders[t->own], coll_in(0));
}

coll_status coll_algo_reduce_leaders(const struct coll_shape *s, struct coll_builder *b)
{
	return build(s, b, true, lead_reduce, follow_reduce);
}

/* What leaves and enters hosts [first, end) of n when host `me`, one of them, exchanges its frames. */
struct across {
	int out, in;
};
typedef void across_fn(int n, int root, int me, int first, int end, struct across *a);

static void across_doubling(int n, int root, int me, int first, int end, struct across *a)
{
	const struct coll_shape team = {.rank = me, .size = n};
	const struct coll_fold f = coll_fold_of(&team);
	int peers = 0, peer[33];

	(void)root;
	if (f.virt < 0)
		peer[peers++] = me - 1;
	else if (coll_fold_has_extra(&f))
		peer[peers++] = me + 1;
	for (int mask = 1; f.virt >= 0 && mask < f.pow2; mask *= 2)
		peer[peers++] = coll_fold_rank(&f, f.virt ^ mask);
	for (int i = 0; i < peers; i++)
		a->out += peer[i] < first || peer[i] >= end;
	a->in = a->out;
}

static void across_tree(int n, int root, int me, int first, int end, struct across *a)
{
	struct coll_tree_place at;

	coll_tree_halving(n, root, me, &at);
	a->in += at.parent >= 0 && (at.parent < first || at.parent >= end);
	for (int i = 0; i < at.children; i++)
		a->out += at.child[i].leader < first || at.child[i].leader >= end;
}

/* The frames of the busiest group of level 0, for the worst root; of many hosts only the first and the last are tried.
 */
enum { ROOTS_TRIED = 32 };
static double busiest(const struct coll_layout *l, across_fn *across)
{
	const struct coll_layout_level *hosts = &l->level[coll_layout_hosts(l)], *outer = &l->level[0];
	const int n = (int)hosts->groups;
	int most = 0;

	for (int root = 0; root<n; root += n> ROOTS_TRIED ? n - 1 : 1)
		for (uint32_t g = 0; g < outer->groups; g++) {
			const int first = (int)hosts->group_at[outer->first[g]];
			const int end = (int)hosts->group_at[outer->first[g + 1] - 1] + 1;
			struct across a = {0, 0};

			for (int me = first; me < end; me++)
				across(n, root, me, first, end, &a);
			most = a.out > most ? a.out : most;
			most = a.in > most ? a.in : most;
		}
	return most;
}

/* Two ways (up and down) or one through hosts of up to `most` ranks, and as many rounds between them. */
static void cost(const struct coll_layout *l, int ways, bool reduces, double rounds, double exchanged,
                 across_fn *across, struct coll_algo_cost *inside, struct coll_algo_cost *between,
                 struct coll_algo_links *links)
{
	const uint32_t most = l->level[coll_layout_hosts(l)].most;

	*inside = (struct coll_algo_cost){
	        .rounds = ways,
	        .frames = ways * (most - 1.0),
	        .sent = most - 1.0,
	        .received = most - 1.0,
	        .reduced = reduces ? most - 1.0 : 0,
	        .copied = reduces ? 0 : 1,
	        .frame = 1,
	        .scratch = reduces ? 3 : 1,
	};
	*between = (struct coll_algo_cost){
	        .rounds = rounds,
	        .frames = 2 * exchanged,
	        .sent = exchanged,
	        .received = exchanged,
	        .reduced = reduces ? exchanged : 0,
	        .frame = 1,
	};
	*links = (struct coll_algo_links){exchanged, coll_layout_hosts(l) ? busiest(l, across) : exchanged};
}

static int hosts_of(const struct coll_layout *l)
{
	return (int)l->level[coll_layout_hosts(l)].groups;
}

void coll_split_allreduce_leaders(const struct coll_layout *l, struct coll_algo_cost *inside,
                                  struct coll_algo_cost *between, struct coll_algo_links *links)
{
	const int n = hosts_of(l);

	cost(l, 2, true, coll_fold_rounds(n), coll_floor_log2(n) + ((n & (n - 1)) != 0), across_doubling, inside,
	     between, links);
}

void coll_split_barrier_leaders(const struct coll_layout *l, struct coll_algo_cost *inside,
                                struct coll_algo_cost *between, struct coll_algo_links *links)
{
	const double rounds = coll_ceil_log2(hosts_of(l));

	cost(l, 2, false, rounds, rounds, across_tree, inside, between, links);
}

void coll_split_broadcast_leaders(const struct coll_layout *l, struct coll_algo_cost *inside,
                                  struct coll_algo_cost *between, struct coll_algo_links *links)
{
	const double rounds = coll_ceil_log2(hosts_of(l));

	cost(l, 1, false, rounds, rounds, across_tree, inside, between, links);
}

void coll_split_reduce_leaders(const struct coll_layout *l, struct coll_algo_cost *inside,
                               struct coll_algo_cost *between, struct coll_algo_links *links)
{
	const double rounds = coll_ceil_log2(hosts_of(l));

	cost(l, 1, true, rounds, rounds, across_tree, inside, between, links);
}
