/*
 * Captures of streams of CUDA devices: the members of the table that concern them, and how other calls behave while
 * some stream of the process is being captured.
 */
#ifndef COLL_DEVICE_CUDA_CAPTURE_H
#define COLL_DEVICE_CUDA_CAPTURE_H

#include "device/cuda_state.h"

/* What captures the stream; *why as in stream_check. */
coll_status coll_cuda_capture_of(struct coll_cuda_device *c, CUstream s, struct coll_device_capture *capture,
                                 const char **why);

/* As enter and leave of cuda_state.h. Between these two this thread may make calls that the capture of a stream of any
 * thread forbids: what makes, ends, maps or pins. */
CUresult coll_cuda_enter_relaxed(struct coll_cuda_device *c);
void coll_cuda_leave_relaxed(struct coll_cuda_device *c);

coll_status coll_cuda_wait_bit(struct coll_device *d, coll_device_stream s, uint64_t word, uint32_t mask);
coll_status coll_cuda_fence_create(struct coll_device *d, coll_device_fence *f);
coll_status coll_cuda_fence_destroy(struct coll_device *d, coll_device_fence f);
coll_status coll_cuda_fence_wait(struct coll_device *d, coll_device_stream s, coll_device_fence f);
coll_status coll_cuda_fence_record(struct coll_device *d, coll_device_stream s, coll_device_fence f);
coll_status coll_cuda_graph_own(struct coll_device *d, void *graph, void (*gone)(void *arg), void *arg);

#endif
