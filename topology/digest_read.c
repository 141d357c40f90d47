/*
 * A digest as a graph: see digest_read.h; digest.c has the format. Every number is checked before it is used: the graph
 * that comes out is whole, or there is none.
 */
#include "topology/digest_read.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/digest_format.h"

struct in {
	const uint8_t *p;
	size_t at, end;
	bool failed;
	char *why;
	size_t why_bytes;
};

/* Returns 0, so that a number that is not there is one. */
static uint64_t bad(struct in *in, const char *format, ...) __attribute__((format(printf, 2, 3)));

static uint64_t bad(struct in *in, const char *format, ...)
{
	va_list ap;
	int n;

	if (in->failed)
		return 0;
	in->failed = true;
	n = snprintf(in->why, in->why_bytes, "byte %zu: ", in->at);
	va_start(ap, format);
	if (n > 0 && (size_t)n < in->why_bytes)
		vsnprintf(in->why + n, in->why_bytes - (size_t)n, format, ap);
	va_end(ap);
	return 0;
}

static unsigned get_byte(struct in *in, const char *what)
{
	if (in->failed || in->at == in->end)
		return (unsigned)bad(in, "%s is missing", what);
	return in->p[in->at++];
}

/* A number up to most. */
static uint64_t get(struct in *in, uint64_t most, const char *what)
{
	const size_t from = in->at;
	uint64_t v = 0;

	for (int shift = 0; shift < 64; shift += 7) {
		const unsigned b = get_byte(in, what);

		v |= (uint64_t)(b & 127) << shift;
		if (b < 128) {
			if (v <= most)
				return v;
			break;
		}
	}
	in->at = in->failed ? in->at : from;
	return bad(in, "%s is too large (at most %llu)", what, (unsigned long long)most);
}

static int64_t get_signed(struct in *in, int64_t least, int64_t most, const char *what)
{
	const size_t from = in->at;
	const uint64_t v = get(in, UINT64_MAX >> 1, what);
	const int64_t n = (int64_t)(v >> 1) ^ -(int64_t)(v & 1);

	if (in->failed || (n >= least && n <= most))
		return in->failed ? 0 : n;
	in->at = from;
	return (int64_t)bad(in, "%s is %lld, not from %lld to %lld", what, (long long)n, (long long)least,
	                    (long long)most);
}

static bool get_series(struct in *in, int *v, int n, int least, int most, const char *what)
{
	int64_t before = 0;

	for (int i = 0; i < n && !in->failed;) {
		const size_t from = in->at;
		const uint64_t first = get(in, (uint64_t)(n - i) * 2 + 1, what);
		const int items = (int)(first >> 1);
		const int64_t start = before + get_signed(in, -COLL_DIGEST_STEP_MAX, COLL_DIGEST_STEP_MAX, what);
		const int m = first & 1 ? (int)get(in, (uint64_t)n, what) : items;
		const int64_t step = first & 1 ? get_signed(in, -COLL_DIGEST_STEP_MAX, COLL_DIGEST_STEP_MAX, what) : 0;
		const int64_t last = in->failed || m == 0 ? 0 : start + step * ((items - 1) / m);

		if (in->failed)
			return false;
		if (items == 0 || items > n - i || m == 0) {
			in->at = from;
			return bad(in, "%s: %d items for %d places", what, items, n - i);
		}
		if (start < least || start > most || last < least || last > most) {
			in->at = from;
			return bad(in, "%s: %lld to %lld are not all from %d to %d", what, (long long)start,
			           (long long)last, least, most);
		}
		for (int k = 0; k < items; k++)
			v[i + k] = (int)(start + step * (k / m));
		before = v[i + items - 1];
		i += items;
	}
	return !in->failed;
}

static bool get_matrix(struct in *in, uint32_t *v, int n, uint32_t most, const char *what)
{
	uint32_t palette[COLL_DIGEST_PALETTE] = {0};
	const int colors = (int)get(in, COLL_DIGEST_PALETTE, what);

	for (int i = 0; i < colors; i++)
		palette[i] = (uint32_t)get(in, most, what);
	for (int i = 0; i < n && !in->failed;) {
		const unsigned b = colors ? get_byte(in, what) : 0;
		const uint32_t value = colors ? palette[b & 7] : (uint32_t)get(in, most, what);
		const int run = colors ? (int)(b >> 3) + 1 : (int)get(in, (uint64_t)n, what);

		if (!in->failed && (run < 1 || run > n - i || (colors && (int)(b & 7) >= colors)))
			bad(in, "%s: a run of %d for %d places", what, run, n - i);
		for (int k = 0; k < run && !in->failed; k++)
			v[i + k] = value;
		i += run > 0 ? run : 1;
	}
	return !in->failed;
}

