/*
 * coll-topo: a machine, and what would follow from it: levels, the NIC of each rank, rails, rings of GPUs.
 *
 * Needs no ranks and, for files, not the machine: a cluster can be judged before it is bought. The machine is this host
 * or a file of hwloc or NCCL; all hosts are alike. Exit status 0; 1 when the machine cannot be read; 2 for a wrong
 * command line.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/number.h"
#include "base/text.h"
#include "coll/coll.h"
#include "tools/common/flag_guess.h"
#include "tools/common/host.h"
#include "tools/common/hwloc_file.h"
#include "tools/common/last_flush.h"
#include "tools/common/nccl_xml.h"
#include "tools/common/told.h"
#include "topo_gpus.h"
#include "topology/digest.h"
#include "topology/graph_hwloc.h"
#include "topology/lanes.h"
#include "topology/nic.h"
#include "topology/rates.h"
#include "topology/search.h"

static const char usage[] =
        "usage: coll-topo [--xml FILE | --nccl FILE] [--hosts N] [--ranks P] [--map block|cyclic|random:SEED]\n"
        "                 [--rates LIST] [--sites K [--site-rate R]] [--levels LIST] [--gpus LIST] [--json]\n"
        "  --xml FILE    a machine that hwloc saved (lstopo FILE.xml), instead of this host\n"
        "  --nccl FILE   a machine that NCCL saved (NCCL_TOPO_DUMP_FILE)\n"
        "  --hosts N     so many hosts of this kind (1)\n"
        "  --ranks P     ranks on each host (one for each core)\n"
        "  --map MAP     how ranks are numbered: host by host (block), round the hosts (cyclic), or random:SEED\n"
        "  --rates LIST  rates of NICs in Mb/s, as in eth0:1000,eth1:250\n"
        "  --sites K     the hosts are on so many sites, neighbours on the same\n"
        "  --site-rate R rate in Mb/s of the uplink of each site\n"
        "  --levels LIST levels to use, and no others: site, host, package, numa, l3, as in host,numa\n"
        "  --gpus LIST   ranks on these GPUs, by name, as in nvml0,nvml0,nvml3, instead of one on each\n"
        "  --json        the same for programs\n"
        "  --help        this text\n";

enum map { BLOCK, CYCLIC, RANDOM };

enum { HOSTS_MAX = 4096, RANKS_MAX = 1 << 20, RANKS_SHOWN = 8 };

struct options {
	const char *xml, *nccl, *rates, *site_rate, *gpus;
	int hosts, sites, ranks; /* sites 0: none are told; ranks 0: as many as cores */
	enum map map;
	uint64_t seed;
	unsigned levels;
	bool json;
};

struct job {
	struct coll_graph *graph;
	struct coll_search_rank *rank;
	int *at; /* [host * per_host + place]: a rank */
	const struct coll_graph **graphs;
	struct coll_search_in in;
	struct coll_search *search;
	struct topo_gpus gpus;
	int per_host;
	const char *source;
	uint8_t digest[COLL_DIGEST_MAX];
	size_t digest_bytes;
};

/* ---- Command line ------------------------------------------------------- */

static void refuse(const char *what, const char *which) __attribute__((noreturn));

static void refuse(const char *what, const char *which)
{
	fprintf(stderr, "coll-topo: %s: %s (see coll-topo --help)\n", what, which);
	exit(2);
}

static void take_map(struct options *o, const char *text)
{
	char *end;

	if (strcmp(text, "block") == 0) {
		o->map = BLOCK;
	} else if (strcmp(text, "cyclic") == 0) {
		o->map = CYCLIC;
	} else if (strncmp(text, "random:", 7) == 0 && text[7] >= '0' && text[7] <= '9') {
		o->map = RANDOM;
		o->seed = strtoull(text + 7, &end, 10);
		if (*end)
			refuse("--map", "random: is followed by a number");
	} else {
		refuse("--map", "expected block, cyclic or random:SEED");
	}
}

