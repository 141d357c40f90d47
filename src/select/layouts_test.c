/*
 * Choice with a layout: which rows read it, which lengths go through leaders, and what the uplink of a site costs.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "base/limits.h"
#include "select/cost.h"
#include "select/select.h"

/* What a communicator over transports/tcp has, and its ranks of one host. */
static const struct coll_select_facts tcp = {
        .size = 2,
        .caps = {.latency_ns = 8000, .overhead_ns = 1500, .bytes_per_ns = 6, .cross_host = true, .streamed = true},
        .reduce_bytes_per_ns = 20,
        .slot_bytes = 1 << 20,
        .windows_max = 4,
        .scratch_bytes_max = 128 << 20,
        .forced = ""};
static const struct coll_transport_caps memory = {.latency_ns = 150, .overhead_ns = 40, .bytes_per_ns = 10};

/* Two hosts of four ranks over tcp, shared memory within. */
static struct coll_layout *two_hosts(struct coll_select_facts *f)
{
	static const uint32_t host_of[] = {0, 1, 0, 1, 0, 1, 0, 1};
	const struct coll_layout_split hosts = {"host", true, false, host_of};
	struct coll_layout *l = NULL;

	cr_assert_eq(coll_layout_create(8, &hosts, 1, &l), COLL_OK);
	*f = tcp;
	f->size = 8;
	f->layout = l;
	f->local_max = 4;
	f->inside = memory;
	return l;
}

static const char *selected(const struct coll_select_facts *f, enum coll_kind kind, size_t bytes, bool ordered)
{
	const struct coll_select_call c = {kind, bytes / 4, 4, ordered, false, false};
	struct coll_select_choice choice;

	cr_assert_eq(coll_select_plan(f, &c, false, &choice), COLL_OK);
	return choice.algo->name;
}

Test(tune, long_calls_between_hosts_take_rows_that_read_the_layout)
{
	struct coll_select_facts f;
	struct coll_layout *l = two_hosts(&f);

	for (size_t bytes = 256 << 10; bytes <= (size_t)64 << 20; bytes *= 4) {
		cr_assert_str_eq(selected(&f, COLL_KIND_ALL_REDUCE, bytes, false), "circulant");
		cr_assert_str_eq(selected(&f, COLL_KIND_ALL_GATHER, bytes, false), "circulant");
		cr_assert_str_eq(selected(&f, COLL_KIND_REDUCE_SCATTER, bytes, false), "circulant");
		cr_assert_str_eq(selected(&f, COLL_KIND_BROADCAST, bytes, false), "lanes");
		cr_assert_str_eq(selected(&f, COLL_KIND_REDUCE, bytes, false), "lanes");
		cr_assert_neq(
		        coll_algo_find(COLL_KIND_ALL_REDUCE, selected(&f, COLL_KIND_ALL_REDUCE, bytes, true))->flags &
		                COLL_ALGO_ORDERED,
		        0, "an operation that does not commute keeps its order");
	}
	coll_layout_destroy(&l);
}

Test(tune, short_calls_between_hosts_go_through_one_rank_of_each)
{
	static const enum coll_kind kinds[] = {COLL_KIND_ALL_REDUCE, COLL_KIND_BROADCAST, COLL_KIND_REDUCE,
	                                       COLL_KIND_BARRIER};
	struct coll_select_facts f;
	struct coll_layout *l = two_hosts(&f);

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		cr_assert_str_eq(selected(&f, kinds[i], 8, false), "leaders");
		cr_assert_str_eq(selected(&f, kinds[i], COLL_LEADERS_MAX, false), "leaders");
		if (kinds[i] != COLL_KIND_BARRIER)
			cr_assert_str_neq(selected(&f, kinds[i], COLL_LEADERS_MAX + 4, false), "leaders");
	}
	coll_layout_destroy(&l);
}

