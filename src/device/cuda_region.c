/*
 * Device memory that other ranks of the host map. By virtual memory management where the device has it: then the memory
 * lives as long as anybody has it mapped, and a descriptor carries it to other processes. Else by cuMemAlloc(), with a
 * legacy handle, whose owner must not free it before the others have closed it.
 */
#include "device/cuda_region.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/fork.h"
#include "device/cuda_capture.h"
#include "device/cuda_state.h"

enum { DEVICES_MAX = 64 };

static bool has(const struct coll_cuda_device *c, CUdevice_attribute what)
{
	int yes = 0;

	return c->cu->cuDeviceGetAttribute(&yes, what, c->number) == CUDA_SUCCESS && yes;
}

static bool has_vmm(const struct coll_cuda_device *c)
{
	const struct coll_cuda *cu = c->cu;

	return cu->cuMemGetAllocationGranularity && cu->cuMemCreate && cu->cuMemRelease && cu->cuMemAddressReserve &&
	       cu->cuMemAddressFree && cu->cuMemMap && cu->cuMemUnmap && cu->cuMemSetAccess &&
	       cu->cuMemExportToShareableHandle && cu->cuMemImportFromShareableHandle &&
	       has(c, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) &&
	       has(c, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
}

/* ---- Mappings ---- */

/* everywhere: for all devices of this process that can reach this one. */
static CUresult permit(struct coll_cuda_device *c, CUdeviceptr at, size_t len_bytes, bool everywhere)
{
	CUmemAccessDesc access = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, c->number},
	                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUresult result = c->cu->cuMemSetAccess(at, len_bytes, &access, 1);
	int count = 0;

	if (result != CUDA_SUCCESS || !everywhere || !c->cu->cuDeviceCanAccessPeer ||
	    c->cu->cuDeviceGetCount(&count) != CUDA_SUCCESS)
		return result;
	for (int i = 0; i < count && i < DEVICES_MAX; i++) {
		CUdevice other;
		int can = 0;

		if (c->cu->cuDeviceGet(&other, i) != CUDA_SUCCESS || other == c->number ||
		    c->cu->cuDeviceCanAccessPeer(&can, other, c->number) != CUDA_SUCCESS || !can)
			continue;
		access.location.id = other;
		c->cu->cuMemSetAccess(at, len_bytes, &access, 1); /* what it may not reach, it finds out itself */
	}
	return result;
}

static CUresult map(struct coll_cuda_device *c, CUmemGenericAllocationHandle memory, size_t len_bytes, bool everywhere,
                    CUdeviceptr *at)
{
	CUresult result = c->cu->cuMemAddressReserve(at, len_bytes, 0, 0, 0);

	if (result != CUDA_SUCCESS)
		return result;
	result = c->cu->cuMemMap(*at, len_bytes, 0, memory, 0);
	if (result == CUDA_SUCCESS) {
		result = permit(c, *at, len_bytes, everywhere);
		if (result == CUDA_SUCCESS)
			return result;
		c->cu->cuMemUnmap(*at, len_bytes);
	}
	c->cu->cuMemAddressFree(*at, len_bytes);
	return result;
}

static void unmap(struct coll_cuda_device *c, CUdeviceptr at, size_t len_bytes)
{
	c->cu->cuMemUnmap(at, len_bytes);
	c->cu->cuMemAddressFree(at, len_bytes);
}

/* ---- Own regions ---- */

