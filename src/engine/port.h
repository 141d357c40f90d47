/*
 * Ports: the channels of one lane and window, as its steps use them.
 *
 * A frame that came in is compared with the call before a byte of it is used: view_frame() is
 * the only way to one. Inline, because all of it lies on the shortest path; what happens
 * once, and what ends a run, is in port.c. Nothing here allocates, locks or waits, but the
 * opening of a channel.
 */
#ifndef COLL_ENGINE_PORT_H
#define COLL_ENGINE_PORT_H

#include "engine/range.h"
#include "engine/state.h"

#include "base/hash.h"

/* Find the channel of a port for the first time. */
coll_status coll_run_open_port(struct coll_run *run, struct port *port, uint32_t peer, uint32_t lane, uint32_t window,
                               enum coll_direction dir);

static inline coll_status get_port(struct coll_run *run, struct instance *inst, struct lane *lane, uint32_t peer,
                                   enum coll_direction dir, struct port **out)
{
	struct port *port = &lane->ports[peer * 2 + dir];

	*out = port;
	if (__builtin_expect(port->channel != NULL, true))
		return COLL_OK;
	return coll_run_open_port(run, port, peer, (uint32_t)(lane - inst->lanes), inst->window, dir);
}

/* Of the frames of a step. Pairwise: two ranks that differ in the length of a block find
 * that in its first frame, not where one of them has no tiles left. */
static inline uint32_t signature_of(const struct coll_run *run, const struct coll_step *s, int side)
{
	size_t count;

	if (__builtin_expect(!run->job.pairwise, true))
		return run->job.signature;
	count = side == SIDE_SRC ? run->job.in.counts[coll_step_chunk(run->job.plan, s, s->src_chunk, 0)]
	                         : run->job.out.counts[coll_step_chunk(run->job.plan, s, s->dst_chunk, 0)];
	return run->job.signature ^ (uint32_t)coll_mix64(count);
}

static inline struct coll_frame frame_of(const struct coll_run *run, const struct coll_step *s, int side,
                                         size_t len_bytes)
{
	return (struct coll_frame){run->job.sequence, signature_of(run, s, side), (uint32_t)len_bytes};
}

/* A frame that is not the one expected: keep it for the report. MISMATCH or CORRUPT. */
coll_status coll_run_refuse_frame(struct coll_run *run, struct instance *inst, struct lane *lane,
                                  const struct coll_step *s, const struct coll_frame *frame);

/* The next frame, if it has come and is the one this step expects. */
static inline coll_status view_frame(struct coll_run *run, struct instance *inst, struct lane *lane,
                                     const struct coll_step *s, struct port *port, size_t len_bytes, const char **p)
{
	const void *bytes;
	struct coll_frame frame;
	coll_status status = port->transport->view(port->channel, &bytes, &frame);

	if (status != COLL_OK)
		return status;
	*p = bytes;
	if (mutant(MUTANT_SKIP_SIGNATURE))
		frame = frame_of(run, s, SIDE_DST, frame.len_bytes);
	if (frame.sequence != run->job.sequence || frame.signature != signature_of(run, s, SIDE_DST) ||
	    frame.len_bytes != len_bytes)
		return coll_run_refuse_frame(run, inst, lane, s, &frame);
	return COLL_OK;
}

static inline coll_status done_frame(struct coll_run *run, struct port *port, size_t len_bytes)
{
	run->stats.frames_received++;
	if (mutant(MUTANT_DONE_BEFORE_REDUCE))
		return COLL_OK;
	if (mutant(MUTANT_DONE_UNCHECKED)) {
		(void)port->transport->done(port->channel);
		return COLL_OK;
	}
	return port->transport->done(port->channel);
}

static inline void done_early(struct port *port)
{
	if (mutant(MUTANT_DONE_BEFORE_REDUCE))
		(void)port->transport->done(port->channel);
}

static inline coll_status post_frame(struct coll_run *run, const struct coll_step *s, struct port *port,
                                     size_t len_bytes)
{
	const struct coll_frame frame = frame_of(run, s, SIDE_SRC, len_bytes);

	run->stats.frames_sent++;
	run->stats.bytes_sent += len_bytes;
	return port->transport->post(port->channel, &frame);
}

#endif
