/*
 * Levels inside hosts: each distinct digest is sent once, all ranks derive the same, and what is damaged is refused
 * with its rank.
 */
#include "comm/inside.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "tests/plain.h"

enum { RANKS_MAX = 1000, DIGESTS_MAX = 40 };

/* A job, as every rank has it after the exchange. */
struct job {
	struct coll_inside_info info[RANKS_MAX];
	uint32_t host_of[RANKS_MAX];
	int digest_of[RANKS_MAX], sender[RANKS_MAX];
	uint8_t bytes[DIGESTS_MAX][COLL_DIGEST_MAX];
	struct coll_inside_in in;
};

/* A host of so many NUMA nodes with so many cores each, which are far from each other. */
static size_t write_host(int numas, int cores, uint8_t bytes[COLL_DIGEST_MAX])
{
	struct coll_graph *g = coll_graph_new();
	size_t len_bytes;

	if (!g)
		abort();
	g->numas = numas;
	g->cores = g->pus = numas * cores;
	g->kinds = 1;
	g->distance_origin = COLL_ORIGIN_TOLD;
	for (int c = 0; c < g->cores; c++) {
		g->core[c] = (struct coll_graph_core){-1, (short)(c / cores), -1, 0};
		g->pu[c] = (struct coll_graph_pu){c, c};
	}
	for (int i = 0; i < numas; i++) {
		g->numa[i] = (struct coll_graph_numa){i, 1, -1};
		for (int k = 0; k < numas; k++)
			g->distance[i][k] = i == k ? 10 : 21;
	}
	len_bytes = coll_digest_write(g, bytes);
	free(g);
	return len_bytes;
}

static struct coll_inside_info info(const uint8_t *bytes, size_t len_bytes, int cpu)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	CPU_SET((size_t)cpu, &cpus);
	return coll_inside_info_of(bytes, len_bytes, &cpus);
}

/* Ranks go round the hosts; the host's k-th rank is on core k. kinds: so many kinds of hosts, by turns. */
static struct job *make_job(int ranks, int hosts, int kinds)
{
	struct job *j = calloc(1, sizeof(*j));
	uint8_t bytes[COLL_DIGEST_MAX];

	if (!j)
		abort();
	for (int r = 0; r < ranks; r++) {
		const int host = r % hosts, per_host = ranks / hosts + 1;
		const size_t len_bytes = write_host(2, per_host / 2 + 1 + host % kinds, bytes);

		j->host_of[r] = (uint32_t)host;
		j->info[r] = info(bytes, len_bytes, r / hosts);
	}
	j->in = (struct coll_inside_in){.ranks = ranks,
	                                .hosts = hosts,
	                                .host_of = j->host_of,
	                                .infos = j->info,
	                                .digest_of = j->digest_of,
	                                .sender = j->sender,
	                                .bytes = (const uint8_t(*)[COLL_DIGEST_MAX])j->bytes};
	j->in.digests = coll_inside_digests(j->info, ranks, j->digest_of, j->sender);
	for (int d = 0; d < j->in.digests && d < DIGESTS_MAX; d++)
		(void)write_host(2, (ranks / hosts + 1) / 2 + 1 + j->sender[d] % hosts % kinds, j->bytes[d]);
	return j;
}

static bool find(struct job *j, struct coll_inside *s, int *culprit, char why[200])
{
	why[0] = 0;
	return coll_inside_find(&j->in, s, culprit, why, 200);
}

TEST(inside, each_distinct_digest_is_sent_once)
{
	struct job *j = make_job(1000, 40, 3);

	CHECK(j->in.digests == 3, "%d", j->in.digests);
	for (int d = 0; d < j->in.digests; d++) {
		CHECK(j->digest_of[j->sender[d]] == d);
		for (int r = 0; r < j->sender[d]; r++)
			CHECK(j->digest_of[r] != d, "rank %d has it and is lower than %d", r, j->sender[d]);
	}
	j->info[7].len_bytes = 0;
	CHECK(coll_inside_digests(j->info, 1000, j->digest_of, j->sender) == 3 && j->digest_of[7] == -1);
	free(j);
}

