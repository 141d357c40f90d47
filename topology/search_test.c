/*
 * Levels and lanes of machines made by hand: what groups there are, what carries what, and why.
 */
#include "topology/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "tests/plain.h"
#include "topology/lanes.h"
#include "topology/spread.h"

enum { RANKS_MAX = 64, HOSTS_MAX = 8 };

struct job {
	struct coll_graph *g[HOSTS_MAX];
	const struct coll_graph *graphs[HOSTS_MAX];
	struct coll_search_rank rank[RANKS_MAX];
	struct coll_search_in in;
	struct coll_search *s;
	char why[300];
};

/* Two packages of two NUMA nodes of two L3 caches of two cores; far, near: distances, 0 for unknown. */
static struct coll_graph *machine(int far, int near)
{
	struct coll_graph *g = coll_graph_new();

	g->packages = 2, g->numas = 4, g->l3s = 8, g->cores = 16, g->kinds = 1;
	for (int c = 0; c < 16; c++)
		g->core[c] = (struct coll_graph_core){(short)(c / 2), (short)(c / 4), (short)(c / 8), 0};
	for (int i = 0; i < 4; i++) {
		g->numa[i] = (struct coll_graph_numa){i, 1, (short)(i / 2)};
		for (int k = 0; k < 4 && far; k++)
			g->distance[i][k] = (uint8_t)(i == k ? 10 : i / 2 == k / 2 ? near : far);
	}
	g->distance_origin = far ? COLL_ORIGIN_TOLD : COLL_ORIGIN_UNKNOWN;
	return g;
}

static struct coll_graph_nic *add_nic(struct coll_graph *g, const char *name, int numa, uint32_t mbps)
{
	struct coll_graph_nic *n = coll_graph_add_nic(g);

	snprintf(n->name, sizeof(n->name), "%s", name);
	n->numa = (short)numa;
	n->package = (short)(numa < 0 ? -1 : numa / 2);
	n->transports = COLL_NIC_TCP;
	n->fabric = COLL_FABRIC_ETHERNET;
	n->state = COLL_NIC_UP;
	coll_rate_take(&n->rate, mbps, COLL_ORIGIN_TOLD);
	return n;
}

static void run(struct job *j)
{
	coll_search_free(&j->s);
	j->in.rank = j->rank;
	j->in.graph = j->graphs;
	j->s = coll_search_run(&j->in, j->why, sizeof(j->why));
}

/* Rank r is at place order[r]: host place / per_host, core place % per_host * step. */
static void fill(struct job *j, int hosts, int per_host, int step, const int *order)
{
	j->in = (struct coll_search_in){.ranks = hosts * per_host, .hosts = hosts};
	for (int h = 0; h < hosts; h++)
		j->graphs[h] = j->g[h];
	for (int r = 0; r < j->in.ranks; r++) {
		const int at = order ? order[r] : r, core = at % per_host * step;

		j->rank[r] = (struct coll_search_rank){-1, at / per_host, {-1, -1, -1, -1, -1}};
		if (j->g[at / per_host])
			j->rank[r].place = coll_graph_core_place(j->g[at / per_host], core);
	}
	run(j);
}

static void close_job(struct job *j)
{
	coll_search_free(&j->s);
	for (int h = 0; h < HOSTS_MAX; h++) {
		bool again = false;

		for (int k = 0; k < h; k++)
			again = again || j->g[k] == j->g[h];
		if (!again)
			free(j->g[h]);
	}
}

static void check_levels(const struct job *j, const char *expected)
{
	char text[200] = "";
	size_t n = 0;

	REQUIRE(j->s != NULL, "%s", j->why);
	for (int i = 0; i < j->s->levels; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s:%d", i ? "," : "",
		                      coll_level_name(j->s->level[i].level), j->s->level[i].groups);
	CHECK(strcmp(text, expected) == 0, "%s, not %s", text, expected);
}

/* ---- Levels ------------------------------------------------------------- */

