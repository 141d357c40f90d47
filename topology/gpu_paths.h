/*
 * The path between the devices of any two ranks of a host: what it goes through, at which rate, and how fast that is
 * beside the other paths. Pure: a function of the graph and of the device of each rank, so that ranks which agree on
 * both have the same answer. gpu_ring.h and gpu_tree.h order ranks by it.
 *
 * A class is a set of paths that count as equally fast; class 0 is the fastest. Links of GPUs are ranked by their
 * rates: those within a tenth of each other are one class. All other paths are ranked by what they go through. Their
 * rates do not count: the PCI link of a device lies on all its paths, whatever the order.
 */
#ifndef COLL_TOPOLOGY_GPU_PATHS_H
#define COLL_TOPOLOGY_GPU_PATHS_H

#include "topology/graph.h"

enum {
	COLL_GPU_RANKS_MAX = 256,
	COLL_GPU_LINK_CLASSES_MAX = 8, /* slower links are all in the last one */
	COLL_GPU_CLASSES_MAX = 16
};

/* From near to far. UNKNOWN comes last: such ranks stay together, and are where nobody else has to pass. */
enum coll_gpu_via {
	COLL_GPU_SAME,        /* one device */
	COLL_GPU_LINK,        /* NVLink, xGMI */
	COLL_GPU_FABRIC,      /* switches of such links; all devices that have links to them reach each other */
	COLL_GPU_PCI_SWITCH,  /* one PCI switch */
	COLL_GPU_PCI_TREE,    /* several PCI switches, one port of the host */
	COLL_GPU_HOST_BRIDGE, /* ports of one host bridge */
	COLL_GPU_NUMA,        /* host bridges of one NUMA node */
	COLL_GPU_NODES,       /* NUMA nodes, of one package as far as is known */
	COLL_GPU_PACKAGES,
	COLL_GPU_UNKNOWN,
	COLL_GPU_VIAS
};

struct coll_gpu_path {
	enum coll_gpu_via via;
	/* Of the slowest part. Unknown (0) for one device and beyond a host bridge: nobody tells what is there. */
	struct coll_rate rate;
};

struct coll_gpu_class {
	enum coll_gpu_via via;
	uint32_t mbps; /* of links: the fastest in it; else 0 */
};

struct coll_gpu_paths {
	int ranks, classes;
	uint8_t *class;             /* [a * ranks + b], symmetric; 0 on the diagonal */
	struct coll_gpu_path *path; /* [a * ranks + b], symmetric */
	struct coll_gpu_class kind[COLL_GPU_CLASSES_MAX];
};

const char *coll_gpu_via_name(enum coll_gpu_via via);

/* gpu[r]: the device of rank r as an index in the graph (coll_graph_find_gpu()), which several ranks may have; -1: it
 * is not known; below -1: it is not in the graph, and equal numbers are one device. g may be NULL: nothing is known.
 * NULL: out of memory, or not 1 to COLL_GPU_RANKS_MAX ranks. Free it with the function below. */
struct coll_gpu_paths *coll_gpu_paths_make(const struct coll_graph *g, const int *gpu, int ranks);

void coll_gpu_paths_free(struct coll_gpu_paths **p);

/* Ranks that reach each other over paths of classes below k alone: group[r] is the lowest rank of the group of r.
 * Returns the number of groups. k from 0 (each rank alone) to classes (one group). */
int coll_gpu_groups(const struct coll_gpu_paths *p, int k, int *group);

#endif
