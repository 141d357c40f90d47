/*
 * Measures the links between the hosts of a job, and writes the table that COLL_TUNE_FILE names (topology/measured.h):
 * run it on the hosts of the job to come, with as many ranks on each. Rounds of pairs of hosts give round trips and
 * rates; pairs that together carry less than each alone give sites; all hosts of a site at once give its uplink.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/link_rates.h"
#include "coll/coll.h"
#include "comm/facts.h"
#include "comm/tuned.h"
#include "core/host_rates.h"
#include "tools/common/last_flush.h"
#include "tools/tune_measure.h"
#include "tools/tune_sites.h"
#include "topology/measured.h"

enum { ALL_ROUNDS_HOSTS = 16, SOME_ROUNDS = 4, TWICE_HOSTS = 8 };

/* A told rate of which less than this arrives is wrong. */
#define TOLD_WRONG 0.75

static const char usage[] =
        "usage: collrun -H HOSTS coll-tune [-o FILE]\n"
        "  -o FILE     write the table there (default: cluster.tune); rank 0 does\n"
        "Measures what the links between the hosts of a job carry: a few seconds for 16 hosts. COLL_TUNE_FILE=FILE\n"
        "makes later jobs on these hosts use it.\n";

struct found {
	double *rtt_ns, *rate; /* [host * hosts + other] */
	double *out, *in;      /* by host, Mb/s */
	double *uplink;        /* by site */
	int *site_of, sites;
	int *plan; /* of one round: a host for each */
	double *round;
};

static bool found_open(struct found *f, size_t n)
{
	f->rtt_ns = calloc(n * n, sizeof(double));
	f->rate = calloc(n * n, sizeof(double));
	f->out = calloc(4 * n, sizeof(double));
	f->in = f->out ? f->out + n : NULL;
	f->uplink = f->out ? f->out + 2 * n : NULL;
	f->round = f->out ? f->out + 3 * n : NULL;
	f->site_of = calloc(2 * n, sizeof(int));
	f->plan = f->site_of ? f->site_of + n : NULL;
	return f->rtt_ns && f->rate && f->out && f->site_of;
}

static void found_close(struct found *f)
{
	free(f->rtt_ns);
	free(f->rate);
	free(f->out);
	free(f->site_of);
}

/* ---- Rounds ---- */

/* The pairs of a round of a tournament, in which each host meets each other once: with[h], -1: it has none. */
static void pairs_of(int hosts, int round, int *with)
{
	const int even = hosts + hosts % 2, turning = even - 1;

	for (int h = 0; h < hosts; h++) {
		int other;

		if (h == even - 1)
			other = round * (even / 2) % turning;
		else
			other = (round - h + turning) % turning;
		if (other == h)
			other = even - 1;
		with[h] = other < hosts ? other : -1;
	}
}

/* Streams in one sense, measured again where that does not take long: the better of two, since other work of a host
 * makes links seem slow and never fast. */
static double better_streams(struct tune_net *net, struct found *f, const int *to)
{
	const int turns = net->hosts <= TWICE_HOSTS ? 2 : 1;
	double best = 0;

	for (int turn = 0; turn < turns; turn++) {
		double now, *rate = calloc((size_t)net->hosts, sizeof(*rate));

		if (!rate) {
			fprintf(stderr, "coll-tune: out of memory\n");
			exit(1);
		}
		tune_streams(net, to, rate, &now);
		if (now > best) {
			best = now;
			memcpy(f->round, rate, (size_t)net->hosts * sizeof(*rate));
		}
		free(rate);
	}
	return best;
}

/* Both senses, one after the other: streams that cross a link in opposite ways do not share it. */
static void measure_round(struct tune_net *net, struct found *f, int round)
{
	const int n = net->hosts;
	int *with = malloc(2 * (size_t)n * sizeof(*with)), *to = with + n;

	if (!with) {
		fprintf(stderr, "coll-tune: out of memory\n");
		exit(1);
	}
	pairs_of(n, round, with);
	tune_round_trips(net, with, f->round);
	for (int h = 0; h < n; h++)
		if (with[h] >= 0)
			f->rtt_ns[h * n + with[h]] = f->round[h] > 0 ? f->round[h] : f->round[with[h]];
	for (int sense = 0; sense < 2; sense++) {
		for (int h = 0; h < n; h++)
			to[h] = with[h] >= 0 && (h < with[h]) == (sense == 0) ? with[h] : -1;
		better_streams(net, f, to);
		for (int h = 0; h < n; h++)
			if (to[h] >= 0)
				f->rate[h * n + to[h]] = f->round[h];
	}
	free(with);
}

