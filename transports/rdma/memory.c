/*
 * Registered memory: rings and notes of the transport itself, and ranges that the user
 * has allocated here or announced. Ranges are registered with every port, and found by address; a range inside a known
 * one shares its registration. Other memory is never registered, because
 * the transport would not be notified when it is unmapped.
 */
#include "transports/rdma/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/errno_text.h"
#include "transports/rdma/rdma.h"

struct ibv_mr *coll_rdma_memory_pin(const struct rdma_port *port, void *base, size_t len_bytes, bool remote)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | (remote ? IBV_ACCESS_REMOTE_WRITE : 0);
	struct ibv_mr *mr = port->inst->v.ibv_reg_mr(port->pd, base, len_bytes, access);

	if (!mr) {
		coll_errno_keep_lock("ibv_reg_mr");
		rdma_log(port->inst, COLL_LOG_WARN, "[COLL-6501] rdma: %s cannot register %zu bytes: %s", port->where,
		         len_bytes, coll_errno_lock(errno).text);
	}
	return mr;
}

/* memory_lock held. */
static struct rdma_region *covering(struct rdma_inst *in, const char *ptr, size_t len_bytes)
{
	for (struct rdma_region *r = in->regions; r; r = r->next)
		if (ptr >= r->base && len_bytes <= r->len_bytes && (size_t)(ptr - r->base) <= r->len_bytes - len_bytes)
			return r;
	return NULL;
}

const struct rdma_region *coll_rdma_memory_find(struct rdma_inst *in, const void *ptr, size_t len_bytes)
{
	const struct rdma_region *r;

	pthread_rwlock_rdlock(&in->memory_lock);
	r = covering(in, ptr, len_bytes);
	pthread_rwlock_unlock(&in->memory_lock);
	return r;
}

static void unpin(struct rdma_inst *in, const struct rdma_region *r)
{
	for (unsigned i = 0; i < in->ports; i++)
		if (r->mr[i] && in->v.ibv_dereg_mr(r->mr[i]) != 0)
			rdma_log(in, COLL_LOG_WARN, "[COLL-6502] rdma: %s cannot deregister %zu bytes: %s",
			         in->port[i].where, r->len_bytes, strerror(errno));
}

static coll_status keep(struct rdma_inst *in, struct coll_memory *mem)
{
	struct rdma_region *r = calloc(1, sizeof(*r));

	if (!r)
		return COLL_ERR_MEMORY;
	r->base = mem->base;
	r->len_bytes = mem->len_bytes;
	for (unsigned i = 0; i < in->ports; i++) {
		r->mr[i] = coll_rdma_memory_pin(&in->port[i], mem->base, mem->len_bytes, true);
		if (r->mr[i])
			continue;
		unpin(in, r);
		free(r);
		return coll_errno_status(COLL_ERR_SYSTEM);
	}
	r->refs = 1;
	r->next = in->regions;
	in->regions = r;
	mem->keys = r;
	return COLL_OK;
}

coll_status coll_rdma_mem_reg(void *inst, struct coll_memory *mem)
{
	struct rdma_inst *in = inst;
	struct rdma_region *r;
	coll_status status = COLL_OK;

	if (!mem->base || !mem->len_bytes || mem->kind != 0)
		return COLL_ERR_UNSUPPORTED;
	pthread_rwlock_wrlock(&in->memory_lock);
	r = covering(in, mem->base, mem->len_bytes);
	if (r) {
		r->refs++;
		mem->keys = r;
	} else {
		status = keep(in, mem);
	}
	pthread_rwlock_unlock(&in->memory_lock);
	return status;
}

static void drop(struct rdma_inst *in, struct rdma_region *r)
{
	struct rdma_region **at = &in->regions;

	if (--r->refs)
		return;
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	unpin(in, r);
	free(r);
}

void coll_rdma_mem_dereg(void *inst, struct coll_memory *mem)
{
	struct rdma_inst *in = inst;

	if (!mem->keys)
		return;
	pthread_rwlock_wrlock(&in->memory_lock);
	drop(in, mem->keys);
	pthread_rwlock_unlock(&in->memory_lock);
	mem->keys = NULL;
}

coll_status coll_rdma_mem_alloc(void *inst, size_t len_bytes, struct coll_memory *mem)
{
	const size_t len = (len_bytes + 4095) & ~(size_t)4095;
	char *p = len ? aligned_alloc(4096, len) : NULL;
	coll_status status;

	if (!p)
		return COLL_ERR_MEMORY;
	memset(p, 0, len);
	*mem = (struct coll_memory){.size = sizeof(*mem), .base = p, .len_bytes = len_bytes};
	status = coll_rdma_mem_reg(inst, mem);
	if (status != COLL_OK) {
		free(p);
		*mem = (struct coll_memory){.size = sizeof(*mem)};
		return COLL_ERR_UNSUPPORTED; /* plain memory will do */
	}
	return COLL_OK;
}

void coll_rdma_mem_free(void *inst, struct coll_memory *mem)
{
	coll_rdma_mem_dereg(inst, mem);
	free(mem->base);
	mem->base = NULL;
}

void coll_rdma_memory_fini(struct rdma_inst *in)
{
	while (in->regions) {
		in->regions->refs = 1;
		drop(in, in->regions);
	}
}
