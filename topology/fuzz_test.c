/*
 * Digests and files that nobody meant: random bytes, and good ones with a few bytes changed, cut, or doubled. They are
 * refused with a reason or taken as a graph whose every index is in its range; nothing crashes (run it under
 * AddressSanitizer). The seed is printed.
 *
 * usage: topology_fuzz_test [ROUNDS [SEED]]: rounds of digests; each hundredth is one of files as well.
 */
#define PLAIN_OWN_MAIN
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "tests/plain.h"
#include "tools/common/gpu_tree.h"
#include "tools/common/nccl_xml.h"
#include "topology/digest_read.h"
#include "topology/gpu_ring.h"
#include "topology/graph_hwloc.h"
#include "topology/search.h"

static long rounds = 20000;
static uint64_t seed;

/* ---- Good ones ---------------------------------------------------------- */

static const char nccl_text[] =
        "<system version=\"1\"><cpu numaid=\"0\" affinity=\"0000ffff,ffffffff\"><pci busid=\"0000:01:00.0\" "
        "class=\"0x060400\" link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><pci busid=\"0000:02:00.0\" "
        "class=\"0x030200\">"
        "<gpu dev=\"0\" sm=\"90\"><nvlink target=\"0000:03:00.0\" count=\"4\" tclass=\"0x068000\"/></gpu></pci>"
        "<pci busid=\"0000:04:00.0\" class=\"0x020700\"><nic><net name=\"mlx5_0\" dev=\"0\" speed=\"400000\" "
        "port=\"1\"/></nic>"
        "</pci></pci></cpu><cpu numaid=\"1\" affinity=\"ffff0000,00000000\"/></system>\n";

/* hwloc: as its synthetic machines are, with a NIC and two GPUs added. Without hwloc both are of NCCL. */
static struct coll_graph *good_graph(bool nccl)
{
	char *copy = strdup(nccl_text), why[200] = "";
	struct coll_graph *g =
	        nccl ? NULL : coll_graph_hwloc_synthetic("pack:2 [numa] l3:1 core:2 pu:2", why, sizeof(why));

	if (g) {
		snprintf(coll_graph_add_nic(g)->name, COLL_GRAPH_NAME_MAX, "eth0");
		coll_rate_take(&g->nic[0].rate, 10000, COLL_ORIGIN_TOLD);
		for (int i = 0; i < 2; i++)
			snprintf(coll_graph_add_gpu(g)->name, COLL_GRAPH_NAME_MAX, "nvml%d", i);
		g->link_mbps[0][1] = g->link_mbps[1][0] = 200000;
		g->link_origin = COLL_ORIGIN_TOLD;
	} else {
		g = coll_graph_nccl_text("good", copy, strlen(copy), why, sizeof(why));
	}
	CHECK(g != NULL, "%s", why);
	free(copy);
	return g;
}

/* ---- Damage ------------------------------------------------------------- */

/* A few changes; returns the new length, at most cap. */
static size_t damage(struct coll_rng *rng, uint8_t *bytes, size_t n, size_t cap)
{
	for (uint32_t changes = 1 + coll_rng_below(rng, 4); changes > 0 && n > 1; changes--) {
		const size_t at = coll_rng_below(rng, (uint32_t)n);
		size_t len;

		switch (coll_rng_below(rng, 5)) {
		case 0: bytes[at] = (uint8_t)coll_rng_next(rng); break;
		case 1: bytes[at] ^= (uint8_t)(1u << coll_rng_below(rng, 8)); break;
		case 2: n = at + 1; break;
		case 3: /* a piece twice */
			len = coll_rng_below(rng, 40) + 1;
			len = len < n - at ? len : n - at;
			len = len < cap - n ? len : cap - n;
			memmove(bytes + at + len, bytes + at, n - at);
			n += len;
			break;
		default: /* a piece less */
			len = coll_rng_below(rng, 40) + 1;
			len = len < n - at ? len : n - at;
			memmove(bytes + at, bytes + at + len, n - at - len);
			n -= len;
			break;
		}
	}
	return n;
}

/* Every index is in its range: reads what anybody may read. */
static bool sound(const struct coll_graph *g)
{
	bool ok = g->cores <= COLL_GRAPH_PUS_MAX && g->pus <= COLL_GRAPH_PUS_MAX && g->numas <= COLL_GRAPH_NUMA_MAX &&
	          g->nics <= COLL_GRAPH_NICS_MAX && g->gpus <= COLL_GRAPH_GPUS_MAX;

	for (int i = 0; i < g->pus && ok; i++)
		ok = g->pu[i].core >= 0 && g->pu[i].core < g->cores && g->pu[i].os >= 0 &&
		     g->pu[i].os < COLL_GRAPH_PUS_MAX;
	for (int i = 0; i < g->cores && ok; i++)
		ok = g->core[i].numa >= -1 && g->core[i].numa < g->numas && g->core[i].l3 >= -1 &&
		     g->core[i].package >= -1 && g->core[i].kind >= 0;
	for (int i = 0; i < g->nics && ok; i++)
		ok = g->nic[i].numa >= -1 && g->nic[i].numa < g->numas &&
		     memchr(g->nic[i].name, 0, COLL_GRAPH_NAME_MAX) && memchr(g->nic[i].rdma, 0, COLL_GRAPH_NAME_MAX) &&
		     g->nic[i].rate.origin <= COLL_ORIGIN_MEASURED;
	for (int i = 0; i < g->gpus && ok; i++)
		ok = g->gpu[i].numa >= -1 && g->gpu[i].numa < g->numas &&
		     memchr(g->gpu[i].name, 0, COLL_GRAPH_NAME_MAX);
	return ok;
}

