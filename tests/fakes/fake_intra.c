/*
 * The intranode operations of tests: see fake_intra.h.
 */
#include "tests/fakes/fake_intra.h"

#include <stdio.h>

#include "context/context.h"
#include "intra/explain.h"
#include "intra/region.h"
#include "intra/zero_copy.h"

struct fake_intra fake_intra;

void coll_intra_explain(const struct coll_intra_op *intra, const struct coll_job *job, char *buf, size_t len_bytes,
                        const char **plan)
{
	snprintf(buf, len_bytes, "by hand");
	*plan = "buffers";
}

bool coll_intra_serves(enum coll_kind kind, int size, bool crowded, size_t count, size_t elem_bytes,
                       size_t payload_bytes)
{
	fake_intra.payload_bytes = payload_bytes;
	return fake_intra.serves;
}

const struct coll_intra_op *coll_intra_op_of(struct coll_intra *intra, enum coll_kind kind, size_t count,
                                             size_t elem_bytes)
{
	return &fake_intra.op;
}

bool coll_intra_zero_copy_serves(enum coll_kind kind, int size, size_t count, size_t elem_bytes)
{
	return fake_intra.serves_zero_copy;
}

const struct coll_intra_op *coll_intra_zero_copy_op(struct coll_intra *intra, const struct coll_intra_op *small)
{
	fake_intra.zero_copy.instead = small;
	return &fake_intra.zero_copy;
}

coll_status coll_intra_create(struct coll_intra **intra, const struct coll_intra_fabric *fabric,
                              const struct coll_channel_key *key, int rank, int size, size_t payload_bytes, bool alone)
{
	fake_intra.created++;
	fake_intra.fabric = *fabric;
	fake_intra.payload_bytes = payload_bytes;
	return COLL_OK;
}

/* No process can be reached. */
coll_status coll_context_link(struct coll_context *ctx, int process, struct coll_opened_transport **opened, void **link,
                              struct coll_error_box *err)
{
	return COLL_ERR_PEER_DEAD;
}
