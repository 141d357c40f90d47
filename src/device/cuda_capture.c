/*
 * Captures of streams of CUDA devices. A call that the driver forbids during a capture ends that capture, also if it
 * comes from another thread. So what could be such a call asks first, or is made in relaxed mode.
 *
 * The fence is an external event: a graph waits for the record that was the last one when it was launched, and records
 * the event itself. So graphs with the same fence run in the order of their launches, in whichever streams.
 */
#include "device/cuda_capture.h"

#include "device/cuda_kernels.h"

static bool can_capture(const struct coll_cuda *cu)
{
	return cu->cuStreamGetCaptureInfo && cu->cuEventRecordWithFlags && cu->cuUserObjectCreate &&
	       cu->cuUserObjectRelease && cu->cuGraphRetainUserObject;
}

coll_status coll_cuda_capture_of(struct coll_cuda_device *c, CUstream s, struct coll_device_capture *capture,
                                 const char **why)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	CUgraph graph = NULL;
	cuuint64_t id = 0;
	CUresult result = c->cu->cuStreamIsCapturing(s, &status);

	if (result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) {
		*why = "the legacy stream while another stream is being captured";
		return COLL_ERR_UNSUPPORTED;
	}
	if (result != CUDA_SUCCESS)
		return coll_cuda_report(c, "cuStreamIsCapturing", result);
	if (status == CU_STREAM_CAPTURE_STATUS_NONE)
		return COLL_OK;
	*why = status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? "it is being captured, which this driver is too old for"
	                                                 : "its capture has failed";
	if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || !can_capture(c->cu))
		return COLL_ERR_UNSUPPORTED;
	result = c->cu->cuStreamGetCaptureInfo(s, &status, &id, &graph, NULL, NULL);
	if (result != CUDA_SUCCESS)
		return coll_cuda_report(c, "cuStreamGetCaptureInfo", result);
	capture->id = id;
	capture->graph = graph;
	return COLL_OK;
}

/* How often this thread has entered so, and the mode that it had. */
static _Thread_local struct {
	int depth;
	CUstreamCaptureMode before;
} relaxed;

CUresult coll_cuda_enter_relaxed(struct coll_cuda_device *c)
{
	CUresult result = coll_cuda_enter(c);

	if (result != CUDA_SUCCESS)
		return result;
	if (relaxed.depth == 0) {
		relaxed.before = CU_STREAM_CAPTURE_MODE_RELAXED;
		result = c->cu->cuThreadExchangeStreamCaptureMode(&relaxed.before);
	}
	if (result == CUDA_SUCCESS)
		relaxed.depth++;
	else
		coll_cuda_leave(c);
	return result;
}

void coll_cuda_leave_relaxed(struct coll_cuda_device *c)
{
	if (--relaxed.depth == 0)
		c->cu->cuThreadExchangeStreamCaptureMode(&relaxed.before);
	coll_cuda_leave(c);
}

coll_status coll_cuda_wait_bit(struct coll_device *d, coll_device_stream s, uint64_t word, uint32_t mask)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	return COLL_CUDA_CALL(c, , cuStreamWaitValue32, s, word, mask, CU_STREAM_WAIT_VALUE_AND);
}

coll_status coll_cuda_fence_create(struct coll_device *d, coll_device_fence *f)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	CUevent event = NULL;
	coll_status st = COLL_CUDA_CALL(c, _relaxed, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);

	if (st == COLL_OK)
		*f = event;
	return st;
}

coll_status coll_cuda_fence_destroy(struct coll_device *d, coll_device_fence f)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	return COLL_CUDA_CALL(c, _relaxed, cuEventDestroy, f);
}

coll_status coll_cuda_fence_wait(struct coll_device *d, coll_device_stream s, coll_device_fence f)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	return COLL_CUDA_CALL(c, , cuStreamWaitEvent, s, f, CU_EVENT_WAIT_EXTERNAL);
}

coll_status coll_cuda_fence_record(struct coll_device *d, coll_device_stream s, coll_device_fence f)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	return COLL_CUDA_CALL(c, , cuEventRecordWithFlags, f, s, CU_EVENT_RECORD_EXTERNAL);
}

coll_status coll_cuda_graph_own(struct coll_device *d, void *graph, void (*gone)(void *arg), void *arg)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	const char *call = "cuUserObjectCreate";
	CUuserObject object = NULL;
	CUresult result = coll_cuda_enter(c);

	if (result != CUDA_SUCCESS) {
		gone(arg);
	} else {
		coll_cuda_kernels_keep(c);
		result = c->cu->cuUserObjectCreate(&object, arg, gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
		if (result == CUDA_SUCCESS) {
			call = "cuGraphRetainUserObject";
			result = c->cu->cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
			if (result != CUDA_SUCCESS)
				c->cu->cuUserObjectRelease(object, 1);
		} else {
			gone(arg);
		}
		coll_cuda_leave(c);
	}
	return coll_cuda_report(c, call, result);
}
