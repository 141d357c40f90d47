/*
 * Targets: machines described by others. Files of NCCL and hwloc, and digests, which peers send. What is taken has
 * every index in its range, can be searched, and can be written again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tools/common/gpu_tree.h"
#include "tools/common/nccl_xml.h"
#include "topology/digest_read.h"
#include "topology/gpu_ring.h"
#include "topology/graph_hwloc.h"
#include "topology/search.h"

void fuzz_nccl_xml(const uint8_t *data, size_t len_bytes);
void fuzz_hwloc_xml(const uint8_t *data, size_t len_bytes);
void fuzz_digest(const uint8_t *data, size_t len_bytes);

static void check_graph(const struct coll_graph *g)
{
	FUZZ_HOLDS(g->cores <= COLL_GRAPH_PUS_MAX && g->pus <= COLL_GRAPH_PUS_MAX && g->numas <= COLL_GRAPH_NUMA_MAX &&
	           g->nics <= COLL_GRAPH_NICS_MAX && g->gpus <= COLL_GRAPH_GPUS_MAX);
	for (int i = 0; i < g->pus; i++)
		FUZZ_HOLDS(g->pu[i].core >= 0 && g->pu[i].core < g->cores);
	for (int i = 0; i < g->cores; i++)
		FUZZ_HOLDS(g->core[i].numa >= -1 && g->core[i].numa < g->numas);
	for (int i = 0; i < g->nics; i++)
		FUZZ_HOLDS(memchr(g->nic[i].name, 0, COLL_GRAPH_NAME_MAX) && g->nic[i].numa < g->numas);
	for (int i = 0; i < g->gpus; i++)
		FUZZ_HOLDS(memchr(g->gpu[i].name, 0, COLL_GRAPH_NAME_MAX) && g->gpu[i].numa < g->numas);
}

static void search(const struct coll_graph *g)
{
	struct coll_search_rank rank[4];
	const struct coll_graph *graphs[2] = {g, g};
	const struct coll_search_in in = {4, 2, rank, graphs, 0, 0};
	char why[300] = "";
	struct coll_search *s;

	for (int r = 0; r < 4; r++)
		rank[r] = (struct coll_search_rank){-1, r / 2,
		                                    g->cores ? coll_graph_core_place(g, r % 2 * (g->cores - 1))
		                                             : (struct coll_place){-1, -1, -1, -1, -1}};
	s = coll_search_run(&in, why, sizeof(why));
	FUZZ_HOLDS(s != NULL);
	coll_search_free(&s);
}

static void order_gpus(const struct coll_graph *g)
{
	struct coll_gpu_paths *p;
	struct coll_gpu_ring ring;
	struct coll_gpu_tree tree;
	int gpu[COLL_GRAPH_GPUS_MAX + 1];

	for (int i = 0; i < g->gpus; i++)
		gpu[i] = i;
	gpu[g->gpus] = -1;
	p = coll_gpu_paths_make(g, gpu, g->gpus + 1);
	FUZZ_HOLDS(p && coll_gpu_ring_make(p, &ring));
	coll_gpu_tree_make(p, g->gpus, &tree);
	coll_gpu_paths_free(&p);
}

/* Frees it. */
static void use(struct coll_graph *g)
{
	uint8_t bytes[COLL_DIGEST_MAX];
	struct coll_graph *again;
	char why[300];

	if (!g)
		return;
	check_graph(g);
	search(g);
	order_gpus(g);
	again = coll_digest_read(bytes, coll_digest_write(g, bytes), why, sizeof(why));
	FUZZ_HOLDS(again != NULL);
	free(again);
	free(g);
}

void fuzz_nccl_xml(const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};
	char *text = fuzz_text(&in), why[300];

	use(coll_graph_nccl_text("f", text, len_bytes, why, sizeof(why)));
	free(text);
}

/* ---- hwloc ---- */

/* libhwloc itself ends in places on files that nobody saved, and is not ours: the machine is a good one, and the input
 * says which devices it has, and what it tells of them. */
