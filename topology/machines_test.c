/*
 * Saved machines of others, which are not part of this repository: COLL_MACHINES names their directory, and without it
 * every test here is skipped. For each file: levels, groups and NICs of 1, 2, 3 and as many ranks as cores; and for
 * each what is peculiar about it. What is expected was counted in the files, not taken from this library's output.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/plain.h"
#include "tools/common/nccl_xml.h"
#include "topology/digest_read.h"
#include "topology/graph_hwloc.h"
#include "topology/search.h"

/* ---- A machine with ranks on it ----------------------------------------- */

struct job {
	struct coll_graph *g;
	struct coll_search_rank *rank;
	const struct coll_graph **graphs;
	struct coll_search_in in;
	struct coll_search *s;
};

static struct coll_graph *read_file(const char *file, char *why, size_t why_bytes)
{
	char path[1024];
	const char *dir = getenv("COLL_MACHINES");

	snprintf(path, sizeof(path), "%s/%s.xml", dir ? dir : "", file);
	return strncmp(file, "nccl-", 5) == 0 ? coll_graph_nccl_file(path, why, why_bytes)
	                                      : coll_graph_hwloc_file(path, why, why_bytes);
}

/* `per_host` ranks on each of `hosts` hosts, on neighbouring cores; 0: on every core. */
static bool start(struct job *j, const struct coll_graph *g, int hosts, int per_host)
{
	char why[300];

	per_host = per_host ? per_host : g->cores;
	j->rank = calloc((size_t)(hosts * per_host), sizeof(*j->rank));
	j->graphs = calloc((size_t)hosts, sizeof(*j->graphs));
	for (int h = 0; h < hosts; h++)
		j->graphs[h] = g;
	for (int r = 0; r < hosts * per_host; r++) {
		const int local = r % per_host;

		j->rank[r] = (struct coll_search_rank){
		        -1, r / per_host,
		        coll_graph_core_place(g, per_host <= g->cores ? local : local * g->cores / per_host)};
	}
	j->in = (struct coll_search_in){hosts * per_host, hosts, j->rank, j->graphs, 0, 0};
	j->s = coll_search_run(&j->in, why, sizeof(why));
	CHECK(j->s != NULL, "%s", why);
	return j->s != NULL;
}

static void stop(struct job *j)
{
	coll_search_free(&j->s);
	free(j->rank);
	free(j->graphs);
}

/* "package:2,numa:8,l3:16", from the outside. */
static void levels_text(const struct coll_search *s, char *text, size_t len_bytes)
{
	size_t n = 0;

	*text = 0;
	for (int i = 0; i < s->levels && n < len_bytes; i++)
		n += (size_t)snprintf(text + n, len_bytes - n, "%s%s:%d", i ? "," : "",
		                      coll_level_name(s->level[i].level), s->level[i].groups);
}

/* "hsi0,hsi1": the NICs in use, by rail. */
static void nics_text(const struct job *j, char *text, size_t len_bytes)
{
	size_t n = 0;

	*text = 0;
	for (int k = 0; k < j->s->rails && n < len_bytes; k++)
		n += (size_t)snprintf(text + n, len_bytes - n, "%s%s", k ? "," : "",
		                      j->s->nic[k] < 0 ? "-" : j->g->nic[j->s->nic[k]].name);
}

/* ---- What holds for every machine --------------------------------------- */

/* Groups are dense, nested, and never all of one rank. */
static void check_levels(const char *file, const struct job *j)
{
	const struct coll_search *s = j->s;

	for (int i = 0; i < s->levels; i++) {
		const int *g = s->level[i].group;
		int *size = calloc((size_t)s->ranks, sizeof(*size)), groups = 0, several = 0;

		for (int r = 0; r < s->ranks; r++) {
			CHECK(g[r] >= 0 && g[r] < s->level[i].groups, "%s: rank %d in group %d", file, r, g[r]);
			groups += size[g[r]]++ == 0;
			several += size[g[r]] == 2;
		}
		CHECK(groups == s->level[i].groups && groups > 1, "%s: %d of %d groups", file, groups,
		      s->level[i].groups);
		CHECK(several > 0, "%s: each group of %s is one rank", file, coll_level_name(s->level[i].level));
		for (int a = 0; i > 0 && a < s->ranks; a++)
			for (int b = 0; b < a; b++)
				if (g[a] == g[b] && s->level[i - 1].group[a] != s->level[i - 1].group[b])
					CHECK(false, "%s: ranks %d and %d are together inside, not outside", file, a,
					      b);
		free(size);
	}
}

