/*
 * The NICs of this host: see host_nics.h.
 */
#include "topology/host_nics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topology/digest_read.h"
#include "topology/host_digest.h"
#include "topology/lanes.h"

static void read_host(struct coll_host_nics *n)
{
	struct coll_host_digest host;
	char why[120];
	cpu_set_t cpus;
	int gpu;

	n->read = true;
	coll_host_digest_obtain(&host);
	if (host.digest.len_bytes > 0)
		n->graph = coll_digest_read(host.digest.bytes, host.digest.len_bytes, why, sizeof(why));
	CPU_ZERO(&cpus);
	if (n->graph && sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
		n->place = coll_graph_place(n->graph, &cpus);
	else
		coll_host_nics_free(n);
	gpu = n->graph ? coll_graph_find_gpu(n->graph, n->device) : -1;
	if (gpu >= 0) {
		n->place.numa = n->graph->gpu[gpu].numa;
		n->place.package = n->graph->gpu[gpu].package;
	}
}

/* A port of an RDMA device; of a device without a number the first. */
static int find(const struct coll_graph *g, const char *nic)
{
	const char *colon = strchr(nic, ':');
	const int length = colon ? (int)(colon - nic) : (int)strlen(nic);
	char name[COLL_GRAPH_NAME_MAX];

	snprintf(name, sizeof(name), "%.*s", length, nic);
	for (int i = 0; colon && i < g->nics; i++)
		if (strcmp(g->nic[i].rdma, name) == 0 && g->nic[i].port == atoi(colon + 1))
			return i;
	return coll_graph_find_nic(g, name);
}

int coll_host_nics_crossing(struct coll_host_nics *n, const char *nic)
{
	int i;

	if (!n->read)
		read_host(n);
	i = n->graph ? find(n->graph, nic) : -1;
	return i < 0 ? 0 : coll_lanes_crossing(&n->place, &n->graph->nic[i]);
}

void coll_host_nics_free(struct coll_host_nics *n)
{
	free(n->graph);
	n->graph = NULL;
}
