/*
 * Receives: RECV and RECV_REDUCE, and destinations announced to the peer before their step is reached.
 *
 * A long frame's destination is announced when its step is the lane's head (armed), and may be
 * offered when the lane begins (invited); then the frame is there, or has been reduced, when
 * its completion word is settled. Any other is viewed where it came in, used, and given back.
 */
#include "engine/receive.h"

#include "engine/port.h"
#include "engine/step.h"
#include "reduce/copy.h"
#include "transport/transport_shared.h"

/* Bytes of the result that this call does not read again. */
static inline void store_result(const struct coll_run *run, const struct coll_step *s, void *dst, const void *src,
                                size_t len_bytes)
{
	if (run->stream && s->dst == COLL_BUF_OUT)
		coll_reduce_copy_nt(dst, src, len_bytes);
	else
		copy_bytes(dst, src, len_bytes);
}

/* ---- Offers ----------------------------------------------------------- */

/* The bytes of a receiving step's frame, as walk_begin() counts them. */
static size_t incoming(const struct coll_run *run, const struct instance *inst, const struct coll_step *s,
                       struct walk *w)
{
	const int sides = s->op == COLL_STEP_RECV || s->op == COLL_STEP_RECV_COPY_SEND ? SIDE_DST
	                  : s->op == COLL_STEP_RECV_REDUCE_SEND                        ? SIDE_SRC
	                                                                               : SIDE_BOTH;

	return walk_begin(run, inst, s, sides, w) * run->job.elem_bytes;
}

/*
 * Whether the peer may write a step's destination as soon as the tile has begun. An armed
 * one: no earlier step touches it. And what two ranks receive as the result of their
 * all_reduce: its sender has made it of what this rank has sent of the same chunk, so that all
 * that this rank does with the chunk before has been done, and what its peer reads there in
 * place it reads before it writes.
 */
static bool invitable(const struct coll_run *run, const struct coll_step *s)
{
	return s->op == COLL_STEP_RECV && s->dst == COLL_BUF_OUT && (s->flags & COLL_STEP_ARM || run->couple);
}

enum { INVITE_PEERS = 64 };

void coll_run_invite(struct coll_run *run, struct instance *inst, struct lane *lane)
{
	uint32_t ahead[INVITE_PEERS] = {0};

	lane->inviting = false;
	if (run->bound_peers > INVITE_PEERS)
		return;
	for (const struct coll_step *s = lane->first; s < lane->end; s++) {
		struct walk w;
		struct coll_frame expect;
		struct port *port;
		size_t len_bytes;

		if (s->op != COLL_STEP_RECV && s->op != COLL_STEP_RECV_REDUCE && s->op < COLL_STEP_RECV_COPY_SEND)
			continue;
		len_bytes = incoming(run, inst, s, &w);
		port = &lane->ports[s->peer_recv * 2 + COLL_DIR_RECV];
		if (len_bytes == 0)
			continue;
		if (port->channel && invitable(run, s) && len_bytes >= run->ref_bytes &&
		    w.span.len * run->job.elem_bytes == len_bytes) {
			expect = frame_of(run, s, SIDE_DST, len_bytes);
			port->transport->shared->invite(port->channel, ahead[s->peer_recv], w.span.dst,
			                                memory_of(run, s->dst), &expect); /* a hint: whatever it says */
		}
		ahead[s->peer_recv]++;
	}
}

/* ---- Steps ------------------------------------------------------------ */

/* The announced destination has been filled, or the frame was refused. */
static coll_status finish_armed(struct coll_run *run, struct instance *inst, struct lane *lane,
                                const struct coll_step *s, struct port *port)
{
	const void *bytes;
	struct coll_frame frame;

	if (coll_completion_pending(&lane->completion) && !mutant(MUTANT_RECV_INTO_EARLY))
		return COLL_AGAIN;
	lane->armed = false;
	run->completions--;
	run->stats.frames_received++;
	if (mutant(MUTANT_LOST_IS_RECEIVED) && lane->completion.status != COLL_ERR_MISMATCH)
		return COLL_OK;
	if (lane->completion.status == COLL_ERR_MISMATCH &&
	    port->transport->view(port->channel, &bytes, &frame) == COLL_OK)
		return coll_run_refuse_frame(run, inst, lane, s, &frame);
	return lane->completion.status;
}