static void measure_pairs(struct tune_net *net, struct found *f)
{
	const int n = net->hosts, all = n + n % 2 - 1, rounds = n <= ALL_ROUNDS_HOSTS ? all : SOME_ROUNDS;

	for (int i = 0; i < rounds; i++)
		measure_round(net, f, i * all / rounds);
	for (int a = 0; a < n; a++)
		for (int b = 0; b < n; b++) {
			f->out[a] = f->rate[a * n + b] > f->out[a] ? f->rate[a * n + b] : f->out[a];
			f->in[b] = f->rate[a * n + b] > f->in[b] ? f->rate[a * n + b] : f->in[b];
		}
}

/* All hosts of a site to as many others, or from them. */
static double across(struct tune_net *net, struct found *f, int site, bool out)
{
	int other = 0;

	for (int h = 0; h < net->hosts; h++)
		f->plan[h] = -1;
	for (int h = 0; h < net->hosts; h++) {
		if (f->site_of[h] != site)
			continue;
		while (other < net->hosts && f->site_of[other] == site)
			other++;
		if (other == net->hosts)
			break;
		f->plan[out ? h : other] = out ? other : h;
		other++;
	}
	return better_streams(net, f, f->plan);
}

static void measure_uplinks(struct tune_net *net, struct found *f)
{
	for (int s = 0; f->sites > 1 && s < f->sites; s++) {
		const double out = across(net, f, s, true), in = across(net, f, s, false);

		f->uplink[s] = out < in ? out : in;
	}
}

/* ---- What is said of it ---- */

static double shortest(const struct found *f, int n)
{
	double least = 0;

	for (int i = 0; i < n * n; i++)
		if (f->rtt_ns[i] > 0 && (least == 0 || f->rtt_ns[i] < least))
			least = f->rtt_ns[i];
	return least;
}

static int process_on(const struct tune_net *net, int host)
{
	return coll_comm_process(net->comm, net->rank_of[host * net->lanes]);
}

static void print_hosts(const struct tune_net *net, const struct found *f)
{
	char name[COLL_TUNE_NAME_BYTES];

	printf("hosts: %d\n", net->hosts);
	for (int h = 0; h < net->hosts; h++) {
		coll_comm_tuned_name(net->comm->ctx, process_on(net, h), name, sizeof(name));
		printf("  %s out %.0f in %.0f Mb/s of payload\n", name, f->out[h], f->in[h]);
	}
	printf("  round trip %.3f ms\n", shortest(f, net->hosts) / 1e6);
}

static void print_sites(const struct tune_net *net, const struct found *f)
{
	char name[COLL_TUNE_NAME_BYTES];

	if (f->sites == 1)
		printf("sites: none seen (pairs at once carry what each carries alone)\n");
	for (int s = 0; f->sites > 1 && s < f->sites; s++) {
		printf("site %d: uplink %.0f Mb/s of payload:", s, f->uplink[s]);
		for (int h = 0; h < net->hosts; h++)
			if (f->site_of[h] == s) {
				coll_comm_tuned_name(net->comm->ctx, process_on(net, h), name, sizeof(name));
				printf(" %s", name);
			}
		printf("\n");
	}
}

static void print_wrong(const struct tune_net *net, const struct found *f)
{
	const struct coll_host_rates *told = net->comm->host_rates;
	char name[COLL_TUNE_NAME_BYTES];

	for (int h = 0; told && h < net->hosts; h++) {
		const double most = f->out[h] > f->in[h] ? f->out[h] : f->in[h];

		if (told->of[h].mbps == 0 || most >= TOLD_WRONG * told->of[h].mbps)
			continue;
		coll_comm_tuned_name(net->comm->ctx, process_on(net, h), name, sizeof(name));
		printf("told and wrong: %s%s%s says %u Mb/s\n", told->of[h].card, told->of[h].card[0] ? " of " : "",
		       name, told->of[h].mbps);
	}
}

/* ---- The table ---- */

static uint32_t whole(double mbps)
{
	return mbps < 1 ? 1 : mbps > COLL_LINK_RATE_MAX ? COLL_LINK_RATE_MAX : (uint32_t)(mbps + 0.5);
}

