/*
 * Fused steps: receive, perhaps reduce, perhaps keep, and send, in one pass over the incoming
 * view and the outgoing slot.
 *
 * Both are held together, which is why a channel has at least two slots. The view is given back
 * before anything derived from it is posted: its owner may have taken it back meanwhile.
 */
#include "base/limits.h"
#include "engine/port.h"
#include "engine/step.h"
#include "reduce/copy.h"
#include "transport/transport_shared.h"

/* Fused steps that also store work in blocks of this size: the second pass over
 * a block then finds it in the first-level cache. */

static inline size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* A slot for an outgoing frame; AGAIN also while an earlier SEND waits for one. */
static inline coll_status get_slot(struct coll_run *run, struct port *port, size_t len_bytes, char **p)
{
	void *bytes;
	coll_status status;

	if (port->parked && !mutant(MUTANT_FUSED_OVERTAKES))
		return COLL_AGAIN;
	if (len_bytes > run->slot_bytes)
		return COLL_ERR_INTERNAL;
	status = port->transport->slot(port->channel, len_bytes, &bytes);
	if (status == COLL_OK)
		*p = bytes;
	return status;
}

/* The same, but where the peer wants this frame, if it has said so. */
static inline coll_status get_place(struct coll_run *run, const struct coll_step *s, struct port *port,
                                    size_t len_bytes, char **p, bool *pushed)
{
	const struct coll_frame frame = frame_of(run, s, SIDE_SRC, len_bytes);
	coll_status status;
	void *bytes;

	*pushed = false;
	if (len_bytes < run->ref_bytes || port->parked)
		return get_slot(run, port, len_bytes, p);
	status = port->transport->shared->push(port->channel, &frame, &bytes);
	if (status == COLL_ERR_UNSUPPORTED)
		return get_slot(run, port, len_bytes, p);
	if (status == COLL_OK) {
		*p = bytes;
		*pushed = true;
		run->stats.pushed++;
	}
	return status;
}

/* Where the outgoing half of a fused step goes: a slot; memory of the peer; a slot that is filled
 * past the caches, because the peer's core shares none with this one. */
enum away { AWAY_SLOT, AWAY_PUSHED, AWAY_FAR };

/* Two copies of what is computed or has come in: from block to block, so that the second finds
 * it in the first-level cache. The peer's own memory it does not read before all is done
 * either. */
static void forward_stored(struct coll_run *run, const struct coll_step *s, const struct span *span, const char *p,
                           char *slot, enum away away)
{
	const size_t elem_bytes = run->job.elem_bytes;
	/* What was just read is in the cache and is overwritten there. */
	const bool stream = run->stream && s->dst == COLL_BUF_OUT;
	const bool stream_here = stream && span->dst != span->src && span->dst != p;
	const bool stream_there = (away == AWAY_FAR || (stream && away == AWAY_PUSHED)) && slot != p;
	/* Short ones for streaming: while a block is on its way to memory the next is read. */
	const size_t block = (stream_there ? COLL_FORWARD_STREAM_MIN : COLL_FORWARD_BLOCK_BYTES) / elem_bytes;
	_Alignas(64) char between[COLL_FORWARD_STREAM_MIN];

	for (size_t at = 0; at < span->len; at += block) {
		const size_t len = min_size(block, span->len - at), len_bytes = len * elem_bytes;
		const size_t at_bytes = at * elem_bytes;
		char *here = span->dst + at_bytes, *there = slot + at_bytes;
		char *first = stream_there && stream_here ? between : stream_there ? here : there;

		if (s->op == COLL_STEP_RECV_REDUCE_COPY_SEND)
			combine(run, s, span->weight, first, p + at_bytes, span->src + at_bytes, len);
		else
			copy_bytes(first, p + at_bytes, len_bytes);
		if (stream_there)
			coll_reduce_stream(there, first, len_bytes);
		if (stream_here)
			coll_reduce_stream(here, first, len_bytes);
		else if (here != first && here != p + at_bytes)
			copy_bytes(here, first, len_bytes);
	}
	if (stream_there || stream_here)
		coll_reduce_fence();
	run->stats.bytes_copied += span->len * elem_bytes * (s->op == COLL_STEP_RECV_COPY_SEND ? 2 : 1);
	run->stats.bytes_streamed += stream_there ? span->len * elem_bytes : 0;
}

