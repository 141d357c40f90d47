/*
 * Graphs from files of NCCL; what is wrong with a file is said with its line.
 */
#include "tools/common/nccl_xml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "tests/plain.h"

static struct coll_graph *from_text(const char *text, char *why, size_t why_bytes)
{
	const size_t n = strlen(text);
	char *copy = malloc(n + 1);
	struct coll_graph *g;

	memcpy(copy, text, n + 1);
	g = coll_graph_nccl_text("file", copy, n, why, why_bytes);
	free(copy);
	return g;
}

TEST(nccl_xml, of_a_nccl_file)
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
	        why, sizeof(why));

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

/* ---- What is wrong is said ---------------------------------------------- */

struct wrong {
	const char *text, *says;
};

static void check_wrong(const struct wrong *w)
{
	char why[300] = "";
	struct coll_graph *g = from_text(w->text, why, sizeof(why));

	CHECK(g == NULL, "taken: %.60s", w->text);
	CHECK(strncmp(why, w->says, strlen(w->says)) == 0, "'%s', not '%s'", why, w->says);
	free(g);
}

#define OPENED "<?xml version=\"1.0\"?>\n<system version=\"1\">\n"
#define CLOSED "</system>\n"

TEST(nccl_xml, errors_of_xml_name_the_line)
{
	static const struct wrong list[] = {
	        {"", "file:1: there is no element"},
	        {"hello", "file:1: this is no XML"},
	        {"\n\n<system", "file:3: the file ends inside a tag"},
	        {"<system version=\"1\">", "file:1: the file ends inside <system>, which begins in line 1"},
	        {OPENED CLOSED "<a/>", "file:4: a second element"},
	        {OPENED CLOSED "\nmore", "file:5: text behind"},
	        {OPENED "</cpu>", "file:3: </cpu> where <system> of line 2 should end"},
	        {OPENED "<cpu numaid=\"1\" numaid=\"1\"/>" CLOSED, "file:3: attribute numaid twice"},
	        {OPENED "<cpu numaid=1/>" CLOSED, "file:3: a value without quotes"},
	        {OPENED "<cpu numaid/>" CLOSED, "file:3: an attribute of <cpu> without a value"},
	        {OPENED "<cpu affinity=\"a", "file:3: the file ends inside a value of <cpu>"},
	        {OPENED "<cpu affinity=\"<\"/>" CLOSED, "file:3: '<' in a value of <cpu>"},
	        {OPENED "<!-- \n\n", "file:5: the file ends inside a comment that begins in line 3"},
	        {OPENED "<![CDATA[x]]>" CLOSED, "file:3: this kind of markup is not read"},
	        {"<!DOCTYPE a><system/>", "file:1: there is no <cpu>"},
	        {"<!DOCTYPE a [<!ENTITY b \"c\">]><a/>", "file:1: this is no XML"},
	};

	for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++)
		check_wrong(&list[i]);
}

TEST(nccl_xml, errors_of_nccl_files_name_the_line)
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
		check_wrong(&list[i]);
}

/* `times` pieces, then an end. */
static void check_long(const char *piece, int times, const char *end, const char *says)
{
	const size_t each = strlen(piece), len = each * (size_t)times;
	char *text = malloc(len + strlen(end) + 1), why[300] = "";
	const uint64_t began_ns = coll_clock_ns();

	REQUIRE(text != NULL);
	for (size_t i = 0; i < (size_t)times; i++)
		memcpy(text + i * each, piece, each + 1);
	memcpy(text + len, end, strlen(end) + 1);
	CHECK(!coll_graph_nccl_text("file", text, len + strlen(end), why, sizeof(why)));
	CHECK(strncmp(why, says, strlen(says)) == 0, "%s", why);
	CHECK(coll_clock_ns() - began_ns < 15000 * COLL_NS_PER_MS, "%s", piece);
	free(text);
}

TEST(nccl_xml, large_files_end_soon)
{
	enum { PIECES = 400000 };

	check_long("<!---->\n", PIECES, "<topology/>", "file:400001: this is a file of hwloc");
	check_long("<?a?>\n", PIECES, "<topology/>", "file:400001: this is a file of hwloc");
	check_long("\n", PIECES, "<!--", "file:400001: the file ends inside a comment");
	check_long("<system>", 1000, "", "file:1: elements are nested more than 100 deep");
}

TEST(nccl_xml, files_without_end)
{
	char why[300] = "";

	CHECK(coll_graph_nccl_file("/dev/zero", why, sizeof(why)) == NULL);
	CHECK(strcmp(why, "/dev/zero: larger than 16 MiB") == 0, "%s", why);
	CHECK(coll_graph_nccl_file("/none/such", why, sizeof(why)) == NULL);
	CHECK(strcmp(why, "/none/such: No such file or directory") == 0, "%s", why);
	CHECK(coll_graph_nccl_file("/", why, sizeof(why)) == NULL && strstr(why, "directory") != NULL, "%s", why);
}

TEST(nccl_xml, a_zero_byte_is_an_error)
{
	char text[] = "<system>\n\0 <cpu/></system>", why[100] = "";

	CHECK(coll_graph_nccl_text("file", text, sizeof(text) - 1, why, sizeof(why)) == NULL);
	CHECK(strcmp(why, "file:2: a zero byte") == 0, "%s", why);
}
