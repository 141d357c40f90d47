/*
 * What streams of CUDA devices do for the direct path: the members of the table that concern it.
 */
#ifndef COLL_DEVICE_CUDA_PEER_H
#define COLL_DEVICE_CUDA_PEER_H

#include "device/device.h"

coll_status coll_cuda_move(struct coll_device *d, coll_device_stream s, const struct coll_device_piece *pieces,
                           int npieces, struct coll_device_guard guard);
coll_status coll_cuda_reduce(struct coll_device *d, coll_device_stream s, const struct coll_reduction *r, uint64_t out,
                             const uint64_t *in, int nin, size_t count, const struct coll_device_places *where,
                             struct coll_device_guard guard);
coll_status coll_cuda_look(struct coll_device *d, coll_device_stream s, const struct coll_kernel_look_args *look);
coll_status coll_cuda_fetch(struct coll_device *d, coll_device_stream s, const struct coll_kernel_fetch *pieces,
                            int npieces, uint64_t found, struct coll_device_guard guard);
coll_status coll_cuda_signal(struct coll_device *d, coll_device_stream s, const struct coll_kernel_signal_args *signal);
coll_status coll_cuda_exchange(struct coll_device *d, coll_device_stream s, const struct coll_device_word *writes,
                               int nwrites, const struct coll_device_word *waits, int nwaits);

#endif
