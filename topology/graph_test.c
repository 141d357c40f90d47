/*
 * Graphs from hand-made files and from hwloc's synthetic machines; what is wrong with a file is said with its line.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/delay.h"
#include "tests/plain.h"
#include "tools/common/host.h"
#include "tools/common/nccl_xml.h"
#include "tools/common/told.h"
#include "topology/graph_hwloc.h"
#include "topology/rates.h"
#include "topology/xml.h"

#define HEAD "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n<topology version=\"2.0\">\n"
#define PU(n, set)                                                                                       \
	"<object type=\"Core\" cpuset=\"" set "\"><object type=\"PU\" os_index=\"" #n "\" cpuset=\"" set \
	"\"/></object>\n"
#define NODE(n) "<object type=\"NUMANode\" os_index=\"" #n "\" cpuset=\"0x1\"/>\n"

/* Two packages of two cores; a card of two ports at the second, of which one is down; CPU 3 may not be used. */
static const char small[] = HEAD
        "<object type=\"Machine\" os_index=\"0\" cpuset=\"0xf\" allowed_cpuset=\"0x7\">\n"
        " <object type=\"Package\" os_index=\"0\" cpuset=\"0x3\">" NODE(0) PU(0, "0x1") PU(
                1, "0x2") "</object>\n"
                          " <object type=\"Package\" os_index=\"7\" cpuset=\"0xc\">" NODE(4) PU(2, "0x4") PU(
                                  3,
                                  "0x8") "  <object type=\"Bridge\" bridge_type=\"0-1\">\n"
                                         "   <object type=\"Bridge\" bridge_type=\"1-1\" pci_type=\"0604 [8086:0001] "
                                         "[0:0] 01\" pci_link_speed=\"0\">\n"
                                         "    <object type=\"PCIDev\" pci_type=\"0200 [15b3:1013] [0:0] 01\" "
                                         "pci_link_speed=\"15.75\">\n"
                                         "     <info name=\"PCIDevice\" value=\"A 25Gb/100Gb &amp; more Ethernet\"/>\n"
                                         "     <object type=\"OSDev\" name=\"left\" osdev_type=\"2\"><info "
                                         "name=\"Port\" value=\"1\"/></object>\n"
                                         "     <object type=\"OSDev\" name=\"right\" osdev_type=\"2\"><info "
                                         "name=\"Port\" value=\"2\"/></object>\n"
                                         "     <object type=\"OSDev\" name=\"verbs_0\" osdev_type=\"3\">\n"
                                         "      <info name=\"Port1State\" value=\"4\"/><info name=\"Port2State\" "
                                         "value=\"1\"/></object>\n"
                                         "    </object></object></object></object>\n"
                                         "</object>\n"
                                         "<distances2 type=\"NUMANode\" nbobjs=\"2\" kind=\"5\" "
                                         "indexing=\"os\"><indexes length=\"4\">0 4 </indexes>\n"
                                         "<u64values length=\"9\">20 64 </u64values><u64values length=\"9\">64 20 "
                                         "</u64values></distances2>\n"
                                         "</topology>\n";

static struct coll_graph *from_text(const char *text, bool nccl, char *why, size_t why_bytes)
{
	const size_t n = strlen(text);
	char *copy = malloc(n + 1);
	struct coll_graph *g;

	memcpy(copy, text, n + 1);
	g = nccl ? coll_graph_nccl_text("file", copy, n, why, why_bytes)
	         : coll_graph_hwloc_text("file", copy, n, why, why_bytes);
	free(copy);
	return g;
}

