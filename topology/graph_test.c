/*
 * Graphs from a file made by hand, from hwloc's synthetic machines and from this host; what the kernel adds to them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/files.h"
#include "tests/plain.h"
#include "tools/common/host.h"
#include "topology/graph_hwloc.h"
#include "topology/rates.h"

#define SETS(cpus, nodes) \
	"cpuset=\"" cpus "\" complete_cpuset=\"" cpus "\" nodeset=\"" nodes "\" complete_nodeset=\"" nodes "\""
#define OBJECT(type, os, gp, cpus, nodes) \
	"<object type=\"" type "\" os_index=\"" #os "\" gp_index=\"" #gp "\" " SETS(cpus, nodes)
#define CORE(os, gp, pu, cpus, nodes) \
	OBJECT("Core", os, gp, cpus, nodes) ">" OBJECT("PU", os, pu, cpus, nodes) "/></object>\n"

/* clang-format off */

/* Two packages of two cores; a card of two ports at the second, of which one is down; CPU 3 may not be used. */
static const char small[] =
        "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"
        OBJECT("Machine", 0, 1, "0xf", "0x11") " allowed_cpuset=\"0x7\" allowed_nodeset=\"0x11\">\n"
        OBJECT("Package", 0, 2, "0x3", "0x1") ">" OBJECT("NUMANode", 0, 3, "0x3", "0x1") "/>\n"
        CORE(0, 4, 5, "0x1", "0x1") CORE(1, 6, 7, "0x2", "0x1") "</object>\n"
        OBJECT("Package", 7, 8, "0xc", "0x10") ">" OBJECT("NUMANode", 4, 9, "0xc", "0x10") "/>\n"
        CORE(2, 10, 11, "0x4", "0x10") CORE(3, 12, 13, "0x8", "0x10")
        "<object type=\"Bridge\" gp_index=\"20\" bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"0000:[00-02]\">\n"
        "<object type=\"Bridge\" gp_index=\"21\" bridge_type=\"1-1\" depth=\"1\" bridge_pci=\"0000:[01-01]\" "
        "pci_busid=\"0000:00:01.0\" pci_type=\"0604 [8086:0001] [0000:0000] 01\" pci_link_speed=\"0\">\n"
        "<object type=\"PCIDev\" gp_index=\"22\" pci_busid=\"0000:01:00.0\" pci_type=\"0200 [15b3:1013] [0000:0000] 01\" "
        "pci_link_speed=\"15.75\">\n"
        "<info name=\"PCIDevice\" value=\"A 25Gb/100Gb &amp; more Ethernet\"/>\n"
        "<object type=\"OSDev\" gp_index=\"23\" name=\"left\" osdev_type=\"2\"><info name=\"Port\" value=\"1\"/></object>\n"
        "<object type=\"OSDev\" gp_index=\"24\" name=\"right\" osdev_type=\"2\"><info name=\"Port\" value=\"2\"/></object>\n"
        "<object type=\"OSDev\" gp_index=\"25\" name=\"verbs_0\" osdev_type=\"3\">"
        "<info name=\"Port1State\" value=\"4\"/><info name=\"Port2State\" value=\"1\"/></object>\n"
        "</object></object></object></object></object>\n"
        "<distances2 type=\"NUMANode\" nbobjs=\"2\" kind=\"5\" indexing=\"os\"><indexes length=\"4\">0 4 </indexes>\n"
        "<u64values length=\"12\">20 64 64 20 </u64values></distances2>\n"
        "</topology>\n";

/* clang-format on */

/* NULL with the reason in why. */
static struct coll_graph *from_text(const char *text, char *why, size_t why_bytes)
{
	char path[] = "/tmp/coll_graph_XXXXXX";
	const int fd = mkstemp(path);
	const ssize_t n = (ssize_t)strlen(text);
	struct coll_graph *g =
	        fd >= 0 && write(fd, text, (size_t)n) == n ? coll_graph_hwloc_file(path, why, why_bytes) : NULL;

	if (fd >= 0)
		close(fd);
	unlink(path);
	return g;
}