static void take_value(struct options *o, const char *flag, const char *value)
{
	char why[160], text[220];

	if (strcmp(flag, "--xml") == 0) {
		o->xml = value;
	} else if (strcmp(flag, "--nccl") == 0) {
		o->nccl = value;
	} else if (strcmp(flag, "--rates") == 0) {
		o->rates = value;
	} else if (strcmp(flag, "--gpus") == 0) {
		o->gpus = value;
	} else if (strcmp(flag, "--map") == 0) {
		take_map(o, value);
	} else if (strcmp(flag, "--hosts") == 0) {
		if (!coll_number_parse(value, 1, HOSTS_MAX, &o->hosts))
			refuse("--hosts", "expected a number of hosts from 1 to 4096");
	} else if (strcmp(flag, "--site-rate") == 0) {
		o->site_rate = value;
	} else if (strcmp(flag, "--sites") == 0) {
		if (!coll_number_parse(value, 1, HOSTS_MAX, &o->sites))
			refuse("--sites", "expected a number of sites from 1 to 4096");
	} else if (strcmp(flag, "--ranks") == 0) {
		if (!coll_number_parse(value, 1, COLL_GRAPH_PUS_MAX, &o->ranks))
			refuse("--ranks", "expected a number of ranks on each host, from 1 to 4096");
	} else if (strcmp(flag, "--levels") == 0 && !coll_search_parse_levels(value, &o->levels, why, sizeof(why))) {
		snprintf(text, sizeof(text), "--levels %.40s", value);
		refuse(text, why);
	}
}

static bool takes_value(const char *flag)
{
	static const char *const flags[] = {"--xml",   "--nccl",  "--hosts",     "--ranks",  "--map",
	                                    "--rates", "--sites", "--site-rate", "--levels", "--gpus"};

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++)
		if (strcmp(flag, flags[i]) == 0)
			return true;
	return false;
}

static struct options read_options(int argc, char **argv)
{
	struct options o = {.hosts = 1};

	last_flush_check("coll-topo");
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			fputs(usage, stdout);
			exit(0);
		}
		if (strcmp(argv[i], "--version") == 0 || strcmp(argv[i], "-V") == 0) {
			printf("coll-topo %s\n", coll_version_text());
			exit(0);
		}
		if (strcmp(argv[i], "--json") == 0) {
			o.json = true;
		} else if (takes_value(argv[i])) {
			if (i + 1 == argc)
				refuse(argv[i], "a value is missing");
			take_value(&o, argv[i], argv[i + 1]);
			i++;
		} else {
			char why[128];

			snprintf(why, sizeof(why), "unknown flag%s", flag_guess(usage, argv[i]).text);
			refuse(argv[i], argv[i][0] == '-' ? why : "unexpected argument");
		}
	}
	if (o.xml && o.nccl)
		refuse("--xml, --nccl", "give one of them");
	if (o.sites > o.hosts)
		refuse("--sites", "more than --hosts");
	if (o.site_rate && !o.sites)
		refuse("--site-rate", "needs --sites");
	return o;
}

/* ---- The job ------------------------------------------------------------ */

/* The machine that the command line names; NULL with the reason in why. */
static struct coll_graph *read_machine(const struct options *o, char *why, size_t why_bytes)
{
	struct coll_graph *g;

	if (o->xml)
		return coll_hwloc_file(o->xml, why, why_bytes);
	if (o->nccl)
		return coll_graph_nccl_file(o->nccl, why, why_bytes);
	g = coll_graph_hwloc_live(why, why_bytes);
	if (!g && !coll_topology_known() && (g = coll_graph_new()))
		snprintf(g->note, sizeof(g->note), "built without hwloc: only NICs are known");
	if (g) {
		coll_rates_read_sys(g, COLL_TOPOLOGY_SYS);
		coll_rates_read_kernel(g);
	}
	return g;
}

static bool apply_rates(const struct options *o, struct coll_graph *g, char *why, size_t why_bytes)
{
	struct coll_link_rate list[COLL_LINK_RATES_MAX];
	const int n = coll_link_rates_parse(o->rates ? o->rates : "", list, why, why_bytes);
	const char *missing = n < 0 ? NULL : coll_told_apply(g, list, n);

	if (missing)
		snprintf(why, why_bytes, "'%s': the machine has no such NIC", missing);
	return n >= 0 && !missing;
}

/* Sites are alike, as hosts are. */
static bool apply_site(const struct options *o, struct coll_graph *g, char *why, size_t why_bytes)
{
	return coll_told_site(g, o->sites ? "site" : "", o->site_rate ? o->site_rate : "", why, why_bytes);
}

/* Which rank each place of each host has. */
static void number_ranks(const struct options *o, struct job *j)
{
	const int n = o->hosts * j->per_host;
	struct coll_rng rng = {o->seed};

	for (int h = 0; h < o->hosts; h++)
		for (int i = 0; i < j->per_host; i++)
			j->at[h * j->per_host + i] = o->map == CYCLIC ? i * o->hosts + h : h * j->per_host + i;
	for (int i = n - 1; o->map == RANDOM && i > 0; i--) {
		const int k = (int)coll_rng_below(&rng, (uint32_t)i + 1), swap = j->at[i];

		j->at[i] = j->at[k];
		j->at[k] = swap;
	}
}