static void get_text(struct in *in, char *text, const char *what)
{
	const int n = (int)get(in, COLL_GRAPH_NAME_MAX - 1, what);

	for (int i = 0; i < n; i++) {
		const unsigned b = get_byte(in, what);

		if (!in->failed && (b <= ' ' || b >= 127)) {
			in->at--;
			bad(in, "%s has a character that cannot be printed", what);
		}
		text[i] = (char)b;
	}
	text[n] = 0;
}

static struct coll_rate get_rate(struct in *in, const char *what)
{
	const uint64_t v = get(in, (uint64_t)UINT32_MAX << 2 | 3, what);
	const struct coll_rate r = {(uint32_t)(v >> 2), (enum coll_origin)(v & 3)};

	if (!in->failed && (r.mbps == 0) != (r.origin == COLL_ORIGIN_UNKNOWN))
		bad(in, "%s: a rate and its origin contradict each other", what);
	return r;
}

static void get_counts(struct in *in, struct coll_graph *g)
{
	g->cores = (int)get(in, COLL_GRAPH_PUS_MAX, "the number of cores");
	g->pus = (int)get(in, COLL_GRAPH_PUS_MAX, "the number of CPUs");
	g->l3s = (int)get(in, COLL_GRAPH_PUS_MAX, "the number of L3 caches");
	g->numas = (int)get(in, COLL_GRAPH_NUMA_MAX, "the number of NUMA nodes");
	g->packages = (int)get(in, COLL_GRAPH_PUS_MAX, "the number of packages");
	g->kinds = (int)get(in, COLL_GRAPH_PUS_MAX, "the number of kinds of cores");
	g->left_out = (int)get(in, INT32_MAX, "the number of devices left out");
	if (!in->failed && g->pus > 0 && g->cores == 0)
		bad(in, "CPUs without cores");
	if (!in->failed && g->cores > 0 && g->kinds == 0)
		bad(in, "cores of no kind");
}

static void get_cores(struct in *in, struct coll_graph *g, struct coll_digest_scratch *s)
{
	static const char *const what[] = {"L3 caches of cores", "NUMA nodes of cores", "packages of cores",
	                                   "kinds of cores"};
	const int most[] = {g->l3s - 1, g->numas - 1, g->packages - 1, g->kinds - 1};

	for (int field = 0; field < 4; field++) {
		if (!get_series(in, s->series, g->cores, field == 3 ? 0 : -1, most[field], what[field]))
			return;
		for (int i = 0; i < g->cores; i++) {
			struct coll_graph_core *c = &g->core[i];

			*(field == 0   ? &c->l3
			  : field == 1 ? &c->numa
			  : field == 2 ? &c->package
			               : &c->kind) = (short)s->series[i];
		}
	}
}

static void get_cpus(struct in *in, struct coll_graph *g, struct coll_digest_scratch *s)
{
	int first[COLL_GRAPH_PUS_MAX], threads[COLL_GRAPH_PUS_MAX];
	int sum = 0, n = 0, most = 0;

	if (!get_series(in, s->series, g->cores, 1, COLL_GRAPH_PUS_MAX, "threads of cores"))
		return;
	for (int i = 0; i < g->cores; i++) {
		first[i] = sum;
		threads[i] = s->series[i];
		sum += threads[i];
		most = threads[i] > most ? threads[i] : most;
		if (sum > g->pus)
			break;
	}
	if (sum != g->pus) {
		bad(in, "threads of cores are not as many as CPUs (%d)", g->pus);
		return;
	}
	if (!get_series(in, s->series, g->pus, 0, COLL_GRAPH_PUS_MAX - 1, "numbers of CPUs"))
		return;
	for (int t = 0; t < most; t++)
		for (int i = 0; i < g->cores; i++)
			if (t < threads[i])
				g->pu[first[i] + t] = (struct coll_graph_pu){s->series[n++], i};
}

