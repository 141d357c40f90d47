/*
 * The row of CUDA devices.
 */
#ifndef COLL_DEVICE_CUDA_H
#define COLL_DEVICE_CUDA_H

#include "device/cuda_load.h"
#include "device/device.h"

/* How many devices the driver shows. */
coll_status coll_cuda_count(const struct coll_cuda *cuda, int *count, struct coll_error_box *err);

/* The name and the compute capability of a device that exists, or the driver's error. */
const char *coll_cuda_about(const struct coll_cuda *cuda, int ordinal, char text[96]);

/* Where it is on the PCI bus: "0000:34:00.0"; "": the driver does not say. */
void coll_cuda_locate(const struct coll_cuda *cuda, int ordinal, char pci[24]);

/* ordinal: below the count. Returns when every kernel has run once. */
coll_status coll_cuda_open(const struct coll_cuda *cuda, int ordinal, struct coll_device **device,
                           struct coll_error_box *err);
void coll_cuda_close(struct coll_device **device);

#endif