TEST(inside, far_nodes_are_a_level)
{
	struct job *j = make_job(8, 2, 1);
	struct coll_inside s;
	char why[200];
	int culprit;

	REQUIRE(find(j, &s, &culprit, why), "%s", why);
	REQUIRE(s.levels == 1 && s.level[0] == COLL_LEVEL_NUMA, "%d levels: %s", s.levels, s.why[1]);
	CHECK(strstr(s.why[1], "told"), "%s", s.why[1]);
	for (int a = 0; a < 8; a++)
		for (int b = 0; b < 8; b++)
			CHECK((s.group_of[0][a] == s.group_of[0][b]) ==
			      (a % 2 == b % 2 && j->info[a].numa == j->info[b].numa));
	coll_inside_free(&s);
	j->in.forced = 1u << COLL_LEVEL_HOST;
	REQUIRE(find(j, &s, &culprit, why), "%s", why);
	CHECK(s.levels == 0);
	coll_inside_free(&s);
	free(j);
}

TEST(inside, a_host_whose_ranks_differ_is_one_group)
{
	struct job *j = make_job(16, 2, 1);
	struct coll_inside s;
	char why[200];
	int culprit;

	/* Rank 5 of host 1 is in a container that sees three cores per node. */
	j->info[5] = info(j->bytes[1], write_host(2, 3, j->bytes[1]), 1);
	j->in.digests = coll_inside_digests(j->info, 16, j->digest_of, j->sender);
	REQUIRE(j->in.digests == 2 && j->sender[1] == 5);
	REQUIRE(find(j, &s, &culprit, why), "%s", why);
	CHECK(s.mixed[0] == 1 && s.mixed[1] == 5, "ranks %d and %d", s.mixed[0], s.mixed[1]);
	REQUIRE(s.levels == 1);
	for (int r = 3; r < 16; r += 2)
		CHECK(s.group_of[0][r] == s.group_of[0][1], "rank %d", r);
	CHECK(s.group_of[0][0] != s.group_of[0][14]);
	coll_inside_free(&s);
	free(j);
}

TEST(inside, ranks_that_are_not_bound_have_no_levels)
{
	struct job *j = make_job(8, 2, 1);
	struct coll_inside s;
	char why[200];
	int culprit;
	cpu_set_t all;

	memset(&all, 255, sizeof(all));
	for (int r = 0; r < 8; r++)
		j->info[r] = coll_inside_info_of(j->bytes[0], j->info[0].len_bytes, &all);
	REQUIRE(find(j, &s, &culprit, why), "%s", why);
	CHECK(s.levels == 0 && strstr(s.why[1], "not bound"), "%s", s.why[1]);
	coll_inside_free(&s);
	/* And none says anything of its host. */
	memset(j->info, 0, sizeof(j->info));
	j->in.digests = coll_inside_digests(j->info, 8, j->digest_of, j->sender);
	CHECK(j->in.digests == 0);
	REQUIRE(find(j, &s, &culprit, why), "%s", why);
	CHECK(s.levels == 0);
	coll_inside_free(&s);
	free(j);
}

TEST(inside, damaged_digests_and_places_name_their_rank)
{
	struct job *j = make_job(8, 2, 2);
	struct coll_inside s;
	char why[200];
	int culprit, *digest_of = j->digest_of;
	int16_t *places[] = {&j->info[6].package, &j->info[6].numa, &j->info[6].l3, &j->info[6].core};

	REQUIRE(j->in.digests == 2 && j->sender[1] == 1 && digest_of[1] == 1);
	for (uint32_t at = 0; at < j->info[1].len_bytes; at++) {
		j->bytes[1][at] ^= 1;
		CHECK(!find(j, &s, &culprit, why) && culprit == 1 && strstr(why, "rank 1"), "byte %u: %s", at, why);
		/* The rank says that it is meant so. */
		j->info[1].hash = coll_digest_hash(j->bytes[1], j->info[1].len_bytes);
		if (find(j, &s, &culprit, why))
			coll_inside_free(&s);
		else
			CHECK(culprit >= 0 && why[0], "byte %u: %s", at, why);
		j->bytes[1][at] ^= 1;
		j->info[1].hash = coll_digest_hash(j->bytes[1], j->info[1].len_bytes);
	}
	for (int i = 0; i < 4; i++) {
		const int16_t right = *places[i];

		for (int wrong = -2; wrong < 32767; wrong += 509) {
			*places[i] = (int16_t)wrong;
			if (wrong == right || wrong == -1)
				continue;
			CHECK(!find(j, &s, &culprit, why) && culprit == 6 && strstr(why, "rank 6"), "%d: %s", wrong,
			      why);
		}
		*places[i] = right;
	}
	j->info[1].len_bytes = COLL_DIGEST_MAX + 1;
	CHECK(!find(j, &s, &culprit, why) && culprit == 1, "%s", why);
	free(j);
}