/* As collrun --bind core places them: neighbours on neighbouring cores, and evenly where they share. */
static struct coll_place place_of(const struct job *j, int local)
{
	const int cores = j->graph->cores;

	if (cores == 0)
		return (struct coll_place){-1, -1, -1, -1, -1};
	return coll_graph_core_place(j->graph, j->per_host <= cores ? local : (int)((long)local * cores / j->per_host));
}

static bool make_job(const struct options *o, struct job *j, char *why, size_t why_bytes)
{
	const struct coll_graph *g = j->graph;
	int n;

	j->per_host = o->ranks ? o->ranks : g->cores ? g->cores : 1;
	if ((long)o->hosts * j->per_host > RANKS_MAX) {
		snprintf(why, why_bytes, "%d hosts of %d ranks are more than %d ranks", o->hosts, j->per_host,
		         RANKS_MAX);
		return false;
	}
	n = o->hosts * j->per_host;
	j->rank = calloc((size_t)n, sizeof(*j->rank));
	j->at = calloc((size_t)n, sizeof(*j->at));
	j->graphs = calloc((size_t)o->hosts, sizeof(*j->graphs));
	if (!j->rank || !j->at || !j->graphs) {
		snprintf(why, why_bytes, "out of memory");
		return false;
	}
	number_ranks(o, j);
	for (int h = 0; h < o->hosts; h++) {
		const int site = o->sites ? (int)((long)h * o->sites / o->hosts) : -1;

		j->graphs[h] = g;
		for (int i = 0; i < j->per_host; i++)
			j->rank[j->at[h * j->per_host + i]] = (struct coll_search_rank){site, h, place_of(j, i)};
	}
	j->in = (struct coll_search_in){n, o->hosts, j->rank, j->graphs, o->levels, 0};
	j->digest_bytes = coll_digest_write(g, j->digest);
	j->search = coll_search_run(&j->in, why, why_bytes);
	return j->search != NULL;
}

/* ---- As text ------------------------------------------------------------ */

static const char *const states[] = {"state unknown", "up", "down"};
static const char *const fabrics[] = {"fabric unknown", "Ethernet", "InfiniBand", "another fabric"};

static void print_count(int n, const char *one, const char *many, const char *before)
{
	if (n > 0)
		printf("%s%d %s", before, n, n == 1 ? one : many);
}

static void print_rate(const char *what, const struct coll_rate *r)
{
	if (r->mbps)
		printf(", %s %u Mb/s (%s)", what, r->mbps, coll_origin_name(r->origin));
	else
		printf(", %s unknown", what);
}

static void print_where(const struct coll_graph *g, int numa, int package, int pci_switch, int root)
{
	if (package >= 0)
		printf(", package %d", package);
	if (numa >= 0)
		printf(", NUMA node %d", g->numa[numa].node);
	if (package < 0 && numa < 0)
		printf(", near nothing that is known");
	if (root >= 0)
		printf(", host bridge %d", root);
	if (pci_switch >= 0)
		printf(", switch %d", pci_switch);
	printf("\n");
}

/* One line for cores that follow each other and share all but the core. */
static int print_cores(const struct coll_graph *g, int first, const char *indent)
{
	const struct coll_graph_core *a = &g->core[first];
	cpu_set_t cpus;
	char text[256] = "";
	int last = first;

	while (last + 1 < g->cores && memcmp(&g->core[last + 1], a, sizeof(*a)) == 0)
		last++;
	CPU_ZERO(&cpus);
	for (int i = 0; i < g->pus; i++)
		if (g->pu[i].core >= first && g->pu[i].core <= last && g->pu[i].os < CPU_SETSIZE)
			CPU_SET((size_t)g->pu[i].os, &cpus);
	coll_topology_cpus_text(&cpus, text, sizeof(text));
	printf("%s", indent);
	if (a->l3 >= 0)
		printf("L3 %d: ", a->l3);
	printf(last > first ? "cores %d-%d" : "core %d", first, last);
	printf(" (CPUs %s)", text);
	if (g->kinds > 1)
		printf(", kind %d of %d%s", a->kind + 1, g->kinds, a->kind == 0 ? ", the slowest" : "");
	printf("\n");
	return last + 1;
}

