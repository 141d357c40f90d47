/*
 * Ports: what is off the shortest path, see port.h. Finds the channel of a port for the first
 * time, and tells a frame of another call from a corrupt one.
 */
#include "engine/port.h"

coll_status coll_run_open_port(struct coll_run *run, struct port *port, uint32_t peer, uint32_t lane, uint32_t window,
                               enum coll_direction dir)
{
	struct coll_endpoint *ep;
	coll_status status;

	if (mutant(MUTANT_ONE_CHANNEL))
		window = 0;
	status = run->fabric->channel(run->fabric->arg, run->job.plan->peers[peer], lane, window, dir, &ep);
	if (status != COLL_OK)
		return status;
	port->transport = ep->transport;
	port->channel = ep->channel;
	port->slot_policy = dir == COLL_DIR_SEND ? ep->slot_policy : NULL;
	if (dir == COLL_DIR_RECV)
		run->unopened--;
	return COLL_OK;
}

coll_status coll_run_refuse_frame(struct coll_run *run, struct instance *inst, struct lane *lane,
                                  const struct coll_step *s, const struct coll_frame *frame)
{
	run->bad_frame = *frame;
	run->bad_instance = inst;
	run->bad_lane = lane;
	if (frame->sequence != run->job.sequence || frame->signature != signature_of(run, s, SIDE_DST))
		return COLL_ERR_MISMATCH;
	return COLL_ERR_CORRUPT;
}
