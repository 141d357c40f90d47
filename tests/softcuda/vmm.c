/*
 * Virtual memory management: physical memory by handle, reservations of addresses, mappings, access
 * by device, and export by descriptor. A handle's memory is a file in memory; its descriptor
 * is what is exported, so an importer in any process keeps the memory alive. The name of the
 * file says on which device the memory lies.
 */
#include "tests/softcuda/soft.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRANULARITY ((size_t)2 << 20)
#define FILE_NAME   "softcuda-vmm-"
enum { POISON = 0xc5 };

struct soft_handle {
	int fd;
	size_t len;
	CUmemAllocationProp prop;
	int refs, maps;
	bool imported;
	struct soft_handle *next;
};

struct reservation {
	uintptr_t lo;
	size_t len;
	struct reservation *next;
};

static struct soft_handle *handles;
static struct reservation *reservations;

static struct soft_handle *handle_of(CUmemGenericAllocationHandle h)
{
	for (struct soft_handle *x = handles; x; x = x->next)
		if ((uintptr_t)x == h)
			return x->refs > 0 ? x : NULL;
	return NULL;
}

static void handle_unuse(struct soft_handle *h)
{
	if (h->refs > 0 || h->maps > 0 || h->fd < 0)
		return;
	if (soft_planted(RULE_vmm_lives) && !h->imported)
		(void)ftruncate(h->fd, 0);
	close(h->fd);
	h->fd = -1;
	if (!h->imported)
		soft.device[h->prop.location.id].used -= h->len;
}

static CUresult check_prop(const CUmemAllocationProp *p)
{
	if (!p || p->type != CU_MEM_ALLOCATION_TYPE_PINNED || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->location.id < 0 || p->location.id >= soft.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if ((unsigned)p->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags option)
{
	CUresult result;

	ENTER(cuMemGetAllocationGranularity);
	result = check_prop(prop);
	if (result || !out || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
		return soft_leave(result ? result : CUDA_ERROR_INVALID_VALUE);
	*out = GRANULARITY;
	return soft_leave(CUDA_SUCCESS);
}

static struct soft_handle *handle_new(int fd, size_t len, const CUmemAllocationProp *prop)
{
	struct soft_handle *h = calloc(1, sizeof(*h));

	if (!h)
		return NULL;
	h->fd = fd;
	h->len = len;
	h->prop = *prop;
	h->refs = 1;
	h->next = handles;
	handles = h;
	return h;
}

/* New memory holds garbage. */
static bool fill(int fd, size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED)
		return false;
	memset(p, POISON, len);
	munmap(p, len);
	return true;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t len, const CUmemAllocationProp *prop,
                     unsigned long long flags)
{
	struct soft_handle *h;
	struct soft_device *d;
	char name[64];
	CUresult result;
	int fd;

	ENTER(cuMemCreate);
	result = check_prop(prop);
	if (result)
		return soft_leave(result);
	if (!out || !len || len % GRANULARITY || flags)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	result = soft_capture_unsafe();
	if (result)
		return soft_leave(result);
	d = &soft.device[prop->location.id];
	if (len > d->total - d->used)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	snprintf(name, sizeof(name), FILE_NAME "%d", d->physical);
	fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, (off_t)len) || !fill(fd, len) || !(h = handle_new(fd, len, prop))) {
		if (fd >= 0)
			close(fd);
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	d->used += len;
	*out = (uintptr_t)h;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct soft_handle *h;

	ENTER(cuMemRelease);
	h = handle_of(handle);
	if (!h)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	h->refs--;
	handle_unuse(h);
	return soft_leave(CUDA_SUCCESS);
}

/* ---- addresses ---- */

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t len, size_t align, CUdeviceptr hint, unsigned long long flags)
{
	struct reservation *r;

	ENTER(cuMemAddressReserve);
	if (!out || !len || len % GRANULARITY || (align & (align - 1)) || flags)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	r = calloc(1, sizeof(*r));
	if (!r || !(r->lo = soft_address_take(len, align > GRANULARITY ? align : GRANULARITY))) {
		free(r);
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	r->len = len;
	r->next = reservations;
	reservations = r;
	*out = r->lo;
	return soft_leave(CUDA_SUCCESS);
}

/* The blocks of a range: whether all of it is mapped by whole blocks, or any of it. */
static bool mapped(uintptr_t lo, size_t len, bool all)
{
	uintptr_t at = lo;

	while (at < lo + len) {
		const struct soft_block *b = soft_block_at(at);

		if (b && !all)
			return true;
		if (!b && all)
			return false;
		if (b && (b->kind != SOFT_VMM || b->lo < lo || b->lo + b->len > lo + len))
			return false;
		at = b ? b->lo + b->len : at + GRANULARITY;
	}
	return all;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t len)
{
	ENTER(cuMemAddressFree);
	for (struct reservation **p = &reservations; *p; p = &(*p)->next) {
		struct reservation *r = *p;

		if (r->lo != ptr || r->len != len)
			continue;
		if (mapped(ptr, len, false) && !soft_planted(RULE_vmm_rules))
			break;
		*p = r->next;
		soft_address_give(r->lo, r->len);
		free(r);
		return soft_leave(CUDA_SUCCESS);
	}
	return soft_leave(CUDA_ERROR_INVALID_VALUE);
}

static bool reserved(uintptr_t lo, size_t len)
{
	for (struct reservation *r = reservations; r; r = r->next)
		if (lo >= r->lo && lo + len <= r->lo + r->len)
			return true;
	return false;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t len, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags)
{
	struct soft_handle *h;
	struct soft_block *b;

	ENTER(cuMemMap);
	h = handle_of(handle);
	if (!h || !len || ptr % GRANULARITY || len != h->len || offset || flags || !reserved(ptr, len) ||
	    mapped(ptr, len, false))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (!soft_address_map(ptr, len, h->fd, 0))
		return soft_leave(CUDA_ERROR_MAP_FAILED);
	b = soft_block_add(SOFT_VMM, ptr, len, soft_address_delta(), soft_current());
	b->device = h->prop.location.id;
	b->flags = (unsigned)h->prop.requestedHandleTypes;
	b->handle = h;
	h->maps++;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t len)
{
	ENTER(cuMemUnmap);
	if (!len || !mapped(ptr, len, true))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	for (uintptr_t at = ptr; at < ptr + len;) {
		struct soft_block *b = soft_block_at(at);

		at += b->len;
		soft_block_remove(b);
		soft_address_map(b->lo, b->len, -1, 0);
		b->handle->maps--;
		handle_unuse(b->handle);
	}
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t len, const CUmemAccessDesc *desc, size_t count)
{
	ENTER(cuMemSetAccess);
	if (!len || !desc || !count || !mapped(ptr, len, true))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < count; i++) {
		const int id = desc[i].location.id;

		if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || id < 0 || id >= soft.devices)
			return soft_leave(CUDA_ERROR_INVALID_DEVICE);
		for (uintptr_t at = ptr; at < ptr + len;) {
			struct soft_block *b = soft_block_at(at);

			if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
				b->access &= ~(1u << id);
			else
				b->access |= 1u << id;
			at += b->len;
		}
	}
	return soft_leave(CUDA_SUCCESS);
}

