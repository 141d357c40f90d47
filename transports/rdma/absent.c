/*
 * rdma in a build without the headers of libibverbs and librdmacm: it keeps its place in
 * the table, so that peer infos of different builds agree, and says why it cannot be used.
 */
#include "transport/transport.h"

static coll_status absent_open(const struct coll_transport_env *env, void **inst)
{
	env->log(env->ctx, 2,
	         "rdma is not used: this build has no RDMA verbs (headers were missing, or -Drdma=disabled)");
	return COLL_ERR_UNSUPPORTED;
}

const struct coll_transport coll_transport_rdma = {
        .size = sizeof(struct coll_transport), .name = "rdma", .open = absent_open};
