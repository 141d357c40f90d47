/*
 * The row of CUDA devices: open and close. An object has its own stream and event, and a reference of the primary
 * context, which all users of the device share. Nothing is loaded or created after open().
 */
#include "device/cuda.h"

#include <stdio.h>
#include <stdlib.h>

#include "device/cuda_capture.h"
#include "device/cuda_kernels.h"
#include "device/cuda_memory.h"
#include "device/cuda_peer.h"
#include "device/cuda_region.h"
#include "device/cuda_state.h"
#include "device/cuda_stream.h"

enum { CAPABILITY_MIN = 75 };

static coll_status enter(struct coll_device *d)
{
	return coll_cuda_report(coll_cuda_of(d), "cuCtxPushCurrent", coll_cuda_enter(coll_cuda_of(d)));
}

static void leave(struct coll_device *d)
{
	coll_cuda_leave(coll_cuda_of(d));
}

/* ---- Open ---- */

static const struct coll_device_table row = {.name = "cuda",
                                             .enter = enter,
                                             .leave = leave,
                                             .identify = coll_cuda_identify,
                                             .alloc = coll_cuda_alloc,
                                             .free = coll_cuda_free,
                                             .pin = coll_cuda_pin,
                                             .unpin = coll_cuda_unpin,
                                             .stream_create = coll_cuda_stream_create,
                                             .stream_destroy = coll_cuda_stream_destroy,
                                             .stream_check = coll_cuda_stream_check,
                                             .fault = coll_cuda_fault,
                                             .gather = coll_cuda_gather,
                                             .scatter = coll_cuda_scatter,
                                             .listed = coll_cuda_listed,
                                             .wait = coll_cuda_wait,
                                             .order = coll_cuda_order,
                                             .wait_bit = coll_cuda_wait_bit,
                                             .fence_create = coll_cuda_fence_create,
                                             .fence_destroy = coll_cuda_fence_destroy,
                                             .fence_wait = coll_cuda_fence_wait,
                                             .fence_record = coll_cuda_fence_record,
                                             .graph_own = coll_cuda_graph_own,
                                             .region_create = coll_cuda_region_create,
                                             .region_destroy = coll_cuda_region_destroy,
                                             .clear = coll_cuda_clear,
                                             .region_export = coll_cuda_region_export,
                                             .settle = coll_cuda_settle,
                                             .look = coll_cuda_look,
                                             .fetch = coll_cuda_fetch,
                                             .signal = coll_cuda_signal,
                                             .region_import = coll_cuda_region_import,
                                             .region_close = coll_cuda_region_close,
                                             .reaches = coll_cuda_reaches,
                                             .move = coll_cuda_move,
                                             .reduce = coll_cuda_reduce,
                                             .exchange = coll_cuda_exchange};

coll_status coll_cuda_count(const struct coll_cuda *cuda, int *count, struct coll_error_box *err)
{
	const CUresult result = cuda->cuDeviceGetCount(count);
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	char text[160];

	if (result != CUDA_SUCCESS)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1114] cuDeviceGetCount of the driver %s: %s",
		                      cuda->file, coll_cuda_error_text(cuda, result, text));
	if (*count == 0)
		return coll_error_set(err, COLL_ERR_CONFIG, "[COLL-1116] the driver %s has no device%s%.80s",
		                      cuda->file, visible ? " with CUDA_VISIBLE_DEVICES=" : "", visible ? visible : "");
	return COLL_OK;
}

struct about {
	char name[64];
	int major, minor; /* compute capability */
};

static CUresult ask(const struct coll_cuda *cu, int ordinal, CUdevice *number, struct about *a)
{
	CUresult result = cu->cuDeviceGet(number, ordinal);

	*a = (struct about){""};
	if (result == CUDA_SUCCESS)
		result = cu->cuDeviceGetName(a->name, sizeof(a->name) - 1, *number);
	if (result == CUDA_SUCCESS)
		result = cu->cuDeviceGetAttribute(&a->major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, *number);
	if (result == CUDA_SUCCESS)
		result = cu->cuDeviceGetAttribute(&a->minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, *number);
	return result;
}

const char *coll_cuda_about(const struct coll_cuda *cuda, int ordinal, char text[96])
{
	char error[160];
	struct about a;
	CUdevice number;
	const CUresult result = ask(cuda, ordinal, &number, &a);

	if (result == CUDA_SUCCESS)
		snprintf(text, 96, "%s, compute capability %d.%d", a.name, a.major, a.minor);
	else
		snprintf(text, 96, "%.95s", coll_cuda_error_text(cuda, result, error));
	return text;
}

