/*
 * The rail of each channel: both ends find the same, rails carry what their rates say, ranks use the cards near them,
 * and what is not alive is not used.
 */
#include "core/rails.h"

#include <stdlib.h>

#include "base/hash.h"
#include "tests/plain.h"

enum { RANKS = 24, HOSTS = 6 };

struct job {
	struct coll_rails_in in;
	uint32_t host_of[RANKS];
	int order[RANKS];
	struct coll_transport_path path[RANKS];
	struct coll_rails *rails;
};

/* Ranks host by host, each with these rails; all cards are near. */
static void fill(struct job *j, const int *count, int hosts, const uint32_t *mbps, uint32_t rails)
{
	*j = (struct job){.in = {.hosts = hosts, .host_of = j->host_of, .order = j->order, .path = j->path}};
	for (int h = 0; h < hosts; h++)
		for (int i = 0; i < count[h]; i++) {
			const int r = j->in.ranks++;

			j->host_of[r] = (uint32_t)h;
			j->order[r] = r;
			j->path[r].rails = rails;
			for (uint32_t k = 0; k < rails; k++)
				j->path[r].rail[k] = (struct coll_transport_rail){.network = 100 + k, .mbps = mbps[k]};
		}
}

/* Rank r and each card of its host: near those of its half. */
static void place(struct job *j, int r, unsigned half, uint32_t rails)
{
	for (uint32_t k = 0; k < rails; k++)
		j->path[r].rail[k].distance[0] = k % 2 == half ? COLL_NIC_NEAR : COLL_NIC_OTHER_PACKAGE;
}

static struct coll_transport_path between(const struct job *j, int a, int b)
{
	struct coll_transport_path p = j->path[a];

	for (uint32_t k = 0; k < p.rails; k++)
		p.rail[k].distance[1] = j->path[b].rail[k].distance[0];
	return p;
}

static unsigned rail(const struct job *j, int a, int b, unsigned turn, bool alone)
{
	const struct coll_transport_path p = between(j, a, b), q = between(j, b, a);
	const struct coll_rails_channel there = {a, b, turn, alone}, back = {b, a, turn, alone};
	const unsigned k = coll_rails_of(j->rails, &p, &there);

	CHECK(k < p.rails && k == coll_rails_of(j->rails, &q, &back), "%d to %d, turn %u: %u", a, b, turn, k);
	return k;
}

static void make(struct job *j)
{
	j->rails = coll_rails_create(&j->in);
	REQUIRE(j->rails != NULL);
}

/* Rank i of each host with rank i of the next one, as levels do; host 0's channels by rail. */
static void count_lanes(const struct job *j, unsigned *sum)
{
	const unsigned windows = j->rails->streams * 2;

	for (int a = 0; a < j->in.ranks && j->host_of[a] == 0; a++)
		for (int b = 0; b < j->in.ranks; b++) {
			const struct coll_rails_owned x = j->rails->owned[a], y = j->rails->owned[b];

			if (j->host_of[b] != 1)
				continue;
			for (unsigned part = 0; part < (unsigned)j->rails->parts; part++)
				for (unsigned w = 0; w < windows; w++)
					if (part - x.first < x.count && part - y.first < y.count)
						sum[rail(j, a, b, w, false)]++;
		}
}

