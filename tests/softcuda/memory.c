/*
 * Device memory by cuMemAlloc, pinned and registered host memory, managed memory, and what
 * the driver says of an address. See addresses.c for where the bytes lie.
 */
#include "tests/softcuda/soft.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { POISON = 0xc5 };

static size_t page_round(size_t len)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);

	return (len + page - 1) & ~(page - 1);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	CUcontext ctx;

	ENTER_CTX(cuMemGetInfo, ctx);
	if (!free_bytes || !total)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*total = soft.device[ctx->device].total;
	*free_bytes = *total - soft.device[ctx->device].used;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t len)
{
	struct soft_device *d;
	CUcontext ctx;
	uintptr_t lo;
	CUresult result;

	ENTER_CTX(cuMemAlloc, ctx);
	if (!out || !len)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	result = soft_capture_unsafe();
	if (result)
		return soft_leave(result);
	d = &soft.device[ctx->device];
	if (len > d->total - d->used)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	lo = soft_address_take(len, 1 << 16);
	if (!lo)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	d->used += len;
	if (!soft_planted(RULE_poison))
		memset((char *)lo + soft_address_delta(), POISON, len);
	soft_address_toggle(lo);
	soft_block_add(SOFT_ALLOC, lo, len, soft_address_delta(), ctx);
	*out = lo;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuMemAllocManaged(CUdeviceptr *out, size_t len, unsigned flags)
{
	CUcontext ctx;
	CUresult result;
	void *p;

	ENTER_CTX(cuMemAllocManaged, ctx);
	if (!out || !len || flags == 0)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	result = soft_capture_unsafe();
	if (result)
		return soft_leave(result);
	p = mmap(NULL, page_round(len), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	soft_block_add(SOFT_MANAGED, (uintptr_t)p, len, 0, ctx);
	*out = (uintptr_t)p;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuMemFree_v2(CUdeviceptr ptr)
{
	struct soft_block *b;
	CUcontext ctx;
	CUresult result;

	ENTER_CTX(cuMemFree, ctx);
	if (!ptr)
		return soft_leave(CUDA_SUCCESS);
	result = soft_capture_unsafe();
	if (result)
		return soft_leave(result);
	b = soft_block_at(ptr);
	if (!b || b->lo != ptr || (b->kind != SOFT_ALLOC && b->kind != SOFT_MANAGED))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (!soft_planted(RULE_free_waits)) {
		soft_drain(ctx, false, "cuMemFree");
		if (b->ctx != ctx && !b->ctx->dead)
			soft_drain(b->ctx, false, "cuMemFree");
	}
	if (!b->live) /* another thread was faster */
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	soft_block_remove(b);
	if (b->kind == SOFT_MANAGED) {
		munmap((void *)b->lo, page_round(b->len));
		return soft_leave(CUDA_SUCCESS);
	}
	soft.device[b->device].used -= b->len;
	soft_address_toggle(b->lo);
	if (!soft_planted(RULE_freed))
		soft_address_give(b->lo, b->len);
	return soft_leave(CUDA_SUCCESS);
}

/* ---- host memory ---- */

CUresult cuMemHostAlloc(void **out, size_t len, unsigned flags)
{
	struct soft_block *b;
	CUcontext ctx;
	CUresult result;
	void *p;

	ENTER_CTX(cuMemHostAlloc, ctx);
	if (!out || !len || flags > 7)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	result = soft_capture_unsafe();
	if (result)
		return soft_leave(result);
	p = mmap(NULL, page_round(len), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	b = soft_block_add(SOFT_HOST, (uintptr_t)p, len, 0, ctx);
	b->flags = flags;
	*out = p;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuMemFreeHost(void *p)
{
	struct soft_block *b;
	CUcontext ctx;
	CUresult result;

	ENTER_CTX(cuMemFreeHost, ctx);
	result = soft_capture_unsafe();
	if (result)
		return soft_leave(result);
	b = soft_host_block_at((uintptr_t)p);
	if (!b || b->lo != (uintptr_t)p || b->kind != SOFT_HOST)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	soft_drain(ctx, false, "cuMemFreeHost");
	if (!b->live)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	soft_block_remove(b);
	munmap(p, page_round(b->len));
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuMemHostRegister_v2(void *p, size_t len, unsigned flags)
{
	const uintptr_t lo = (uintptr_t)p;
	struct soft_block *b;
	CUcontext ctx;
	CUresult result;
	uintptr_t at = lo;

	ENTER_CTX(cuMemHostRegister, ctx);
	if (!p || !len || flags > 15 || soft_address_holds(lo))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	result = soft_capture_unsafe();
	if (result)
		return soft_leave(result);
	if (flags & (CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY))
		return soft_leave(CUDA_ERROR_NOT_SUPPORTED);
	for (uintptr_t a = lo; a < lo + len; a += 4096)
		if (soft_host_block_at(a) && !soft_planted(RULE_host_pointer))
			return soft_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	if (soft_host_block_at(lo + len - 1) && !soft_planted(RULE_host_pointer))
		return soft_leave(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	if (soft_setting("SOFTCUDA_HOST_ALIAS", 0)) {
		at = soft_address_take(len + (lo & 4095), 1 << 16);
		if (!at)
			return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
		at += lo & 4095;
	}
	b = soft_block_add(SOFT_REGISTERED, at, len, (intptr_t)(lo - at), ctx);
	b->flags = flags;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuMemHostUnregister(void *p)
{
	struct soft_block *b;
	CUcontext ctx;
	CUresult result;

	ENTER_CTX(cuMemHostUnregister, ctx);
	result = soft_capture_unsafe();
	if (result)
		return soft_leave(result);
	b = soft_host_block_at((uintptr_t)p);
	if (!b || b->kind != SOFT_REGISTERED || b->lo + (uintptr_t)b->delta != (uintptr_t)p)
		return soft_leave(soft_planted(RULE_host_pointer) ? CUDA_SUCCESS
		                                                  : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	soft_drain(ctx, false, "cuMemHostUnregister");
	if (!b->live)
		return soft_leave(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	soft_block_remove(b);
	if (b->aliased)
		soft_address_give(b->lo & ~(uintptr_t)4095, b->len + (b->lo & 4095));
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags)
{
	struct soft_block *b;
	CUcontext ctx;

	ENTER_CTX(cuMemHostGetDevicePointer, ctx);
	b = soft_host_block_at((uintptr_t)p);
	if (!out || flags || !b || b->kind == SOFT_MANAGED)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (b->kind == SOFT_REGISTERED && !(b->flags & CU_MEMHOSTREGISTER_DEVICEMAP) &&
	    !soft_planted(RULE_host_pointer))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*out = (uintptr_t)p - (uintptr_t)b->delta;
	return soft_leave(CUDA_SUCCESS);
}

void soft_memory_end(struct soft_block *b)
{
	soft_block_remove(b);
	if (b->kind == SOFT_ALLOC) {
		soft.device[b->device].used -= b->len;
		soft_address_toggle(b->lo);
		soft_address_give(b->lo, b->len);
	} else if (b->kind == SOFT_IPC) {
		soft_address_map(b->lo, b->len, -1, 0);
		soft_address_give(b->lo, b->len);
	} else if (b->kind == SOFT_REGISTERED && b->aliased) {
		soft_address_give(b->lo & ~(uintptr_t)4095, b->len + (b->lo & 4095));
	} else if (b->kind == SOFT_HOST || b->kind == SOFT_MANAGED) {
		munmap((void *)b->lo, page_round(b->len));
	}
}

/* ---- what is at an address ---- */

static uint64_t handle_types(const struct soft_block *b);

/* Write the attribute of b; NULL: of memory that the driver does not know. */
static CUresult attribute(const struct soft_block *b, CUpointer_attribute which, uintptr_t ptr, void *data)
{
	const bool host = b && (b->kind == SOFT_HOST || b->kind == SOFT_REGISTERED);
	const uintptr_t host_lo = b ? b->lo + (uintptr_t)b->delta : 0;
	/* ptr is the address on the device or the one on the host. */
	const size_t into = !b ? 0 : ptr - b->lo < b->len ? ptr - b->lo : ptr - host_lo;

	switch (which) {
	case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext *)data = b && b->kind != SOFT_VMM ? b->ctx : NULL; break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)data = host ? CU_MEMORYTYPE_HOST : b ? CU_MEMORYTYPE_DEVICE : 0;
		if (!b && soft_planted(RULE_attributes))
			*(unsigned *)data = CU_MEMORYTYPE_HOST;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr *)data = b ? b->lo + into : 0; break;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		*(void **)data = host || (b && b->kind == SOFT_MANAGED) ? (void *)(host_lo + into) : NULL;
		break;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID: *(unsigned long long *)data = b ? b->id : 0; break;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED: *(unsigned *)data = b && b->kind == SOFT_MANAGED; break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int *)data = b ? b->device : CU_DEVICE_INVALID; break;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *(unsigned *)data = b && b->kind == SOFT_ALLOC; break;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr *)data = b ? b->lo : 0; break;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t *)data = b ? b->len : 0; break;
	case CU_POINTER_ATTRIBUTE_MAPPED: *(unsigned *)data = b != NULL; break;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *(uint64_t *)data = b ? handle_types(b) : 0; break;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: *(unsigned *)data = 0; break;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: *(unsigned *)data = b ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0; break;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *(void **)data = NULL; break;
	default: return CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_SUCCESS;
}

static uint64_t handle_types(const struct soft_block *b)
{
	return b->kind == SOFT_VMM ? b->flags : 0;
}

static struct soft_block *known(uintptr_t ptr)
{
	struct soft_block *b = soft_block_at(ptr);

	return b ? b : soft_host_block_at(ptr);
}

/* Identification is frequent and changes nothing: no lock. */
static CUresult enter_query(enum soft_fn fn)
{
	CUcontext ctx;

	soft_enter_free(fn);
	if (soft.forked || !soft.initialised)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (soft_in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	ctx = soft_current();
	return ctx && !soft_planted(RULE_sticky) ? ctx->error : CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr ptr)
{
	const struct soft_block *b;
	CUresult result = enter_query(FN_cuPointerGetAttribute);

	if (result)
		return result;
	b = known(ptr);
	if (!data || !b)
		return CUDA_ERROR_INVALID_VALUE;
	return attribute(b, which, ptr, data);
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *which, void **data, CUdeviceptr ptr)
{
	CUresult result = enter_query(FN_cuPointerGetAttributes);

	if (result)
		return result;
	if (!count || !which || !data)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count && !result; i++)
		result = attribute(known(ptr), which[i], ptr, data[i]);
	return result;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *len, CUdeviceptr ptr)
{
	const struct soft_block *b;
	CUresult result = enter_query(FN_cuMemGetAddressRange);

	if (result)
		return result;
	if (!soft_current())
		return CUDA_ERROR_INVALID_CONTEXT;
	b = soft_block_at(ptr);
	if (!b)
		return CUDA_ERROR_NOT_FOUND;
	if (base)
		*base = soft_planted(RULE_address_range) ? ptr : b->lo;
	if (len)
		*len = b->len;
	return CUDA_SUCCESS;
}
