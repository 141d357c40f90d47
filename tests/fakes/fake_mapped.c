/*
 * Stand-in of direct calls: no call goes direct.
 */
#include "devcall/mapped_call.h"
#include "devcall/mapped_graphs.h"
#include "devcall/mapped_region.h"

#define WEAK __attribute__((weak))

WEAK bool coll_device_can_reduce(coll_dtype type, coll_op op)
{
	return true;
}

WEAK coll_status coll_mapped_poll(void *arg, const struct coll_job *job, struct coll_intra_state *s)
{
	return COLL_ERR_UNSUPPORTED;
}

WEAK void coll_mapped_where(void *arg, const struct coll_job *job, const struct coll_intra_state *s,
                            struct coll_run_where *where)
{
}

WEAK bool coll_mapped_is(const struct coll_comm *comm, const struct coll_intra_op *op)
{
	return false;
}

WEAK bool coll_mapped_prepare(struct coll_comm *comm, const struct coll_job *job, bool in_host, bool out_host,
                              bool captured, struct coll_mapped_call *call)
{
	return false;
}

WEAK void coll_mapped_assign(struct coll_comm *comm, struct coll_mapped_call *call)
{
}

WEAK bool coll_mapped_claim(struct coll_comm *comm, const struct coll_mapped_call *last)
{
	return true;
}

WEAK size_t coll_mapped_segments(const struct coll_mapped_call *call)
{
	return 1;
}

WEAK bool coll_mapped_has_come(const struct coll_comm *comm, const struct coll_mapped_call *call, size_t segment)
{
	return true;
}

WEAK coll_status coll_mapped_put_wait(const struct coll_comm *comm, const struct coll_mapped_call *call, size_t segment,
                                      coll_device_stream stream)
{
	return COLL_OK;
}

WEAK coll_status coll_mapped_put(struct coll_comm *comm, const struct coll_job *job,
                                 const struct coll_mapped_call *call, size_t segment, bool waits,
                                 struct coll_device_word ended, coll_device_stream stream)
{
	return COLL_OK;
}

WEAK bool coll_mapped_waits_for_stream(const struct coll_comm *comm, const struct coll_mapped_call *call)
{
	return false;
}

WEAK bool coll_mapped_copy(struct coll_mapped *d, const struct coll_job *job, const struct coll_mapped_call *call,
                           struct coll_intra_state *s)
{
	return false;
}

WEAK void coll_mapped_release(struct coll_comm *comm)
{
}

WEAK void coll_mapped_destroy(struct coll_comm *comm, bool stuck, struct coll_device_region *keep)
{
}

WEAK int coll_mapped_left_word(const struct coll_comm *comm, struct coll_device_word *word)
{
	return 0;
}

WEAK bool coll_mapped_is_let_go(struct coll_comm *comm, bool over)
{
	return true;
}

WEAK void coll_mapped_graphs_open(struct coll_comm *comm, const struct coll_mapped_ring *ring)
{
}

WEAK uint32_t coll_mapped_graph_assign(struct coll_mapped_call *call, uint32_t sync)
{
	return sync;
}

WEAK coll_status coll_mapped_graph_put(const struct coll_comm *comm, const struct coll_job *job,
                                       const struct coll_mapped_call *call, coll_device_stream stream)
{
	return COLL_OK;
}

WEAK uint32_t coll_mapped_graph_reached(const struct coll_comm *comm)
{
	return 0;
}

WEAK const struct coll_intra_op *coll_mapped_graph_op(const struct coll_comm *comm)
{
	return NULL;
}

WEAK bool coll_mapped_graph_waits_for_stream(const struct coll_comm *comm)
{
	return false;
}

WEAK void coll_mapped_graphs_release(struct coll_comm *comm)
{
}

WEAK bool coll_mapped_graphs_have_left(struct coll_mapped *d)
{
	return true;
}