static const char head[] =
        "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" cpuset=\"0x3\" allowed_cpuset=\"0x3\" "
        "complete_cpuset=\"0x3\" nodeset=\"0x1\" complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\" gp_index=\"1\">"
        "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0x3\" complete_cpuset=\"0x3\" nodeset=\"0x1\" "
        "complete_nodeset=\"0x1\" local_memory=\"1048576\" gp_index=\"2\"/>"
        "<object type=\"Core\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\" "
        "gp_index=\"3\"><object type=\"PU\" os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" "
        "complete_nodeset=\"0x1\" gp_index=\"4\"/></object>"
        "<object type=\"Core\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x1\" complete_nodeset=\"0x1\" "
        "gp_index=\"5\"><object type=\"PU\" os_index=\"1\" cpuset=\"0x2\" complete_cpuset=\"0x2\" nodeset=\"0x1\" "
        "complete_nodeset=\"0x1\" gp_index=\"6\"/></object>"
        "<object type=\"Bridge\" bridge_type=\"0-1\" gp_index=\"7\" depth=\"0\" bridge_pci=\"0000:[00-ff]\">";
static const char tail[] = "</object></object></topology>";

/* A short text of the input that XML can hold. */
static void put_text(FILE *f, struct fuzz_input *in)
{
	for (uint8_t n = fuzz_byte(in) % 40; n > 0; n--) {
		const uint8_t c = fuzz_byte(in);

		fputc(c < ' ' || c > '~' || strchr("<>&\"", c) ? '_' : c, f);
	}
}

static void put_info(FILE *f, struct fuzz_input *in)
{
	static const char *const names[] = {"Address",    "Port",      "Port1GID0", "Port1LID",
	                                    "Port1State", "PCIDevice", "NodeGUID",  "PCIVendor"};

	fprintf(f, "<info name=\"%s\" value=\"", names[fuzz_byte(in) % 8]);
	put_text(f, in);
	fputs("\"/>", f);
}

static void put_device(FILE *f, struct fuzz_input *in, int i)
{
	static const unsigned classes[] = {0x0200, 0x0207, 0x0300, 0x0302, 0x0604, 0x1200};
	const unsigned class = classes[fuzz_byte(in) % 6], vendor = fuzz_number(in), speed = fuzz_byte(in);

	fprintf(f,
	        "<object type=\"PCIDev\" pci_busid=\"0000:%02x:00.0\" pci_type=\"%04x [%04x:%04x] [0000:0000] a1\" "
	        "pci_link_speed=\"%u.%u\" gp_index=\"%d\">",
	        i + 1, class, vendor >> 16, vendor & 0xffff, speed, speed, 100 + 3 * i);
	put_info(f, in);
	fprintf(f, "<object type=\"OSDev\" osdev_type=\"%d\" gp_index=\"%d\" name=\"", fuzz_byte(in) % 6, 101 + 3 * i);
	put_text(f, in);
	fputs("\">", f);
	for (int k = fuzz_byte(in) % 4; k > 0; k--)
		put_info(f, in);
	fputs("</object></object>", f);
}

void fuzz_hwloc_xml(const uint8_t *data, size_t len_bytes)
{
	struct fuzz_input in = {data, len_bytes};
	char path[64], why[300], *text = NULL;
	size_t bytes = 0;
	FILE *f = open_memstream(&text, &bytes);
	int fd;

	fputs(head, f);
	for (int i = 0; i < 100 && in.left > 0; i++)
		put_device(f, &in, i);
	fputs(tail, f);
	fclose(f);
	fd = fuzz_file(text, bytes, path);
	use(coll_graph_hwloc_file(path, why, sizeof(why)));
	close(fd);
	free(text);
}

void fuzz_digest(const uint8_t *data, size_t len_bytes)
{
	char why[300];

	use(coll_digest_read(data, len_bytes, why, sizeof(why)));
}