/* Between hosts at 100 Mb/s, of 1, 3 and 2 ranks, 16 KiB: reduce by leaders 2772 us, by the tree 1366, broadcast by
 * leaders 2764 (2026-11-26). */
Test(tune, over_a_link_whose_rate_is_known_the_price_decides_from_a_round_on)
{
	static const enum coll_kind kinds[] = {COLL_KIND_BROADCAST, COLL_KIND_REDUCE};
	struct coll_select_facts f;
	struct coll_layout *l = two_hosts(&f);

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		cr_assert_str_eq(selected(&f, kinds[i], 16384, false), "leaders", "nobody says the rate");
		f.link_mbps = 100;
		f.caps.bytes_per_ns = 0.0125;
		cr_assert_str_eq(selected(&f, kinds[i], 16384, false), "lanes");
		cr_assert_str_eq(selected(&f, kinds[i], 8, false), "leaders", "rounds decide, not bytes");
		cr_assert_str_eq(selected(&f, COLL_KIND_BARRIER, 4, false), "leaders");
		f.link_mbps = 0;
		f.caps.bytes_per_ns = tcp.caps.bytes_per_ns;
	}
	coll_layout_destroy(&l);
}

/* Hosts of one rank, whose level is for chains alone. */
static struct coll_layout *chain_of(struct coll_select_facts *f, int hosts, uint32_t mbps)
{
	uint32_t host_of[128];
	const struct coll_layout_split level = {"host", true, true, host_of};
	struct coll_layout *l = NULL;

	for (int r = 0; r < hosts; r++)
		host_of[r] = (uint32_t)r;
	cr_assert_eq(coll_layout_create(hosts, &level, 1, &l), COLL_OK);
	*f = tcp;
	f->size = hosts;
	f->chain = l;
	f->slot_bytes = 512 << 10;
	f->link_mbps = mbps;
	f->caps.bytes_per_ns = mbps ? mbps / 8e3 : tcp.caps.bytes_per_ns;
	return l;
}

/* Broadcast and reduce of hosts of one rank reach the rate of the link by lanes, and by no other row that is there:
 * 4 x 1 Gb/s, 1 MiB, binomial 17474 us, lanes 8775 (2026-11-26). */
Test(tune, over_known_links_hosts_of_one_rank_are_a_chain)
{
	static const uint32_t rates[] = {100, 200, 1000};
	struct coll_select_facts f;

	for (int hosts = 3; hosts <= 16; hosts++)
		for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
			struct coll_layout *l = chain_of(&f, hosts, rates[i]);

			for (size_t bytes = 64 << 10; bytes <= (size_t)16 << 20; bytes *= 2) {
				if (rates[i] == 1000 && hosts > 4)
					continue;
				cr_assert_str_eq(selected(&f, COLL_KIND_BROADCAST, bytes, false), "lanes",
				                 "%d hosts, %zu bytes", hosts, bytes);
				cr_assert_str_eq(selected(&f, COLL_KIND_REDUCE, bytes, false), "lanes",
				                 "%d hosts, %zu bytes", hosts, bytes);
			}
			cr_assert_str_neq(selected(&f, COLL_KIND_REDUCE, 1 << 20, true), "lanes", "rank order");
			cr_assert_str_neq(selected(&f, COLL_KIND_BROADCAST, 8, false), "lanes", "rounds decide");
			coll_layout_destroy(&l);
		}
}

/* What other kinds choose does not depend on it. */
Test(tune, a_chain_changes_no_other_kind)
{
	static const enum coll_kind kinds[] = {COLL_KIND_ALL_REDUCE, COLL_KIND_ALL_GATHER, COLL_KIND_REDUCE_SCATTER,
	                                       COLL_KIND_ALL_TO_ALL, COLL_KIND_BARRIER};
	struct coll_select_facts f;

	for (int hosts = 3; hosts <= 16; hosts++) {
		struct coll_layout *l = chain_of(&f, hosts, 1000);
		struct coll_select_facts without = f;

		without.chain = NULL;
		for (size_t bytes = 4; bytes <= (size_t)16 << 20; bytes *= 4)
			for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
				cr_assert_str_eq(selected(&f, kinds[k], bytes, false),
				                 selected(&without, kinds[k], bytes, false));
		coll_layout_destroy(&l);
	}
}

