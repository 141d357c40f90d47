/*
 * Distances: see hwloc_distances.h. They stand behind the objects that they are about, whose places are known only at
 * the end; so they are kept until then.
 */
#include "topology/hwloc_distances.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- Distances ---------------------------------------------------------- */

/* The numbers of <indexes> and <u64values>: "0 8", or "OSDev:802 PCIDev:449". */
static bool read_list(struct coll_hwloc_reader *r, struct coll_hwloc_matrix *m, bool indexes)
{
	const int inside = r->x.depth;

	for (;;) {
		const enum coll_xml_event e = coll_xml_next(&r->x);

		if (e == COLL_XML_ERROR || e == COLL_XML_END)
			return false;
		if (e == COLL_XML_CLOSE && r->x.depth < inside)
			return true;
		for (const char *at = e == COLL_XML_TEXT ? r->x.text + strspn(r->x.text, " \t\r\n") : ""; *at;) {
			const bool pci = strncmp(at, "PCIDev:", 7) == 0;
			const char *from = strncmp(at, "OSDev:", 6) == 0 ? at + 6 : pci ? at + 7 : at;
			char *end;
			unsigned long long n;

			errno = 0;
			n = strtoull(from, &end, 10);
			if (end == from || errno || *from == '-')
				return coll_xml_fail(&r->x, "\"%.20s\": expected numbers", at);
			if (indexes ? m->indexes == m->n : m->values == m->n * m->n)
				return coll_xml_fail(&r->x, "more numbers than distances of %d objects have", m->n);
			if (indexes) {
				m->pci[m->indexes] = pci;
				m->index[m->indexes++] = n;
			} else {
				m->value[m->values++] = n;
			}
			at = end + strspn(end, " \t\r\n");
		}
	}
}

/* <distances2> and <distances2hetero>, of what interests here: latency between NUMA nodes, links of GPUs. */
bool coll_hwloc_read_distances(struct coll_hwloc_reader *r)
{
	enum { LATENCY = 4, BANDWIDTH = 8 };
	const char *type = coll_xml_attribute(&r->x, "type"), *name = coll_xml_attribute(&r->x, "name");
	const bool mixed = strcmp(r->x.tag, "distances2hetero") == 0;
	const bool numa = type && strcmp(type, "NUMANode") == 0;
	const bool gpus = (mixed || (type && strcmp(type, "OSDev") == 0)) && name && strstr(name, "Bandwidth");
	const int inside = r->x.depth;
	struct coll_hwloc_matrix *m = &r->matrix[r->matrices];
	long kind = 0, n = 0;

	if (!coll_xml_number(&r->x, "kind", 0, 65535, &kind) || !coll_xml_number(&r->x, "nbobjs", 0, INT32_MAX, &n))
		return false;
	if (n < 1 || n > COLL_HWLOC_MATRIX_MAX || r->matrices == COLL_HWLOC_MATRICES_MAX ||
	    !(numa ? kind & LATENCY : gpus && kind & BANDWIDTH))
		return coll_xml_skip(&r->x);
	*m = (struct coll_hwloc_matrix){.numa = numa, .n = (int)n};
	m->index = malloc((size_t)(n + n * n) * sizeof(*m->index));
	m->value = m->index + n;
	m->pci = malloc((size_t)n * sizeof(*m->pci));
	r->matrices++;
	if (!m->index || !m->pci)
		return coll_xml_fail(&r->x, "out of memory");
	for (;;) {
		const enum coll_xml_event e = coll_xml_next(&r->x);

		if (e == COLL_XML_ERROR || e == COLL_XML_END)
			return false;
		if (e == COLL_XML_CLOSE && r->x.depth < inside)
			break;
		if (e == COLL_XML_OPEN && !read_list(r, m, strcmp(r->x.tag, "indexes") == 0))
			return false;
	}
	if (m->indexes != m->n || m->values != m->n * m->n)
		return coll_xml_fail(&r->x, "distances of %d objects with %d indexes and %d values", m->n, m->indexes,
		                     m->values);
	return true;
}

static void take_numa_distances(struct coll_graph *g, const struct coll_hwloc_matrix *m)
{
	int class[COLL_HWLOC_MATRIX_MAX];

	for (int i = 0; i < m->n; i++) {
		class[i] = -1;
		for (int k = 0; k < g->numas; k++)
			if ((uint64_t)g->numa[k].node == m->index[i])
				class[i] = k;
	}
	for (int i = 0; i < m->n; i++)
		for (int k = 0; k < m->n; k++) {
			const uint64_t local = m->value[i * m->n + i], d = m->value[i * m->n + k];

			if (class[i] < 0 || class[k] < 0 || local == 0 || d == 0 || d / local >= 25)
				continue;
			g->distance[class[i]][class[k]] = (uint8_t)(d * COLL_GRAPH_LOCAL / local);
			g->distance_origin = COLL_ORIGIN_TOLD;
		}
}

/* The GPU that the OS device of this number belongs to; -1: it is something else, such as a switch of GPUs.
 */
static int gpu_of(const struct coll_hwloc_reader *r, uint64_t gp)
{
	for (int i = 0; i < r->count; i++) {
		const int up = r->list[i].parent;

		if (r->list[i].gp == gp && r->list[i].type == COLL_HWLOC_OS && up >= 0 &&
		    r->list[up].type == COLL_HWLOC_PCI)
			return r->list[up].index;
	}
	return -1;
}

/* In MB/s. */
static void take_gpu_links(struct coll_hwloc_reader *r, const struct coll_hwloc_matrix *m)
{
	struct coll_graph *g = r->g;
	uint64_t to_switch[COLL_GRAPH_GPUS_MAX] = {0};
	int gpu[COLL_HWLOC_MATRIX_MAX];

	for (int i = 0; i < m->n; i++)
		gpu[i] = m->pci[i] ? -1 : gpu_of(r, m->index[i]);
	for (int i = 0; i < m->n; i++)
		for (int k = 0; k < m->n; k++) {
			const uint64_t mbs = m->value[i * m->n + k];

			if (i == k || gpu[i] < 0 || gpu[i] == gpu[k] || mbs == 0 || mbs > 100000000)
				continue;
			if (gpu[k] >= 0)
				g->link_mbps[gpu[i]][gpu[k]] = (uint32_t)(mbs * 8);
			else
				to_switch[gpu[i]] += mbs * 8;
			g->link_origin = COLL_ORIGIN_TOLD;
		}
	for (int i = 0; i < g->gpus; i++)
		coll_rate_take(&g->gpu[i].to_switch, to_switch[i], COLL_ORIGIN_TOLD);
}

void coll_hwloc_take_distances(struct coll_hwloc_reader *r)
{
	for (int i = 0; i < r->matrices; i++)
		if (r->matrix[i].numa)
			take_numa_distances(r->g, &r->matrix[i]);
		else
			take_gpu_links(r, &r->matrix[i]);
}