TEST(search, levels_that_pay)
{
	struct job j = {.g = {machine(32, 16), machine(32, 16)}};

	j.g[1] = (free(j.g[1]), j.g[0]);
	fill(&j, 2, 16, 1, NULL);
	check_levels(&j, "host:2,package:4,numa:8,l3:16");
	CHECK(strstr(j.s->level_why[COLL_LEVEL_PACKAGE], "4 groups of 8 ranks: memory across is 2.0 times") != NULL,
	      "%s", j.s->level_why[COLL_LEVEL_PACKAGE]);
	fill(&j, 1, 16, 1, NULL);
	check_levels(&j, "package:2,numa:4,l3:8");
	/* One rank on each L3, on each node, on each package. */
	fill(&j, 1, 8, 2, NULL);
	check_levels(&j, "package:2,numa:4");
	fill(&j, 1, 4, 4, NULL);
	check_levels(&j, "package:2");
	fill(&j, 1, 2, 8, NULL);
	check_levels(&j, "");
	/* Two ranks share an L3, the third has one for itself. */
	fill(&j, 1, 3, 1, NULL);
	check_levels(&j, "");
	CHECK(strcmp(j.s->level_why[COLL_LEVEL_L3], "some L3 cache has one rank only") == 0, "%s",
	      j.s->level_why[COLL_LEVEL_L3]);
	fill(&j, 2, 1, 1, NULL);
	check_levels(&j, "");
	CHECK(strcmp(j.s->level_why[COLL_LEVEL_HOST], "each group would be one rank") == 0, "%s",
	      j.s->level_why[COLL_LEVEL_HOST]);
	close_job(&j);
}

TEST(search, levels_that_do_not_pay)
{
	struct job j = {.g = {machine(14, 12)}};

	fill(&j, 1, 16, 1, NULL);
	check_levels(&j, "l3:8");
	CHECK(strstr(j.s->level_why[COLL_LEVEL_PACKAGE], "only 1.1 times as far") != NULL, "%s",
	      j.s->level_why[COLL_LEVEL_PACKAGE]);
	CHECK(strstr(j.s->level_why[COLL_LEVEL_NUMA], "only 1.2 times as far") != NULL, "%s",
	      j.s->level_why[COLL_LEVEL_NUMA]);
	/* Exactly 1.5 is not more than 1.5. */
	free(j.g[0]);
	j.g[0] = machine(15, 15);
	fill(&j, 1, 16, 1, NULL);
	check_levels(&j, "l3:8");
	close_job(&j);
}

/* Nothing is told of distances: packages with memory of their own are assumed to be far, nodes of one package not. */
TEST(search, levels_without_distances)
{
	struct job j = {.g = {machine(0, 0)}};

	fill(&j, 1, 16, 1, NULL);
	check_levels(&j, "package:2,l3:8");
	CHECK(strstr(j.s->level_why[COLL_LEVEL_PACKAGE], "assumed") != NULL);
	/* One memory for both packages, and no caches: a guest. */
	for (int c = 0; c < 16; c++)
		j.g[0]->core[c].numa = 0, j.g[0]->core[c].l3 = -1;
	fill(&j, 1, 16, 1, NULL);
	check_levels(&j, "");
	close_job(&j);
}

TEST(search, ranks_that_are_not_bound_have_no_levels_inside)
{
	struct job j = {.g = {machine(32, 16)}};

	fill(&j, 1, 16, 1, NULL);
	j.rank[5].place = (struct coll_place){-1, -1, -1, 0, -1};
	run(&j);
	/* Its package is known, its node is not: the other package is split all the same. */
	check_levels(&j, "package:2,numa:3,l3:5");
	for (int r = 0; r < 16; r++)
		j.rank[r].place = (struct coll_place){-1, -1, -1, -1, -1};
	run(&j);
	check_levels(&j, "");
	j.graphs[0] = NULL;
	run(&j);
	check_levels(&j, "");
	close_job(&j);
}

