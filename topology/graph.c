/*
 * A host as plain numbers: see graph.h. Pure: reads nothing but its arguments.
 */
#include "topology/graph.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Equal devices do not differ by more, whatever they say. */
enum { DISBELIEF = 20 };

struct coll_graph *coll_graph_new(void)
{
	return calloc(1, sizeof(struct coll_graph));
}

const char *coll_origin_name(enum coll_origin origin)
{
	static const char *const names[] = {"unknown", "assumed", "told", "measured"};

	return names[origin];
}

struct coll_place coll_graph_core_place(const struct coll_graph *g, int core)
{
	const struct coll_graph_core *c = &g->core[core];

	return (struct coll_place){core, c->l3, c->numa, c->package, c->kind};
}

static int agreed(int a, int b)
{
	return a == b ? a : -1;
}

struct coll_place coll_graph_place(const struct coll_graph *g, const cpu_set_t *cpus)
{
	struct coll_place all = {-1, -1, -1, -1, -1};
	bool first = true;

	for (int i = 0; i < g->pus; i++) {
		const struct coll_place p = coll_graph_core_place(g, g->pu[i].core);

		if (g->pu[i].os >= CPU_SETSIZE || !CPU_ISSET((size_t)g->pu[i].os, cpus))
			continue;
		if (first)
			all = p;
		first = false;
		all.core = agreed(all.core, p.core);
		all.l3 = agreed(all.l3, p.l3);
		all.numa = agreed(all.numa, p.numa);
		all.package = agreed(all.package, p.package);
		all.kind = agreed(all.kind, p.kind);
	}
	return all;
}

struct coll_graph_nic *coll_graph_add_nic(struct coll_graph *g)
{
	struct coll_graph_nic *n = &g->nic[g->nics];

	if (g->nics == COLL_GRAPH_NICS_MAX) {
		g->left_out++;
		return NULL;
	}
	g->nics++;
	*n = (struct coll_graph_nic){.port = 1, .numa = -1, .package = -1, .pci_switch = -1, .pci_root = -1};
	return n;
}

struct coll_graph_gpu *coll_graph_add_gpu(struct coll_graph *g)
{
	struct coll_graph_gpu *d = &g->gpu[g->gpus];

	if (g->gpus == COLL_GRAPH_GPUS_MAX) {
		g->left_out++;
		return NULL;
	}
	g->gpus++;
	*d = (struct coll_graph_gpu){.numa = -1, .package = -1, .pci_switch = -1, .pci_root = -1, .pci_near = -1};
	return d;
}

int coll_graph_find_nic(const struct coll_graph *g, const char *name)
{
	for (int i = 0; i < g->nics; i++)
		if (strcmp(g->nic[i].name, name) == 0 || strcmp(g->nic[i].rdma, name) == 0)
			return i;
	return -1;
}

int coll_graph_find_gpu(const struct coll_graph *g, uint64_t address)
{
	for (int i = 0; i < g->gpus; i++)
		if (address && g->gpu[i].address == address)
			return i;
	return -1;
}

uint64_t coll_pci_address(const char *text)
{
	unsigned domain, bus, device, function;
	char more;

	if (!text || sscanf(text, "%8x:%2x:%2x.%1x%c", &domain, &bus, &device, &function, &more) != 4 || device > 31 ||
	    function > 7)
		return 0;
	return (uint64_t)domain << 16 | bus << 8 | device << 3 | function;
}

void coll_rate_take(struct coll_rate *rate, uint64_t mbps, enum coll_origin origin)
{
	if (mbps == 0 || mbps > UINT32_MAX || origin < rate->origin)
		return;
	rate->mbps = (uint32_t)mbps;
	rate->origin = origin;
}

/* One lane in Mb/s after the code of its line: PCI Express Base Specification, 8b/10b to 5 GT/s, 128b/130b above. */
uint32_t coll_pci_mbps(const char *speed, long width)
{
	static const struct {
		double gts;
		uint32_t lane;
	} lanes[] = {{2.5, 2000}, {5, 4000}, {8, 7877}, {16, 15754}, {32, 31508}, {64, 63015}};
	const double gts = speed ? strtod(speed, NULL) : 0;

	for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++)
		if (gts == lanes[i].gts && width >= 1 && width <= 64)
			return lanes[i].lane * (uint32_t)width;
	return 0;
}

