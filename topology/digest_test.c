/*
 * Digests: the same graph comes back, whatever it is; what is damaged is refused with the byte.
 */
#include "topology/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "tests/plain.h"
#include "topology/digest_read.h"

/* cores per package and so on; os: the number of the CPU of thread t of core c. */
static struct coll_graph *machine(int packages, int numas, int cores, int threads, int (*os)(int c, int t, int cores))
{
	struct coll_graph *g = coll_graph_new();

	if (!g)
		return NULL;
	g->packages = packages;
	g->numas = numas;
	g->l3s = numas;
	g->cores = cores;
	g->kinds = 1;
	for (int c = 0; c < cores; c++) {
		g->core[c] = (struct coll_graph_core){(short)(c * numas / cores), (short)(c * numas / cores),
		                                      (short)(c * packages / cores), 0};
		for (int t = 0; t < threads; t++)
			g->pu[g->pus++] = (struct coll_graph_pu){os(c, t, cores), c};
	}
	for (int i = 0; i < numas; i++)
		g->numa[i] = (struct coll_graph_numa){i, 1, (short)(i * packages / numas)};
	return g;
}

static int in_turn(int c, int t, int cores)
{
	return t * cores + c;
}

static int side_by_side(int c, int t, int cores)
{
	return c * 4 + t;
}

static int at_random(int c, int t, int cores)
{
	return (int)(coll_mix64((uint64_t)(c * 8 + t)) % COLL_GRAPH_PUS_MAX);
}

static void add_nics(struct coll_graph *g, int count)
{
	for (int i = 0; i < count; i++) {
		struct coll_graph_nic *n = coll_graph_add_nic(g);

		snprintf(n->name, sizeof(n->name), "interface-%d", i);
		snprintf(n->rdma, sizeof(n->rdma), "rdma-device-%d", i);
		n->rate = (struct coll_rate){100000 + (uint32_t)i, COLL_ORIGIN_TOLD};
		n->pci = (struct coll_rate){UINT32_MAX, COLL_ORIGIN_MEASURED};
		n->numa = (short)(i % g->numas);
		n->package = (short)(i % g->packages);
		n->pci_switch = (short)i;
		n->rail_key = (uint32_t)coll_mix64((uint64_t)i);
		n->state = COLL_NIC_UP;
		n->fabric = COLL_FABRIC_OTHER;
		n->transports = 3;
		n->set = i % 2;
		n->made = i % 3 == 0;
		n->port = 255;
	}
}

static bool same(const struct coll_graph *a, const struct coll_graph *b)
{
	struct coll_graph *x = malloc(sizeof(*x));
	bool equal;

	memcpy(x, a, sizeof(*x));
	memcpy(x->note, b->note, sizeof(x->note));
	for (int i = 0; i < x->nics; i++)
		x->nic[i].hardware = 0;
	for (int i = 0; i < x->gpus; i++)
		x->gpu[i].hardware = 0;
	equal = x->cores == b->cores && x->pus == b->pus && x->l3s == b->l3s && x->numas == b->numas &&
	        x->packages == b->packages && x->kinds == b->kinds && x->nics == b->nics && x->gpus == b->gpus &&
	        memcmp(x->core, b->core, sizeof(x->core)) == 0 && memcmp(x->pu, b->pu, sizeof(x->pu)) == 0 &&
	        memcmp(x->numa, b->numa, sizeof(x->numa)) == 0 &&
	        memcmp(x->distance, b->distance, sizeof(x->distance)) == 0 &&
	        memcmp(x->link_mbps, b->link_mbps, sizeof(x->link_mbps)) == 0 && strcmp(x->site, b->site) == 0 &&
	        x->site_rate.mbps == b->site_rate.mbps && x->distance_origin == b->distance_origin &&
	        x->link_origin == b->link_origin;
	for (int i = 0; i < x->nics && equal; i++) {
		const struct coll_graph_nic *n = &x->nic[i], *m = &b->nic[i];

		equal = strcmp(n->name, m->name) == 0 && strcmp(n->rdma, m->rdma) == 0 && n->port == m->port &&
		        n->rate.mbps == m->rate.mbps && n->rate.origin == m->rate.origin &&
		        n->pci.mbps == m->pci.mbps && n->pci.origin == m->pci.origin && n->numa == m->numa &&
		        n->package == m->package && n->pci_switch == m->pci_switch && n->pci_root == m->pci_root &&
		        n->rail_key == m->rail_key && n->state == m->state && n->fabric == m->fabric &&
		        n->transports == m->transports && n->set == m->set && n->made == m->made;
	}
	for (int i = 0; i < x->gpus && equal; i++) {
		const struct coll_graph_gpu *d = &x->gpu[i], *m = &b->gpu[i];

		equal = strcmp(d->name, m->name) == 0 && d->pci.mbps == m->pci.mbps && d->numa == m->numa &&
		        d->to_switch.mbps == m->to_switch.mbps && d->package == m->package &&
		        d->pci_switch == m->pci_switch && d->pci_root == m->pci_root && d->pci_near == m->pci_near &&
		        d->address == m->address;
	}
	free(x);
	return equal;
}