static CUresult create_vmm(struct coll_cuda_device *c, size_t len_bytes, struct coll_device_region *r)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                                  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	                                  .location = {CU_MEM_LOCATION_TYPE_DEVICE, c->number}};
	CUmemGenericAllocationHandle memory = 0;
	CUdeviceptr at = 0;
	size_t unit = 0;
	int fd = -1;
	CUresult result = c->cu->cuMemGetAllocationGranularity(&unit, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);

	if (result != CUDA_SUCCESS || unit == 0)
		return result != CUDA_SUCCESS ? result : CUDA_ERROR_NOT_SUPPORTED;
	len_bytes = (len_bytes + unit - 1) / unit * unit;
	result = c->cu->cuMemCreate(&memory, len_bytes, &prop, 0);
	if (result != CUDA_SUCCESS)
		return result;
	result = c->cu->cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	if (result == CUDA_SUCCESS)
		result = map(c, memory, len_bytes, true, &at);
	if (result != CUDA_SUCCESS) {
		if (fd >= 0)
			coll_fd_close(fd);
		c->cu->cuMemRelease(memory);
		return result;
	}
	r->memory = memory;
	r->fd = fd;
	r->len_bytes = len_bytes;
	r->export.share = COLL_DEVICE_SHARE_DESCRIPTOR;
	r->export.address = at;
	return result;
}

static CUresult create_plain(struct coll_cuda_device *c, size_t len_bytes, struct coll_device_region *r)
{
	CUipcMemHandle handle;
	CUdeviceptr at = 0;
	CUresult result = c->cu->cuMemAlloc(&at, len_bytes);

	if (result != CUDA_SUCCESS)
		return result;
	r->len_bytes = len_bytes;
	r->export.address = at;
	if (c->cu->cuIpcGetMemHandle && c->cu->cuIpcOpenMemHandle && c->cu->cuIpcCloseMemHandle &&
	    c->cu->cuIpcGetMemHandle(&handle, at) == CUDA_SUCCESS) {
		r->export.share = COLL_DEVICE_SHARE_HANDLE;
		memcpy(r->export.handle, &handle, sizeof(handle));
	}
	return result;
}

coll_status coll_cuda_region_create(struct coll_device *d, size_t len_bytes, struct coll_device_region *r)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	CUresult result = coll_cuda_enter_relaxed(c);

	*r = (struct coll_device_region){.fd = -1, .export = {.ordinal = d->ordinal}};
	if (result == CUDA_SUCCESS) {
		/* Some devices answer that they have it, and refuse the descriptor. */
		result = has_vmm(c) ? create_vmm(c, len_bytes, r) : CUDA_ERROR_NOT_SUPPORTED;
		if (result != CUDA_SUCCESS)
			result = create_plain(c, len_bytes, r);
		coll_cuda_leave_relaxed(c);
	}
	r->export.len_bytes = r->len_bytes;
	return coll_cuda_report(c, "device memory for other ranks", result);
}

void coll_cuda_region_destroy(struct coll_device *d, struct coll_device_region *r)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	if (r->fd >= 0)
		coll_fd_close(r->fd);
	r->fd = -1;
	if (r->len_bytes && coll_cuda_enter_relaxed(c) == CUDA_SUCCESS) {
		if (r->export.share == COLL_DEVICE_SHARE_DESCRIPTOR) {
			unmap(c, r->export.address, r->len_bytes);
			c->cu->cuMemRelease(r->memory);
		} else {
			c->cu->cuMemFree(r->export.address);
		}
		coll_cuda_leave_relaxed(c);
	}
	r->len_bytes = 0;
}

/* ---- Memory of the user ---- */