/* A tile is short beside the call, and the time until the last of many hosts has its first is priced. */
Test(tune, a_chain_is_cut_in_tiles_and_loses_where_it_is_long)
{
	struct coll_select_facts f;
	struct coll_layout *l = chain_of(&f, 4, 1000);
	const struct coll_select_call c = {COLL_KIND_REDUCE, 1 << 18, 4, false, false, false};
	struct coll_select_choice choice;

	f.link_mbps = 0;
	cr_assert_str_neq(selected(&f, COLL_KIND_REDUCE, 1 << 20, false), "lanes", "nobody says the rate");
	f.link_mbps = 1000;
	cr_assert_eq(coll_select_plan(&f, &c, false, &choice), COLL_OK);
	cr_assert(choice.tile_bytes == (1 << 20) / 12 && choice.windows == 4, "%zu, %u", choice.tile_bytes,
	          choice.windows);
	coll_layout_destroy(&l);
	l = chain_of(&f, 128, 1000);
	cr_assert_str_neq(selected(&f, COLL_KIND_BROADCAST, 64 << 10, false), "lanes");
	coll_layout_destroy(&l);
}

/* 2 x 2 ranks, tcp between two hosts that share cores: leaders 13 us, direct 11 (2026-11-23). */
Test(tune, a_short_reduce_of_few_ranks_that_share_cores_goes_straight_to_the_root)
{
	struct coll_select_facts f;
	struct coll_layout *l = two_hosts(&f);
	static const uint32_t host_of[] = {0, 0, 1, 1};
	const struct coll_layout_split hosts = {"host", true, false, host_of};

	f.oversubscribed = true;
	cr_assert_str_eq(selected(&f, COLL_KIND_REDUCE, 8, false), "leaders", "four ranks on each host");
	coll_layout_destroy(&l);
	cr_assert_eq(coll_layout_create(4, &hosts, 1, &l), COLL_OK);
	f.size = 4;
	f.layout = l;
	f.local_max = 2;
	cr_assert_str_eq(selected(&f, COLL_KIND_REDUCE, 8, false), "direct");
	cr_assert_str_eq(selected(&f, COLL_KIND_REDUCE, 4096, false), "direct");
	cr_assert_str_eq(selected(&f, COLL_KIND_BROADCAST, 8, false), "leaders");
	coll_layout_destroy(&l);
}

/* Two sites of two hosts, `local` ranks on each, whose uplinks have that rate in Mb/s. */
static struct coll_layout *two_sites(struct coll_select_facts *f, int local, uint32_t mbps)
{
	uint32_t site_of[16], host_of[16], rate_of[16];
	struct coll_layout_split splits[] = {{"site", true, true, site_of}, {"host", true, true, host_of}};
	struct coll_layout *l = NULL;

	for (int r = 0; r < 4 * local; r++) {
		site_of[r] = (uint32_t)(r / local / 2);
		host_of[r] = (uint32_t)(r / local);
		rate_of[r] = site_of[r] ? 0 : mbps; /* the other site's is not told */
	}
	cr_assert_eq(coll_layout_create(4 * local, splits, 2, &l), COLL_OK);
	coll_layout_tell_uplinks(l, rate_of);
	cr_assert_eq(l->level[0].mbps, mbps);
	*f = tcp;
	f->size = 4 * local;
	f->layout = l;
	f->local_max = local;
	f->inside = memory;
	return l;
}