/* Through a digest; whole says whether everything must have fitted. Frees g. */
static void check_round(struct coll_graph *g, bool whole, size_t most)
{
	uint8_t bytes[COLL_DIGEST_MAX], again[COLL_DIGEST_MAX];
	char why[200] = "";
	size_t n;
	struct coll_graph *copy;

	REQUIRE(g != NULL);
	n = coll_digest_write(g, bytes);
	copy = coll_digest_read(bytes, n, why, sizeof(why));
	CHECK(n > 0 && n <= most, "%zu bytes, at most %zu", n, most);
	CHECK(copy != NULL, "%s", why);
	if (copy) {
		CHECK(same(g, copy) == whole, "%s", whole ? "something is lost" : "nothing is lost");
		CHECK(coll_digest_write(copy, again) == n && memcmp(bytes, again, n) == 0, "not the same again");
		CHECK(coll_digest_hash(bytes, n) == coll_digest_hash(again, n));
	}
	free(copy);
	free(g);
}

TEST(digest, regular_machines_are_small)
{
	struct coll_graph *g;

	check_round(machine(1, 1, 2, 1, in_turn), true, 60);
	check_round(machine(2, 8, 128, 2, in_turn), true, 90);
	check_round(machine(2, 2, 64, 4, side_by_side), true, 90);
	check_round(machine(128, 128, 2048, 2, in_turn), true, 120);
	g = machine(2, 2, 64, 2, in_turn);
	add_nics(g, 8);
	strcpy(g->site, "north");
	g->site_rate = (struct coll_rate){500, COLL_ORIGIN_TOLD};
	check_round(g, true, 600);
	g = coll_graph_new();
	check_round(g, true, 20);
}

TEST(digest, distances_and_links)
{
	struct coll_graph *g = machine(4, 24, 96, 1, in_turn);

	for (int i = 0; i < 24; i++)
		for (int k = 0; k < 24; k++)
			g->distance[i][k] = (uint8_t)(i == k ? 10 : i / 6 == k / 6 ? 16 : 32);
	g->distance_origin = COLL_ORIGIN_TOLD;
	for (int i = 0; i < 8; i++) {
		struct coll_graph_gpu *d = coll_graph_add_gpu(g);

		snprintf(d->name, sizeof(d->name), "gpu%d", i);
		d->to_switch = (struct coll_rate){1200000, COLL_ORIGIN_TOLD};
		d->pci_switch = (short)(i / 4), d->pci_near = (short)(i / 2);
		d->address = coll_pci_address("ffffffff:34:1f.0") + (uint64_t)i;
		for (int k = 0; k < 8; k++)
			g->link_mbps[i][k] = i == k ? 0 : 200000 * (uint32_t)(1 + (i ^ k) % 2);
	}
	g->link_origin = COLL_ORIGIN_ASSUMED;
	check_round(g, true, 500);
	/* Lopsided, and of more values than a palette has. */
	g = machine(2, 12, 24, 1, in_turn);
	for (int i = 0; i < 12; i++)
		for (int k = 0; k < 12; k++)
			g->distance[i][k] = (uint8_t)(10 + i * 12 + k);
	g->distance_origin = COLL_ORIGIN_MEASURED;
	check_round(g, true, 600);
}