TEST(graph, of_a_small_file)
{
	char why[200] = "";
	struct coll_graph *g = from_text(small, why, sizeof(why));

	if (!coll_topology_known())
		SKIP("built without hwloc");
	REQUIRE(g != NULL, "%s", why);
	CHECK(g->cores == 3 && g->pus == 3 && g->packages == 2 && g->numas == 2 && g->l3s == 0, "CPU 3 is not allowed");
	CHECK(g->numa[1].node == 4 && g->numa[1].package == 1 && g->core[2].package == 1 && g->core[2].l3 == -1);
	CHECK(g->distance[0][1] == 32 && g->distance[0][0] == 10, "of 64 against 20: %d", g->distance[0][1]);
	REQUIRE(g->nics == 2, "%d", g->nics);
	CHECK(strcmp(g->nic[0].name, "left") == 0 && strcmp(g->nic[0].rdma, "verbs_0") == 0 && g->nic[0].port == 1);
	CHECK(g->nic[0].state == COLL_NIC_UP && g->nic[1].state == COLL_NIC_DOWN && g->nic[1].port == 2);
	CHECK(g->nic[0].rate.mbps == 100000 && g->nic[0].rate.origin == COLL_ORIGIN_ASSUMED, "by its name: %u",
	      g->nic[0].rate.mbps);
	CHECK(g->nic[0].pci.mbps == 126000 && g->nic[0].pci.origin == COLL_ORIGIN_TOLD);
	CHECK(g->nic[0].numa == 1 && g->nic[0].package == 1 && g->nic[0].pci_switch == 0 && g->nic[0].pci_root == 0);
	CHECK(g->nic[0].transports == (COLL_NIC_TCP | COLL_NIC_VERBS));
	free(g);
}

TEST(graph, files_that_hwloc_does_not_read)
{
	static const char *const wrong[] = {"", "hello", "<topology", "<topology version=\"2.0\"/>",
	                                    "<system version=\"1\"/>"};
	char why[300];

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CHECK(from_text(wrong[i], why, sizeof(why)) == NULL);
		CHECK(strstr(why, coll_topology_known() ? ": hwloc does not read this file" : ": built without hwloc"),
		      "%s", why);
	}
	CHECK(coll_graph_hwloc_file("/none/such", why, sizeof(why)) == NULL);
	CHECK(strncmp(why, "/none/such: ", 12) == 0, "%s", why);
}

/* ---- hwloc itself ------------------------------------------------------- */

TEST(graph, synthetic_machines)
{
	char why[200] = "";
	struct coll_graph *g = coll_graph_hwloc_synthetic("pack:2 [numa] l3:3 core:4 pu:2", why, sizeof(why));

	if (!coll_topology_known()) {
		CHECK(g == NULL && strcmp(why, "built without hwloc") == 0, "%s", why);
		SKIP("built without hwloc");
	}
	REQUIRE(g != NULL, "%s", why);
	CHECK(g->packages == 2 && g->numas == 2 && g->l3s == 6 && g->cores == 24 && g->pus == 48);
	for (int i = 0; i < g->cores; i++)
		CHECK(g->core[i].package == i / 12 && g->core[i].numa == i / 12 && g->core[i].l3 == i / 4, "core %d",
		      i);
	free(g);
	CHECK(coll_graph_hwloc_synthetic("nonsense", why, sizeof(why)) == NULL);
	CHECK(strstr(why, "nonsense") != NULL, "%s", why);
}

/* What the library may use here is what the kernel allows this process, or more: other ranks may have other cores. */
TEST(graph, this_host)
{
	char why[200] = "";
	struct coll_graph *g = coll_graph_hwloc_live(why, sizeof(why));
	struct coll_place p;
	cpu_set_t mine;
	int found = 0;

	if (!coll_topology_known())
		SKIP("built without hwloc");
	REQUIRE(g != NULL, "%s", why);
	REQUIRE(sched_getaffinity(0, sizeof(mine), &mine) == 0);
	for (int i = 0; i < g->pus; i++)
		found += CPU_ISSET((size_t)g->pu[i].os, &mine) != 0;
	CHECK(found == CPU_COUNT(&mine), "%d of %d", found, CPU_COUNT(&mine));
	CPU_ZERO(&mine);
	CPU_SET((size_t)g->pu[0].os, &mine);
	p = coll_graph_place(g, &mine);
	CHECK(p.core == 0 && p.package == g->core[0].package);
	free(g);
}

