/*
 * Memory for users: allocated so that local ranks can map it, or registered by the user.
 */
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/errno_text.h"
#include "base/fork.h"
#include "base/limits.h"
#include "core/comm.h"
#include "core/entry.h"
#include "core/error.h"
#include "device/device.h"

/* As the driver describes it. */
static coll_status device_failed(struct coll_comm *comm, const char *kind)
{
	struct coll_error_box err;

	coll_device_error(comm->ctx->device, &err);
	return coll_comm_refuse(comm, kind, err.status, "%s", err.message);
}

static coll_status check(struct coll_comm *comm, const char *kind, const char *what, const void *ptr, size_t len_bytes,
                         bool takes_device)
{
	struct coll_device *d = comm->ctx->device;
	struct coll_device_range range;

	if (!d->table->identify(d, ptr, len_bytes, &range))
		return device_failed(comm, kind);
	if (range.fault)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "[COLL-1207] %s at %p (%zu bytes): %s", what,
		                        ptr, len_bytes, range.fault);
	if (takes_device) {
		comm->seen[1] = comm->seen[0];
		comm->seen[0] = (struct coll_seen){ptr, range.kind, range.base, range.len_bytes, range.id};
	}
	if (range.kind == COLL_DEVICE_HOST || takes_device)
		return COLL_OK;
	return coll_comm_refuse(comm, kind, COLL_ERR_UNSUPPORTED,
	                        "[COLL-1203] %s at %p is memory of %s: host memory is needed", what, ptr, d->name);
}

/* Only a rank with a device can tell. */
static inline bool tells_apart(const struct coll_comm *comm, const void *ptr, size_t len_bytes)
{
	const unsigned attention = atomic_load_explicit(&comm->attention, memory_order_relaxed);

	return __builtin_expect(attention & COLL_ATTENTION_MEMORY, false) && ptr && len_bytes > 0;
}

coll_status coll_comm_serves(struct coll_comm *comm, const char *kind, const char *what, const void *ptr,
                             size_t len_bytes)
{
	return tells_apart(comm, ptr, len_bytes) ? check(comm, kind, what, ptr, len_bytes, false) : COLL_OK;
}

coll_status coll_comm_takes(struct coll_comm *comm, const char *kind, const char *what, const void *ptr,
                            size_t len_bytes)
{
	return tells_apart(comm, ptr, len_bytes) ? check(comm, kind, what, ptr, len_bytes, true) : COLL_OK;
}

static struct coll_allocation *find(struct coll_comm *comm, const void *ptr, bool registered)
{
	for (struct coll_allocation *a = comm->allocations; a; a = a->next)
		if (a->mem.base == ptr && a->registered == registered)
			return a;
	return NULL;
}

/* Not before its work has ended: the driver waits for that where it frees memory, but not where it unmaps. */
static void free_device(struct coll_device *d, struct coll_allocation *a)
{
	if (a->region.len_bytes == 0) {
		d->table->free(d, a->mem.base);
		return;
	}
	d->table->settle(d);
	d->table->region_destroy(d, &a->region);
}

static void release(struct coll_comm *comm, struct coll_allocation *a)
{
	struct coll_allocation **link = &comm->allocations;

	while (*link != a)
		link = &(*link)->next;
	*link = a->next;
	for (int i = 0; i < comm->ctx->ntransports; i++)
		if (a->has_handle[i])
			comm->ctx->transports[i].table.mem_dereg(comm->ctx->transports[i].inst, &a->handle[i]);
	/* While the device is held, its memory stays: freeing it would wait. */
	if (a->device && !coll_device_is_held(comm->ctx->device))
		free_device(comm->ctx->device, a);
	else if (!a->device && a->opened)
		a->opened->table.mem_free(a->opened->inst, &a->mem);
	else if (!a->device && !a->registered)
		free(a->mem.base);
	free(a);
}

static struct coll_allocation *keep(struct coll_comm *comm, bool registered, void *ptr, size_t len_bytes)
{
	struct coll_allocation *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->registered = registered;
	a->mem = (struct coll_memory){.size = sizeof(a->mem), .base = ptr, .len_bytes = len_bytes};
	a->next = comm->allocations;
	comm->allocations = a;
	return a;
}

