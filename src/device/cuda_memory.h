/*
 * Memory of CUDA devices: the members of the table that concern it.
 */
#ifndef COLL_DEVICE_CUDA_MEMORY_H
#define COLL_DEVICE_CUDA_MEMORY_H

#include "device/device.h"

bool coll_cuda_identify(struct coll_device *d, const void *ptr, size_t len_bytes, struct coll_device_range *range);
coll_status coll_cuda_settle(struct coll_device *d);
coll_status coll_cuda_alloc(struct coll_device *d, size_t len_bytes, void **ptr);
coll_status coll_cuda_free(struct coll_device *d, void *ptr);
coll_status coll_cuda_pin(struct coll_device *d, void *host, size_t len_bytes, uint64_t *address);
coll_status coll_cuda_unpin(struct coll_device *d, void *host);
coll_status coll_cuda_clear(struct coll_device *d, const uint64_t *words, int nwords);

#endif