static char *table_of(const struct tune_net *net, const struct found *f)
{
	const size_t n = (size_t)net->hosts;
	struct coll_measured_host *host = calloc(n, sizeof(*host));
	uint32_t *uplink = calloc(n, sizeof(*uplink));
	struct coll_measured t = {.hop_ns = (uint32_t)(shortest(f, net->hosts) / 2),
	                          .hosts = (uint32_t)n,
	                          .sites = f->sites > 1 ? (uint32_t)f->sites : 0,
	                          .host = host,
	                          .uplink = uplink};
	const time_t now = time(NULL);
	struct tm utc;
	char *text = NULL;

	strftime(t.measured, sizeof(t.measured), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
	snprintf(t.library, sizeof(t.library), "%.31s", coll_version_text());
	t.library[strcspn(t.library, " ")] = '\0';
	snprintf(t.transport, sizeof(t.transport), "%s", coll_comm_facts_transport(net->comm, true)->table.name);
	for (size_t h = 0; host && h < n; h++) {
		coll_comm_tuned_name(net->comm->ctx, process_on(net, (int)h), host[h].name, sizeof(host[h].name));
		host[h].out = whole(f->out[h]);
		host[h].in = whole(f->in[h]);
		host[h].site = t.sites ? f->site_of[h] : -1;
	}
	for (uint32_t s = 0; uplink && s < t.sites; s++)
		uplink[s] = whole(f->uplink[s]);
	if (host && uplink)
		text = coll_measured_print(&t);
	free(host);
	free(uplink);
	return text;
}

static int write_table(const struct tune_net *net, const struct found *f, const char *path)
{
	char *text = table_of(net, f);
	FILE *out = text ? fopen(path, "we") : NULL;
	int failed = !out || fputs(text, out) == EOF;

	if (out && fclose(out) != 0)
		failed = 1;
	free(text);
	if (failed)
		fprintf(stderr, "coll-tune: %s cannot be written\n", path);
	else
		printf("written: %s. Use it: COLL_TUNE_FILE=%s\n", path, path);
	return failed;
}

/* ---- The program ---- */

static int tune(coll_comm *comm, const char *path)
{
	struct tune_net net;
	struct found f = {0};
	int status = 1;

	if (comm->rank_map.hosts < 2) {
		if (comm->rank == 0)
			fprintf(stderr, "coll-tune: all ranks are on one host: there are no links to measure\n");
		return 2;
	}
	if (!tune_net_open(&net, comm) || !found_open(&f, (size_t)net.hosts)) {
		fprintf(stderr, "coll-tune: out of memory\n");
		exit(1);
	}
	measure_pairs(&net, &f);
	f.sites = tune_sites_find(net.hosts, f.rate, f.rtt_ns, f.site_of);
	if (f.sites > 0) {
		measure_uplinks(&net, &f);
		status = 0;
	}
	if (status == 0 && comm->rank == 0) {
		print_hosts(&net, &f);
		print_sites(&net, &f);
		print_wrong(&net, &f);
		status = write_table(&net, &f, path);
	}
	found_close(&f);
	tune_net_close(&net);
	return status;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"output", required_argument, NULL, 'o'},
	                                        {"help", no_argument, NULL, 'h'},
	                                        {"version", no_argument, NULL, 'V'},
	                                        {0}};
	/* Measured as it is, not as an older table says. */
	static const char *const settings[] = {"COLL_TUNE_FILE=", NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	const char *path = "cluster.tune";
	coll_comm *comm = NULL;
	int o, status;

	last_flush_check("coll-tune");
	while ((o = getopt_long(argc, argv, "o:hV", options, NULL)) != -1) {
		if (o == 'o') {
			path = optarg;
		} else if (o == 'h' || o == 'V') {
			printf(o == 'h' ? "%s" : "coll-tune %s\n", o == 'h' ? usage : coll_version_text());
			return 0;
		} else {
			fputs(usage, stderr);
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "coll-tune: unexpected argument %s\n%s", argv[optind], usage);
		return 2;
	}
	cfg.settings = settings;
	if (coll_comm_create(&comm, &cfg) != COLL_OK) {
		fprintf(stderr, "coll-tune: %s\n", coll_last_error(NULL)->message);
		return 1;
	}
	status = tune(comm, path);
	coll_comm_destroy(&comm);
	return status;
}