TEST(graph, a_place_of_several_cores)
{
	char why[200] = "";
	struct coll_graph *g = from_text(small, why, sizeof(why));
	struct coll_place p;
	cpu_set_t cpus;

	if (!coll_topology_known())
		SKIP("built without hwloc");
	REQUIRE(g != NULL, "%s", why);
	CPU_ZERO(&cpus);
	CPU_SET(0, &cpus);
	CPU_SET(1, &cpus);
	p = coll_graph_place(g, &cpus);
	CHECK(p.core == -1 && p.numa == 0 && p.package == 0 && p.kind == 0);
	CPU_SET(2, &cpus);
	p = coll_graph_place(g, &cpus);
	CHECK(p.core == -1 && p.numa == -1 && p.package == -1);
	CPU_ZERO(&cpus);
	CPU_SET(3, &cpus);
	p = coll_graph_place(g, &cpus);
	CHECK(p.core == -1 && p.package == -1, "CPU 3 is none of the graph's");
	free(g);
}

/* ---- Rates -------------------------------------------------------------- */

TEST(graph, rates_in_texts)
{
	CHECK(coll_rate_in_name("I350 Gigabit Network Connection") == 1000);
	CHECK(coll_rate_in_name("82599ES 10-Gigabit SFI/SFP+ Network Connection") == 10000);
	CHECK(coll_rate_in_name("Ethernet Controller XL710 for 40GbE QSFP+") == 40000);
	CHECK(coll_rate_in_name("NetXtreme-E 10Gb/25Gb RDMA") == 25000);
	CHECK(coll_rate_in_name("MT27700 Family [ConnectX-4]") == 0);
	CHECK(coll_rate_in_name("") == 0);
	CHECK(coll_pci_mbps("8.0 GT/s PCIe", 16) == 126032);
	CHECK(coll_pci_mbps("2.5 GT/s", 1) == 2000);
	CHECK(coll_pci_mbps("Unknown", 16) == 0 && coll_pci_mbps(NULL, 16) == 0 && coll_pci_mbps("8.0 GT/s", 0) == 0);
}