/* Each part gives all its shares, each rail takes its part of them. */
static void check_lanes(const char *file, const struct job *j)
{
	const struct coll_search *s = j->s;
	int *part = calloc((size_t)s->parts, sizeof(*part)), rail[COLL_GRAPH_NICS_MAX] = {0};

	for (int i = 0; i < s->lanes; i++) {
		part[s->lane[i].part] += s->lane[i].shares;
		rail[s->lane[i].rail] += s->lane[i].shares;
		CHECK(s->lane[i].shares > 0, "%s: lane %d is empty", file, i);
	}
	for (int i = 0; i < s->parts; i++)
		CHECK(part[i] == s->shares, "%s: part %d gives %d shares", file, i, part[i]);
	for (int k = 0; k < s->rails; k++)
		CHECK(abs(rail[k] * s->rails - s->parts * s->shares) <= s->rails, "%s: rail %d takes %d of %d shares",
		      file, k, rail[k], s->parts * s->shares);
	CHECK(s->lanes <= s->parts + s->rails, "%s: %d lanes for %d parts, %d rails", file, s->lanes, s->parts,
	      s->rails);
	free(part);
}

/* The digest fits, and says the same: what follows from it is equal. */
static void check_digest(const char *file, const struct job *j)
{
	uint8_t bytes[COLL_DIGEST_MAX], again[COLL_DIGEST_MAX];
	const size_t n = coll_digest_write(j->g, bytes);
	char why[200] = "", a[200], b[200];
	struct coll_graph *copy = coll_digest_read(bytes, n, why, sizeof(why));
	struct job other = {.g = copy};

	CHECK(n > 0 && n <= COLL_DIGEST_MAX, "%s: %zu bytes", file, n);
	CHECK(copy != NULL, "%s: %s", file, why);
	if (!copy)
		return;
	CHECK(copy->cores == j->g->cores && copy->pus == j->g->pus && copy->nics == j->g->nics &&
	              copy->gpus == j->g->gpus,
	      "%s: something was left out", file);
	CHECK(memcmp(copy->core, j->g->core, sizeof(copy->core)) == 0, "%s: cores differ", file);
	CHECK(memcmp(copy->pu, j->g->pu, sizeof(copy->pu)) == 0, "%s: CPUs differ", file);
	CHECK(memcmp(copy->distance, j->g->distance, sizeof(copy->distance)) == 0, "%s: distances differ", file);
	CHECK(memcmp(copy->link_mbps, j->g->link_mbps, sizeof(copy->link_mbps)) == 0, "%s: links differ", file);
	CHECK(coll_digest_write(copy, again) == n && memcmp(bytes, again, n) == 0, "%s: the digest changes", file);
	if (start(&other, copy, j->in.hosts, j->in.ranks / j->in.hosts)) {
		levels_text(j->s, a, sizeof(a));
		levels_text(other.s, b, sizeof(b));
		CHECK(strcmp(a, b) == 0, "%s: %s by the graph, %s by its digest", file, a, b);
		nics_text(j, a, sizeof(a));
		nics_text(&other, b, sizeof(b));
		CHECK(strcmp(a, b) == 0, "%s: %s by the graph, %s by its digest", file, a, b);
		CHECK(memcmp(j->s->rank_nic, other.s->rank_nic, (size_t)j->in.ranks * sizeof(int)) == 0, "%s", file);
	}
	stop(&other);
	free(copy);
}

/* What is expected of 1, 2, 3 and all ranks on one host, and of all on two. */
struct machine {
	const char *file;
	int cores;
	const char *nics;
	const char *levels[5];
};