static void print_tree(const struct coll_graph *g)
{
	int package = -2, numa = -2;

	for (int i = 0; i < g->cores;) {
		const struct coll_graph_core *c = &g->core[i];

		if (c->package != package && c->package >= 0)
			printf("  package %d\n", c->package);
		if ((c->package != package || c->numa != numa) && c->numa >= 0) {
			printf("%s  NUMA node %d", c->package >= 0 ? "  " : "", g->numa[c->numa].node);
			if (g->numa[c->numa].nodes > 1)
				printf(" and %d more kinds of memory", g->numa[c->numa].nodes - 1);
			printf("\n");
		}
		package = c->package;
		numa = c->numa;
		i = print_cores(g, i, c->package >= 0 ? "      " : "    ");
	}
}

static void print_devices(const struct coll_graph *g)
{
	for (int i = 0; i < g->nics; i++) {
		const struct coll_graph_nic *n = &g->nic[i];

		printf("  NIC %s", n->name);
		if (*n->rdma && strcmp(n->rdma, n->name) != 0)
			printf(" (%s)", n->rdma);
		if (n->port > 1)
			printf(" port %d", n->port);
		printf(": %s, %s", fabrics[n->fabric], states[n->state]);
		print_rate("rate", &n->rate);
		print_rate("PCI", &n->pci);
		print_where(g, n->numa, n->package, n->pci_switch, n->pci_root);
	}
	for (int i = 0; i < g->gpus; i++) {
		const struct coll_graph_gpu *d = &g->gpu[i];
		int links = 0;

		printf("  GPU %s", d->name);
		for (int k = 0; k < g->gpus; k++)
			links += g->link_mbps[i][k] > 0;
		printf(": linked to %d GPUs", links);
		if (links)
			printf(" (%s)", coll_origin_name(g->link_origin));
		if (d->to_switch.mbps)
			print_rate("switches of GPUs", &d->to_switch);
		print_rate("PCI", &d->pci);
		print_where(g, d->numa, d->package, d->pci_switch, d->pci_root);
	}
}

static void print_machine(const struct job *j)
{
	const struct coll_graph *g = j->graph;

	printf("machine: %s\n ", j->source);
	print_count(g->packages, "package", "packages", " ");
	print_count(g->numas, "NUMA node with cores", "NUMA nodes with cores", g->packages ? ", " : " ");
	print_count(g->l3s, "L3 cache", "L3 caches", ", ");
	print_count(g->cores, "core", "cores", ", ");
	print_count(g->pus, "hardware thread", "hardware threads", ", ");
	printf("; distances of memory: %s\n", coll_origin_name(g->distance_origin));
	print_tree(g);
	print_devices(g);
	if (g->left_out)
		printf("  %d more devices are left out\n", g->left_out);
	if (*g->note)
		printf("  %s\n", g->note);
	printf("  digest: %zu bytes, hash %016llx\n", j->digest_bytes,
	       (unsigned long long)coll_digest_hash(j->digest, j->digest_bytes));
}

static void print_levels(const struct job *j)
{
	const struct coll_search *s = j->search;

	printf("levels: ");
	for (int i = 0; i < s->levels; i++)
		printf("%s%s", i ? " > " : "", coll_level_name(s->level[i].level));
	printf("%s\n", s->levels ? "" : "none");
	for (enum coll_level l = COLL_LEVEL_SITE; l < COLL_LEVELS; l++) {
		bool there = false;

		for (int i = 0; i < s->levels; i++)
			there = there || s->level[i].level == l;
		printf("  %s: %s%s", coll_level_name(l), there ? "" : "no; ", s->level_why[l]);
		if (l == COLL_LEVEL_SITE && *j->graph->site)
			print_rate("uplink", &j->graph->site_rate);
		printf("\n");
	}
}

/* All hosts are alike: one line for each place, with the ranks that have it. */
static void print_ranks(const struct job *j)
{
	char why[COLL_SEARCH_WHY];

	printf("ranks: %d on %d %s\n", j->in.ranks, j->in.hosts, j->in.hosts == 1 ? "host" : "hosts");
	for (int i = 0; i < j->per_host; i++) {
		const struct coll_place *p = &j->rank[j->at[i]].place;

		printf("  rank");
		for (int h = 0; h < j->in.hosts && h < RANKS_SHOWN; h++)
			printf(" %d", j->at[h * j->per_host + i]);
		printf("%s: ", j->in.hosts > RANKS_SHOWN ? " ..." : "");
		if (p->core >= 0)
			printf("core %d, ", p->core);
		coll_lanes_why(j->search, &j->in, j->at[i], why, sizeof(why));
		printf("NIC %s\n", why);
	}
}

