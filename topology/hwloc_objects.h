/*
 * The objects of hwloc's XML, as they stand in the file, and what becomes of them. Internal to graph_hwloc.h.
 */
#ifndef COLL_TOPOLOGY_HWLOC_OBJECTS_H
#define COLL_TOPOLOGY_HWLOC_OBJECTS_H

#include "topology/graph.h"
#include "topology/xml.h"

enum {
	COLL_HWLOC_OBJECTS_MAX = 200000,
	COLL_HWLOC_MATRIX_MAX = 1024,
	COLL_HWLOC_MATRICES_MAX = 8,
	COLL_HWLOC_MASK_WORDS = COLL_GRAPH_PUS_MAX / 32,
	COLL_HWLOC_KINDS_MAX = 16,
	COLL_HWLOC_PORTS_MAX = 4
};

enum coll_hwloc_type {
	COLL_HWLOC_OTHER,
	COLL_HWLOC_MACHINE,
	COLL_HWLOC_PACKAGE,
	COLL_HWLOC_L3,
	COLL_HWLOC_CORE,
	COLL_HWLOC_PU,
	COLL_HWLOC_NUMA,
	COLL_HWLOC_MEMCACHE,
	COLL_HWLOC_BRIDGE,
	COLL_HWLOC_PCI,
	COLL_HWLOC_OS
};

enum coll_hwloc_os {
	COLL_HWLOC_OS_GPU = 1,
	COLL_HWLOC_OS_NET = 2,
	COLL_HWLOC_OS_FABRIC = 3,
	COLL_HWLOC_OS_COPROCESSOR = 5
};

struct coll_hwloc_object {
	enum coll_hwloc_type type;
	int parent; /* -1: none */
	int os;     /* -1: unknown */
	int first_pu, pus;
	int index; /* of what it became: core, L3, NUMA, package, GPU, switch, root; -1: nothing
	              yet */
	unsigned long gp;
	char name[COLL_GRAPH_NAME_MAX];
	enum coll_hwloc_os os_type;
	unsigned class, vendor, device; /* of PCI */
	bool host_bridge, infiniband, cpuless;
	uint32_t pci_mbps, product_mbps;
	uint64_t address; /* of PCI; 0: unknown */
	int port, ports;
	char state[COLL_HWLOC_PORTS_MAX]; /* '4' is active, '1' down, 0 unknown */
	uint32_t prefix;                  /* of the GID, as a key; 0: the one that all fabrics have */
};

struct coll_hwloc_mask {
	uint32_t word[COLL_HWLOC_MASK_WORDS];
	bool set;
};

struct coll_hwloc_kind {
	struct coll_hwloc_mask cpus;
	long efficiency, mhz;
	int core_type; /* 0 unknown, 1 efficient, 2 fast */
};

/* Distances, kept until the objects have their places. */
struct coll_hwloc_matrix {
	bool numa;
	int n, indexes, values;
	uint64_t *index, *value; /* n, and n x n, in one piece */
	bool *pci;
};

struct coll_hwloc_reader {
	struct coll_xml x;
	struct coll_graph *g;
	struct coll_hwloc_object *list;
	int count, cap, pus;
	short *core_of; /* of each PU in the order of the file; -1: it may not be used */
	struct coll_hwloc_mask allowed;
	struct coll_hwloc_kind kind[COLL_HWLOC_KINDS_MAX];
	int kinds;
	struct coll_hwloc_matrix matrix[COLL_HWLOC_MATRICES_MAX];
	int matrices;
};

/* At <object>: read it and all below it. False: an error of the reader's. */
bool coll_hwloc_read_objects(struct coll_hwloc_reader *r);

/* At <cpukind>. */
bool coll_hwloc_read_kind(struct coll_hwloc_reader *r);

/* All is read: give the hardware threads that may be used their places in the graph. */
bool coll_hwloc_place_cores(struct coll_hwloc_reader *r);

/* A dense number for an object, in the order in which it is asked for; -1 for none. */
short coll_hwloc_number(struct coll_hwloc_reader *r, int o, int *count);

/* Into a name of the graph, cut. */
void coll_hwloc_copy_name(char *to, const char *from);

#endif