static const struct machine machines[] = {
        {"kvm-guest-2vcpu", 2, "ens3", {"", "", "", "", "host:2"}},
        {"raptorlake-hybrid-laptop", 14, "-", {"", "", "", "", "host:2"}},
        {"opteron-job-cgroup-6of32", 6, "-", {"", "", "", "numa:2", "host:2,numa:4"}},
        {"xeon-2s-4nic-vfs", 16, "eth4,eth5,eth6,eth7", {"", "", "", "package:2", "host:2,package:4"}},
        {"xeon-2s-8t4-1efa", 48, "rdmap197s0", {"", "", "", "package:2", "host:2,package:4"}},
        {"epyc-naples-2s-8numa-4gpu-1hca",
         48,
         "hsi0",
         {"", "", "", "package:2,numa:8,l3:16", "host:2,package:4,numa:16,l3:32"}},
        {"epyc-trento-nps4-8mi250x-4nic", 64, "hsi2,hsi1,hsi3,hsi0", {"", "", "", "l3:8", "host:2,l3:16"}},
        {"power9-2s-4v100-2hca", 40, "hsi0,hsi1,hsi2,hsi3", {"", "", "", "package:2,l3:20", "host:2,package:4,l3:40"}},
        {"thunderx2-2s-2hca", 64, "hsi0,hsi1", {"", "", "", "package:2", "host:2,package:4"}},
        {"knl-snc4-flat-1hca", 68, "ib0", {"", "", "", "", "host:2"}},
        {"dgx2-16v100-nvswitch", 4, "-", {"", "", "package:2", "package:2", "host:2,package:4"}},
        {"uv2000-24numa-384pu", 192, "ib0", {"", "", "", "package:24", "host:2,package:48"}},
        {"nccl-h100-8gpu-8nic",
         96,
         "0101:00:00.0,0102:00:00.0,0103:00:00.0,0104:00:00.0,0105:00:00.0,0106:00:00.0,0107:00:00.0,0108:00:00.0",
         {"", "", "", "numa:2", "host:2,numa:4"}},
        {"nccl-mi300x-8gpu-8nic",
         224,
         "mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7",
         {"", "", "", "numa:2", "host:2,numa:4"}},
};

TEST(machines, levels_groups_and_nics)
{
	static const int ranks[] = {1, 2, 3, 0, 0};

	if (!getenv("COLL_MACHINES"))
		SKIP("COLL_MACHINES names no directory of saved machines");
	for (size_t m = 0; m < sizeof(machines) / sizeof(machines[0]); m++) {
		char why[300] = "", text[400];
		struct coll_graph *g = read_file(machines[m].file, why, sizeof(why));

		CHECK(g != NULL, "%s", why);
		if (!g)
			continue;
		CHECK(g->cores == machines[m].cores, "%s: %d cores", machines[m].file, g->cores);
		for (int i = 0; i < 5; i++) {
			struct job j = {.g = g};

			if (start(&j, g, i == 4 ? 2 : 1, ranks[i])) {
				levels_text(j.s, text, sizeof(text));
				CHECK(strcmp(text, machines[m].levels[i]) == 0, "%s, %d ranks: levels %s, not %s",
				      machines[m].file, j.in.ranks, text, machines[m].levels[i]);
				nics_text(&j, text, sizeof(text));
				CHECK(strcmp(text, machines[m].nics) == 0, "%s, %d ranks: NICs %s, not %s",
				      machines[m].file, j.in.ranks, text, machines[m].nics);
				check_levels(machines[m].file, &j);
				check_lanes(machines[m].file, &j);
				check_digest(machines[m].file, &j);
			}
			stop(&j);
		}
		free(g);
	}
}

/* ---- What is peculiar --------------------------------------------------- */

#define OPEN(g, file)                                                       \
	char open_why[300] = "";                                            \
	struct coll_graph *g;                                               \
	if (!getenv("COLL_MACHINES"))                                       \
		SKIP("COLL_MACHINES names no directory of saved machines"); \
	g = read_file(file, open_why, sizeof(open_why));                    \
	REQUIRE(g != NULL, "%s", open_why)