static double price_of(const struct coll_select_facts *f, enum coll_kind kind, size_t bytes)
{
	const struct coll_select_call c = {kind, bytes / 4, 4, false, false, false};
	struct coll_select_choice choice;

	cr_assert_eq(coll_select_plan(f, &c, false, &choice), COLL_OK);
	return choice.cost_ns;
}

/* A site of two sends and receives S (2 (G - 1) / G of it for an all-reduce, the vector once for a broadcast): that
 * over the rate is the least time there is. */
Test(tune, the_uplink_of_a_site_bounds_the_price)
{
	static const enum coll_kind kinds[] = {COLL_KIND_ALL_REDUCE, COLL_KIND_BROADCAST, COLL_KIND_REDUCE};
	static const uint32_t rates[] = {500, 100};
	const size_t bytes = 64 << 20;
	struct coll_select_facts f;

	for (int local = 1; local <= 4; local += 3)
		for (int i = 0; i < 2; i++)
			for (int k = 0; k < 3; k++) {
				struct coll_layout *l = two_sites(&f, local, rates[i]);
				const double least_ns = (double)bytes / (rates[i] / 8e3);
				const double ns = price_of(&f, kinds[k], bytes);

				cr_assert_str_eq(selected(&f, kinds[k], bytes, false),
				                 kinds[k] == COLL_KIND_ALL_REDUCE ? "circulant" : "lanes");
				cr_assert(ns >= least_ns && ns < 1.03 * least_ns, "%s: %g ns, at least %g",
				          coll_plan_kind_name(kinds[k]), ns, least_ns);
				coll_layout_destroy(&l);
			}
}

Test(tune, an_unknown_uplink_is_not_slow)
{
	struct coll_select_facts unknown, fast;
	struct coll_layout *l = two_sites(&unknown, 2, 0), *m = two_sites(&fast, 2, 4000000);

	for (size_t bytes = 8; bytes <= (size_t)64 << 20; bytes *= 8) {
		const double ns = price_of(&unknown, COLL_KIND_ALL_REDUCE, bytes);

		cr_assert(ns <= price_of(&fast, COLL_KIND_ALL_REDUCE, bytes), "%zu bytes", bytes);
	}
	coll_layout_destroy(&l);
	coll_layout_destroy(&m);
}

/* Leaders send S for each host of a site, levels 2 (G - 1) / G S in more rounds: where bytes count more than rounds,
 * that is chosen for short vectors, too. */
Test(tune, over_a_slow_uplink_short_vectors_go_by_levels)
{
	static const struct {
		uint32_t mbps;
		size_t bytes;
		const char *name;
	} cases[] = {{0, 8, "leaders"},   {0, 4096, "leaders"},     {0, 16384, "leaders"},
	             {500, 8, "leaders"}, {500, 1024, "leaders"},   {500, 16384, "circulant"},
	             {100, 8, "leaders"}, {100, 4096, "circulant"}, {100, 16384, "circulant"}};
	struct coll_select_facts f;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct coll_layout *l = two_sites(&f, 1, cases[i].mbps);

		cr_assert_str_eq(selected(&f, COLL_KIND_ALL_REDUCE, cases[i].bytes, false), cases[i].name,
		                 "%u Mb/s, %zu bytes", cases[i].mbps, cases[i].bytes);
		coll_layout_destroy(&l);
	}
}

Test(tune, without_a_layout_rows_that_need_one_are_refused_by_reason)
{
	struct coll_select_facts f = tcp;
	const struct coll_select_call c = {COLL_KIND_BROADCAST, 1 << 20, 4, false, false, false};
	struct coll_select_choice choice;

	f.size = 8;
	cr_assert_str_neq(selected(&f, COLL_KIND_BROADCAST, 1 << 20, false), "lanes");
	f.forced = "broadcast:lanes";
	cr_assert_eq(coll_select_plan(&f, &c, true, &choice), COLL_ERR_CONFIG);
	cr_assert(strstr(choice.why, "several hosts"), "%s", choice.why);
}