/* However ranks are numbered, the groups are the same sets. */
TEST(search, any_numbering)
{
	struct job a = {.g = {machine(32, 16)}}, b = {.g = {NULL}};
	struct coll_rng rng = {7};

	a.g[1] = a.g[0];
	b.g[0] = b.g[1] = a.g[0];
	fill(&a, 2, 16, 1, NULL);
	REQUIRE(a.s != NULL);
	for (int round = 0; round < 20; round++) {
		int order[32];

		for (int r = 0; r < 32; r++)
			order[r] = round == 0 ? r % 2 * 16 + r / 2 : r;
		for (int r = 31; round > 0 && r > 0; r--) {
			const int k = (int)coll_rng_below(&rng, (uint32_t)r + 1), swap = order[r];

			order[r] = order[k];
			order[k] = swap;
		}
		fill(&b, 2, 16, 1, order);
		check_levels(&b, "host:2,package:4,numa:8,l3:16");
		for (int i = 0; i < b.s->levels; i++)
			for (int r = 0; r < 32; r++)
				CHECK(b.s->level[i].group[r] == a.s->level[i].group[order[r]],
				      "round %d, level %d, rank %d", round, i, r);
		/* Parts are places, so owners are those of the other numbering. */
		for (int i = 0; i < 32; i++)
			CHECK(order[b.s->owner[i]] == a.s->owner[i], "round %d, part %d", round, i);
	}
	coll_search_free(&b.s);
	close_job(&a);
}

TEST(search, uneven_hosts_and_sites)
{
	struct job j = {.g = {NULL}};

	/* 1 + 2 + 4 ranks on three hosts of two sites. */
	j.in = (struct coll_search_in){.ranks = 7, .hosts = 3};
	for (int r = 0; r < 7; r++)
		j.rank[r] = (struct coll_search_rank){r < 3 ? 4 : 2, r < 1 ? 0 : r < 3 ? 1 : 2, {-1, -1, -1, -1, -1}};
	run(&j);
	check_levels(&j, "site:2,host:3");
	CHECK(strstr(j.s->level_why[COLL_LEVEL_HOST], "3 groups of 1 to 4 ranks") != NULL, "%s",
	      j.s->level_why[COLL_LEVEL_HOST]);
	CHECK(j.s->parts == 4 && j.s->rails == 1 && j.s->lanes == 4 && j.s->nic[0] == -1);
	for (int part = 0; part < 4; part++)
		CHECK(j.s->owner[part] == 0 && j.s->owner[4 + part] == 1 + part / 2 &&
		      j.s->owner[8 + part] == 3 + part);
	/* A site of each host splits no further. */
	for (int r = 0; r < 7; r++)
		j.rank[r].site = j.rank[r].host;
	run(&j);
	check_levels(&j, "site:3");
	j.rank[4].site = 9;
	run(&j);
	CHECK(j.s == NULL && strcmp(j.why, "ranks 3 and 4 share a host, but are of sites 2 and 9") == 0, "%s", j.why);
	j.rank[4].host = 3;
	run(&j);
	CHECK(j.s == NULL && strcmp(j.why, "rank 4 is on host 3 of 3") == 0, "%s", j.why);
	j.in.hosts = 4;
	j.rank[4].host = 2, j.rank[4].site = 2;
	run(&j);
	CHECK(j.s == NULL && strcmp(j.why, "host 3 has no rank") == 0, "%s", j.why);
}

TEST(search, sites_by_name)
{
	struct coll_graph *g[4] = {machine(0, 0), machine(0, 0), machine(0, 0), machine(0, 0)};
	const struct coll_graph *hosts[5] = {g[0], g[1], NULL, g[2], g[3]};
	int site[5];

	strcpy(g[0]->site, "north");
	strcpy(g[1]->site, "south");
	strcpy(g[3]->site, "north");
	REQUIRE(coll_search_sites(hosts, 5, site));
	CHECK(site[0] == 0 && site[1] == 1 && site[2] == -1 && site[3] == -1 && site[4] == 0);
	for (int i = 0; i < 4; i++)
		free(g[i]);
}