static int nic(const struct coll_graph *g, const char *name)
{
	const int i = coll_graph_find_nic(g, name);

	CHECK(i >= 0, "there is no NIC %s", name);
	return i < 0 ? 0 : i;
}

/* How many ranks have this NIC as theirs. */
static int users(const struct job *j, const char *name)
{
	int n = 0;

	for (int r = 0; r < j->in.ranks; r++)
		n += j->s->rank_nic[r] >= 0 && strcmp(j->g->nic[j->s->rank_nic[r]].name, name) == 0;
	return n;
}

static int crossings(const struct job *j)
{
	int n = 0;

	for (int r = 0; r < j->in.ranks; r++) {
		const struct coll_graph_nic *c = &j->g->nic[j->s->rank_nic[r]];

		n += j->rank[r].place.package >= 0 && c->package >= 0 && j->rank[r].place.package != c->package;
	}
	return n;
}

/* Packages that are none: two virtual CPUs in one memory, no L3. */
TEST(machines, packages_of_a_guest_group_nothing)
{
	OPEN(g, "kvm-guest-2vcpu");
	struct job j = {.g = g};

	CHECK(g->packages == 2 && g->numas == 1 && g->l3s == 0);
	CHECK(g->distance_origin == COLL_ORIGIN_UNKNOWN);
	CHECK(g->nic[0].rate.mbps == 0 && g->nic[0].pci.mbps == 0, "unknown, not slow");
	REQUIRE(start(&j, g, 1, 8));
	CHECK(j.s->levels == 0);
	CHECK(strstr(j.s->level_why[COLL_LEVEL_PACKAGE], "share their memory") != NULL, "%s",
	      j.s->level_why[COLL_LEVEL_PACKAGE]);
	stop(&j);
	free(g);
}

TEST(machines, slow_cores_of_a_laptop)
{
	int slow = 0;

	OPEN(g, "raptorlake-hybrid-laptop");
	CHECK(g->kinds == 2, "%d", g->kinds);
	for (int i = 0; i < g->cores; i++)
		slow += g->core[i].kind == 0;
	CHECK(slow == 8, "%d", slow);
	for (int i = 0; i < g->pus; i++)
		CHECK((g->pu[i].os >= 12) == (g->core[g->pu[i].core].kind == 0), "CPU %d", g->pu[i].os);
	free(g);
}

/* What a job may not use is not there: one package of four, two NUMA nodes of eight, uneven. */
TEST(machines, a_job_sees_its_own_cores_only)
{
	int near[2] = {0, 0};

	OPEN(g, "opteron-job-cgroup-6of32");
	CHECK(g->packages == 1 && g->numas == 2 && g->l3s == 2 && g->pus == 6, "%d packages, %d nodes", g->packages,
	      g->numas);
	for (int i = 0; i < g->cores; i++)
		near[g->core[i].numa]++;
	CHECK(near[0] == 4 && near[1] == 2, "%d + %d", near[0], near[1]);
	CHECK(g->distance[0][1] == 16 && g->distance_origin == COLL_ORIGIN_TOLD);
	free(g);
}

/* Slow ports, virtual functions without an interface, a fast port without its usNIC. */
TEST(machines, four_fast_ports_of_six)
{
	OPEN(g, "xeon-2s-4nic-vfs");
	struct job j = {.g = g};

	CHECK(g->nics == 6, "%d", g->nics);
	for (int i = 0; i < g->nics; i++) {
		CHECK(g->nic[i].pci.mbps == 0 && g->nic[i].pci.origin == COLL_ORIGIN_UNKNOWN, "0 is unknown");
		CHECK(g->nic[i].transports == COLL_NIC_TCP, "usNIC is no verbs");
	}
	CHECK(g->nic[nic(g, "eth0")].rate.mbps == 1000 && g->nic[nic(g, "eth0")].rate.origin == COLL_ORIGIN_ASSUMED);
	CHECK(g->nic[nic(g, "eth4")].rate.mbps == 0, "nobody says");
	CHECK(g->nic[nic(g, "eth5")].package == 0 && g->nic[nic(g, "eth6")].package == 1);
	CHECK(g->distance_origin == COLL_ORIGIN_UNKNOWN && g->numas == 2);
	/* Eight ranks on the first socket: both sockets' NICs carry, each a quarter. */
	REQUIRE(start(&j, g, 1, 8));
	CHECK(users(&j, "eth4") == 2 && users(&j, "eth5") == 2 && users(&j, "eth6") == 2 && users(&j, "eth7") == 2);
	stop(&j);
	REQUIRE(start(&j, g, 1, 16));
	CHECK(users(&j, "eth6") == 4 && crossings(&j) == 0, "%d cross", crossings(&j));
	stop(&j);
	free(g);
}

