/*
 * The object of a cuda row, and what its files share. cuda.c opens and closes it; cuda_memory.c and cuda_stream.c hold
 * members of the table.
 */
#ifndef COLL_DEVICE_CUDA_STATE_H
#define COLL_DEVICE_CUDA_STATE_H

#include "device/cuda_load.h"
#include "device/device.h"
#include "device/kernels.h"

struct coll_cuda_device {
	struct coll_device base;
	const struct coll_cuda *cu;
	CUdevice number;
	CUcontext context;                 /* the primary one, retained: that of the CUDA runtime too */
	struct coll_cuda_kernels *kernels; /* whose functions these are */
	CUfunction kernel[COLL_KERNEL_COUNT];
	CUstream stream;            /* for the first launches */
	pthread_mutex_t order_lock; /* a record and the wait for it are one */
	CUevent event;
	uint32_t blocks; /* of a kernel that works in device memory */
};

static inline struct coll_cuda_device *coll_cuda_of(struct coll_device *d)
{
	return (struct coll_cuda_device *)(void *)d;
}

/* Bind the context to this thread, and undo that. Their result is one of the driver. */
CUresult coll_cuda_enter(struct coll_cuda_device *c);
void coll_cuda_leave(struct coll_cuda_device *c);

/* The context is bound. The driver copies the arguments. */
CUresult coll_cuda_launch(struct coll_cuda_device *c, CUstream s, struct coll_kernel_launch *l);

/* The status of a call of the driver; an error is described in the box. */
coll_status coll_cuda_report(struct coll_cuda_device *c, const char *call, CUresult result);

/* The status of work with the context bound by coll_cuda_enter() or, where mode is _relaxed, coll_cuda_enter_relaxed().
 */
#define COLL_CUDA_BOUND(c, mode, what, work)                 \
	__extension__({                                      \
		CUresult result_ = coll_cuda_enter##mode(c); \
                                                             \
		if (result_ == CUDA_SUCCESS) {               \
			result_ = (work);                    \
			coll_cuda_leave##mode(c);            \
		}                                            \
		coll_cuda_report(c, what, result_);          \
	})
/* The same for one call of the driver. */
#define COLL_CUDA_CALL(c, mode, call, ...) COLL_CUDA_BOUND(c, mode, #call, (c)->cu->call(__VA_ARGS__))

#endif