static void get_memory(struct in *in, struct coll_graph *g, struct coll_digest_scratch *s)
{
	static const char *const what[] = {"numbers of NUMA nodes", "kinds of memory", "packages of NUMA nodes"};
	const int least[] = {0, 0, -1}, most[] = {INT32_MAX, 1000, g->packages - 1};

	for (int field = 0; field < 3; field++) {
		if (!get_series(in, s->series, g->numas, least[field], most[field], what[field]))
			return;
		for (int i = 0; i < g->numas; i++)
			if (field == 0)
				g->numa[i].node = s->series[i];
			else if (field == 1)
				g->numa[i].nodes = (short)s->series[i];
			else
				g->numa[i].package = (short)s->series[i];
	}
}

static void get_distances(struct in *in, struct coll_graph *g, struct coll_digest_scratch *s)
{
	const unsigned flags = (unsigned)get(in, 7, "the origin of distances");
	const bool even = flags & 1;
	int n = even ? g->numas * (g->numas + 1) / 2 : g->numas * g->numas;

	if (!get_matrix(in, s->matrix, n, 255, "distances"))
		return;
	g->distance_origin = (enum coll_origin)(flags >> 1);
	n = 0;
	for (int i = 0; i < g->numas; i++)
		for (int k = even ? i : 0; k < g->numas; k++, n++) {
			g->distance[i][k] = (uint8_t)s->matrix[n];
			if (even)
				g->distance[k][i] = (uint8_t)s->matrix[n];
		}
}

/* A place of a device: a NUMA node, a package, a switch, a host bridge. */
static short get_place(struct in *in, int count, const char *what)
{
	return (short)get_signed(in, -1, count - 1, what);
}

static void get_nics(struct in *in, struct coll_graph *g)
{
	const int count = (int)get(in, COLL_GRAPH_NICS_MAX, "the number of NICs");

	for (int i = 0; i < count && !in->failed; i++) {
		struct coll_graph_nic *n = coll_graph_add_nic(g);
		const unsigned flags = (unsigned)get(in, 255, "what a NIC is");

		if (!n || (flags & 3) > COLL_NIC_DOWN) {
			in->at--;
			bad(in, n ? "a state that no NIC has" : "NICs for a second time");
			return;
		}
		n->state = (enum coll_nic_state)(flags & 3);
		n->fabric = (enum coll_nic_fabric)(flags >> 2 & 3);
		n->transports = flags >> 4 & 3;
		n->set = flags >> 6 & 1;
		n->made = flags >> 7 & 1;
		n->rate = get_rate(in, "the rate of a NIC");
		n->pci = get_rate(in, "the PCI link of a NIC");
		n->numa = get_place(in, g->numas, "the NUMA node of a NIC");
		n->package = get_place(in, g->packages, "the package of a NIC");
		n->pci_switch = get_place(in, INT16_MAX, "the switch of a NIC");
		n->pci_root = get_place(in, INT16_MAX, "the host bridge of a NIC");
		n->rail_key = (uint32_t)get(in, UINT32_MAX, "the rail of a NIC");
		n->port = (int)get(in, 255, "the port of a NIC");
		get_text(in, n->name, "the name of a NIC");
		get_text(in, n->rdma, "the RDMA device of a NIC");
	}
}

static void get_gpus(struct in *in, struct coll_graph *g)
{
	const int count = (int)get(in, COLL_GRAPH_GPUS_MAX, "the number of GPUs");

	for (int i = 0; i < count && !in->failed; i++) {
		struct coll_graph_gpu *d = coll_graph_add_gpu(g);

		if (!d) {
			bad(in, "GPUs for a second time");
			return;
		}
		d->pci = get_rate(in, "the PCI link of a GPU");
		d->to_switch = get_rate(in, "the links of a GPU");
		d->numa = get_place(in, g->numas, "the NUMA node of a GPU");
		d->package = get_place(in, g->packages, "the package of a GPU");
		d->pci_switch = get_place(in, INT16_MAX, "the switch of a GPU");
		d->pci_root = get_place(in, INT16_MAX, "the host bridge of a GPU");
		d->pci_near = get_place(in, INT16_MAX, "the nearest switch of a GPU");
		d->address = get(in, (uint64_t)UINT32_MAX << 16 | UINT16_MAX, "the address of a GPU");
		get_text(in, d->name, "the name of a GPU");
	}
}

