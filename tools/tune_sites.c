/*
 * See tune_sites.h. Hosts that carry to each other what each of them can carry are near. The nearest two groups become
 * one, by the mean of their pairs, until none are near: streams that share an uplink seldom get equal parts of it, but
 * the mean of them does not depend on that.
 */
#include "tools/tune_sites.h"

#include <stdlib.h>

/* Of what the slower of two hosts can carry: below it they are in different sites. An uplink that carries half of what
 * its hosts do gives 0.5. */
#define NEAR 0.75

/* Round trips that are so many times the shortest, and so much longer, lead to another site. */
#define FAR_TIMES 3
#define FAR_NS    200000

struct pairs {
	int hosts;
	const double *rate, *rtt_ns;
	double *most; /* that each host carried */
	double shortest_ns;
};

static double both_ways(const struct pairs *p, int a, int b)
{
	return (p->rate[a * p->hosts + b] + p->rate[b * p->hosts + a]) / 2;
}

static void look(struct pairs *p)
{
	for (int a = 0; a < p->hosts; a++)
		for (int b = 0; b < p->hosts; b++) {
			const double rtt = p->rtt_ns[a * p->hosts + b];

			if (a != b && both_ways(p, a, b) > p->most[a])
				p->most[a] = both_ways(p, a, b);
			if (a != b && rtt > 0 && (p->shortest_ns == 0 || rtt < p->shortest_ns))
				p->shortest_ns = rtt;
		}
}

/* -1: not measured. */
static double nearness(const struct pairs *p, int a, int b)
{
	const double rtt = p->rtt_ns[a * p->hosts + b], most = p->most[a] < p->most[b] ? p->most[a] : p->most[b];

	if (both_ways(p, a, b) <= 0 || most <= 0)
		return -1;
	if (rtt > FAR_TIMES * p->shortest_ns && rtt > p->shortest_ns + FAR_NS)
		return 0;
	return both_ways(p, a, b) / most;
}

static double mean_of(const struct pairs *p, const int *site_of, int x, int y)
{
	double sum = 0;
	int count = 0;

	for (int a = 0; a < p->hosts; a++)
		for (int b = 0; b < p->hosts; b++) {
			const double near = site_of[a] == x && site_of[b] == y ? nearness(p, a, b) : -1;

			sum += near >= 0 ? near : 0;
			count += near >= 0;
		}
	return count > 0 ? sum / count : -1;
}

/* False: no two groups are near. */
static bool join_nearest(const struct pairs *p, int *site_of)
{
	double best = NEAR;
	int into = -1, from = -1;

	for (int x = 0; x < p->hosts; x++)
		for (int y = x + 1; y < p->hosts; y++) {
			const double near = mean_of(p, site_of, x, y);

			if (near >= best && (into < 0 || near > best)) {
				best = near;
				into = x;
				from = y;
			}
		}
	for (int h = 0; into >= 0 && h < p->hosts; h++)
		if (site_of[h] == from)
			site_of[h] = into;
	return into >= 0;
}

/* Numbers without gaps; 1 if every site is a host, or all hosts are one. */
static int number(int hosts, int *site_of)
{
	int sites = 0;

	for (int x = 0; x < hosts; x++) {
		bool is_there = false;

		for (int h = 0; h < hosts; h++)
			if (site_of[h] == x) {
				site_of[h] = sites;
				is_there = true;
			}
		sites += is_there;
	}
	if (sites == hosts)
		for (int h = 0; h < hosts; h++)
			site_of[h] = 0;
	return sites == hosts ? 1 : sites;
}

int tune_sites_find(int hosts, const double *rate, const double *rtt_ns, int *site_of)
{
	struct pairs p = {
	        .hosts = hosts, .rate = rate, .rtt_ns = rtt_ns, .most = calloc((size_t)hosts, sizeof(double))};

	if (!p.most)
		return 0;
	look(&p);
	for (int h = 0; h < hosts; h++)
		site_of[h] = h;
	while (join_nearest(&p, site_of)) {
	}
	free(p.most);
	return number(hosts, site_of);
}