static coll_status plain_alloc(struct coll_allocation *a)
{
	if (posix_memalign((void **)&a->mem.base, 4096, a->mem.len_bytes)) {
		a->mem.base = NULL;
		return COLL_ERR_MEMORY;
	}
	memset(a->mem.base, 0, a->mem.len_bytes);
	return COLL_OK;
}

/* Register the memory with every transport, since each may gain from it. The transport that
 * allocated it is skipped. One that gains nothing returns UNSUPPORTED. */
static coll_status register_all(struct coll_comm *comm, struct coll_allocation *a)
{
	coll_status worst = COLL_OK;

	for (int i = 0; i < comm->ctx->ntransports; i++) {
		struct coll_opened_transport *opened = &comm->ctx->transports[i];
		coll_status st;

		if (opened == a->opened)
			continue;
		a->handle[i] = (struct coll_memory){
		        .size = sizeof(a->mem), .base = a->mem.base, .len_bytes = a->mem.len_bytes};
		st = opened->table.mem_reg(opened->inst, &a->handle[i]);
		a->has_handle[i] = st == COLL_OK;
		if (st != COLL_OK && st != COLL_ERR_UNSUPPORTED)
			worst = st;
	}
	return worst;
}

coll_status coll_mem_alloc(coll_comm *comm, void **ptr, size_t len_bytes)
{
	struct coll_allocation *a;
	coll_status st = COLL_ERR_UNSUPPORTED;

	if (coll_entry_no_comm(comm, "mem_alloc"))
		return COLL_ERR_ARGUMENT;
	if (!ptr)
		return coll_comm_refuse(comm, "mem_alloc", COLL_ERR_ARGUMENT, "ptr is NULL");
	if (len_bytes == 0) {
		*ptr = NULL;
		return COLL_OK;
	}
	a = len_bytes <= PTRDIFF_MAX ? keep(comm, false, NULL, len_bytes) : NULL;
	if (!a)
		return coll_comm_refuse(comm, "mem_alloc", COLL_ERR_MEMORY, "no memory for %zu bytes", len_bytes);
	for (int i = 0; i < comm->ctx->ntransports && st == COLL_ERR_UNSUPPORTED; i++) {
		a->opened = &comm->ctx->transports[i];
		st = a->opened->table.mem_alloc(a->opened->inst, len_bytes, &a->mem);
	}
	if (st != COLL_OK) {
		a->opened = NULL;
		a->mem.len_bytes = len_bytes;
		st = plain_alloc(a);
	}
	if (st != COLL_OK) {
		release(comm, a);
		return coll_comm_refuse(comm, "mem_alloc", st, "no memory for %zu bytes", len_bytes);
	}
	register_all(comm, a); /* a failing transport has logged why; the memory is usable anyway */
	*ptr = a->mem.base;
	return COLL_OK;
}

/* What long direct calls read in place: another process can map it. */
static coll_status region_alloc(struct coll_device *d, struct coll_allocation *a, size_t len_bytes, void **ptr)
{
	const coll_status st = d->table->region_create(d, len_bytes, &a->region);

	if (a->region.fd >= 0)
		coll_fd_close(a->region.fd);
	a->region.fd = -1;
	*ptr = (void *)(uintptr_t)a->region.export.address;
	return st;
}

static coll_status device_alloc(struct coll_comm *comm, void **ptr, size_t len_bytes)
{
	struct coll_device *d = comm->ctx->device;
	struct coll_allocation *a;
	coll_status st;

	if (!d)
		return coll_comm_refuse(comm, "mem_alloc_on", COLL_ERR_ARGUMENT,
		                        "COLL_MEM_DEVICE: the communicator has no device on this rank");
	if (len_bytes == 0) {
		*ptr = NULL;
		return COLL_OK;
	}
	a = keep(comm, false, NULL, len_bytes);
	if (!a)
		return coll_comm_refuse(comm, "mem_alloc_on", COLL_ERR_MEMORY, "out of memory");
	a->mem.kind = COLL_DEVICE_CUDA;
	st = len_bytes < COLL_MAPPED_LONG_MIN ? d->table->alloc(d, len_bytes, ptr) : region_alloc(d, a, len_bytes, ptr);
	if (st != COLL_OK) {
		release(comm, a);
		return device_failed(comm, "mem_alloc_on");
	}
	a->device = true;
	a->mem.base = *ptr;
	return COLL_OK;
}