/* What does not fit is left out; it never fails, and what is left is right. */
TEST(digest, irregular_machines_lose_detail)
{
	struct coll_graph *g = machine(8, 64, 4096, 1, at_random);
	uint8_t bytes[COLL_DIGEST_MAX];
	char why[200];

	add_nics(g, COLL_GRAPH_NICS_MAX);
	coll_digest_write(g, bytes);
	check_round(g, false, COLL_DIGEST_MAX);
	g = machine(8, 64, 1024, 1, at_random);
	struct coll_graph *copy = coll_digest_read(bytes, coll_digest_write(g, bytes), why, sizeof(why));

	REQUIRE(copy != NULL, "%s", why);
	CHECK(copy->pus == 0 && copy->cores == 1024 && copy->core[1023].numa == 63,
	      "only numbers of CPUs are left out");
	free(copy);
	free(g);
}

/* ---- Hostile bytes ------------------------------------------------------ */

static void refused(const uint8_t *bytes, size_t n, const char *says)
{
	char why[200] = "";
	struct coll_graph *g = coll_digest_read(bytes, n, why, sizeof(why));

	CHECK(g == NULL, "taken, where '%s' is expected", says);
	CHECK(strncmp(why, says, strlen(says)) == 0, "'%s', not '%s'", why, says);
	free(g);
}

#define REFUSED(says, ...) refused((const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__}), says)

TEST(digest, what_is_wrong_is_said_with_its_byte)
{
	REFUSED("byte 0: this is no digest", 'x', 'T', 2);
	REFUSED("byte 0: this is no digest", 'c', 'T');
	REFUSED("byte 2: version 9, where 2 is read", 'c', 'T', 9);
	REFUSED("byte 3: there are no counts", 'c', 'T', 2);
	REFUSED("byte 3: field 2 comes before the counts", 'c', 'T', 2, 2, 0);
	REFUSED("byte 3: field 1 is longer than the rest", 'c', 'T', 2, 1, 7, 0);
	REFUSED("byte 6: the number of CPUs is missing", 'c', 'T', 2, 1, 1, 0);
	REFUSED("byte 5: the number of cores is too large (at most 4096)", 'c', 'T', 2, 1, 8, 255, 127, 0, 0, 0, 0, 0,
	        0);
	REFUSED("byte 12: cores of no kind", 'c', 'T', 2, 1, 7, 1, 0, 0, 0, 0, 0, 0);
	REFUSED("byte 12: CPUs without cores", 'c', 'T', 2, 1, 7, 0, 1, 0, 0, 0, 0, 0);
	REFUSED("byte 12: field 1 is not behind field 1", 'c', 'T', 2, 1, 7, 1, 0, 0, 0, 0, 1, 0, 1, 0);
	REFUSED("byte 14: L3 caches of cores is missing", 'c', 'T', 2, 1, 7, 1, 0, 0, 0, 0, 1, 0, 2, 0);
	REFUSED("byte 14: L3 caches of cores: 0 items for 1 places", 'c', 'T', 2, 1, 7, 1, 0, 0, 0, 0, 1, 0, 2, 2, 0,
	        0);
	REFUSED("byte 14: L3 caches of cores: 0 to 0 are not all from -1 to -1", 'c', 'T', 2, 1, 7, 1, 0, 0, 0, 0, 1, 0,
	        2, 2, 2, 0);
	REFUSED("byte 15: a state that no NIC has", 'c', 'T', 2, 1, 7, 0, 0, 0, 0, 0, 0, 0, 6, 2, 1, 3);
}

/* A later version may have fields, and ends of fields, that this one does not have. */
TEST(digest, what_is_not_known_is_skipped)
{
	static const uint8_t bytes[] = {'c', 'T', 2, 1, 9, 1, 0, 0, 0, 0, 1, 0, 77, 78, 99, 3, 1, 2, 3};
	char why[200] = "";
	struct coll_graph *g = coll_digest_read(bytes, sizeof(bytes), why, sizeof(why));

	REQUIRE(g != NULL, "%s", why);
	CHECK(g->cores == 1 && g->core[0].numa == -1);
	free(g);
}

TEST(digest, every_beginning_is_refused_or_whole)
{
	struct coll_graph *g = machine(2, 4, 16, 2, in_turn), *part;
	uint8_t bytes[COLL_DIGEST_MAX];
	char why[200];
	size_t n;
	int refusals = 0;

	add_nics(g, 3);
	n = coll_digest_write(g, bytes);
	for (size_t i = 0; i < n; i++) {
		part = coll_digest_read(bytes, i, why, sizeof(why));
		/* Between two fields it is a shorter digest. */
		refusals += part == NULL;
		free(part);
	}
	CHECK(refusals >= (int)n - 8, "%d of %zu", refusals, n);
	free(g);
}
