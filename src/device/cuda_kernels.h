/*
 * The kernels of this library on a CUDA device: one module for all device objects of the process on that device. It is
 * loaded for the first one, and unloaded with the last one unless a graph has been captured: graphs may be launched
 * later than that. Then the module stays until the process ends, and the primary context with it.
 */
#ifndef COLL_DEVICE_CUDA_KERNELS_H
#define COLL_DEVICE_CUDA_KERNELS_H

#include "device/cuda_state.h"

/* Entered; c->stream is there. Fills c->kernel. Returns when every kernel has run once. */
coll_status coll_cuda_kernels_load(struct coll_cuda_device *c);

/* Entered. What was launched on c->stream has ended; NOT_READY: it has not in time. */
CUresult coll_cuda_drain(struct coll_cuda_device *c);

/* Entered. A graph has kernels of c. */
void coll_cuda_kernels_keep(struct coll_cuda_device *c);

/* Entered; whether c has loaded or not. False: the kernels stay, and have taken c's reference of the context. */
bool coll_cuda_kernels_unload(struct coll_cuda_device *c);

#endif
