/*
 * A graph in few bytes: see digest.h.
 *
 *   'c' 'T' VERSION { FIELD LENGTH payload }
 *
 * Numbers are unsigned, seven bits a byte, the lowest first; signed ones are zigzag coded. A series of numbers is a
 * list of ramps: "192 items, each value 8 times, then 1 more", so that regular machines cost a few bytes whatever their
 * size. A matrix is a palette and runs of it. A reader checks every number before it is used: the graph that comes out
 * is whole, or there is none.
 */
#include "topology/digest.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "topology/digest_format.h"

/* What is left out, each with all before it. */
enum omission { NOTHING, NO_LINKS, NO_GPUS, FEW_NICS, NO_DISTANCES, NO_CPUS, NO_CORES };

enum { NICS_FEW = 12 };

/* ---- Writing ------------------------------------------------------------ */

struct out {
	uint8_t *p;
	size_t n, cap;
};

static void put_byte(struct out *o, unsigned b)
{
	if (o->n < o->cap)
		o->p[o->n] = (uint8_t)b;
	o->n++;
}

static void put(struct out *o, uint64_t v)
{
	for (; v >= 128; v >>= 7)
		put_byte(o, (unsigned)(v & 127) | 128);
	put_byte(o, (unsigned)v);
}

static void put_signed(struct out *o, int64_t v)
{
	put(o, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

/* How many numbers from v on are v[0] m times, v[0] + step m times, and so on. */
static int ramp(const int *v, int n, int m, int step)
{
	int i = 0;

	while (i < n && v[i] == v[0] + step * (i / m))
		i++;
	return i;
}

/* Each ramp: its items, doubled, and 1 if it has steps; the first value less the one before; with steps: how often each
 * value is there, and the step. */
static void put_series(struct out *o, const int *v, int n)
{
	int before = 0;

	for (int i = 0; i < n;) {
		const int m = ramp(v + i, n - i, n, 0);
		const int step = i + m < n ? v[i + m] - v[i] : 0;
		const int items = step ? ramp(v + i, n - i, m, step) : m;

		if (items >= 2 * m && step) {
			put(o, (uint64_t)items * 2 + 1);
			put_signed(o, v[i] - before);
			put(o, (uint64_t)m);
			put_signed(o, step);
			i += items;
		} else {
			put(o, (uint64_t)m * 2);
			put_signed(o, v[i] - before);
			i += m;
		}
		before = v[i - 1];
	}
}

static int palette_index(const uint32_t *palette, int n, uint32_t v)
{
	for (int i = 0; i < n; i++)
		if (palette[i] == v)
			return i;
	return -1;
}

/* The size of the palette, its values, then a byte for up to 32 equal values. A size of 0: value and run each time. */
static void put_matrix(struct out *o, const uint32_t *v, int n)
{
	uint32_t palette[COLL_DIGEST_PALETTE];
	int colors = 0;

	for (int i = 0; i < n && colors <= COLL_DIGEST_PALETTE; i++)
		if (palette_index(palette, colors, v[i]) < 0) {
			if (colors < COLL_DIGEST_PALETTE)
				palette[colors] = v[i];
			colors++;
			if (colors > COLL_DIGEST_PALETTE)
				break;
		}
	if (colors > COLL_DIGEST_PALETTE)
		colors = 0;
	put(o, (uint64_t)colors);
	for (int i = 0; i < colors; i++)
		put(o, palette[i]);
	for (int i = 0; i < n;) {
		int run = 1;

		while (i + run < n && v[i + run] == v[i] && (colors == 0 || run < COLL_DIGEST_RUN_MAX))
			run++;
		if (colors) {
			put_byte(o, (unsigned)palette_index(palette, colors, v[i]) | (unsigned)(run - 1) << 3);
		} else {
			put(o, v[i]);
			put(o, (uint64_t)run);
		}
		i += run;
	}
}

static void put_text(struct out *o, const char *text)
{
	const size_t n = strnlen(text, COLL_GRAPH_NAME_MAX - 1);

	put(o, n);
	for (size_t i = 0; i < n; i++)
		/* What cannot be printed is not taken by a reader. */
		put_byte(o, text[i] > ' ' && text[i] < 127 ? (unsigned char)text[i] : '?');
}

static void put_rate(struct out *o, const struct coll_rate *r)
{
	put(o, (uint64_t)r->mbps << 2 | r->origin);
}

static void put_counts(struct out *o, const struct coll_graph *g, enum omission omit)
{
	const bool cores = omit < NO_CORES;

	put(o, cores ? (uint64_t)g->cores : 0);
	put(o, cores && omit < NO_CPUS ? (uint64_t)g->pus : 0);
	put(o, (uint64_t)g->l3s);
	put(o, cores ? (uint64_t)g->numas : 0);
	put(o, (uint64_t)g->packages);
	put(o, (uint64_t)g->kinds);
	put(o, (uint64_t)g->left_out);
}

static void put_cores(struct out *o, const struct coll_graph *g, int *v)
{
	for (int field = 0; field < 4; field++) {
		for (int i = 0; i < g->cores; i++)
			v[i] = field == 0   ? g->core[i].l3
			       : field == 1 ? g->core[i].numa
			       : field == 2 ? g->core[i].package
			                    : g->core[i].kind;
		put_series(o, v, g->cores);
	}
}

/* Threads of each core; then the numbers of all first threads, all second ones and so on. */
static void put_cpus(struct out *o, const struct coll_graph *g, int *v)
{
	int most = 0, n = 0;

	memset(v, 0, (size_t)g->cores * sizeof(*v));
	for (int i = 0; i < g->pus; i++)
		if (++v[g->pu[i].core] > most)
			most = v[g->pu[i].core];
	put_series(o, v, g->cores);
	for (int t = 0; t < most; t++)
		for (int i = 0, nth = 0; i < g->pus; i++) {
			nth = i > 0 && g->pu[i].core == g->pu[i - 1].core ? nth + 1 : 0;
			if (nth == t)
				v[n++] = g->pu[i].os;
		}
	put_series(o, v, n);
}

static void put_memory(struct out *o, const struct coll_graph *g, int *v)
{
	for (int field = 0; field < 3; field++) {
		for (int i = 0; i < g->numas; i++)
			v[i] = field == 0 ? g->numa[i].node : field == 1 ? g->numa[i].nodes : g->numa[i].package;
		put_series(o, v, g->numas);
	}
}

/* Above the diagonal, and below it only if that differs. */
static void put_distances(struct out *o, const struct coll_graph *g, uint32_t *v)
{
	bool even = true;
	int n = 0;

	for (int i = 0; i < g->numas; i++)
		for (int k = 0; k < i; k++)
			even = even && g->distance[i][k] == g->distance[k][i];
	put(o, (uint64_t)g->distance_origin << 1 | even);
	for (int i = 0; i < g->numas; i++)
		for (int k = even ? i : 0; k < g->numas; k++)
			v[n++] = g->distance[i][k];
	put_matrix(o, v, n);
}

static void put_nics(struct out *o, const struct coll_graph *g, enum omission omit)
{
	const int count = omit < FEW_NICS || g->nics < NICS_FEW ? g->nics : NICS_FEW;

	put(o, (uint64_t)count);
	for (int i = 0; i < count; i++) {
		const struct coll_graph_nic *n = &g->nic[i];

		put(o, n->state | (unsigned)n->fabric << 2 | n->transports << 4 | (unsigned)n->set << 6 |
		               (unsigned)n->made << 7);
		put_rate(o, &n->rate);
		put_rate(o, &n->pci);
		/* Without cores there are no NUMA nodes either. */
		put_signed(o, omit < NO_CORES ? n->numa : -1);
		put_signed(o, n->package);
		put_signed(o, n->pci_switch);
		put_signed(o, n->pci_root);
		put(o, n->rail_key);
		put(o, (uint64_t)n->port);
		put_text(o, n->name);
		put_text(o, n->rdma);
	}
}

static void put_gpus(struct out *o, const struct coll_graph *g)
{
	put(o, (uint64_t)g->gpus);
	for (int i = 0; i < g->gpus; i++) {
		const struct coll_graph_gpu *d = &g->gpu[i];

		put_rate(o, &d->pci);
		put_rate(o, &d->to_switch);
		put_signed(o, d->numa);
		put_signed(o, d->package);
		put_signed(o, d->pci_switch);
		put_signed(o, d->pci_root);
		put_signed(o, d->pci_near);
		put(o, d->address);
		put_text(o, d->name);
	}
}

static void put_links(struct out *o, const struct coll_graph *g, uint32_t *v)
{
	int n = 0;

	put(o, g->link_origin);
	for (int i = 0; i < g->gpus; i++)
		for (int k = 0; k < g->gpus; k++)
			if (i != k)
				v[n++] = g->link_mbps[i][k];
	put_matrix(o, v, n);
}

static void put_field(struct out *o, enum coll_digest_field field, const struct out *payload)
{
	put(o, field);
	put(o, payload->n);
	for (size_t i = 0; i < payload->n; i++)
		put_byte(o, i < payload->cap ? payload->p[i] : 0);
}

static size_t write_all(const struct coll_graph *g, enum omission omit, struct coll_digest_scratch *s, struct out o)
{
	uint8_t bytes[COLL_DIGEST_MAX];

	for (size_t i = 0; i < sizeof(coll_digest_head); i++)
		put_byte(&o, coll_digest_head[i]);
	for (enum coll_digest_field f = COLL_DIGEST_COUNTS; f <= COLL_DIGEST_SITE; f++) {
		struct out p = {bytes, 0, sizeof(bytes)}; /* a longer one is counted, and then does not fit */

		if (f == COLL_DIGEST_COUNTS)
			put_counts(&p, g, omit);
		else if (f == COLL_DIGEST_CORES && omit < NO_CORES && g->cores)
			put_cores(&p, g, s->series);
		else if (f == COLL_DIGEST_CPUS && omit < NO_CPUS && g->pus)
			put_cpus(&p, g, s->series);
		else if (f == COLL_DIGEST_MEMORY && omit < NO_CORES && g->numas)
			put_memory(&p, g, s->series);
		else if (f == COLL_DIGEST_DISTANCES && omit < NO_DISTANCES && g->distance_origin)
			put_distances(&p, g, s->matrix);
		else if (f == COLL_DIGEST_NICS && g->nics)
			put_nics(&p, g, omit);
		else if (f == COLL_DIGEST_GPUS && omit < NO_GPUS && g->gpus)
			put_gpus(&p, g);
		else if (f == COLL_DIGEST_LINKS && omit < NO_LINKS && g->gpus && g->link_origin)
			put_links(&p, g, s->matrix);
		else if (f == COLL_DIGEST_SITE && *g->site) {
			put_text(&p, g->site);
			put_rate(&p, &g->site_rate);
		}
		if (p.n)
			put_field(&o, f, &p);
	}
	return o.n;
}

size_t coll_digest_write(const struct coll_graph *g, uint8_t out[COLL_DIGEST_MAX])
{
	struct coll_digest_scratch *s = malloc(sizeof(*s));
	size_t n = 0;

	for (int omit = NOTHING; s && omit <= NO_CORES; omit++) {
		n = write_all(g, (enum omission)omit, s, (struct out){out, 0, COLL_DIGEST_MAX});
		if (n <= COLL_DIGEST_MAX)
			break;
	}
	free(s);
	return n;
}

uint64_t coll_digest_hash(const uint8_t *bytes, size_t len_bytes)
{
	return coll_hash_bytes(COLL_DIGEST_VERSION, bytes, len_bytes);
}
