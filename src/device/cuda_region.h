/*
 * Device memory that other ranks of the host map: the members of the table that concern it.
 */
#ifndef COLL_DEVICE_CUDA_REGION_H
#define COLL_DEVICE_CUDA_REGION_H

#include "device/device.h"

coll_status coll_cuda_region_create(struct coll_device *d, size_t len_bytes, struct coll_device_region *r);
void coll_cuda_region_destroy(struct coll_device *d, struct coll_device_region *r);
coll_status coll_cuda_region_export(struct coll_device *d, uint64_t base, uint64_t len_bytes,
                                    struct coll_device_region *r);
coll_status coll_cuda_region_import(struct coll_device *d, const struct coll_device_export *export, int fd,
                                    struct coll_device_import *import);
void coll_cuda_region_close(struct coll_device *d, struct coll_device_import *import);
bool coll_cuda_reaches(struct coll_device *d, struct coll_device *other);

#endif