static void get_links(struct in *in, struct coll_graph *g, struct coll_digest_scratch *s)
{
	const enum coll_origin origin = (enum coll_origin)get(in, COLL_ORIGIN_MEASURED, "the origin of links");
	int n = 0;

	if (!get_matrix(in, s->matrix, g->gpus * (g->gpus - 1), UINT32_MAX, "links of GPUs"))
		return;
	g->link_origin = origin;
	for (int i = 0; i < g->gpus; i++)
		for (int k = 0; k < g->gpus; k++)
			if (i != k)
				g->link_mbps[i][k] = s->matrix[n++];
}

/* Cores without a field are cores of which nothing is known. */
static void default_places(struct coll_graph *g)
{
	for (int i = 0; i < g->cores; i++)
		g->core[i] = (struct coll_graph_core){-1, -1, -1, 0};
	for (int i = 0; i < g->numas; i++)
		g->numa[i] = (struct coll_graph_numa){i, 1, -1};
}

/* The fields stand in ascending order, each once: so all that a field needs is there before it. */
static bool read_fields(struct in *all, struct coll_graph *g, struct coll_digest_scratch *s)
{
	uint64_t before = 0;
	bool cpus = false;

	while (all->at < all->end && !all->failed) {
		const size_t from = all->at;
		const uint64_t field = get(all, UINT32_MAX, "a field");
		const uint64_t len = get(all, COLL_DIGEST_MAX, "the length of a field");
		const size_t end = all->at + len;

		if (all->failed)
			return false;
		if (field <= before || len > all->end - all->at || (before == 0 && field != COLL_DIGEST_COUNTS)) {
			all->at = from;
			return bad(all,
			           field <= before            ? "field %llu is not behind field %llu"
			           : len > all->end - all->at ? "field %llu is longer than the rest (after field %llu)"
			                                      : "field %llu comes before the counts (%llu)",
			           (unsigned long long)field, (unsigned long long)before);
		}
		struct in in = {all->p, all->at, end, false, all->why, all->why_bytes};

		switch (field) {
		case COLL_DIGEST_COUNTS:
			get_counts(&in, g);
			default_places(g);
			break;
		case COLL_DIGEST_CORES: get_cores(&in, g, s); break;
		case COLL_DIGEST_CPUS:
			get_cpus(&in, g, s);
			cpus = true;
			break;
		case COLL_DIGEST_MEMORY: get_memory(&in, g, s); break;
		case COLL_DIGEST_DISTANCES: get_distances(&in, g, s); break;
		case COLL_DIGEST_NICS: get_nics(&in, g); break;
		case COLL_DIGEST_GPUS: get_gpus(&in, g); break;
		case COLL_DIGEST_LINKS: get_links(&in, g, s); break;
		case COLL_DIGEST_SITE:
			get_text(&in, g->site, "the name of the site");
			g->site_rate = get_rate(&in, "the rate of the site");
			break;
		default: in.at = end; break;
		}
		/* A later version may add to the end of a field. */
		all->failed = in.failed;
		all->at = in.failed ? in.at : end;
		before = field;
	}
	/* How many they are, without their numbers, is of no use. */
	g->pus = cpus ? g->pus : 0;
	if (!all->failed && before == 0)
		return bad(all, "there are no counts");
	return !all->failed;
}

struct coll_graph *coll_digest_read(const uint8_t *bytes, size_t len_bytes, char *why, size_t why_bytes)
{
	struct in in = {bytes, 0, len_bytes, false, why, why_bytes};
	struct coll_graph *g = coll_graph_new();
	struct coll_digest_scratch *s = malloc(sizeof(*s));
	bool ok = g && s;

	if (!ok) {
		snprintf(why, why_bytes, "%s", "");
	} else if (len_bytes > COLL_DIGEST_MAX) {
		ok = bad(&in, "%zu bytes are more than %d", len_bytes, COLL_DIGEST_MAX);
	} else if (len_bytes < sizeof(coll_digest_head) || memcmp(bytes, coll_digest_head, 2) != 0) {
		ok = bad(&in, "this is no digest of a host");
	} else if (bytes[2] != COLL_DIGEST_VERSION) {
		in.at = 2;
		ok = bad(&in, "version %d, where %d is read", bytes[2], COLL_DIGEST_VERSION);
	} else {
		in.at = sizeof(coll_digest_head);
		ok = read_fields(&in, g, s);
	}
	free(s);
	if (ok)
		return g;
	free(g);
	return NULL;
}