/* ---- export ---- */

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags)
{
	struct soft_handle *h;
	int fd;

	ENTER(cuMemExportToShareableHandle);
	h = handle_of(handle);
	if (!out || !h || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (!((unsigned)h->prop.requestedHandleTypes & (unsigned)type) && !soft_planted(RULE_vmm_export))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	fd = fcntl(h->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return soft_leave(CUDA_ERROR_OPERATING_SYSTEM);
	*(int *)out = fd;
	return soft_leave(CUDA_SUCCESS);
}

/* The local ordinal of the device on which an exported file lies; -1: not one of ours, or not visible. */
static int device_of(int fd)
{
	char path[64], name[256];
	const char *at;
	ssize_t len;
	int physical;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	len = readlink(path, name, sizeof(name) - 1);
	if (len < 0)
		return -1;
	name[len] = 0;
	at = strstr(name, "memfd:" FILE_NAME);
	if (!at)
		return -1;
	physical = atoi(at + strlen("memfd:" FILE_NAME));
	for (int i = 0; i < soft.devices; i++)
		if (soft.device[i].physical == physical)
			return i;
	return -1;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle,
                                        CUmemAllocationHandleType type)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
	                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	struct soft_handle *h;
	struct stat st;
	int fd;

	ENTER(cuMemImportFromShareableHandle);
	if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	prop.location.id = device_of((int)(intptr_t)os_handle);
	if (prop.location.id < 0)
		return soft_leave(CUDA_ERROR_INVALID_DEVICE);
	fd = fcntl((int)(intptr_t)os_handle, F_DUPFD_CLOEXEC, 0);
	if (fd < 0 || fstat(fd, &st) || !st.st_size || !(h = handle_new(fd, (size_t)st.st_size, &prop))) {
		if (fd >= 0)
			close(fd);
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	}
	h->imported = true;
	*out = (uintptr_t)h;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *addr)
{
	struct soft_block *b;

	ENTER(cuMemRetainAllocationHandle);
	b = soft_block_at((uintptr_t)addr);
	if (!out || !b || b->kind != SOFT_VMM)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	b->handle->refs++;
	*out = (uintptr_t)b->handle;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *out, CUmemGenericAllocationHandle handle)
{
	struct soft_handle *h;

	ENTER(cuMemGetAllocationPropertiesFromHandle);
	h = handle_of(handle);
	if (!out || !h)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*out = h->prop;
	return soft_leave(CUDA_SUCCESS);
}

/* No dma-buf here: CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t len, CUmemRangeHandleType type,
                                       unsigned long long flags)
{
	ENTER(cuMemGetHandleForAddressRange);
	return soft_leave(handle ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE);
}