TEST(graph, of_a_small_file)
{
	char why[200] = "";
	struct coll_graph *g = from_text(small, false, why, sizeof(why));

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

/* ---- What is wrong is said ---------------------------------------------- */

struct wrong {
	const char *text, *says;
};

static void check_wrong(const struct wrong *w, bool nccl)
{
	char why[300] = "";
	struct coll_graph *g = from_text(w->text, nccl, why, sizeof(why));

	CHECK(g == NULL, "taken: %.60s", w->text);
	CHECK(strncmp(why, w->says, strlen(w->says)) == 0, "'%s', not '%s'", why, w->says);
	free(g);
}

#define OPENED HEAD "<object type=\"Machine\">\n"
#define CLOSED "</object>\n</topology>\n"

TEST(graph, errors_of_hwloc_files_name_the_line)
{
	static const struct wrong list[] = {
	        {"", "file:1: there is no element"},
	        {"hello", "file:1: this is no XML"},
	        {"\n\n<topology", "file:3: the file ends inside a tag"},
	        {"<topology version=\"2.0\">", "file:1: the file ends inside <topology>, which begins in line 1"},
	        {"<topology version=\"3.0\"/>", "file:1: format 3.0 of hwloc; format 2 is read here"},
	        {"<topology/>", "file:1: format 1 of hwloc"},
	        {"<topology version=\"2.0\"/>", "file:1: there is no machine"},
	        {"<system version=\"1\"/>", "file:1: this is a file of NCCL"},
	        {"<html>\n</html>", "file:1: <html> where hwloc has <topology>"},
	        {HEAD "</topology><a/>", "file:4: a second element"},
	        {HEAD "</topology>\n\nmore", "file:6: text behind"},
	        {HEAD "</object>", "file:4: </object> where <topology> of line 3 should end"},
	        {HEAD "<object/></topology>", "file:4: an object without a type"},
	        {OPENED CLOSED, "file:6: no hardware thread"},
	        {OPENED "<object type=\"PU\"/>" CLOSED, "file:5: a PU needs an os_index"},
	        {OPENED "<object type=\"PU\" os_index=\"99999\"/>" CLOSED, "file:5: a PU needs an os_index"},
	        {OPENED "<object type=\"PU\" os_index=\"-1\"/>" CLOSED,
	         "file:5: os_index=\"-1\" in <object>: expected"},
	        {OPENED "\n<object type=\"PU\" os_index=\"one\"/>" CLOSED,
	         "file:6: os_index=\"one\" in <object>: expected"},
	        {OPENED "<object type=\"PU\" os_index=\"1\" os_index=\"1\"/>" CLOSED,
	         "file:5: attribute os_index twice"},
	        {OPENED PU(1, "0x1") PU(1, "0x1") CLOSED, "file:8: PU 1 is there twice"},
	        {OPENED "<object type=\"PU\" os_index=\"1\" cpuset=\"0xfz\"/>" CLOSED,
	         "file:5: \"0xfz\" in <object>: not a set"},
	        {OPENED "<object type=PU/>" CLOSED, "file:5: a value without quotes"},
	        {OPENED "<object type=\"&bad;\"/>" CLOSED, "file:5: an unknown entity"},
	        {OPENED "<object type/>" CLOSED, "file:5: an attribute of <object> without a value"},
	        {OPENED "<object type=\"a", "file:5: the file ends inside a value of <object>"},
	        {OPENED "<!-- \n\n", "file:7: the file ends inside a comment that begins in line 5"},
	        {OPENED "<![CDATA[x]]>" CLOSED, "file:5: this kind of markup is not read"},
	        {"<!DOCTYPE a [<!ENTITY b \"c\">]><a/>", "file:1: a document type with declarations"},
	        {OPENED "<object type=\"PCIDev\" pci_type=\"x\"/>" CLOSED, "file:5: pci_type=\"x\""},
	        {OPENED "<object type=\"PCIDev\" pci_link_speed=\"-3\"/>" CLOSED, "file:5: pci_link_speed"},
	        {OPENED PU(1, "0x1") "</object>\n<distances2 type=\"NUMANode\" kind=\"5\" nbobjs=\"2\">"
	                             "<indexes>0 1 2</indexes></distances2></topology>",
	         "file:7: more numbers than distances of 2 objects have"},
	        {OPENED PU(1, "0x1") "</object>\n<distances2 type=\"NUMANode\" kind=\"5\" nbobjs=\"2\">"
	                             "<indexes>0 1</indexes><u64values>1 2 3</u64values></distances2></topology>",
	         "file:7: distances of 2 objects with 2 indexes and 3 values"},
	        {OPENED "</object><cpukind/></topology>", "file:5: <cpukind> without"},
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		check_wrong(&list[i], false);
}

TEST(graph, large_files_end_soon)
{
	static const struct {
		const char *piece, *end, *why;
	} list[] = {
	        {"<!DOCTYPE a>\n", "<topology/>", "file:400001: format 1"},
	        {"<!---->\n", "<topology/>", "file:400001: format 1"},
	        {"<?a?>\n", "<topology/>", "file:400001: format 1"},
	        {"\n", "<!DOCTYPE a", "file:400001: the file ends inside a declaration"},
	};
	enum { PIECES = 400000 };

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		const size_t n = strlen(list[i].piece), len = n * PIECES + strlen(list[i].end);
		char *text = malloc(len + 1), why[200] = "";
		const uint64_t began_ns = coll_clock_ns();

		REQUIRE(text != NULL);
		for (size_t k = 0; k < PIECES; k++)
			memcpy(text + k * n, list[i].piece, n);
		memcpy(text + PIECES * n, list[i].end, strlen(list[i].end) + 1);
		CHECK(!coll_graph_hwloc_text("file", text, len, why, sizeof(why)));
		CHECK(strncmp(why, list[i].why, strlen(list[i].why)) == 0, "%s", why);
		CHECK(coll_clock_ns() - began_ns < 15000 * COLL_NS_PER_MS, "%s", list[i].piece);
		free(text);
	}
}

TEST(graph, errors_of_nccl_files_name_the_line)
{
	static const struct wrong list[] = {
	        {"<topology version=\"2.0\"/>", "file:1: this is a file of hwloc"},
	        {"<a/>", "file:1: <a> where NCCL has <system>"},
	        {"<system version=\"1\">\n</system>", "file:2: there is no <cpu>"},
	        {"<system>\n<pci/></system>", "file:2: <pci> outside <cpu>"},
	        {"<system>\n<cpu>\n<gpu/></cpu></system>", "file:3: <gpu> outside <pci>"},
	        {"<system>\n<net/></system>", "file:2: <net> outside <cpu>"},
	        {"<system><cpu numaid=\"x\"/></system>", "file:1: numaid=\"x\" in <cpu>: expected"},
	        {"<system><cpu affinity=\"fg\"/></system>", "file:1: affinity=\"fg\": not a set of CPUs"},
	        {"<system><cpu affinity=\"3\"/>\n<cpu affinity=\"6\"/></system>",
	         "file:2: CPU 1 is near two NUMA nodes"},
	        {"<system><cpu><pci class=\"0x99999999\"/></cpu></system>", "file:1: class="},
	        {"<system><cpu><net speed=\"fast\"/></cpu></system>", "file:1: speed=\"fast\" in <net>"},
	        {"<system><cpu><pci class=\"0x030200\"><gpu><nvlink/></gpu></pci></cpu></system>",
	         "file:1: <nvlink> without a target"},
	        {"<system><cpu>", "file:1: the file ends inside <cpu>"},
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		check_wrong(&list[i], true);
}

static void check_long(const char *repeated, int times, const char *says)
{
	const size_t each = strlen(repeated), n = sizeof(OPENED) - 1 + each * (size_t)times;
	char *text = malloc(n + 1), why[300] = "";
	struct coll_graph *g;

	memcpy(text, OPENED, sizeof(OPENED) - 1);
	for (int i = 0; i < times; i++)
		memcpy(text + sizeof(OPENED) - 1 + (size_t)i * each, repeated, each);
	text[n] = 0;
	g = coll_graph_hwloc_text("file", text, n, why, sizeof(why));
	CHECK(g == NULL && strstr(why, says) != NULL, "%s", why);
	free(g);
	free(text);
}

TEST(graph, files_without_end)
{
	char why[300] = "";
	size_t n;

	check_long("<object type=\"Group\">", 1000, "file:5: elements are nested more than 100 deep");
	check_long("<object type=\"Group\"/>", 200001, "file:5: more than 200000 objects");
	CHECK(coll_xml_load("/dev/zero", &n, why, sizeof(why)) == NULL);
	CHECK(strcmp(why, "/dev/zero: larger than 16 MiB") == 0, "%s", why);
	CHECK(coll_graph_hwloc_file("/none/such", why, sizeof(why)) == NULL);
	CHECK(strcmp(why, "/none/such: No such file or directory") == 0, "%s", why);
	CHECK(coll_graph_nccl_file("/", why, sizeof(why)) == NULL && strstr(why, "directory") != NULL, "%s", why);
}

TEST(graph, a_zero_byte_is_an_error)
{
	char text[] = "<system>\n\0 <cpu/></system>", why[100] = "";

	CHECK(coll_graph_nccl_text("file", text, sizeof(text) - 1, why, sizeof(why)) == NULL);
	CHECK(strcmp(why, "file:2: a zero byte") == 0, "%s", why);
}

/* ---- NCCL --------------------------------------------------------------- */

TEST(graph, of_a_nccl_file)
{
	char why[200] = "";
	struct coll_graph *g = from_text(
	        "<system version=\"1\">\n"
	        " <cpu numaid=\"0\" affinity=\"0000000f\">\n"
	        "  <pci busid=\"a\" class=\"0x060400\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n"
	        "   <pci busid=\"b\" class=\"0x030200\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\">\n"
	        "    <gpu dev=\"0\"><nvlink target=\"d\" count=\"4\" tclass=\"0x030200\"/>"
	        "<nvlink target=\"s\" count=\"2\" tclass=\"0x068000\"/>"
	        "<nvlink target=\"c\" count=\"3\" tclass=\"0x068001\"/></gpu></pci>\n"
	        "   <pci busid=\"c\" class=\"0x020000\" link_speed=\"\" link_width=\"0\"><nic>\n"
	        "    <net name=\"mlx5_0\" dev=\"0\" speed=\"100000\" port=\"1\"/><net name=\"mlx5_1\" speed=\"-1\" "
	        "port=\"2\"/>\n"
	        "   </nic></pci></pci></cpu>\n"
	        " <cpu numaid=\"1\" affinity=\"000000f0\"><pci busid=\"D\" class=\"0x030200\"><gpu dev=\"1\"/></pci>\n"
	        "  <pci busid=\"e\" class=\"0x060400\"><pci busid=\"f\" class=\"0x060400\">"
	        "<pci busid=\"10000:0a:1f.7\" class=\"0x030200\"/><pci busid=\"0001:0b:00.0\" class=\"0x030200\"/>"
	        "</pci><pci busid=\"0001:0c:00.0\" class=\"0x030200\"/></pci>\n"
	        "  <future thing=\"1\"><a/></future><nic><net name=\"eth0\" speed=\"10000\"/></nic></cpu></system>\n",
	        true, why, sizeof(why));

	REQUIRE(g != NULL, "%s", why);
	CHECK(g->cores == 8 && g->numas == 2 && g->core[7].numa == 1 && g->core[0].package == -1);
	REQUIRE(g->nics == 3 && g->gpus == 5, "%d, %d", g->nics, g->gpus);
	CHECK(g->nic[0].rate.mbps == 100000 && g->nic[0].rate.origin == COLL_ORIGIN_TOLD && g->nic[1].rate.mbps == 0);
	CHECK(g->nic[0].pci.mbps == 0 && g->gpu[0].pci.mbps == 16 * 15754);
	CHECK(g->nic[0].pci_switch == 0 && g->gpu[0].pci_switch == 0 && g->gpu[1].pci_switch == -1);
	CHECK(g->nic[1].port == 2 && g->nic[2].numa == 1 && g->nic[2].pci_switch == -1);
	CHECK(g->link_mbps[0][1] == 640000 && g->link_mbps[1][0] == 0 && g->link_origin == COLL_ORIGIN_ASSUMED);
	CHECK(g->gpu[0].to_switch.mbps == 320000 && g->gpu[0].to_switch.origin == COLL_ORIGIN_ASSUMED,
	      "links to a CPU are none to a switch: %u", g->gpu[0].to_switch.mbps);
	CHECK(g->gpu[2].pci_near >= 0 && g->gpu[2].pci_near == g->gpu[3].pci_near, "one switch");
	CHECK(g->gpu[4].pci_near != g->gpu[2].pci_near && g->gpu[4].pci_switch == g->gpu[2].pci_switch,
	      "a switch in one");
	CHECK(g->gpu[0].address == 0 && g->gpu[2].address == 0x100000aff, "%llx",
	      (unsigned long long)g->gpu[2].address);
	CHECK(coll_graph_find_gpu(g, coll_pci_address("0001:0b:00.0")) == 3 && coll_graph_find_gpu(g, 0) == -1);
	free(g);
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
	struct coll_graph *g = from_text(small, false, why, sizeof(why));
	struct coll_place p;
	cpu_set_t cpus;

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
	CHECK(coll_rates_of_port("100 Gb/sec (4X EDR)") == 100000);
	CHECK(coll_rates_of_port("2.5 Gb/sec (1X SDR)") == 2500);
	CHECK(coll_rates_of_port("fast") == 0 && coll_rates_of_port("") == 0 && coll_rates_of_port("-1 Gb/sec") == 0);
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

TEST(graph, told_rates)
{
	static const char *const wrong[] = {"eth0",
	                                    "eth0:",
	                                    ":5",
	                                    "eth0:fast",
	                                    "eth0:0",
	                                    "eth0:-1",
	                                    "eth0:4000001",
	                                    "eth0:1,",
	                                    ",eth0:1",
	                                    "eth0:1,eth0:2",
	                                    "a-name-that-is-far-too-long:1",
	                                    "eth0:1 ,eth1:2"};
	struct coll_link_rate list[COLL_LINK_RATES_MAX];
	char why[200] = "";
	uint32_t mbps = 7;
	struct coll_graph *g;

	CHECK(coll_link_rates_parse("", list, why, sizeof(why)) == 0);
	CHECK(coll_link_rates_parse("eth0:1000,mlx5_0:1:250", list, why, sizeof(why)) == 2, "%s", why);
	CHECK(strcmp(list[1].name, "mlx5_0:1") == 0 && list[1].mbps == 250 && list[0].mbps == 1000);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		*why = 0;
		CHECK(coll_link_rates_parse(wrong[i], list, why, sizeof(why)) == -1 && *why, "%s", wrong[i]);
	}
	CHECK(coll_link_rate_parse_one("", &mbps, why, sizeof(why)) && mbps == 0);
	CHECK(coll_link_rate_parse_one("500", &mbps, why, sizeof(why)) && mbps == 500);
	CHECK(!coll_link_rate_parse_one("5G", &mbps, why, sizeof(why)));
	g = from_text(small, false, why, sizeof(why));
	REQUIRE(g != NULL, "%s", why);
	REQUIRE(coll_link_rates_parse("verbs_0:40000", list, why, sizeof(why)) == 1);
	CHECK(coll_told_apply(g, list, 1) == NULL && g->nic[0].rate.mbps == 40000 && g->nic[0].set && !g->nic[1].set);
	CHECK(g->nic[0].rate.origin == COLL_ORIGIN_TOLD);
	REQUIRE(coll_link_rates_parse("right:1,middle:2", list, why, sizeof(why)) == 2);
	CHECK(strcmp(coll_told_apply(g, list, 2), "middle") == 0 && g->nic[1].rate.mbps != 1, "all or none");
	free(g);
}

TEST(graph, told_sites)
{
	struct coll_graph *g = coll_graph_new();
	char why[200] = "";

	REQUIRE(g != NULL);
	CHECK(coll_told_site(g, "north", "500", why, sizeof(why)) && strcmp(g->site, "north") == 0, "%s", why);
	CHECK(g->site_rate.mbps == 500 && g->site_rate.origin == COLL_ORIGIN_TOLD);
	CHECK(!coll_told_site(g, "north west", "", why, sizeof(why)) && strstr(why, "blank") != NULL, "%s", why);
	CHECK(!coll_told_site(g, "a-name-that-is-far-too-long", "", why, sizeof(why)));
	CHECK(!coll_told_site(g, "south", "much", why, sizeof(why)) && strstr(why, "'much'") != NULL, "%s", why);
	CHECK(!coll_told_site(g, "", "5", why, sizeof(why)) && strstr(why, "no name") != NULL, "%s", why);
	CHECK(strcmp(g->site, "north") == 0, "unchanged by what is wrong");
	CHECK(coll_told_site(g, "", "", why, sizeof(why)) && !*g->site && g->site_rate.mbps == 0);
	free(g);
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

static void put(const char *path, const char *text)
{
	char full[300];
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (char *at = full + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = 0;
		mkdir(full, 0700);
		*at = '/';
	}
	f = fopen(full, "w");
	REQUIRE(f != NULL, "%s", full);
	fputs(text, f);
	fclose(f);
}

TEST(graph, nics_of_sysfs)
{
	struct coll_graph *g = coll_graph_new();
	char text[128];

	REQUIRE(g != NULL);
	strcpy(root, "/tmp/coll-graph-XXXXXX");
	REQUIRE(mkdtemp(root) != NULL);
	put("class/net/lo/type", "772\n");
	put("class/net/eth0/type", "1\n");
	put("class/net/eth0/speed", "25000\n");
	put("class/net/eth0/operstate", "up\n");
	put("class/net/eth0/device/max_link_speed", "16.0 GT/s PCIe\n");
	put("class/net/eth0/device/max_link_width", "8\n");
	put("class/net/eth1/type", "1\n");
	put("class/net/eth1/speed", "10\n");
	put("class/net/eth1/operstate", "down\n");
	put("class/net/veth0/type", "1\n");
	put("class/net/veth0/speed", "-1\n");
	put("class/net/veth0/operstate", "up\n");
	put("class/net/veth0/master", "");
	put("class/net/vf0/type", "1\n");
	put("class/net/vf0/device/physfn", "");
	put("class/infiniband/rxe0/parent", "eth0\n");
	put("class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
	put("class/infiniband/rxe0/ports/1/rate", "2.5 Gb/sec (1X SDR)\n");
	put("class/infiniband/rxe0/ports/1/link_layer", "Ethernet\n");
	put("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
	put("class/infiniband/mlx5_0/ports/1/rate", "200 Gb/sec (4X HDR)\n");
	put("class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n");
	put("class/infiniband/mlx5_0/ports/1/gids/0", "fec0:0000:0000:0007:0002:c903:001b:b0a1\n");
	put("class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n");
	/* An idle GPU, of which hwloc says what its link runs at. */
	put("bus/pci/devices/0001:0b:00.0/max_link_speed", "32.0 GT/s PCIe\n");
	put("bus/pci/devices/0001:0b:00.0/max_link_width", "16\n");
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