/* False: it is not of virtual memory management. */
static bool export_vmm(struct coll_cuda_device *c, CUdeviceptr base, struct coll_device_region *r)
{
	CUmemGenericAllocationHandle memory = 0;
	int fd = -1;

	if (!has_vmm(c) || !c->cu->cuMemRetainAllocationHandle ||
	    c->cu->cuMemRetainAllocationHandle(&memory, (void *)(uintptr_t)base) != CUDA_SUCCESS)
		return false;
	if (c->cu->cuMemExportToShareableHandle(&fd, memory, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
	    CUDA_SUCCESS) {
		r->fd = fd;
		r->export.share = COLL_DEVICE_SHARE_DESCRIPTOR;
	}
	c->cu->cuMemRelease(memory);
	return true;
}

coll_status coll_cuda_region_export(struct coll_device *d, uint64_t base, uint64_t len_bytes,
                                    struct coll_device_region *r)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	CUresult result = coll_cuda_enter(c);
	CUipcMemHandle handle;

	*r = (struct coll_device_region){.fd = -1,
	                                 .export = {.address = base, .len_bytes = len_bytes, .ordinal = d->ordinal}};
	if (result == CUDA_SUCCESS) {
		if (!export_vmm(c, base, r) && c->cu->cuIpcGetMemHandle &&
		    c->cu->cuIpcGetMemHandle(&handle, base) == CUDA_SUCCESS) {
			r->export.share = COLL_DEVICE_SHARE_HANDLE;
			memcpy(r->export.handle, &handle, sizeof(handle));
		}
		coll_cuda_leave(c);
	}
	return coll_cuda_report(c, "export of device memory", result);
}

/* ---- Regions of others ---- */

static CUresult import_vmm(struct coll_cuda_device *c, const struct coll_device_export *export, int fd, CUdeviceptr *at)
{
	CUmemGenericAllocationHandle memory = 0;
	CUresult result;

	if (!has_vmm(c) || fd < 0)
		return CUDA_ERROR_NOT_SUPPORTED;
	result = c->cu->cuMemImportFromShareableHandle(&memory, (void *)(intptr_t)fd,
	                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	if (result != CUDA_SUCCESS)
		return result;
	result = map(c, memory, export->len_bytes, false, at);
	c->cu->cuMemRelease(memory); /* the mapping keeps it */
	return result;
}

coll_status coll_cuda_region_import(struct coll_device *d, const struct coll_device_export *export, int fd,
                                    struct coll_device_import *import)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	CUresult result = coll_cuda_enter_relaxed(c);
	CUipcMemHandle handle;
	CUdeviceptr at = 0;

	memcpy(&handle, export->handle, sizeof(handle));
	if (result == CUDA_SUCCESS) {
		if (export->share == COLL_DEVICE_SHARE_DESCRIPTOR)
			result = import_vmm(c, export, fd, &at);
		else if (export->share == COLL_DEVICE_SHARE_HANDLE && c->cu->cuIpcOpenMemHandle)
			result = c->cu->cuIpcOpenMemHandle(&at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
		else
			result = CUDA_ERROR_NOT_SUPPORTED;
		coll_cuda_leave_relaxed(c);
	}
	*import = (struct coll_device_import){.address = at, .len_bytes = export->len_bytes, .share = export->share};
	return coll_cuda_report(c, "mapping device memory of another rank", result);
}

void coll_cuda_region_close(struct coll_device *d, struct coll_device_import *import)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	if (import->address && import->share != COLL_DEVICE_SHARE_NONE && coll_cuda_enter_relaxed(c) == CUDA_SUCCESS) {
		if (import->share == COLL_DEVICE_SHARE_DESCRIPTOR)
			unmap(c, import->address, import->len_bytes);
		else
			c->cu->cuIpcCloseMemHandle(import->address);
		coll_cuda_leave_relaxed(c);
	}
	import->address = 0;
}

bool coll_cuda_reaches(struct coll_device *d, struct coll_device *other)
{
	struct coll_cuda_device *c = coll_cuda_of(d), *o = coll_cuda_of(other);
	CUresult result;
	int can = 0;

	if (c->context == o->context)
		return true;
	if (!c->cu->cuDeviceCanAccessPeer || !c->cu->cuCtxEnablePeerAccess ||
	    c->cu->cuDeviceCanAccessPeer(&can, c->number, o->number) != CUDA_SUCCESS || !can ||
	    coll_cuda_enter_relaxed(c) != CUDA_SUCCESS)
		return false;
	result = c->cu->cuCtxEnablePeerAccess(o->context, 0);
	coll_cuda_leave_relaxed(c);
	return result == CUDA_SUCCESS || result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