static inline coll_status arm(struct coll_run *run, struct lane *lane, const struct coll_step *s, struct port *port,
                              char *dst, size_t len_bytes)
{
	const struct coll_frame expect = frame_of(run, s, SIDE_DST, len_bytes);
	coll_status status;

	lane->completion = (struct coll_completion){1, COLL_OK};
	status = port->transport->recv_into(port->channel, dst, memory_of(run, s->dst), &expect, &lane->completion);
	if (status == COLL_OK) {
		lane->armed = true;
		run->completions++;
		run->stats.by_reference++;
	}
	return status;
}

static void take_piece(void *arg, const void *bytes, size_t at, size_t len_bytes)
{
	const struct taking *t = arg;

	combine_piece(t->run, t->step, t->weight, t->dst + at, bytes, t->src + at, len_bytes / t->run->job.elem_bytes);
}

/* The frame is reduced as it comes in. */
static coll_status arm_taking(struct coll_run *run, struct lane *lane, const struct coll_step *s, struct port *port,
                              const struct span *span, size_t len_bytes)
{
	const struct coll_frame expect = frame_of(run, s, SIDE_DST, len_bytes);
	/* What comes in may lie where the result will, but not on the other operand. */
	const bool lands = span->dst != span->src || mutant(MUTANT_LAND_ON_OPERAND);
	coll_status status;

	lane->taking = (struct taking){run,       s,         span->weight,
	                               span->dst, span->src, {take_piece, &lane->taking, lands ? span->dst : NULL}};
	lane->completion = (struct coll_completion){1, COLL_OK};
	status = port->transport->recv_through(port->channel, &lane->taking.taker, &expect, &lane->completion);
	if (status == COLL_OK) {
		lane->armed = true;
		run->completions++;
		run->stats.by_reference++;
		run->stats.bytes_reduced += len_bytes;
	}
	return status;
}

/* Announced if it is long and lies in one piece; else taken from the view. */
static inline coll_status receive(struct coll_run *run, struct instance *inst, struct lane *lane,
                                  const struct coll_step *s, bool reduces)
{
	const int sides = reduces ? SIDE_BOTH : SIDE_DST;
	struct walk w;
	struct port *port;
	const char *p;
	bool placed;
	const size_t len_bytes = walk_begin(run, inst, s, sides, &w) * run->job.elem_bytes;
	coll_status status;

	if (len_bytes == 0)
		return COLL_OK;
	status = get_port(run, inst, lane, s->peer_recv, COLL_DIR_RECV, &port);
	if (status != COLL_OK)
		return status;
	if (lane->armed)
		return finish_armed(run, inst, lane, s, port);
	if ((!reduces || run->through) && len_bytes >= run->ref_bytes &&
	    w.span.len * run->job.elem_bytes == len_bytes) {
		status = reduces ? arm_taking(run, lane, s, port, &w.span, len_bytes)
		                 : arm(run, lane, s, port, w.span.dst, len_bytes);
		if (status == COLL_OK)
			return finish_armed(run, inst, lane, s, port);
		if (status != COLL_ERR_UNSUPPORTED)
			return status;
	}
	status = view_frame(run, inst, lane, s, port, len_bytes, &p);
	if (status != COLL_OK)
		return status;
	placed = reduces || p == w.span.dst; /* the peer has put it there */
	if (!reduces && run->job.signal && *p != *run->job.in.base)
		return COLL_ERR_CORRUPT;
	done_early(port);
	do {
		if (reduces)
			combine(run, s, w.span.weight, w.span.dst, p, w.span.src, w.span.len);
		else
			store_result(run, s, w.span.dst, p, w.span.len * run->job.elem_bytes);
		p += w.span.len * run->job.elem_bytes;
	} while (walk_more(run, inst, s, sides, &w));
	run->stats.bytes_copied += placed ? 0 : len_bytes;
	return done_frame(run, port, len_bytes);
}

coll_status coll_run_recv(struct coll_run *run, struct instance *inst, struct lane *lane, const struct coll_step *s)
{
	return receive(run, inst, lane, s, false);
}

coll_status coll_run_recv_reduce(struct coll_run *run, struct instance *inst, struct lane *lane,
                                 const struct coll_step *s)
{
	return receive(run, inst, lane, s, true);
}
