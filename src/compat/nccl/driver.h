/*
 * The CUDA driver beside the library: which device the calling thread uses, memory, and one value of device memory.
 */
#ifndef COLL_COMPAT_NCCL_DRIVER_H
#define COLL_COMPAT_NCCL_DRIVER_H

#include <stdbool.h>

#include "compat/nccl/abi.h"
#include "device/device.h"

/* The device of the current context of this thread, or 0 if it has none, as the CUDA runtime has it. -1: there is
 * no driver or no device, or COLL_DEVICE=host: communicators then take host memory alone. An error: the program uses
 * the driver, and the library cannot. */
ncclResult_t nccl_driver_device(int *ordinal, const char *function);

/* Memory of a device. */
struct nccl_memory {
	void *ptr;
	int ordinal;                      /* -1: of the host */
	struct coll_device_region region; /* len_bytes 0: of cuMemAlloc() */
};

/* m: the ordinal is set, all else is 0. */
ncclResult_t nccl_driver_alloc(struct nccl_memory *m, size_t len_bytes, const char *function);
ncclResult_t nccl_driver_free(struct nccl_memory *m, const char *function);

/* Whether the stream is being captured. */
ncclResult_t nccl_driver_captured(int ordinal, cudaStream_t stream, bool *captured, const char *function);

/* Read len_bytes that are ready when the stream has done its work so far: waits for that. */
ncclResult_t nccl_driver_read(int ordinal, void *to, const void *from, size_t len_bytes, cudaStream_t stream,
                              const char *function);

#endif