/* One NIC without an interface, at the second socket. */
TEST(machines, efa_has_no_interface)
{
	OPEN(g, "xeon-2s-8t4-1efa");
	struct job j = {.g = g};
	const struct coll_graph_nic *efa = &g->nic[nic(g, "rdmap197s0")];
	int far = 0;

	CHECK(efa->transports == COLL_NIC_VERBS && efa->package == 1 && efa->fabric == COLL_FABRIC_OTHER);
	CHECK(g->nic[nic(g, "eth0")].transports == COLL_NIC_TCP);
	CHECK(g->gpus == 8, "%d", g->gpus);
	for (int i = 0; i < g->gpus; i++)
		far += g->gpu[i].package == 0;
	CHECK(far == 4 && g->gpu[0].pci_root == g->gpu[1].pci_root && g->gpu[1].pci_root != g->gpu[2].pci_root);
	REQUIRE(start(&j, g, 1, 0));
	CHECK(users(&j, "rdmap197s0") == 48 && crossings(&j) == 24, "%d", crossings(&j));
	stop(&j);
	free(g);
}

TEST(machines, three_levels_in_a_host)
{
	bool nodes[8] = {false};
	int used = 0;

	OPEN(g, "epyc-naples-2s-8numa-4gpu-1hca");
	CHECK(g->packages == 2 && g->numas == 8 && g->l3s == 16 && g->cores == 48 && g->pus == 96);
	CHECK(g->distance[0][1] == 16 && g->distance[0][4] == 32);
	CHECK(g->gpus == 4, "displays of servers are no GPUs: %d", g->gpus);
	for (int i = 0; i < g->gpus; i++)
		nodes[g->gpu[i].numa] = true;
	nodes[g->nic[nic(g, "hsi0")].numa] = true;
	for (int i = 0; i < 8; i++)
		used += nodes[i];
	CHECK(used == 5, "%d", used);
	CHECK(strcmp(g->nic[nic(g, "hsi0")].rdma, "mlx5_0") == 0);
	free(g);
}

/* Numbers of GPUs and NICs run across NUMA nodes: hsi2 is at node 0. */
TEST(machines, numbers_are_not_places)
{
	OPEN(g, "epyc-trento-nps4-8mi250x-4nic");
	struct job j = {.g = g};

	CHECK(g->nic[nic(g, "hsi2")].numa == 0 && g->nic[nic(g, "hsi1")].numa == 1 &&
	      g->nic[nic(g, "hsi3")].numa == 2 && g->nic[nic(g, "hsi0")].numa == 3);
	CHECK(g->gpus == 8);
	for (int i = 0; i < g->gpus; i++)
		CHECK(g->gpu[i].numa == (strchr("45", g->gpu[i].name[4])   ? 0
		                         : strchr("23", g->gpu[i].name[4]) ? 1
		                         : strchr("67", g->gpu[i].name[4]) ? 2
		                                                           : 3),
		      "%s at %d", g->gpu[i].name, g->gpu[i].numa);
	/* hsi2 hangs on the host bridge of rsmi5. */
	for (int i = 0; i < g->gpus; i++)
		if (strcmp(g->gpu[i].name, "rsmi5") == 0)
			CHECK(g->gpu[i].pci_root == g->nic[nic(g, "hsi2")].pci_root);
	CHECK(g->link_mbps[0][1] == 800000 && g->link_mbps[0][2] == 800000 && g->link_origin == COLL_ORIGIN_TOLD,
	      "equal as told, which is not measured");
	REQUIRE(start(&j, g, 1, 0));
	for (int r = 0; r < 64; r++)
		CHECK(j.rank[r].place.numa == g->nic[j.s->rank_nic[r]].numa, "rank %d", r);
	stop(&j);
	free(g);
}