/* The sum for a slot far away, which is not kept here: from block to block by the first-level cache. */
static void forward_far(struct coll_run *run, const struct coll_step *s, const struct span *span, const char *p,
                        char *slot)
{
	const size_t elem_bytes = run->job.elem_bytes, block = COLL_FORWARD_STREAM_MIN / elem_bytes;
	_Alignas(64) char between[COLL_FORWARD_STREAM_MIN];

	for (size_t at = 0; at < span->len; at += block) {
		const size_t len = min_size(block, span->len - at), at_bytes = at * elem_bytes;

		combine(run, s, span->weight, between, p + at_bytes, span->src + at_bytes, len);
		coll_reduce_stream(slot + at_bytes, between, len * elem_bytes);
	}
	coll_reduce_fence();
	run->stats.bytes_copied += span->len * elem_bytes;
	run->stats.bytes_streamed += span->len * elem_bytes;
}

/* One span of a fused step: p is the incoming frame, slot the outgoing one. */
static void forward_span(struct coll_run *run, const struct coll_step *s, const struct span *span, const char *p,
                         char *slot, enum away away)
{
	if (s->op != COLL_STEP_RECV_REDUCE_SEND)
		forward_stored(run, s, span, p, slot, away);
	else if (away == AWAY_FAR)
		forward_far(run, s, span, p, slot);
	else if (mutant(MUTANT_FORWARD_UNREDUCED))
		copy_bytes(slot, p, span->len * run->job.elem_bytes);
	else
		combine(run, s, span->weight, slot, p, span->src, span->len);
}

/* Receive and send in one pass: the view and the slot are held together, which
 * is why a channel has at least two slots. */
static inline coll_status forward(struct coll_run *run, struct instance *inst, struct lane *lane,
                                  const struct coll_step *s, int sides)
{
	struct walk w;
	struct port *from, *to;
	const char *p;
	char *slot;
	bool pushed;
	enum away away;
	const size_t len_bytes = walk_begin(run, inst, s, sides, &w) * run->job.elem_bytes;
	coll_status status;

	if (len_bytes == 0)
		return COLL_OK;
	status = get_port(run, inst, lane, s->peer_recv, COLL_DIR_RECV, &from);
	if (status != COLL_OK)
		return status;
	status = get_port(run, inst, lane, s->peer_send, COLL_DIR_SEND, &to);
	if (status != COLL_OK)
		return status;
	lane->lacks_slot = false;
	status = view_frame(run, inst, lane, s, from, len_bytes, &p);
	if (status != COLL_OK)
		return status;
	done_early(from);
	if (mutant(MUTANT_DONE_BEFORE_SLOT))
		(void)from->transport->done(from->channel);
	status = get_place(run, s, to, len_bytes, &slot, &pushed);
	lane->lacks_slot = status == COLL_AGAIN;
	if (status != COLL_OK)
		return status;
	away = pushed                                                                   ? AWAY_PUSHED
	       : to->slot_policy && coll_slot_policy_is_far(to->slot_policy, len_bytes) ? AWAY_FAR
	                                                                                : AWAY_SLOT;
	do {
		forward_span(run, s, &w.span, p, slot, away);
		p += w.span.len * run->job.elem_bytes;
		slot += w.span.len * run->job.elem_bytes;
	} while (walk_more(run, inst, s, sides, &w));
	/* The view may be of memory that its owner takes back at any time: done() says whether
	 * it did. So nothing derived from it is posted before. */
	if (mutant(MUTANT_POST_BEFORE_DONE))
		return post_frame(run, s, to, len_bytes) == COLL_OK ? done_frame(run, from, len_bytes)
		                                                    : COLL_ERR_INTERNAL;
	if (!mutant(MUTANT_DONE_BEFORE_SLOT))
		status = done_frame(run, from, len_bytes);
	return status == COLL_OK ? post_frame(run, s, to, len_bytes) : status;
}

coll_status coll_run_recv_copy_send(struct coll_run *run, struct instance *inst, struct lane *lane,
                                    const struct coll_step *s)
{
	return forward(run, inst, lane, s, SIDE_DST);
}

coll_status coll_run_recv_reduce_send(struct coll_run *run, struct instance *inst, struct lane *lane,
                                      const struct coll_step *s)
{
	return forward(run, inst, lane, s, SIDE_SRC);
}

coll_status coll_run_recv_reduce_copy_send(struct coll_run *run, struct instance *inst, struct lane *lane,
                                           const struct coll_step *s)
{
	return forward(run, inst, lane, s, SIDE_BOTH);
}
