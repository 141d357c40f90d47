/*
 * Memory: allocation, registration, windows, and what a communicator holds on the device.
 *
 * The library recognises the memory of a device by itself, so registration changes nothing for it, and a window is
 * NULL: the same buffers work with or without. Host memory is announced to the transports.
 */
#include <stdlib.h>

#include "compat/nccl/driver.h"
#include "compat/nccl/error.h"
#include "compat/nccl/handle.h"

/* What ncclMemAlloc() returned. */
struct allocation {
	struct allocation *next;
	struct nccl_memory memory;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations; /* lock */

NCCL_FUNCTION(ncclResult_t, ncclMemAlloc, (void **ptr, size_t size))
{
	static const char *const function = "ncclMemAlloc";
	struct allocation *a;
	ncclResult_t r;

	if (!ptr || size == 0)
		return nccl_fail(ncclInvalidArgument, "%s: %zu bytes for the pointer %p", function, size, (void *)ptr);
	a = calloc(1, sizeof(*a));
	if (!a)
		return nccl_fail(ncclSystemError, "%s: out of memory", function);
	r = nccl_driver_device(&a->memory.ordinal, function);
	if (r == ncclSuccess)
		r = nccl_driver_alloc(&a->memory, size, function);
	if (r != ncclSuccess) {
		free(a);
		return r;
	}
	*ptr = a->memory.ptr;
	pthread_mutex_lock(&lock);
	a->next = allocations;
	allocations = a;
	pthread_mutex_unlock(&lock);
	return ncclSuccess;
}

NCCL_FUNCTION(ncclResult_t, ncclMemFree, (void *ptr))
{
	struct allocation **at = &allocations, *a;
	ncclResult_t r;

	if (!ptr)
		return ncclSuccess;
	pthread_mutex_lock(&lock);
	while (*at && (*at)->memory.ptr != ptr)
		at = &(*at)->next;
	a = *at;
	if (a)
		*at = a->next;
	pthread_mutex_unlock(&lock);
	if (!a)
		return nccl_fail(ncclInvalidArgument, "ncclMemFree: %p was not returned by ncclMemAlloc()", ptr);
	r = nccl_driver_free(&a->memory, "ncclMemFree");
	free(a);
	return r;
}

/* ---- Registration ---- */

static ncclResult_t add(ncclComm_t comm, void *ptr, size_t len_bytes, void **handle, const char *function)
{
	struct nccl_registration *r = calloc(1, sizeof(*r));
	coll_status st = COLL_ERR_UNSUPPORTED;

	if (!r)
		return nccl_fail(ncclSystemError, "%s: out of memory", function);
	r->ptr = ptr;
	st = coll_mem_register(comm->comm, ptr, len_bytes);
	/* Memory of the device, or registered before: it works all the same. */
	if (st != COLL_OK && st != COLL_ERR_UNSUPPORTED && st != COLL_ERR_ARGUMENT) {
		free(r);
		return nccl_from(st, comm->comm, function);
	}
	r->known = st == COLL_OK;
	r->next = comm->registrations;
	comm->registrations = r;
	*handle = r;
	return ncclSuccess;
}

NCCL_FUNCTION(ncclResult_t, ncclCommRegister, (ncclComm_t comm, void *buffer, size_t size, void **handle))
{
	static const char *const function = "ncclCommRegister";
	ncclResult_t r;

	if (!buffer || size == 0 || !handle)
		return nccl_fail(ncclInvalidArgument, "%s: %zu bytes at %p, handle at %p", function, size, buffer,
		                 (void *)handle);
	r = nccl_enter(comm, function);
	if (r != ncclSuccess)
		return r;
	r = add(comm, buffer, size, handle, function);
	nccl_leave(comm);
	return r;
}

NCCL_FUNCTION(ncclResult_t, ncclCommDeregister, (ncclComm_t comm, void *handle))
{
	static const char *const function = "ncclCommDeregister";
	struct nccl_registration **at, *found;
	ncclResult_t r = nccl_enter(comm, function);

	if (r != ncclSuccess)
		return r;
	for (at = &comm->registrations; *at && (void *)*at != handle;)
		at = &(*at)->next;
	found = *at;
	if (found) {
		*at = found->next;
		if (found->known)
			coll_mem_deregister(comm->comm, found->ptr);
		free(found);
	} else if (handle) {
		r = nccl_fail(ncclInvalidArgument, "%s: %p is no registration of this communicator", function, handle);
	}
	nccl_leave(comm);
	return r;
}

/* Success without a window, as NCCL answers where it has no use for one. */
NCCL_FUNCTION(ncclResult_t, ncclCommWindowRegister,
              (ncclComm_t comm, void *buffer, size_t size, ncclWindow_t *window, int flags))
{
	static const char *const function = "ncclCommWindowRegister";
	ncclResult_t r;

	if (!buffer || size == 0 || !window)
		return nccl_fail(ncclInvalidArgument, "%s: %zu bytes at %p, window at %p", function, size, buffer,
		                 (void *)window);
	if (flags & ~NCCL_WIN_FLAGS)
		return nccl_fail(ncclInvalidArgument, "%s: flags 0x%x are unknown", function, (unsigned)flags);
	r = nccl_enter(comm, function);
	if (r != ncclSuccess)
		return r;
	*window = NULL;
	nccl_leave(comm);
	return ncclSuccess;
}

NCCL_FUNCTION(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t window))
{
	static const char *const function = "ncclCommWindowDeregister";
	ncclResult_t r = nccl_enter(comm, function);

	if (r != ncclSuccess)
		return r;
	nccl_leave(comm);
	return window ? nccl_fail(ncclInvalidArgument, "%s: %p is no window", function, (void *)window) : ncclSuccess;
}

/* ---- What a communicator holds ---- */

/* All sizes are 0: memory of the user is not counted, and the slots of direct calls (docs/design/direct.md) are neither
 * counted nor released. */
NCCL_FUNCTION(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value))
{
	static const char *const function = "ncclCommMemStats";
	ncclResult_t r;

	if (!value || (int)stat < ncclStatGpuMemSuspend || (int)stat > ncclStatGpuMemTotal)
		return nccl_fail(ncclInvalidArgument, "%s: statistic %d, value at %p", function, (int)stat,
		                 (void *)value);
	r = nccl_enter(comm, function);
	if (r != ncclSuccess)
		return r;
	*value = stat == ncclStatGpuMemSuspended && comm->suspended;
	nccl_leave(comm);
	return ncclSuccess;
}

static ncclResult_t suspend(ncclComm_t comm, bool on, const char *function)
{
	ncclResult_t r = nccl_enter_busy(comm, function);

	if (r != ncclSuccess)
		return r;
	if (comm->suspended == on)
		r = nccl_fail(ncclInvalidUsage, "%s: the communicator is %s", function,
		              on ? "suspended already" : "not suspended");
	else if (on)
		r = nccl_flush(comm, function);
	if (r == ncclSuccess)
		comm->suspended = on;
	nccl_leave_busy(comm);
	return r;
}

NCCL_FUNCTION(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags))
{
	if (flags != NCCL_SUSPEND_MEM)
		return nccl_fail(ncclInvalidArgument, "ncclCommSuspend: flags 0x%x are unknown", (unsigned)flags);
	return suspend(comm, true, "ncclCommSuspend");
}

NCCL_FUNCTION(ncclResult_t, ncclCommResume, (ncclComm_t comm))
{
	return suspend(comm, false, "ncclCommResume");
}