TEST(core_rails, carry_what_their_rates_say)
{
	static const struct {
		int count[2];
		uint32_t mbps[3], rails;
		unsigned part[3]; /* of their sum */
	} cases[] = {
	        {{4, 4}, {1000, 250}, 2, {4, 1}},           {{3, 2}, {1000, 250}, 2, {4, 1}},
	        {{4, 4}, {1000, 500}, 2, {2, 1}},           {{3, 2}, {1000, 1000}, 2, {1, 1}},
	        {{4, 4}, {1000, 1000}, 2, {1, 1}},          {{5, 1}, {250, 1000}, 2, {1, 4}},
	        {{2, 2}, {1000, 1000, 1000}, 3, {1, 1, 1}}, {{4, 4}, {0, 0}, 2, {1, 1}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		unsigned sum[COLL_RAILS_MAX] = {0}, parts = 0, all = 0;
		struct job j;

		fill(&j, cases[i].count, 2, cases[i].mbps, cases[i].rails);
		make(&j);
		count_lanes(&j, sum);
		for (uint32_t k = 0; k < cases[i].rails; k++) {
			parts += cases[i].part[k];
			all += sum[k];
		}
		for (uint32_t k = 0; k < cases[i].rails; k++)
			CHECK(sum[k] * parts == cases[i].part[k] * all, "case %zu: %u of %u over rail %u", i, sum[k],
			      all, k);
		coll_rails_destroy(&j.rails);
	}
}

/* 4 + 4 ranks, numbered round the packages: each uses the card of its package, and small calls too. */
TEST(core_rails, ranks_use_the_cards_near_them)
{
	static const int count[] = {4, 4};
	static const uint32_t mbps[] = {1000, 1000};
	struct job j;

	fill(&j, count, 2, mbps, 2);
	for (int r = 0; r < 8; r++)
		place(&j, r, (unsigned)r % 2, 2);
	make(&j);
	CHECK(j.rails->parts == 4 && j.rails->shares == 1 && j.rails->streams == 1, "%d, %d", j.rails->parts,
	      j.rails->shares);
	for (int i = 0; i < 4; i++)
		for (unsigned turn = 0; turn < 4; turn++)
			CHECK(rail(&j, i, 4 + i, turn, false) == (unsigned)i % 2, "rank %d", i);
	/* A message between two ranks has no others beside it. */
	CHECK(rail(&j, 1, 5, 0, true) == 1 && rail(&j, 1, 5, 1, true) == 0);
	coll_rails_destroy(&j.rails);
	/* All ranks on one package: both cards carry half. */
	for (int r = 0; r < 8; r++)
		place(&j, r, 0, 2);
	make(&j);
	CHECK(rail(&j, 0, 4, 0, false) + rail(&j, 1, 5, 0, false) + rail(&j, 2, 6, 0, false) +
	              rail(&j, 3, 7, 0, false) ==
	      2);
	coll_rails_destroy(&j.rails);
}

/* One rank of each host: both cards, the near one first; without places, links begin with either. */
TEST(core_rails, a_link_alone_uses_all)
{
	static const int one[] = {1, 1, 1, 1, 1, 1};
	static const uint32_t mbps[] = {1000, 250};
	unsigned sum[2] = {0}, first[2] = {0};
	struct job j;

	fill(&j, one, 6, mbps, 2);
	make(&j);
	CHECK(j.rails->parts == 0 && j.rails->streams == 5, "%d parts, %u streams", j.rails->parts, j.rails->streams);
	for (int b = 1; b < 6; b++)
		for (unsigned turn = 0; turn < 5; turn++) {
			const unsigned k = rail(&j, 0, b, turn, false);

			sum[k]++;
			first[k] += turn == 0;
		}
	CHECK(sum[0] == 20 && sum[1] == 5 && first[0] > 0, "%u, %u", sum[0], sum[1]);
	for (int r = 0; r < 6; r++)
		place(&j, r, 1, 2);
	coll_rails_destroy(&j.rails);
	make(&j);
	CHECK(rail(&j, 0, 1, 0, false) == 1 && rail(&j, 2, 5, 0, false) == 1, "the near one, though it is slow");
	coll_rails_destroy(&j.rails);
}

/* Of whatever rails are left, one. */
TEST(core_rails, what_is_not_alive_is_not_used)
{
	static const int count[] = {4, 2, 3};
	static const uint32_t mbps[] = {1000, 500, 1000};
	struct coll_rng rng = {5};
	struct job j;

	fill(&j, count, 3, mbps, 3);
	make(&j);
	for (int i = 0; i < 1000; i++) {
		const int a = (int)coll_rng_below(&rng, 9), b = (int)coll_rng_below(&rng, 9);
		const struct coll_transport_path whole = between(&j, a, b);
		const struct coll_rails_channel c = {a, b, (unsigned)coll_rng_below(&rng, 20), i % 2};
		const uint32_t lost = (uint32_t)coll_rng_below(&rng, 3);
		const unsigned before = coll_rails_of(j.rails, &whole, &c);
		struct coll_transport_path left = {.rails = 2,
		                                   .rail = {whole.rail[lost == 0], whole.rail[2 - (lost == 2)]}};
		unsigned now;

		now = coll_rails_of(j.rails, &left, &c);
		CHECK(now < 2 && left.rail[now].network != whole.rail[lost].network);
		/* Channels of other rails stay where they are. */
		if (!c.alone && before != lost && j.host_of[a] != j.host_of[b] &&
		    !(j.rails->owned[a].count == j.rails->parts && j.rails->owned[b].count == j.rails->parts))
			CHECK(left.rail[now].network == whole.rail[before].network, "%d to %d, turn %u", a, b, c.turn);
	}
	coll_rails_destroy(&j.rails);
}

/* Several connections in one network, and one network that not all hosts have. */
TEST(core_rails, connections_and_strange_hosts)
{
	static const int count[] = {2, 2, 2};
	static const uint32_t mbps[] = {1000, 1000};
	struct coll_transport_path four = {.rails = 4};
	unsigned seen[4] = {0};
	struct job j;

	fill(&j, count, 3, mbps, 2);
	j.path[4].rails = j.path[5].rails = 1;
	make(&j);
	CHECK(j.rails->rails == 2);
	CHECK(coll_rails_of(j.rails, &j.path[4], &(struct coll_rails_channel){1, 5, 3, false}) == 0);
	coll_rails_destroy(&j.rails);
	for (unsigned turn = 0; turn < 4; turn++)
		seen[coll_rails_of(NULL, &four, &(struct coll_rails_channel){0, 1, turn, false})]++;
	CHECK(seen[0] == 1 && seen[1] == 1 && seen[2] == 1 && seen[3] == 1, "%u %u %u %u", seen[0], seen[1], seen[2],
	      seen[3]);
}