TEST(search, forced_levels)
{
	static const char *const wrong[] = {"core", "host,", ",host", "numa,host", "host,host", "HOST", "host numa"};
	struct job j = {.g = {machine(14, 12)}};
	unsigned levels = 99;

	CHECK(coll_search_parse_levels("", &levels, j.why, sizeof(j.why)) && levels == 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(!coll_search_parse_levels(wrong[i], &levels, j.why, sizeof(j.why)) && levels == 0, "%s",
		      wrong[i]);
	CHECK(coll_search_parse_levels("host,numa", &levels, j.why, sizeof(j.why)));
	CHECK(levels == (1u << COLL_LEVEL_HOST | 1u << COLL_LEVEL_NUMA));
	fill(&j, 1, 16, 1, NULL);
	j.in.forced = levels;
	run(&j);
	check_levels(&j, "numa:4");
	CHECK(strstr(j.s->level_why[COLL_LEVEL_L3], "not among") != NULL);
	close_job(&j);
}

/* ---- NICs --------------------------------------------------------------- */

static void check_nics(const struct coll_graph *g, unsigned transports, const char *expected, const char *says)
{
	int nic[COLL_GRAPH_NICS_MAX];
	char why[200], text[200] = "";
	const int n = coll_lanes_nics(g, transports, nic, why, sizeof(why));

	for (int i = 0; i < n; i++)
		snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%s", i ? "," : "", g->nic[nic[i]].name);
	CHECK(strcmp(text, expected) == 0, "%s, not %s", text, expected);
	CHECK(strstr(why, says) != NULL, "'%s', not '%s'", why, says);
}

TEST(search, nics_that_are_used)
{
	struct coll_graph *g = machine(32, 16);
	struct coll_graph_nic *n;

	check_nics(g, 0, "", "no NIC is known");
	check_nics(NULL, 0, "", "no NIC is known");
	add_nic(g, "a", 0, 1000);
	check_nics(g, 0, "a", "1 of 1 NICs: the only one, 1000 Mb/s (told)");
	add_nic(g, "b", 3, 25000);
	add_nic(g, "c", 1, 25000);
	check_nics(g, 0, "c,b", "2 of 3 NICs: the fastest equal ones, 25000 Mb/s (told)");
	n = add_nic(g, "down", 0, 100000);
	n->state = COLL_NIC_DOWN;
	check_nics(g, 0, "c,b", "2 of 4");
	/* Of unknown rate, in a fabric for computing: not slow. */
	n = add_nic(g, "ib", 2, 0);
	n->fabric = COLL_FABRIC_INFINIBAND;
	n->transports |= COLL_NIC_VERBS;
	check_nics(g, 0, "ib", "1 of 5 NICs: the fastest, of unknown rate");
	check_nics(g, COLL_NIC_VERBS, "ib", "1 of 5");
	n->state = COLL_NIC_DOWN;
	check_nics(g, COLL_NIC_VERBS, "", "none of 5 NICs is up and carries what is asked for");
	/* Made of software: only where there is nothing else. */
	n = add_nic(g, "bridge", -1, 400000);
	n->made = true;
	check_nics(g, COLL_NIC_TCP, "c,b", "2 of 6");
	g->nic[0].state = g->nic[1].state = g->nic[2].state = COLL_NIC_DOWN;
	check_nics(g, COLL_NIC_TCP, "bridge", "1 of 6");
	/* Set by the user: these, equal or not. */
	g->nic[0].state = g->nic[2].state = COLL_NIC_UP;
	g->nic[0].set = g->nic[2].set = true;
	check_nics(g, 0, "c,a", "2 of 6 NICs: those whose rates are set");
	free(g);
}

/* Crossings of all parts, by the lanes. */
static long crossings(const struct job *j)
{
	long sum = 0;

	for (int h = 0; h < j->s->hosts; h++)
		for (int i = 0; i < j->s->lanes; i++) {
			const struct coll_search_lane *l = &j->s->lane[i];
			const int rank = j->s->owner[h * j->s->parts + l->part];

			sum += l->shares *
			       coll_lanes_crossing(&j->rank[rank].place,
			                           &j->graphs[h]->nic[j->s->nic[h * j->s->rails + l->rail]]);
		}
	return sum;
}

/* Eight ranks on one package, a NIC on each: both carry half, where each rank's nearest would idle one. */
TEST(search, each_nic_has_its_share)
{
	struct job j = {.g = {machine(32, 16)}};
	char why[200];
	int first = 0;

	add_nic(j.g[0], "eth0", 0, 1000);
	add_nic(j.g[0], "eth1", 3, 1000);
	fill(&j, 1, 8, 1, NULL);
	REQUIRE(j.s != NULL, "%s", j.why);
	CHECK(j.s->rails == 2 && j.s->lanes == 8 && j.s->host_mbps[0] == 2000);
	for (int r = 0; r < 8; r++)
		first += j.s->rank_nic[r] == 0;
	CHECK(first == 4, "%d", first);
	/* Those of the NIC's own NUMA node have it. */
	for (int r = 0; r < 4; r++)
		CHECK(j.s->rank_nic[r] == 0, "rank %d", r);
	coll_lanes_why(j.s, &j.in, 0, why, sizeof(why));
	CHECK(strcmp(why, "eth0: near the rank") == 0, "%s", why);
	coll_lanes_why(j.s, &j.in, 7, why, sizeof(why));
	CHECK(strcmp(why, "eth1: in another package; nearer ones have their share of ranks") == 0, "%s", why);
	close_job(&j);
}

/* NICs of 1000 and 250 Mb/s: shares are as 4 to 1, and at most one rank sends over both. */
TEST(search, unequal_nics_have_unequal_shares)
{
	struct job j = {.g = {machine(32, 16)}};
	int sum[2] = {0, 0}, both = 0;

	add_nic(j.g[0], "slow", 0, 250)->set = true;
	add_nic(j.g[0], "fast", 0, 1000)->set = true;
	j.g[1] = j.g[0];
	fill(&j, 2, 4, 1, NULL);
	REQUIRE(j.s != NULL, "%s", j.why);
	for (int i = 0; i < j.s->lanes; i++) {
		sum[j.s->lane[i].rail] += j.s->lane[i].shares;
		both += i > 0 && j.s->lane[i].part == j.s->lane[i - 1].part;
	}
	CHECK(strcmp(j.g[0]->nic[j.s->nic[0]].name, "fast") == 0 && sum[0] == 16 && sum[1] == 4, "%d, %d", sum[0],
	      sum[1]);
	CHECK(both == 1 && j.s->lanes == 5, "%d lanes", j.s->lanes);
	CHECK(j.s->host_mbps[1] == 1250);
	/* One rank has both. */
	fill(&j, 2, 1, 1, NULL);
	REQUIRE(j.s != NULL, "%s", j.why);
	CHECK(j.s->lanes == 2 && j.s->lane[0].shares == 4 && j.s->lane[1].shares == 1, "%d, %d", j.s->lane[0].shares,
	      j.s->lane[1].shares);
	close_job(&j);
}

TEST(search, rails)
{
	struct job j = {.g = {machine(32, 16), machine(32, 16)}};

	/* Subnets tell: a and y are one, b and x the other. */
	add_nic(j.g[0], "a", 0, 1000)->rail_key = 7;
	add_nic(j.g[0], "b", 2, 1000)->rail_key = 5;
	add_nic(j.g[1], "x", 0, 1000)->rail_key = 5;
	add_nic(j.g[1], "y", 2, 1000)->rail_key = 7;
	fill(&j, 2, 4, 1, NULL);
	REQUIRE(j.s != NULL, "%s", j.why);
	CHECK(j.s->rails == 2 && j.s->nic[0] == 1 && j.s->nic[1] == 0 && j.s->nic[2] == 0 && j.s->nic[3] == 1);
	CHECK(strstr(j.s->rail_why, "one subnet") != NULL, "%s", j.s->rail_why);
	/* One does not: by place, on both. */
	j.g[1]->nic[1].rail_key = 0;
	run(&j);
	CHECK(j.s->nic[0] == 0 && j.s->nic[1] == 1 && j.s->nic[2] == 0 && j.s->nic[3] == 1);
	CHECK(strstr(j.s->rail_why, "subnets do not tell") != NULL, "%s", j.s->rail_why);
	/* A NIC less: the other serves both rails. */
	j.g[1]->nic[1].state = COLL_NIC_DOWN;
	run(&j);
	CHECK(j.s->rails == 2 && j.s->nic[2] == 0 && j.s->nic[3] == 0);
	CHECK(strstr(j.s->rail_why, "hosts have 1 to 2 NICs") != NULL, "%s", j.s->rail_why);
	close_job(&j);
}

/* Against all ways to give up to eight shares of one part to three rails. */
TEST(search, no_shares_are_faster)
{
	struct coll_rng rng = {coll_clock_ns()};

	printf("seed %llu\n", (unsigned long long)rng.state);
	for (int k = 0; k < 2000; k++) {
		uint32_t rate[3];
		int capacity[3], n;
		double best = 0, mine = 1e30;

		for (int i = 0; i < 3; i++)
			rate[i] = 1 + coll_rng_below(&rng, k % 2 ? 10 : 100000);
		for (int a = 0; a <= COLL_SHARES_MAX; a++)
			for (int b = 0; a + b <= COLL_SHARES_MAX; b++)
				for (int c = a + b == 0; a + b + c <= COLL_SHARES_MAX; c++) {
					const int of[3] = {a, b, c};
					double least = 1e30;

					for (int i = 0; i < 3; i++)
						if (of[i] > 0 && (double)rate[i] / of[i] < least)
							least = (double)rate[i] / of[i];
					if ((a + b + c) * least > best)
						best = (a + b + c) * least;
				}
		n = coll_spread_shares(rate, 3, 1, capacity);
		CHECK(n == capacity[0] + capacity[1] + capacity[2], "%d shares", n);
		for (int i = 0; i < 3; i++)
			if (capacity[i] > 0 && (double)rate[i] / capacity[i] < mine)
				mine = (double)rate[i] / capacity[i];
		CHECK(n * mine * 1.0101 >= best, "%u, %u and %u Mb/s: %.0f of %.0f", rate[0], rate[1], rate[2],
		      n * mine, best);
	}
}

/* The least crossings of all ways to give whole parts to rails, where capacities are whole parts. */
static long least_crossings(const struct job *j, int part, int *room)
{
	long best = -1;

	if (part == j->s->parts)
		return 0;
	for (int k = 0; k < j->s->rails; k++) {
		long cost = 0, rest;

		if (room[k] == 0)
			continue;
		for (int h = 0; h < j->s->hosts; h++)
			cost += j->s->shares * coll_lanes_crossing(&j->rank[j->s->owner[h * j->s->parts + part]].place,
			                                           &j->graphs[h]->nic[j->s->nic[h * j->s->rails + k]]);
		room[k]--;
		rest = least_crossings(j, part + 1, room);
		room[k]++;
		if (rest >= 0 && (best < 0 || cost + rest < best))
			best = cost + rest;
	}
	return best;
}

/* Ranks and NICs anywhere: the flow has no more crossings than the best of all assignments. */
TEST(search, crossings_are_the_fewest)
{
	struct coll_rng rng = {11};

	for (int round = 0; round < 200; round++) {
		const int rails = 1 + (int)coll_rng_below(&rng, 3), each = 1 + (int)coll_rng_below(&rng, 3);
		const int hosts = 1 + (int)coll_rng_below(&rng, 3);
		struct job j = {.g = {NULL}};
		int room[3] = {each, each, each};

		if (rails * each > 7)
			continue;
		for (int h = 0; h < hosts; h++) {
			j.g[h] = machine(32, 16);
			for (int k = 0; k < rails; k++)
				add_nic(j.g[h], "nic", (int)coll_rng_below(&rng, 5) - 1, 1000);
		}
		fill(&j, hosts, rails * each, 1, NULL);
		for (int r = 0; r < j.in.ranks; r++)
			j.rank[r].place = coll_graph_core_place(j.g[0], (int)coll_rng_below(&rng, 16));
		run(&j);
		CHECK(j.s != NULL, "%s", j.why);
		if (j.s)
			CHECK(crossings(&j) == least_crossings(&j, 0, room), "round %d: %ld, at best %ld", round,
			      crossings(&j), least_crossings(&j, 0, room));
		close_job(&j);
	}
}