coll_status coll_mem_alloc_on(coll_comm *comm, void **ptr, size_t len_bytes, int where)
{
	if (coll_entry_no_comm(comm, "mem_alloc_on"))
		return COLL_ERR_ARGUMENT;
	if (where == COLL_MEM_HOST)
		return coll_mem_alloc(comm, ptr, len_bytes);
	if (where != COLL_MEM_DEVICE)
		return coll_comm_refuse(comm, "mem_alloc_on", COLL_ERR_ARGUMENT,
		                        "where is %d: expected COLL_MEM_HOST or COLL_MEM_DEVICE", where);
	if (!ptr)
		return coll_comm_refuse(comm, "mem_alloc_on", COLL_ERR_ARGUMENT, "ptr is NULL");
	return device_alloc(comm, ptr, len_bytes);
}

coll_status coll_mem_free(coll_comm *comm, void *ptr)
{
	struct coll_allocation *a;

	if (coll_entry_no_comm(comm, "mem_free"))
		return COLL_ERR_ARGUMENT;
	if (!ptr)
		return COLL_OK;
	a = find(comm, ptr, false);
	if (!a)
		return coll_comm_refuse(comm, "mem_free", COLL_ERR_ARGUMENT, "%p was not returned by coll_mem_alloc()",
		                        ptr);
	release(comm, a);
	return COLL_OK;
}

coll_status coll_mem_register(coll_comm *comm, void *ptr, size_t len_bytes)
{
	struct coll_allocation *a;
	coll_status st;

	if (coll_entry_no_comm(comm, "mem_register"))
		return COLL_ERR_ARGUMENT;
	if (!ptr || len_bytes == 0)
		return coll_comm_refuse(comm, "mem_register", COLL_ERR_ARGUMENT, "ptr is NULL or len_bytes is 0");
	/* No processor maps as much. */
	if (len_bytes >> 56 != 0 || (uintptr_t)ptr + len_bytes < (uintptr_t)ptr)
		return coll_comm_refuse(comm, "mem_register", COLL_ERR_ARGUMENT, "no memory at %p has %zu bytes", ptr,
		                        len_bytes);
	st = coll_comm_serves(comm, "mem_register", "ptr", ptr, len_bytes);
	if (st != COLL_OK)
		return st;
	if (find(comm, ptr, true))
		return coll_comm_refuse(comm, "mem_register", COLL_ERR_ARGUMENT, "%p is registered already", ptr);
	a = keep(comm, true, ptr, len_bytes);
	if (!a)
		return coll_comm_refuse(comm, "mem_register", COLL_ERR_MEMORY, "out of memory");
	coll_errno_clear();
	st = register_all(comm, a);
	if (st != COLL_OK) {
		release(comm, a);
		return coll_comm_refuse(comm, "mem_register", st, "cannot register %zu bytes at %p: %s", len_bytes, ptr,
		                        coll_errno_take(coll_status_string(st)).text);
	}
	return COLL_OK;
}

coll_status coll_mem_deregister(coll_comm *comm, void *ptr)
{
	struct coll_allocation *a;

	if (coll_entry_no_comm(comm, "mem_deregister"))
		return COLL_ERR_ARGUMENT;
	a = find(comm, ptr, true);
	if (!a)
		return coll_comm_refuse(comm, "mem_deregister", COLL_ERR_ARGUMENT, "%p is not registered", ptr);
	release(comm, a);
	return COLL_OK;
}

void coll_comm_memory_free_all(struct coll_comm *comm)
{
	while (comm->allocations)
		release(comm, comm->allocations);
}
