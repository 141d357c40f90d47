/*
 * The part of coll-topo about GPUs: paths between the devices of ranks, their ring, their tree.
 */
#ifndef COLL_TOOLS_TOPO_GPUS_H
#define COLL_TOOLS_TOPO_GPUS_H

#include "base/text.h"
#include "tools/common/gpu_tree.h"
#include "topology/gpu_ring.h"

struct topo_gpus {
	const struct coll_graph *graph;
	int gpu[COLL_GPU_RANKS_MAX]; /* of each rank */
	struct coll_gpu_paths *paths;
	struct coll_gpu_ring ring;
	struct coll_gpu_tree tree; /* from rank 0 */
};

/* names: "nvml0,nvml0,nvml3", the GPU of each rank; NULL: a rank for each GPU. True with paths NULL if there is no GPU;
 * false with the reason in why. */
bool topo_gpus_make(struct topo_gpus *t, const struct coll_graph *g, const char *names, char *why, size_t why_bytes);

void topo_gpus_print(const struct topo_gpus *t);

/* A member "gpu_paths" of an object, with a comma before it; nothing without GPUs. */
void topo_gpus_json(const struct topo_gpus *t, struct coll_text *text);

#endif
