/*
 * One function per step operation: what a step does when its lane reaches it. This file has the table
 * of these functions and the steps that stay on this rank; sends.c has SEND, receive.c and forward.c
 * the steps that take a frame.
 *
 * Contract of each: OK means that the step has retired, or, for SEND, that it
 * has started and is in the lane's list of flights; AGAIN means that nothing
 * has happened and the step is to be tried again; an error ends the run. A step
 * that must wait holds at most the view of its incoming frame, which stays where
 * it is until done(). Nothing here allocates, locks or waits.
 */
#include "engine/step.h"

#include "engine/range.h"
#include "reduce/copy.h"

static coll_status copy(struct coll_run *run, struct instance *inst, struct lane *lane, const struct coll_step *s)
{
	struct walk w;

	if ((s->flags & COLL_STEP_ASIDE && !run->in_place) || (run->aside && s->dst >= COLL_BUF_SCRATCH))
		return COLL_OK;
	if (walk_begin(run, inst, s, SIDE_BOTH, &w) == 0)
		return COLL_OK;
	do {
		if (w.span.dst == w.span.src && !(s->flags & (COLL_STEP_PRE | COLL_STEP_POST)))
			continue; /* in place */
		if (run->stream && s->dst == COLL_BUF_OUT && plain_bytes(run, s)) {
			coll_reduce_copy_nt(w.span.dst, w.span.src, w.span.len * run->job.elem_bytes);
			run->stats.bytes_copied += w.span.len * run->job.elem_bytes;
			continue;
		}
		copy_elements(run, s, w.span.dst, w.span.src, w.span.len);
	} while (walk_more(run, inst, s, SIDE_BOTH, &w));
	return COLL_OK;
}

static inline char *locate(const struct coll_run *run, const struct instance *inst, uint8_t buf, uint32_t c)
{
	return run->whole ? whole_address(run, inst, buf) : chunk_address(run, inst, buf, c);
}

/* n inputs, chunk by chunk: scratch src .. src+stride-1 with `in` spliced in. */
static coll_status reduce(struct coll_run *run, struct instance *inst, struct lane *lane, const struct coll_step *s)
{
	const struct coll_plan *plan = run->job.plan;
	const uint32_t inputs = s->stride;
	const void *operands[COLL_SCRATCH_MAX + 1];

	assert(inputs <= COLL_SCRATCH_MAX);
	for (uint32_t i = 0; i < s->run; i++) {
		const uint32_t src = wrapped(plan, coll_step_chunk(plan, s, s->src_chunk, i));
		const uint32_t dst = wrapped(plan, coll_step_chunk(plan, s, s->dst_chunk, i));
		const size_t len = run->whole ? inst->len : chunk_len(run, inst, s->dst, dst);
		int n = 0, raw = -1;

		if (len == 0)
			continue;
		for (uint32_t k = 0; k <= inputs; k++) {
			if (k == s->group) {
				raw = s->flags & COLL_STEP_PRE ? n : -1;
				operands[n++] = locate(run, inst, COLL_BUF_IN, src);
			}
			if (k < inputs)
				operands[n++] = locate(run, inst, (uint8_t)(s->src + k), src);
		}
		coll_reduce_run(run->job.reduction, locate(run, inst, s->dst, dst), operands, n, raw,
		                s->flags & COLL_STEP_POST, len);
		run->stats.bytes_reduced += len * (size_t)(n - 1) * run->job.elem_bytes;
	}
	return COLL_OK;
}

static coll_status wait(struct coll_run *run, struct instance *inst, struct lane *lane, const struct coll_step *s)
{
	return COLL_OK; /* the lane looked at the wait before it came here */
}

coll_step_fn *const coll_run_steps[COLL_STEP_OP_COUNT] = {
        [COLL_STEP_SEND] = coll_run_send,
        [COLL_STEP_RECV] = coll_run_recv,
        [COLL_STEP_RECV_REDUCE] = coll_run_recv_reduce,
        [COLL_STEP_COPY] = copy,
        [COLL_STEP_REDUCE] = reduce,
        [COLL_STEP_WAIT] = wait,
        [COLL_STEP_RECV_COPY_SEND] = coll_run_recv_copy_send,
        [COLL_STEP_RECV_REDUCE_SEND] = coll_run_recv_reduce_send,
        [COLL_STEP_RECV_REDUCE_COPY_SEND] = coll_run_recv_reduce_copy_send,
};