/* Devices of CUDA are function 0. */
void coll_cuda_locate(const struct coll_cuda *cuda, int ordinal, char pci[24])
{
	static const CUdevice_attribute parts[] = {CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
	                                           CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID};
	CUdevice number;
	int at[3];

	pci[0] = '\0';
	if (cuda->cuDeviceGet(&number, ordinal) != CUDA_SUCCESS)
		return;
	for (int i = 0; i < 3; i++)
		if (cuda->cuDeviceGetAttribute(&at[i], parts[i], number) != CUDA_SUCCESS)
			return;
	snprintf(pci, 24, "%04x:%02x:%02x.0", (unsigned)at[0], (unsigned)at[1] & 0xff, (unsigned)at[2] & 0x1f);
}

/* The context is not bound yet. */
static coll_status retain(struct coll_cuda_device *c, int ordinal)
{
	const struct coll_cuda *cu = c->cu;
	struct about a;
	CUresult result = ask(cu, ordinal, &c->number, &a);
	int sms = 1;

	if (result != CUDA_SUCCESS)
		return coll_cuda_report(c, "cuDeviceGet", result);
	snprintf(c->base.about, sizeof(c->base.about), "%s, driver %d.%d", a.name, cu->version / 1000,
	         cu->version % 1000 / 10);
	snprintf(c->base.lacks, sizeof(c->base.lacks), "%s", cu->lacks);
	if (10 * a.major + a.minor < CAPABILITY_MIN)
		return coll_error_set(&c->base.err, COLL_ERR_CONFIG,
		                      "[COLL-1116] %s (%s) has compute capability %d.%d: %d.%d or later is needed",
		                      c->base.name, a.name, a.major, a.minor, CAPABILITY_MIN / 10, CAPABILITY_MIN % 10);
	/* About 8 blocks of 256 threads for each multiprocessor. */
	if (cu->cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, c->number) != CUDA_SUCCESS)
		sms = 1;
	coll_cuda_locate(cu, ordinal, c->base.pci);
	c->blocks = sms > 0 ? 8 * (uint32_t)sms : 8;
	return coll_cuda_report(c, "cuDevicePrimaryCtxRetain", cu->cuDevicePrimaryCtxRetain(&c->context, c->number));
}

/* The context is bound. */
static coll_status prepare(struct coll_cuda_device *c)
{
	coll_status st =
	        coll_cuda_report(c, "cuStreamCreate", c->cu->cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING));

	if (st == COLL_OK)
		st = coll_cuda_report(c, "cuEventCreate", c->cu->cuEventCreate(&c->event, CU_EVENT_DISABLE_TIMING));
	return st == COLL_OK ? coll_cuda_kernels_load(c) : st;
}

coll_status coll_cuda_open(const struct coll_cuda *cuda, int ordinal, struct coll_device **device,
                           struct coll_error_box *err)
{
	struct coll_cuda_device *c = calloc(1, sizeof(*c));
	struct coll_device *d;
	CUresult result;
	coll_status st;

	if (!c)
		return coll_error_set(err, COLL_ERR_MEMORY, "out of memory for a device");
	c->base.table = &row;
	c->base.ordinal = ordinal;
	snprintf(c->base.name, sizeof(c->base.name), "cuda:%d", ordinal);
	pthread_mutex_init(&c->base.err_lock, NULL);
	pthread_mutex_init(&c->order_lock, NULL);
	coll_error_clear(&c->base.err);
	c->cu = cuda;
	st = retain(c, ordinal);
	if (st == COLL_OK) {
		result = coll_cuda_enter_relaxed(c);
		st = coll_cuda_report(c, "cuCtxPushCurrent", result);
		if (st == COLL_OK)
			st = prepare(c);
		if (result == CUDA_SUCCESS)
			coll_cuda_leave_relaxed(c);
	}
	if (st == COLL_OK) {
		*device = &c->base;
		return COLL_OK;
	}
	coll_error_set(err, st, "%s", c->base.err.message);
	d = &c->base;
	coll_cuda_close(&d);
	return st;
}

/* Works on half-built objects. What the driver says of an end changes nothing. */
void coll_cuda_close(struct coll_device **device)
{
	struct coll_cuda_device *c = coll_cuda_of(*device);

	bool release = c->context != NULL;

	*device = NULL;
	if (c->context && coll_cuda_enter_relaxed(c) == CUDA_SUCCESS) {
		if (c->event)
			c->cu->cuEventDestroy(c->event);
		if (c->stream)
			c->cu->cuStreamDestroy(c->stream);
		release = coll_cuda_kernels_unload(c);
		coll_cuda_leave_relaxed(c);
	}
	if (release)
		c->cu->cuDevicePrimaryCtxRelease(c->number);
	pthread_mutex_destroy(&c->order_lock);
	pthread_mutex_destroy(&c->base.err_lock);
	free(c);
}