static void print_rails(const struct job *j)
{
	const struct coll_search *s = j->search;

	printf("NICs in use: %s\n", s->host_why[0]);
	if (s->host_mbps[0])
		printf("  together %u Mb/s\n", s->host_mbps[0]);
	printf("rails: %s\n", s->rail_why);
	for (int k = 0; k < s->rails && s->nic[k] >= 0; k++) {
		int shares = 0;

		for (int i = 0; i < s->lanes; i++)
			shares += s->lane[i].rail == k ? s->lane[i].shares : 0;
		printf("  rail %d: %s, %d of %d shares\n", k, j->graph->nic[s->nic[k]].name, shares,
		       s->parts * s->shares);
	}
	if (s->lanes > s->parts) {
		printf("lanes: %d, since some ranks send over several NICs\n", s->lanes);
		for (int i = 0; i < s->lanes; i++)
			printf("  lane %d: rank %d of its host, rail %d, %d of %d shares\n", i, s->lane[i].part,
			       s->lane[i].rail, s->lane[i].shares, s->shares);
	}
}

/* ---- As JSON ------------------------------------------------------------ */

static void json_rate(struct coll_text *t, const char *name, const struct coll_rate *r)
{
	coll_text_add(t, ", \"%s\": {\"mbps\": %u, \"origin\": \"%s\"}", name, r->mbps, coll_origin_name(r->origin));
}

static void json_nics(struct coll_text *t, const struct coll_graph *g)
{
	coll_text_add(t, "\"nics\": [");
	for (int i = 0; i < g->nics; i++) {
		const struct coll_graph_nic *n = &g->nic[i];

		coll_text_add(t, "%s\n  {\"name\": ", i ? "," : "");
		coll_text_add_json(t, n->name);
		coll_text_add(t, ", \"rdma\": ");
		coll_text_add_json(t, n->rdma);
		coll_text_add(t, ", \"port\": %d, \"state\": \"%s\", \"fabric\": \"%s\"", n->port, states[n->state],
		              fabrics[n->fabric]);
		json_rate(t, "rate", &n->rate);
		json_rate(t, "pci", &n->pci);
		coll_text_add(t, ", \"package\": %d, \"numa\": %d, \"switch\": %d, \"host_bridge\": %d}", n->package,
		              n->numa, n->pci_switch, n->pci_root);
	}
	coll_text_add(t, "],\n\"gpus\": [");
	for (int i = 0; i < g->gpus; i++) {
		const struct coll_graph_gpu *d = &g->gpu[i];

		coll_text_add(t, "%s\n  {\"name\": ", i ? "," : "");
		coll_text_add_json(t, d->name);
		json_rate(t, "pci", &d->pci);
		json_rate(t, "to_switch", &d->to_switch);
		coll_text_add(t, ", \"package\": %d, \"numa\": %d, \"switch\": %d, \"host_bridge\": %d}", d->package,
		              d->numa, d->pci_switch, d->pci_root);
	}
	coll_text_add(t, "]");
}

static void json_levels(struct coll_text *t, const struct coll_search *s)
{
	coll_text_add(t, "\"levels\": [");
	for (int i = 0; i < s->levels; i++) {
		coll_text_add(t, "%s\n  {\"name\": \"%s\", \"groups\": %d, \"group\": [", i ? "," : "",
		              coll_level_name(s->level[i].level), s->level[i].groups);
		for (int r = 0; r < s->ranks; r++)
			coll_text_add(t, "%s%d", r ? "," : "", s->level[i].group[r]);
		coll_text_add(t, "]}");
	}
	coll_text_add(t, "],\n\"level_reasons\": {");
	for (enum coll_level l = COLL_LEVEL_SITE; l < COLL_LEVELS; l++) {
		coll_text_add(t, "%s\"%s\": ", l ? ", " : "", coll_level_name(l));
		coll_text_add_json(t, s->level_why[l]);
	}
	coll_text_add(t, "}");
}

static void json_ranks(struct coll_text *t, const struct job *j)
{
	char why[COLL_SEARCH_WHY];

	coll_text_add(t, "\"ranks\": [");
	for (int r = 0; r < j->in.ranks; r++) {
		const int nic = j->search->rank_nic[r];

		coll_lanes_why(j->search, &j->in, r, why, sizeof(why));
		coll_text_add(t, "%s\n  {\"rank\": %d, \"host\": %d, \"core\": %d, \"nic\": ", r ? "," : "", r,
		              j->rank[r].host, j->rank[r].place.core);
		coll_text_add_json(t, nic >= 0 ? j->graph->nic[nic].name : "");
		coll_text_add(t, ", \"why\": ");
		coll_text_add_json(t, why);
		coll_text_add(t, "}");
	}
	coll_text_add(t, "]");
}