/* Numbers of nodes with gaps, two ports on each card, PCI domains. */
TEST(machines, four_rails_on_two_cards)
{
	OPEN(g, "power9-2s-4v100-2hca");
	struct job j = {.g = g};

	CHECK(g->numas == 2 && g->numa[0].node == 0 && g->numa[1].node == 8);
	CHECK(g->distance[0][1] == 40);
	CHECK(g->nic[nic(g, "hsi0")].package == 0 && g->nic[nic(g, "hsi3")].package == 1);
	CHECK(g->nic[nic(g, "hsi0")].pci_switch == g->nic[nic(g, "hsi1")].pci_switch, "two ports of one card");
	CHECK(g->nic[nic(g, "hsi1")].pci_switch != g->nic[nic(g, "hsi2")].pci_switch);
	CHECK(strcmp(g->nic[nic(g, "hsi2")].rdma, "mlx5_2") == 0 && g->nic[nic(g, "hsi2")].state == COLL_NIC_UP);
	CHECK(g->gpus == 4 && g->pus == 160 && g->cores == 40);
	REQUIRE(start(&j, g, 2, 0));
	CHECK(users(&j, "hsi0") == 20 && users(&j, "hsi3") == 20 && crossings(&j) == 0);
	stop(&j);
	/* One rank: all four rails, a quarter each. */
	REQUIRE(start(&j, g, 2, 1));
	CHECK(j.s->lanes == 4 && j.s->lane[0].shares == 1 && j.s->lane[3].shares == 1, "%d", j.s->lanes);
	stop(&j);
	free(g);
}

/* 256 hardware threads are 64 places; Ethernet ports that do verbs as well; a port that is down. */
TEST(machines, one_fabric_of_two)
{
	OPEN(g, "thunderx2-2s-2hca");
	struct job j = {.g = g};

	CHECK(g->pus == 256 && g->cores == 64);
	CHECK(g->distance[0][1] == 20, "distances without a name");
	CHECK(g->nic[nic(g, "enp22s0f0")].fabric == COLL_FABRIC_ETHERNET);
	CHECK(g->nic[nic(g, "enp22s0f1")].state == COLL_NIC_DOWN);
	CHECK(g->nic[nic(g, "hsi0")].fabric == COLL_FABRIC_INFINIBAND && g->nic[nic(g, "hsi1")].package == 1);
	REQUIRE(start(&j, g, 1, 0));
	CHECK(users(&j, "hsi0") == 32 && users(&j, "hsi1") == 32 && crossings(&j) == 0);
	stop(&j);
	free(g);
}

TEST(machines, two_kinds_of_memory_are_one_place)
{
	OPEN(g, "knl-snc4-flat-1hca");
	struct job j = {.g = g};

	CHECK(g->numas == 4 && g->l3s == 0 && g->cores == 68);
	for (int i = 0; i < 4; i++)
		CHECK(g->numa[i].nodes == 2 && g->numa[i].node < 4, "node %d of %d", g->numa[i].node, g->numa[i].nodes);
	CHECK(g->nic[nic(g, "ib0")].numa == 0);
	REQUIRE(start(&j, g, 1, 0));
	CHECK(strstr(j.s->level_why[COLL_LEVEL_NUMA], "no distance") != NULL, "%s", j.s->level_why[COLL_LEVEL_NUMA]);
	stop(&j);
	/* Forced, they are groups. */
	j = (struct job){.g = g};
	REQUIRE(start(&j, g, 1, 0));
	coll_search_free(&j.s);
	j.in.forced = 1u << COLL_LEVEL_NUMA;
	j.s = coll_search_run(&j.in, open_why, sizeof(open_why));
	REQUIRE(j.s != NULL);
	CHECK(j.s->levels == 1 && j.s->level[0].groups == 4);
	stop(&j);
	free(g);
}

