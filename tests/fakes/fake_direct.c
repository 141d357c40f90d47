/*
 * Stand-in of src/direct: no communicator has a direct path.
 */
#include "direct/direct.h"

#define WEAK __attribute__((weak))

WEAK const struct coll_intra_op *coll_direct_find(const struct coll_comm *comm, const struct coll_call *call)
{
	return NULL;
}

WEAK bool coll_direct_is(const struct coll_comm *comm, const struct coll_intra_op *op)
{
	return false;
}

WEAK void coll_direct_describe(const struct coll_comm *comm, char *buf, size_t len_bytes)
{
	buf[0] = '\0';
}

WEAK bool coll_direct_prepare(const struct coll_comm *comm, const struct coll_job *job, bool in_host, bool out_host,
                              struct coll_direct_call *call)
{
	return false;
}

WEAK void coll_direct_deal(struct coll_comm *comm, struct coll_direct_call *call)
{
}

WEAK size_t coll_direct_segments(const struct coll_direct_call *call)
{
	return 1;
}

WEAK coll_status coll_direct_put(struct coll_comm *comm, const struct coll_job *job,
                                 const struct coll_direct_call *call, size_t segment, coll_device_stream stream)
{
	return COLL_OK;
}

WEAK bool coll_direct_ended(const struct coll_comm *comm, const struct coll_direct_call *call)
{
	return true;
}

WEAK bool coll_direct_drained(const struct coll_comm *comm)
{
	return true;
}

WEAK bool coll_direct_waits_for_stream(const struct coll_comm *comm, const struct coll_direct_call *call)
{
	return false;
}

WEAK void coll_direct_release(struct coll_comm *comm)
{
}

WEAK void coll_direct_destroy(struct coll_comm *comm, bool stuck)
{
}

WEAK bool coll_direct_claim(struct coll_comm *comm, const struct coll_direct_call *last)
{
	return true;
}