/* ---- Agreement ---------------------------------------------------------- */

static struct coll_layout *layout_of(int ranks, const uint32_t *host_of, const uint32_t *numa_of)
{
	const struct coll_layout_split splits[] = {{"host", true, false, host_of}, {"numa", false, false, numa_of}};
	struct coll_layout *l;

	return coll_layout_create(ranks, splits, 2, &l) == COLL_OK ? l : NULL;
}

TEST(inside, differences_of_layouts_are_named)
{
	const uint32_t host[] = {0, 0, 0, 0, 1, 1, 1, 1}, other_host[] = {0, 1, 0, 1, 0, 1, 0, 1};
	const uint32_t numa[] = {0, 0, 1, 1, 2, 2, 3, 3}, other_numa[] = {0, 1, 0, 1, 2, 2, 3, 3};
	struct coll_layout *same = layout_of(8, host, numa), *inner = layout_of(8, host, other_numa),
	                   *outer = layout_of(8, other_host, numa);
	struct coll_inside_fingerprint p[4];
	const char *level = "";

	REQUIRE(same && inner && outer);
	for (int i = 0; i < 4; i++)
		p[i] = coll_inside_fingerprint_of(same);
	CHECK(coll_inside_compare(p, 4, &level) == -1);
	p[3] = coll_inside_fingerprint_of(inner);
	CHECK(coll_inside_compare(p, 4, &level) == 3 && strcmp(level, "numa") == 0, "%s", level);
	p[2] = coll_inside_fingerprint_of(outer);
	CHECK(coll_inside_compare(p, 4, &level) == 2 && strcmp(level, "host") == 0, "%s", level);
	p[1] = coll_inside_fingerprint_of(NULL);
	CHECK(coll_inside_compare(p, 4, &level) == 1 && strcmp(level, "host") == 0, "%s", level);
	p[1] = p[0];
	p[1].all ^= 1;
	CHECK(coll_inside_compare(p, 4, &level) == 1 && strcmp(level, "shares") == 0, "%s", level);
	coll_layout_destroy(&same);
	coll_layout_destroy(&inner);
	coll_layout_destroy(&outer);
}

enum { THREADS = 1000 };

struct deriver {
	struct job *j;
	struct coll_inside_fingerprint fingerprint;
};

/* What each rank does with what it has received. */
static void *derive(void *arg)
{
	struct deriver *d = arg;
	struct coll_inside s;
	struct coll_layout *l;
	char why[200];
	int culprit;

	if (!find(d->j, &s, &culprit, why))
		return NULL;
	if (s.levels == 1 && (l = layout_of(d->j->in.ranks, d->j->host_of, s.group_of[0]))) {
		d->fingerprint = coll_inside_fingerprint_of(l);
		coll_layout_destroy(&l);
	}
	coll_inside_free(&s);
	return NULL;
}

TEST(inside, a_thousand_ranks_derive_one_hash)
{
	static struct deriver d[THREADS];
	static struct coll_inside_fingerprint p[THREADS];
	struct job *j = make_job(THREADS, 40, 3);
	pthread_attr_t small;
	pthread_t t[25];
	const char *level;

	REQUIRE(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 1 << 18) == 0);
	for (int from = 0; from < THREADS; from += 25) {
		for (int i = 0; i < 25; i++) {
			d[from + i].j = j;
			REQUIRE(pthread_create(&t[i], &small, derive, &d[from + i]) == 0);
		}
		for (int i = 0; i < 25; i++)
			pthread_join(t[i], NULL);
	}
	for (int r = 0; r < THREADS; r++)
		p[r] = d[r].fingerprint;
	CHECK(p[0].all != 0 && p[0].level[COLL_LEVEL_NUMA] != 0);
	CHECK(coll_inside_compare(p, THREADS, &level) == -1);
	pthread_attr_destroy(&small);
	free(j);
}