TEST(machines, gpus_behind_switches)
{
	OPEN(g, "dgx2-16v100-nvswitch");
	CHECK(g->gpus == 16 && g->cores == 4, "%d GPUs", g->gpus);
	for (int i = 0; i < g->gpus; i++) {
		CHECK(g->gpu[i].to_switch.mbps == 1200000, "six links of 25000 MB/s: %u", g->gpu[i].to_switch.mbps);
		CHECK(g->gpu[i].to_switch.origin == COLL_ORIGIN_TOLD);
		for (int k = 0; k < g->gpus; k++)
			CHECK(g->link_mbps[i][k] == 0, "GPUs are linked by switches only");
	}
	CHECK(g->gpu[0].package == 0 && g->gpu[15].package == 1);
	CHECK(g->gpu[0].address == 0x3400 && coll_graph_find_gpu(g, 0x3600) == 1, "as it is on the PCI bus");
	/* In pairs below a switch, two such switches below another. */
	for (int i = 0; i < g->gpus; i++)
		for (int k = 0; k < i; k++)
			CHECK((g->gpu[i].pci_near == g->gpu[k].pci_near) == (i / 2 == k / 2), "GPUs %d and %d", i, k);
	free(g);
}

TEST(machines, a_graph_of_three_distances)
{
	int seen[256] = {0};
	uint8_t bytes[COLL_DIGEST_MAX];

	OPEN(g, "uv2000-24numa-384pu");
	CHECK(g->numas == 24 && g->packages == 24 && g->cores == 192 && g->pus == 384);
	for (int i = 0; i < 24; i++)
		for (int k = 0; k < 24; k++)
			seen[g->distance[i][k]]++;
	CHECK(seen[10] == 24 && seen[50] > 0 && seen[65] > 0 && seen[79] > 0 &&
	      seen[10] + seen[50] + seen[65] + seen[79] == 576);
	CHECK(coll_digest_write(g, bytes) <= COLL_DIGEST_MAX);
	CHECK(g->nic[nic(g, "eth2")].rate.mbps == 1000 && g->nic[nic(g, "ib0")].rate.mbps == 0);
	CHECK(g->nic[nic(g, "ib0")].package == 6 && g->nic[nic(g, "eth2")].package == 4);
	free(g);
}

/* Eight pairs of a GPU and a NIC, told by class alone. */
TEST(machines, nics_by_class_alone)
{
	OPEN(g, "nccl-h100-8gpu-8nic");
	CHECK(g->gpus == 8 && g->nics == 8 && g->numas == 2 && g->pus == 96);
	for (int i = 0; i < 8; i++) {
		CHECK(g->nic[i].pci_switch == g->gpu[i].pci_switch && g->nic[i].numa == i / 4);
		CHECK(g->nic[i].rate.mbps == 0 && g->nic[i].fabric == COLL_FABRIC_INFINIBAND, "no speed is told");
		CHECK(g->nic[i].pci.mbps > 400000 && g->nic[i].pci.origin == COLL_ORIGIN_TOLD);
	}
	CHECK(g->link_origin == COLL_ORIGIN_UNKNOWN);
	free(g);
}

TEST(machines, rails_of_gpus)
{
	OPEN(g, "nccl-mi300x-8gpu-8nic");
	struct job j = {.g = g};

	CHECK(g->gpus == 8 && g->nics == 8);
	for (int i = 0; i < 8; i++) {
		CHECK(g->nic[i].pci_switch == g->gpu[i].pci_switch && g->nic[i].numa == i / 4);
		CHECK(g->nic[i].rate.mbps == 400000 && g->nic[i].rate.origin == COLL_ORIGIN_TOLD);
		for (int k = 0; k < 8; k++)
			CHECK((g->link_mbps[i][k] > 0) == (i != k));
	}
	CHECK(g->link_origin == COLL_ORIGIN_ASSUMED, "links are told, their rates are not");
	REQUIRE(start(&j, g, 2, 8));
	CHECK(j.s->rails == 8 && j.s->lanes == 8 && j.s->host_mbps[0] == 3200000);
	stop(&j);
	free(g);
}
