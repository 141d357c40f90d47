/*
 * Streams of CUDA devices and what is enqueued in them: the members of the table that concern them.
 */
#ifndef COLL_DEVICE_CUDA_STREAM_H
#define COLL_DEVICE_CUDA_STREAM_H

#include "device/device.h"

coll_status coll_cuda_stream_create(struct coll_device *d, coll_device_stream *s);
coll_status coll_cuda_stream_destroy(struct coll_device *d, coll_device_stream s);
coll_status coll_cuda_stream_check(struct coll_device *d, coll_device_stream s, struct coll_device_capture *capture,
                                   const char **why);
coll_status coll_cuda_fault(struct coll_device *d);
coll_status coll_cuda_gather(struct coll_device *d, coll_device_stream s, const struct coll_device_piece *pieces,
                             int npieces, uint64_t word, uint32_t value);
coll_status coll_cuda_scatter(struct coll_device *d, coll_device_stream s, const struct coll_device_piece *pieces,
                              int npieces, uint64_t guard, uint64_t word, uint32_t value);
coll_status coll_cuda_listed(struct coll_device *d, coll_device_stream s, uint64_t at, size_t len_max, uint64_t guard,
                             uint64_t word, uint32_t value);
coll_status coll_cuda_wait(struct coll_device *d, coll_device_stream s, uint64_t word, uint32_t value);
coll_status coll_cuda_order(struct coll_device *d, coll_device_stream earlier, coll_device_stream later);

#endif
