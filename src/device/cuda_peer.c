/*
 * Work of the direct path in streams of CUDA devices: copies and reductions by kernels, since what is written to the
 * user's memory is guarded, and words that are written and waited for.
 */
#include "device/cuda_peer.h"

#include <assert.h>

#include "device/cuda_state.h"

static_assert((int)COLL_DEVICE_PIECES_MAX == (int)COLL_KERNEL_PLACES_MAX, "a launch takes so many");

static CUresult move(struct coll_cuda_device *c, CUstream s, const struct coll_device_piece *pieces, int npieces,
                     struct coll_device_guard guard)
{
	struct coll_kernel_piece part[COLL_KERNEL_PLACES_MAX];
	CUresult result = CUDA_SUCCESS;

	for (int at = 0; at < npieces && result == CUDA_SUCCESS;) {
		struct coll_kernel_launch l;
		int n = 0;

		for (; n < COLL_KERNEL_PLACES_MAX && at < npieces; at++, n++)
			part[n] = (struct coll_kernel_piece){pieces[at].dst, pieces[at].src, pieces[at].len_bytes};
		coll_kernels_pieces(&l, part, n, guard.word, c->blocks);
		coll_kernels_gate(&l, guard.gate);
		if (guard.word && !guard.gate)
			coll_kernels_few_blocks(&l);
		result = coll_cuda_launch(c, s, &l);
	}
	return result;
}

coll_status coll_cuda_move(struct coll_device *d, coll_device_stream s, const struct coll_device_piece *pieces,
                           int npieces, struct coll_device_guard guard)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	return COLL_CUDA_BOUND(c, , "enqueueing a copy", move(c, s, pieces, npieces, guard));
}

coll_status coll_cuda_reduce(struct coll_device *d, coll_device_stream s, const struct coll_reduction *r, uint64_t out,
                             const uint64_t *in, int nin, size_t count, const struct coll_device_places *where,
                             struct coll_device_guard guard)
{
	enum { EVERY_INPUT = -2 };
	struct coll_cuda_device *c = coll_cuda_of(d);
	struct coll_kernel_launch l;
	CUresult result = coll_cuda_enter(c);

	if (result == CUDA_SUCCESS) {
		coll_kernels_reduce(&l, r, &out, 1, in, nin, EVERY_INPUT, true, count, guard.word, c->blocks);
		if (where)
			coll_kernels_reduce_found(&l, where, r->elem_bytes, c->blocks);
		coll_kernels_gate(&l, guard.gate);
		result = coll_cuda_launch(c, s, &l);
		coll_cuda_leave(c);
	}
	return coll_cuda_report(c, "enqueueing a reduction", result);
}

static coll_status launch(struct coll_cuda_device *c, coll_device_stream s, struct coll_kernel_launch *l,
                          const char *what)
{
	return COLL_CUDA_BOUND(c, , what, coll_cuda_launch(c, s, l));
}

coll_status coll_cuda_look(struct coll_device *d, coll_device_stream s, const struct coll_kernel_look_args *look)
{
	struct coll_kernel_launch l;

	coll_kernels_look(&l, look);
	return launch(coll_cuda_of(d), s, &l, "enqueueing a look at records");
}

coll_status coll_cuda_fetch(struct coll_device *d, coll_device_stream s, const struct coll_kernel_fetch *pieces,
                            int npieces, uint64_t found, struct coll_device_guard guard)
{
	struct coll_cuda_device *c = coll_cuda_of(d);
	struct coll_kernel_launch l;

	coll_kernels_fetch(&l, pieces, npieces, found, guard.word, c->blocks);
	coll_kernels_gate(&l, guard.gate);
	return launch(c, s, &l, "enqueueing a copy from other ranks");
}

coll_status coll_cuda_signal(struct coll_device *d, coll_device_stream s, const struct coll_kernel_signal_args *signal)
{
	struct coll_kernel_launch l;

	coll_kernels_signal(&l, signal);
	return launch(coll_cuda_of(d), s, &l, "enqueueing words");
}

/* Operations of a batch keep their order. */
static CUresult batch(struct coll_cuda_device *c, CUstream s, const struct coll_device_word *writes, int nwrites,
                      const struct coll_device_word *waits, int nwaits)
{
	CUstreamBatchMemOpParams ops[COLL_DEVICE_PIECES_MAX] = {0};
	unsigned n = 0;

	for (int i = 0; i < nwrites; i++, n++) {
		ops[n].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
		ops[n].writeValue.address = writes[i].at;
		ops[n].writeValue.value = writes[i].value;
		ops[n].writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
	}
	for (int i = 0; i < nwaits; i++, n++) {
		ops[n].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
		ops[n].waitValue.address = waits[i].at;
		ops[n].waitValue.value = waits[i].value;
		ops[n].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
	}
	return n ? c->cu->cuStreamBatchMemOp(s, n, ops, 0) : CUDA_SUCCESS;
}

static CUresult singly(struct coll_cuda_device *c, CUstream s, const struct coll_device_word *writes, int nwrites,
                       const struct coll_device_word *waits, int nwaits)
{
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < nwrites && result == CUDA_SUCCESS; i++)
		result = c->cu->cuStreamWriteValue32(s, writes[i].at, writes[i].value, CU_STREAM_WRITE_VALUE_DEFAULT);
	for (int i = 0; i < nwaits && result == CUDA_SUCCESS; i++)
		result = c->cu->cuStreamWaitValue32(s, waits[i].at, waits[i].value, CU_STREAM_WAIT_VALUE_GEQ);
	return result;
}

coll_status coll_cuda_exchange(struct coll_device *d, coll_device_stream s, const struct coll_device_word *writes,
                               int nwrites, const struct coll_device_word *waits, int nwaits)
{
	struct coll_cuda_device *c = coll_cuda_of(d);

	assert(nwrites + nwaits <= COLL_DEVICE_PIECES_MAX);
	return COLL_CUDA_BOUND(c, , "enqueueing words",
	                       c->cu->cuStreamBatchMemOp ? batch(c, s, writes, nwrites, waits, nwaits)
	                                                 : singly(c, s, writes, nwrites, waits, nwaits));
}