TEST(graph, addresses_of_pci)
{
	static const char *const wrong[] = {
	        "", "34:00.0", "0000:34:00", "0000:34:20.0", "0000:34:00.8", "0000:34:00.0x", "x"};

	CHECK(coll_pci_address("0000:34:00.0") == 0x3400 && coll_pci_address("00000000:34:1F.7") == 0x34ff);
	CHECK(coll_pci_address("ffffffff:ff:1f.7") == 0xffffffffffff && coll_pci_address(NULL) == 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(coll_pci_address(wrong[i]) == 0, "%s", wrong[i]);
}

/* Equal devices of which one is told to be 20 times slower: neither is believed. 10 times is a slower port. */
TEST(graph, absurd_rates_are_not_believed)
{
	struct coll_graph *g = coll_graph_new();

	REQUIRE(g != NULL);
	for (unsigned i = 0; i < 5; i++) {
		struct coll_graph_nic *n = coll_graph_add_nic(g);

		snprintf(n->name, sizeof(n->name), "eth%u", i);
		n->hardware = i < 3 ? 0x15b31013 : 0x80861521;
		coll_rate_take(&n->rate, i == 1 ? 5000 : i == 4 ? 10000 : 100000, COLL_ORIGIN_TOLD);
		coll_rate_take(&n->pci, 126000, COLL_ORIGIN_TOLD);
	}
	g->nic[2].set = true;
	coll_graph_disbelieve(g);
	CHECK(g->nic[0].rate.mbps == 0 && g->nic[0].rate.origin == COLL_ORIGIN_UNKNOWN);
	CHECK(g->nic[1].rate.mbps == 0);
	CHECK(g->nic[2].rate.mbps == 100000, "set by the user");
	CHECK(g->nic[3].rate.mbps == 100000 && g->nic[4].rate.mbps == 10000);
	CHECK(g->nic[1].pci.mbps == 126000);
	CHECK(strstr(g->note, "eth0 (100000 Mb/s) and eth1 (5000 Mb/s)") != NULL, "%s", g->note);
	free(g);
}

/* ---- sysfs -------------------------------------------------------------- */

static char root[64];

TEST(graph, nics_of_sysfs)
{
	struct coll_graph *g = coll_graph_new();
	char text[128];

	REQUIRE(g != NULL);
	strcpy(root, "/tmp/coll-graph-XXXXXX");
	REQUIRE(mkdtemp(root) != NULL);
	put_file(root, "class/net/lo/type", "772\n");
	put_file(root, "class/net/eth0/type", "1\n");
	put_file(root, "class/net/eth0/speed", "25000\n");
	put_file(root, "class/net/eth0/operstate", "up\n");
	put_file(root, "class/net/eth0/device/max_link_speed", "16.0 GT/s PCIe\n");
	put_file(root, "class/net/eth0/device/max_link_width", "8\n");
	put_file(root, "class/net/eth1/type", "1\n");
	put_file(root, "class/net/eth1/speed", "10\n");
	put_file(root, "class/net/eth1/operstate", "down\n");
	put_file(root, "class/net/veth0/type", "1\n");
	put_file(root, "class/net/veth0/speed", "-1\n");
	put_file(root, "class/net/veth0/operstate", "up\n");
	put_file(root, "class/net/veth0/master", "");
	put_file(root, "class/net/vf0/type", "1\n");
	put_file(root, "class/net/vf0/device/physfn", "");
	put_file(root, "class/infiniband/rxe0/parent", "eth0\n");
	put_file(root, "class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
	put_file(root, "class/infiniband/rxe0/ports/1/rate", "2.5 Gb/sec (1X SDR)\n");
	put_file(root, "class/infiniband/rxe0/ports/1/link_layer", "Ethernet\n");
	put_file(root, "class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
	put_file(root, "class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
	put_file(root, "class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
	put_file(root, "class/infiniband/mlx5_0/ports/1/gids/0", "fec0:0000:0000:0007:0002:c903:001b:b0a1\n");
	put_file(root, "class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
	/* An idle GPU, of which hwloc says what its link runs at. */
	put_file(root, "bus/pci/devices/0001:0b:00.0/max_link_speed", "32.0 GT/s PCIe\n");
	put_file(root, "bus/pci/devices/0001:0b:00.0/max_link_width", "16\n");
	for (int i = 0; i < 2; i++)
		*coll_graph_add_gpu(g) = (struct coll_graph_gpu){.pci = {4000, COLL_ORIGIN_TOLD},
		                                                 .address = coll_pci_address(i ? "0001:0b:00.0" : "")};
	coll_rates_read_sys(g, root);
	CHECK(g->gpu[0].pci.mbps == 4000 && g->gpu[1].pci.mbps == 504128, "%u", g->gpu[1].pci.mbps);
	CHECK(g->nics == 5, "%d", g->nics);
	const int eth0 = coll_graph_find_nic(g, "eth0"), eth1 = coll_graph_find_nic(g, "eth1");
	const int veth = coll_graph_find_nic(g, "veth0"), ib = coll_graph_find_nic(g, "mlx5_0");

	REQUIRE(eth0 >= 0 && eth1 >= 0 && veth >= 0 && ib >= 0);
	CHECK(g->nic[eth0].rate.mbps == 25000 && g->nic[eth0].rate.origin == COLL_ORIGIN_TOLD);
	CHECK(strcmp(g->nic[eth0].rdma, "rxe0") == 0 && g->nic[eth0].transports == (COLL_NIC_TCP | COLL_NIC_VERBS));
	CHECK(g->nic[eth0].state == COLL_NIC_UP && !g->nic[eth0].made);
	CHECK(g->nic[eth1].state == COLL_NIC_DOWN && g->nic[eth1].rate.mbps == 0, "the rate of a link that is down");
	CHECK(g->nic[veth].made && g->nic[veth].transports == 0 && g->nic[veth].rate.mbps == 0);
	CHECK(g->nic[ib].rate.mbps == 200000 && g->nic[ib].fabric == COLL_FABRIC_INFINIBAND &&
	      g->nic[ib].rail_key != 0);
	CHECK(g->nic[ib].transports == COLL_NIC_VERBS);
	CHECK(g->nic[ib + 1].port == 2 && g->nic[ib + 1].state == COLL_NIC_DOWN);
	snprintf(text, sizeof(text), "rm -r %s", root);
	CHECK(system(text) == 0);
	free(g);
}

/* Whatever this host has: nothing is invented. */
TEST(graph, nics_of_this_host)
{
	struct coll_graph *g = coll_graph_new();

	REQUIRE(g != NULL);
	coll_rates_read_sys(g, "/sys");
	coll_rates_read_kernel(g);
	for (int i = 0; i < g->nics; i++) {
		CHECK(strcmp(g->nic[i].name, "lo") != 0);
		CHECK((g->nic[i].rate.mbps == 0) == (g->nic[i].rate.origin == COLL_ORIGIN_UNKNOWN), "%s",
		      g->nic[i].name);
		CHECK(coll_graph_find_nic(g, g->nic[i].name) == i || g->nic[i].port > 1, "%s is there twice",
		      g->nic[i].name);
	}
	free(g);
}
