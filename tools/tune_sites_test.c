/*
 * Sites from rates and round trips: equal and unequal hosts have none; hosts behind an uplink that is too slow for them
 * do.
 */
#include "tools/tune_sites.h"

#include "tests/plain.h"

enum { MOST = 8 };

static int sites(int hosts, double rate[MOST][MOST], double rtt[MOST][MOST], int *site_of)
{
	double r[MOST * MOST], t[MOST * MOST];

	for (int a = 0; a < hosts; a++)
		for (int b = 0; b < hosts; b++) {
			r[a * hosts + b] = a == b ? 0 : rate[a][b];
			t[a * hosts + b] = a == b ? 0 : rtt[a][b];
		}
	return tune_sites_find(hosts, r, t, site_of);
}

static void fill(double m[MOST][MOST], double value)
{
	for (int a = 0; a < MOST; a++)
		for (int b = 0; b < MOST; b++)
			m[a][b] = value;
}

TEST(sites, hosts_of_any_rates_are_of_none)
{
	static const double of[MOST] = {956, 956, 944, 478, 956, 950, 956, 239};
	double rate[MOST][MOST], rtt[MOST][MOST];
	int site_of[MOST];

	fill(rtt, 60e3);
	for (int hosts = 2; hosts <= MOST; hosts++) {
		for (int a = 0; a < MOST; a++)
			for (int b = 0; b < MOST; b++)
				rate[a][b] = of[a] < of[b] ? of[a] : of[b];
		CHECK(sites(hosts, rate, rtt, site_of) == 1, "%d hosts", hosts);
		for (int h = 0; h < hosts; h++)
			CHECK(site_of[h] == 0);
	}
}

/* Each pair across alone carries all there is, but two at once share it, in whatever parts. */
TEST(sites, a_slow_uplink_is_seen_whatever_part_each_stream_gets)
{
	for (int part = 50; part <= 85; part += 5) {
		double rate[MOST][MOST], rtt[MOST][MOST];
		int site_of[MOST];

		fill(rtt, 60e3);
		fill(rate, 956);
		for (int a = 0; a < 4; a++)
			for (int b = 0; b < 4; b++)
				if (a % 2 != b % 2)
					rate[a][b] = 956 * 0.01 * ((a < 2) == (b < 2) ? part : 100 - part);
		CHECK(sites(4, rate, rtt, site_of) == 2, "%d", part);
		CHECK(site_of[0] == 0 && site_of[1] == 1 && site_of[2] == 0 && site_of[3] == 1);
	}
}

TEST(sites, a_far_host_is_a_site)
{
	double rate[MOST][MOST], rtt[MOST][MOST];
	int site_of[MOST];

	fill(rtt, 60e3);
	fill(rate, 956);
	for (int h = 0; h < 4; h++)
		rtt[h][4] = rtt[4][h] = 2e6;
	CHECK(sites(5, rate, rtt, site_of) == 2 && site_of[3] == 0 && site_of[4] == 1);
	for (int h = 0; h < 4; h++)
		rtt[h][4] = rtt[4][h] = 190e3;
	CHECK(sites(5, rate, rtt, site_of) == 1, "a busy host answers late");
}

TEST(sites, pairs_that_were_not_measured_say_nothing)
{
	double rate[MOST][MOST], rtt[MOST][MOST];
	int site_of[MOST];

	fill(rtt, 0);
	fill(rate, 0);
	for (int h = 0; h + 1 < 5; h++)
		rate[h][h + 1] = rate[h + 1][h] = 956;
	CHECK(sites(5, rate, rtt, site_of) == 1);
}
