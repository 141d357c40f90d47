/*
 * What a host is made of, as plain numbers: hardware threads and their places, memory, network devices (NICs), GPUs.
 * Read from hwloc, files or the kernel (graph_hwloc.h, rates.h; tools/common/nccl_xml.h), sent as a digest (digest.h),
 * judged by search.h. Every rate has an origin, and what nobody said is 0 with COLL_ORIGIN_UNKNOWN: unknown, never
 * slow. Places are indices, dense, in the order of the machine; -1 where a thing has none or spans several.
 */
#ifndef COLL_TOPOLOGY_GRAPH_H
#define COLL_TOPOLOGY_GRAPH_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	COLL_GRAPH_PUS_MAX = 4096,
	COLL_GRAPH_NUMA_MAX = 128,
	COLL_GRAPH_NICS_MAX = 32,
	COLL_GRAPH_GPUS_MAX = 32,
	COLL_GRAPH_NAME_MAX = 24, /* with the zero at the end */
	COLL_GRAPH_LOCAL = 10     /* the distance of a NUMA node to itself */
};

/* Ordered: a better one replaces a worse one. */
enum coll_origin { COLL_ORIGIN_UNKNOWN, COLL_ORIGIN_ASSUMED, COLL_ORIGIN_TOLD, COLL_ORIGIN_MEASURED };

/* Megabits per second, in one direction. */
struct coll_rate {
	uint32_t mbps; /* 0: unknown */
	enum coll_origin origin;
};

/* A core; without hardware threads that may be used it is not in the graph. */
struct coll_graph_core {
	short l3, numa, package;
	short kind; /* 0 is the slowest kind of core; see kinds */
};

/* A hardware thread, in the order of its core. */
struct coll_graph_pu {
	int os; /* the number of the CPU in the kernel */
	int core;
};

/* NUMA nodes that are local to the same cores: several where a host has several kinds of memory. */
struct coll_graph_numa {
	int node; /* the lowest number of these nodes in the kernel */
	short nodes, package;
};

enum coll_nic_state { COLL_NIC_UNKNOWN, COLL_NIC_UP, COLL_NIC_DOWN };
enum coll_nic_fabric { COLL_FABRIC_UNKNOWN, COLL_FABRIC_ETHERNET, COLL_FABRIC_INFINIBAND, COLL_FABRIC_OTHER };
/* What can be carried, as bits. */
enum { COLL_NIC_TCP = 1, COLL_NIC_VERBS = 2 };

struct coll_graph_nic {
	char name[COLL_GRAPH_NAME_MAX]; /* of the interface; of the RDMA device if there is none */
	char rdma[COLL_GRAPH_NAME_MAX]; /* of the RDMA device; "" if there is none */
	int port;                       /* of the RDMA device, from 1 */
	struct coll_rate rate;          /* of the port */
	struct coll_rate pci;           /* of its bus */
	short numa, package;
	short pci_switch, pci_root; /* devices of one switch, or one host bridge, share its uplink */
	uint32_t rail_key;          /* equal: one subnet; 0: unknown */
	enum coll_nic_state state;
	enum coll_nic_fabric fabric;
	unsigned transports;
	bool set;          /* the rate was set by the user, who thereby chose the NIC */
	bool made;         /* of software: veth, bridge, bond */
	uint32_t hardware; /* vendor and device; 0: unknown. Not in a digest. */
};

struct coll_graph_gpu {
	char name[COLL_GRAPH_NAME_MAX];
	struct coll_rate pci;
	struct coll_rate to_switch; /* all links to switches of GPUs together */
	uint64_t address;           /* on the PCI bus, see coll_pci_address(); 0: unknown */
	short numa, package;
	short pci_switch, pci_root;
	short pci_near;    /* equal: the nearest switch above is one; numbered apart from pci_switch */
	uint32_t hardware; /* as above */
};

struct coll_graph {
	int cores, pus, l3s, numas, packages, kinds, nics, gpus;
	struct coll_graph_core core[COLL_GRAPH_PUS_MAX];
	struct coll_graph_pu pu[COLL_GRAPH_PUS_MAX];
	struct coll_graph_numa numa[COLL_GRAPH_NUMA_MAX];
	/* Of memory latency, 10 is local; 0: unknown. A ratio, never a time. */
	uint8_t distance[COLL_GRAPH_NUMA_MAX][COLL_GRAPH_NUMA_MAX];
	enum coll_origin distance_origin;
	struct coll_graph_nic nic[COLL_GRAPH_NICS_MAX];
	struct coll_graph_gpu gpu[COLL_GRAPH_GPUS_MAX];
	uint32_t link_mbps[COLL_GRAPH_GPUS_MAX][COLL_GRAPH_GPUS_MAX]; /* between two GPUs; 0: none, or unknown */
	enum coll_origin link_origin;
	char site[COLL_GRAPH_NAME_MAX]; /* hosts of one site share an uplink; "": not told */
	struct coll_rate site_rate;     /* of that uplink */
	int left_out;                   /* NICs and GPUs beyond the maximum */
	char note[200];                 /* what was told and not believed; not in a digest */
};

/* Where a rank runs. */
struct coll_place {
	int core, l3, numa, package, kind;
};

/* A graph of nothing; NULL when out of memory. free() it. */
struct coll_graph *coll_graph_new(void);

const char *coll_origin_name(enum coll_origin origin);

/* Where something is that may use these CPUs; -1 for what they do not agree on. */
struct coll_place coll_graph_place(const struct coll_graph *g, const cpu_set_t *cpus);
struct coll_place coll_graph_core_place(const struct coll_graph *g, int core);

/* A NIC or GPU more, zeroed, nowhere, and counted; NULL if there are too many (then left_out counts it). */
struct coll_graph_nic *coll_graph_add_nic(struct coll_graph *g);
struct coll_graph_gpu *coll_graph_add_gpu(struct coll_graph *g);

/* -1: there is none of that name (interface or RDMA device). */
int coll_graph_find_nic(const struct coll_graph *g, const char *name);

/* By its address on the PCI bus; -1: there is none, or the address is 0. */
int coll_graph_find_gpu(const struct coll_graph *g, uint64_t address);

/* "0000:34:00.0" as domain, bus, device and function in one number; 0: it is no such text, or unknown. */
uint64_t coll_pci_address(const char *text);

/* Take over a rate unless a better one is there. 0 is no rate. */
void coll_rate_take(struct coll_rate *rate, uint64_t mbps, enum coll_origin origin);

/* What PCI Express of so many lanes carries, from "32.0 GT/s PCIe" or "8.0 GT/s"; 0: unknown. */
uint32_t coll_pci_mbps(const char *speed, long width);

/* A rate from what a product is called: "I350 Gigabit Network Connection" is 1000; 0: it says none. */
uint32_t coll_rate_in_name(const char *product);

/* Equal devices whose told rates differ by 20 and more: these rates become unknown, and note says so. */
void coll_graph_disbelieve(struct coll_graph *g);

#endif