/* "Gb", "Gbe", "Gigabit", "GbE" at text. */
static bool gigabits(const char *text)
{
	return strncasecmp(text, "gigabit", 7) == 0 || (text[0] == 'G' && text[1] == 'b');
}

uint32_t coll_rate_in_name(const char *product)
{
	uint32_t most = 0;

	for (const char *at = product; *at; at++) {
		char *end = (char *)at;
		unsigned long n = 1;

		/* The "Gigabit" of "10-Gigabit" is read a second time, as 1: the larger counts. */
		if (at > product && (isalnum((unsigned char)at[-1]) || at[-1] == '.'))
			continue;
		if (isdigit((unsigned char)*at)) {
			n = strtoul(at, &end, 10);
			end += *end == '-' || *end == ' ';
		} else if (*at != 'G' && *at != 'g') {
			continue;
		}
		if (gigabits(end) && n >= 1 && n <= 3200 && n * 1000 > most)
			most = (uint32_t)n * 1000;
	}
	return most;
}

/* ---- Disbelief ---------------------------------------------------------- */

/* One rate of each of several devices. */
struct claims {
	struct coll_rate *rate[COLL_GRAPH_NICS_MAX + COLL_GRAPH_GPUS_MAX];
	uint32_t hardware[COLL_GRAPH_NICS_MAX + COLL_GRAPH_GPUS_MAX];
	const char *name[COLL_GRAPH_NICS_MAX + COLL_GRAPH_GPUS_MAX];
	int count;
};

static void claim(struct claims *c, struct coll_rate *rate, uint32_t hardware, const char *name)
{
	if (rate->mbps == 0 || rate->origin != COLL_ORIGIN_TOLD || hardware == 0)
		return;
	c->rate[c->count] = rate;
	c->hardware[c->count] = hardware;
	c->name[c->count++] = name;
}

/* Whether claim i differs too much from one of an equal device. */
static bool doubtful(const struct claims *c, int i, int *other)
{
	for (int k = 0; k < c->count; k++) {
		const uint64_t a = c->rate[i]->mbps, b = c->rate[k]->mbps;

		if (c->hardware[k] == c->hardware[i] && (a >= b * DISBELIEF || b >= a * DISBELIEF)) {
			*other = k;
			return true;
		}
	}
	return false;
}

static void judge(struct coll_graph *g, struct claims *c, const char *what)
{
	bool bad[COLL_GRAPH_NICS_MAX + COLL_GRAPH_GPUS_MAX];

	for (int i = 0; i < c->count; i++) {
		int k = 0;

		bad[i] = doubtful(c, i, &k);
		if (bad[i] && !g->note[0])
			snprintf(g->note, sizeof(g->note),
			         "%s of %s (%u Mb/s) and %s (%u Mb/s) are not believed: these devices are equal", what,
			         c->name[i], c->rate[i]->mbps, c->name[k], c->rate[k]->mbps);
	}
	for (int i = 0; i < c->count; i++)
		if (bad[i])
			*c->rate[i] = (struct coll_rate){0};
}

void coll_graph_disbelieve(struct coll_graph *g)
{
	struct claims ports = {.count = 0}, buses = {.count = 0};

	for (int i = 0; i < g->nics; i++) {
		struct coll_graph_nic *n = &g->nic[i];

		if (!n->set)
			claim(&ports, &n->rate, n->hardware, n->name);
		claim(&buses, &n->pci, n->hardware, n->name);
	}
	for (int i = 0; i < g->gpus; i++)
		claim(&buses, &g->gpu[i].pci, g->gpu[i].hardware, g->gpu[i].name);
	judge(g, &ports, "the rates");
	judge(g, &buses, "the rates of the PCI links");
}