/* Ranks on all GPUs, and on one that is not there. */
static void use_gpus(const struct coll_graph *g)
{
	struct coll_gpu_paths *p;
	struct coll_gpu_ring ring;
	struct coll_gpu_tree tree;
	int gpu[COLL_GRAPH_GPUS_MAX + 1];
	bool ok;

	for (int i = 0; i < g->gpus; i++)
		gpu[i] = i;
	gpu[g->gpus] = -1;
	p = coll_gpu_paths_make(g, gpu, g->gpus + 1);
	ok = p && coll_gpu_ring_make(p, &ring);
	for (int k = 0; ok && k < p->classes; k++)
		ok = ring.slower[k] >= ring.bound[k];
	CHECK(ok, "no ring, or one below its bounds");
	if (p)
		coll_gpu_tree_make(p, g->gpus, &tree);
	CHECK(p && tree.slower[0] == g->gpus, "no tree");
	coll_gpu_paths_free(&p);
}

/* A graph that was taken can be searched and written again. */
static void use(const struct coll_graph *g)
{
	struct coll_search_rank rank[4];
	const struct coll_graph *graphs[2] = {g, g};
	const struct coll_search_in in = {4, 2, rank, graphs, 0, 0};
	uint8_t bytes[COLL_DIGEST_MAX];
	struct coll_search *s;
	struct coll_graph *copy;
	char why[300] = "";

	for (int r = 0; r < 4; r++)
		rank[r] = (struct coll_search_rank){-1, r / 2,
		                                    g->cores ? coll_graph_core_place(g, r % 2 * (g->cores - 1))
		                                             : (struct coll_place){-1, -1, -1, -1, -1}};
	s = coll_search_run(&in, why, sizeof(why));
	CHECK(s != NULL, "%s", why);
	coll_search_free(&s);
	use_gpus(g);
	copy = coll_digest_read(bytes, coll_digest_write(g, bytes), why, sizeof(why));
	CHECK(copy != NULL, "its own digest: %s", why);
	free(copy);
}

/* ---- Rounds ------------------------------------------------------------- */

static void fuzz_digests(void)
{
	struct coll_graph *good[2] = {good_graph(false), good_graph(true)};
	struct coll_rng rng = {seed};
	uint8_t base[2][COLL_DIGEST_MAX], bytes[COLL_DIGEST_MAX];
	size_t len[2];
	long taken = 0, unsound = 0, silent = 0;

	for (int i = 0; i < 2; i++)
		len[i] = coll_digest_write(good[i], base[i]);
	for (long i = 0; i < rounds; i++) {
		char why[200] = "";
		struct coll_graph *g;
		size_t n;

		if (i % 16 == 0) {
			n = 3 + coll_rng_below(&rng, 200);
			for (size_t k = 0; k < n; k++)
				bytes[k] = (uint8_t)coll_rng_next(&rng);
			memcpy(bytes, base[0], i % 32 ? 3 : 0);
		} else {
			n = len[i & 1];
			memcpy(bytes, base[i & 1], n);
			n = damage(&rng, bytes, n, sizeof(bytes));
		}
		g = coll_digest_read(bytes, n, why, sizeof(why));
		taken += g != NULL;
		silent += !g && !*why;
		if (g) {
			unsound += !sound(g);
			if (taken % 64 == 0)
				use(g);
		}
		free(g);
	}
	printf("digests: %ld of %ld taken\n", taken, rounds);
	CHECK(taken > 0 && taken < rounds);
	CHECK(unsound == 0 && silent == 0, "%ld unsound, %ld without a reason", unsound, silent);
	free(good[0]);
	free(good[1]);
}

static void fuzz_files(void)
{
	enum { CAP = 8192 };
	struct coll_rng rng = {seed + 1};
	char *text = malloc(CAP + 1);
	long taken = 0, unsound = 0, silent = 0;

	for (long i = 0; i < rounds / 100; i++) {
		char why[300] = "";
		size_t n = strlen(nccl_text);
		struct coll_graph *g;

		memcpy(text, nccl_text, n);
		n = damage(&rng, (uint8_t *)text, n, CAP);
		text[n] = 0;
		g = coll_graph_nccl_text("file", text, n, why, sizeof(why));
		taken += g != NULL;
		silent += !g && strncmp(why, "file:", 5) != 0;
		if (g) {
			unsound += !sound(g);
			use(g);
		}
		free(g);
	}
	printf("files: %ld of %ld taken\n", taken, rounds / 100);
	CHECK(taken > 0 && taken < rounds / 100);
	CHECK(unsound == 0 && silent == 0, "%ld unsound, %ld without a line", unsound, silent);
	free(text);
}

int main(int argc, char **argv)
{
	if (argc > 1)
		rounds = atol(argv[1]);
	seed = argc > 2 ? strtoull(argv[2], NULL, 0) : coll_clock_ns();
	printf("%ld rounds, seed %llu\n", rounds, (unsigned long long)seed);
	PLAIN_RUN(fuzz_digests);
	PLAIN_RUN(fuzz_files);
	return plain_summary();
}