static void json_lanes(struct coll_text *t, const struct job *j)
{
	const struct coll_search *s = j->search;

	coll_text_add(t, "\"rails\": {\"count\": %d, \"why\": ", s->rails);
	coll_text_add_json(t, s->rail_why);
	coll_text_add(t, ", \"nics\": [");
	for (int k = 0; k < s->rails; k++) {
		coll_text_add(t, "%s", k ? ", " : "");
		coll_text_add_json(t, s->nic[k] >= 0 ? j->graph->nic[s->nic[k]].name : "");
	}
	coll_text_add(t, "]},\n\"parts\": %d, \"shares\": %d,\n\"lanes\": [", s->parts, s->shares);
	for (int i = 0; i < s->lanes; i++)
		coll_text_add(t, "%s{\"part\": %d, \"rail\": %d, \"shares\": %d}", i ? ", " : "", s->lane[i].part,
		              s->lane[i].rail, s->lane[i].shares);
	coll_text_add(t, "]");
}

static bool print_json(const struct job *j)
{
	const struct coll_graph *g = j->graph;
	struct coll_text t = {0};
	bool ok;

	coll_text_add(&t, "{\"machine\": ");
	coll_text_add_json(&t, j->source);
	coll_text_add(&t,
	              ",\n\"packages\": %d, \"numa_nodes\": %d, \"l3_caches\": %d, \"cores\": %d, \"pus\": %d, "
	              "\"kinds\": %d,\n"
	              "\"distances\": \"%s\", \"digest_bytes\": %zu, \"digest_hash\": \"%016llx\", \"left_out\": %d, "
	              "\"note\": ",
	              g->packages, g->numas, g->l3s, g->cores, g->pus, g->kinds, coll_origin_name(g->distance_origin),
	              j->digest_bytes, (unsigned long long)coll_digest_hash(j->digest, j->digest_bytes), g->left_out);
	coll_text_add_json(&t, g->note);
	json_rate(&t, "site_rate", &g->site_rate);
	coll_text_add(&t, ",\n");
	json_nics(&t, g);
	coll_text_add(&t, ",\n\"nics_in_use\": ");
	coll_text_add_json(&t, j->search->host_why[0]);
	coll_text_add(&t, ",\n");
	json_levels(&t, j->search);
	coll_text_add(&t, ",\n");
	json_lanes(&t, j);
	coll_text_add(&t, ",\n");
	json_ranks(&t, j);
	topo_gpus_json(&j->gpus, &t);
	coll_text_add(&t, "}\n");
	ok = !t.failed && fputs(t.p, stdout) != EOF;
	coll_text_free(&t);
	return ok;
}

int main(int argc, char **argv)
{
	const struct options o = read_options(argc, argv);
	struct job j = {.source = o.xml ? o.xml : o.nccl ? o.nccl : "this host"};
	char why[400] = "";
	int status = 1;

	j.graph = read_machine(&o, why, sizeof(why));
	if (j.graph && !apply_rates(&o, j.graph, why, sizeof(why))) {
		fprintf(stderr, "coll-topo: --rates: %s\n", why);
		status = 2;
	} else if (j.graph && !apply_site(&o, j.graph, why, sizeof(why))) {
		fprintf(stderr, "coll-topo: --site-rate: %s\n", why);
		status = 2;
	} else if (j.graph && !topo_gpus_make(&j.gpus, j.graph, o.gpus, why, sizeof(why))) {
		fprintf(stderr, "coll-topo: --gpus: %s\n", why);
		status = 2;
	} else if (!j.graph || !make_job(&o, &j, why, sizeof(why))) {
		fprintf(stderr, "coll-topo: %s\n", why);
	} else if (o.json) {
		status = !print_json(&j);
	} else {
		print_machine(&j);
		print_levels(&j);
		print_rails(&j);
		topo_gpus_print(&j.gpus);
		print_ranks(&j);
		status = 0;
	}
	coll_search_free(&j.search);
	coll_gpu_paths_free(&j.gpus.paths);
	free(j.graphs);
	free(j.at);
	free(j.rank);
	free(j.graph);
	return status;
}
