/*
 * libibverbs and librdmacm, found when an instance opens: a build with this transport
 * runs on machines without them. Only functions with a symbol are here; what the
 * headers define inline (posting, polling) goes through the device's own table.
 */
#ifndef COLL_TRANSPORTS_RDMA_VERBS_H
#define COLL_TRANSPORTS_RDMA_VERBS_H

#include <stddef.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "coll/coll.h"

#undef ibv_reg_mr
#undef ibv_query_port

#define COLL_RDMA_VERBS(X)          \
	X(ibv_alloc_pd)             \
	X(ibv_dealloc_pd)           \
	X(ibv_reg_mr)               \
	X(ibv_dereg_mr)             \
	X(ibv_create_cq)            \
	X(ibv_destroy_cq)           \
	X(ibv_create_comp_channel)  \
	X(ibv_destroy_comp_channel) \
	X(ibv_get_cq_event)         \
	X(ibv_ack_cq_events)        \
	X(ibv_modify_qp)            \
	X(ibv_query_port)           \
	X(ibv_query_device)         \
	X(ibv_close_device)         \
	X(ibv_query_gid)            \
	X(ibv_wc_status_str)

#define COLL_RDMA_CM(X)               \
	X(rdma_create_event_channel)  \
	X(rdma_destroy_event_channel) \
	X(rdma_create_id)             \
	X(rdma_destroy_id)            \
	X(rdma_bind_addr)             \
	X(rdma_listen)                \
	X(rdma_get_src_port)          \
	X(rdma_resolve_addr)          \
	X(rdma_resolve_route)         \
	X(rdma_create_qp)             \
	X(rdma_destroy_qp)            \
	X(rdma_connect)               \
	X(rdma_accept)                \
	X(rdma_reject)                \
	X(rdma_disconnect)            \
	X(rdma_get_cm_event)          \
	X(rdma_ack_cm_event)          \
	X(rdma_event_str)             \
	X(rdma_set_option)

struct coll_rdma_verbs {
	void *ibverbs, *rdmacm;
#define COLL_RDMA_MEMBER(name) __typeof__(name) *name;
	COLL_RDMA_VERBS(COLL_RDMA_MEMBER)
	COLL_RDMA_CM(COLL_RDMA_MEMBER)
#undef COLL_RDMA_MEMBER
};

/* UNSUPPORTED with one line in why: no device, or a library or a symbol is missing. */
coll_status coll_rdma_verbs_load(struct coll_rdma_verbs *v, char *why, size_t why_bytes);
/* librdmacm has opened this device; to be closed when the library has gone. */
void coll_rdma_verbs_opened(struct ibv_context *device);
void coll_rdma_verbs_unload(struct coll_rdma_verbs *v);

#endif
