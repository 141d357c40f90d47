/*
 * Flights: SENDs, from the lane's head until they have retired.
 *
 * A SEND that finds a slot and goes by value retires at once. Any other is in its lane's list
 * of flights, oldest first: parked, as long as its channel has no slot or an earlier one waits
 * for one; then by reference, until the transport settles its completion word. Flights of one channel
 * leave in order. They come from the run's own list: nothing here allocates.
 */
#include "engine/sends.h"

#include "base/clock.h"
#include "engine/port.h"
#include "engine/step.h"
#include "reduce/copy.h"
#include "transport/transport_shared.h"

/* The source of a SEND into its slot. A slot far away is stored to past the caches, and must be
 * seen before the frame is: hence the fence. */
static inline void fill(struct coll_run *run, struct instance *inst, const struct coll_step *s, struct walk *w,
                        char *slot, bool stream)
{
	do {
		const size_t span_bytes = w->span.len * run->job.elem_bytes;

		if (stream) {
			coll_reduce_stream(slot, w->span.src, span_bytes);
			run->stats.bytes_copied += span_bytes;
			run->stats.bytes_streamed += span_bytes;
		} else {
			copy_elements(run, s, slot, w->span.src, w->span.len);
		}
		slot += span_bytes;
	} while (walk_more(run, inst, s, SIDE_SRC, w));
	if (stream)
		coll_reduce_fence();
}

static void fill_paced(struct coll_run *run, struct instance *inst, const struct coll_step *s, struct walk *w,
                       struct port *port, char *slot, size_t len_bytes)
{
	bool timed;
	const bool stream = coll_slot_policy_streams(port->slot_policy, len_bytes, &timed);
	const uint64_t since_ns = timed ? coll_clock_ns() : 0;

	fill(run, inst, s, w, slot, stream);
	if (timed)
		coll_slot_policy_took(port->slot_policy, len_bytes, coll_clock_ns() - since_ns);
}

static inline coll_status send_by_value(struct coll_run *run, struct instance *inst, const struct coll_step *s,
                                        struct walk *w, struct port *port, size_t len_bytes)
{
	const struct coll_frame frame = frame_of(run, s, SIDE_SRC, len_bytes);
	coll_status status = COLL_ERR_UNSUPPORTED;
	bool pushed;
	char *slot;

	if (len_bytes > run->slot_bytes)
		return COLL_ERR_INTERNAL;
	if (len_bytes >= run->ref_bytes)
		status = port->transport->shared->push(port->channel, &frame, (void **)&slot);
	pushed = status == COLL_OK;
	run->stats.pushed += pushed;
	if (status == COLL_ERR_UNSUPPORTED)
		status = port->transport->slot(port->channel, len_bytes, (void **)&slot);
	if (status != COLL_OK)
		return status;
	if (len_bytes == 0) /* only a planted defect sends an empty frame */
		return post_frame(run, s, port, 0);
	if (port->slot_policy && len_bytes >= port->slot_policy->rule.least_bytes && !pushed && plain_bytes(run, s))
		fill_paced(run, inst, s, w, port, slot, len_bytes);
	else
		fill(run, inst, s, w, slot, false);
	return post_frame(run, s, port, len_bytes);
}

/*
 * Whether to lend the source without a copy. A raw contribution in place is not loaned: the result
 * overwrites it, and the lane would wait for the reader. There are two exceptions. The kernel may take the
 * bytes, whether the reader runs or not. Or, with two ranks, the one that overwrites it is the
 * reader, or comes after it.
 */
static inline bool lendable(const struct coll_run *run, const struct coll_step *s, const struct walk *w,
                            size_t len_bytes)
{
	return len_bytes >= run->ref_bytes && w->next >= s->run && w->span.len * run->job.elem_bytes == len_bytes &&
	       !(s->flags & COLL_STEP_PRE &&
	         (run->prescale || (run->in_place && !run->couple && !run->fabric->streamed))) &&
	       !(s->flags & COLL_STEP_POST && run->job.reduction);
}

/* Try to send a flight that has no slot yet. OK: it has left; it has retired
 * when its completion word is not pending. */
static coll_status launch(struct coll_run *run, struct instance *inst, struct flight *f)
{
	const struct coll_step *s = f->step;
	struct port *port = f->port;
	struct walk w;
	const size_t len_bytes = walk_begin(run, inst, s, SIDE_SRC, &w) * run->job.elem_bytes;
	const struct coll_frame frame = frame_of(run, s, SIDE_SRC, len_bytes);
	coll_status status = COLL_ERR_UNSUPPORTED;

	if (lendable(run, s, &w, len_bytes)) {
		f->completion = (struct coll_completion){1, COLL_OK};
		status = port->transport->post_ref(port->channel, w.span.src, memory_of(run, source_of(run, s)), &frame,
		                                   &f->completion);
		if (status == COLL_OK) {
			run->stats.frames_sent++;
			run->stats.bytes_sent += len_bytes;
			run->stats.by_reference++;
			run->completions++;
			f->loaned = true;
		}
	}
	if (status == COLL_ERR_UNSUPPORTED) {
		f->completion = (struct coll_completion){0, COLL_OK};
		status = send_by_value(run, inst, s, &w, port, len_bytes);
	}
	if (status == COLL_OK) {
		f->parked = false;
		port->parked--;
	}
	return status;
}

static void land(struct coll_run *run, struct instance *inst, struct flight *f)
{
	f->next = run->free_flights;
	run->free_flights = f;
	run->completions -= f->loaned;
	inst->nflights--;
	run->events++;
}

/* Put a SEND that cannot retire at once on the lane's list. */
static coll_status take_off(struct coll_run *run, struct instance *inst, struct lane *lane, const struct coll_step *s,
                            struct port *port)
{
	struct flight *f = run->free_flights;
	coll_status status = COLL_AGAIN;

	if (!f) /* the plan's max_in_flight is wrong */
		return COLL_ERR_INTERNAL;
	run->free_flights = f->next;
	*f = (struct flight){.step = s, .port = port, .parked = true};
	inst->nflights++;
	if (port->parked++ == 0 || mutant(MUTANT_OVERTAKE_PARKED))
		status = launch(run, inst, f);
	if (status != COLL_OK && status != COLL_AGAIN)
		return status;
	if (mutant(MUTANT_DROP_PARKED) && f->parked) {
		port->parked--;
		f->parked = false;
	}
	if (!f->parked && (!coll_completion_pending(&f->completion) || mutant(MUTANT_RETIRE_REF_EARLY))) {
		status = f->completion.status;
		land(run, inst, f);
		return status;
	}
	*lane->tail = f;
	lane->tail = &f->next;
	return COLL_OK;
}

coll_status coll_run_send(struct coll_run *run, struct instance *inst, struct lane *lane, const struct coll_step *s)
{
	struct walk w;
	struct port *port;
	const size_t len_bytes = walk_begin(run, inst, s, SIDE_SRC, &w) * run->job.elem_bytes;
	coll_status status;

	if (len_bytes == 0 && !mutant(MUTANT_EMPTY_FRAMES))
		return COLL_OK;
	status = get_port(run, inst, lane, s->peer_send, COLL_DIR_SEND, &port);
	if (status != COLL_OK)
		return status;
	if (port->parked == 0 && !lendable(run, s, &w, len_bytes)) {
		status = send_by_value(run, inst, s, &w, port, len_bytes);
		if (status != COLL_AGAIN)
			return status;
	}
	return take_off(run, inst, lane, s, port);
}

/* One flight: OK when it has retired. */
static coll_status advance_flight(struct coll_run *run, struct instance *inst, struct flight *f)
{
	coll_status status;

	if (f->parked) {
		if (f->port->stuck == run->scan && !mutant(MUTANT_OVERTAKE_PARKED))
			return COLL_AGAIN; /* behind an earlier one of the same channel */
		status = launch(run, inst, f);
		if (status == COLL_AGAIN)
			f->port->stuck = run->scan;
		if (status != COLL_OK)
			return status;
		run->events++;
	}
	if (coll_completion_pending(&f->completion) && !mutant(MUTANT_RETIRE_REF_EARLY))
		return COLL_AGAIN;
	return f->completion.status;
}

coll_status coll_run_reap(struct coll_run *run, struct instance *inst)
{
	const uint32_t nlanes = run->job.plan->nlanes;

	run->scan++;
	for (uint32_t l = 0; l < nlanes && inst->nflights; l++) {
		struct lane *lane = &inst->lanes[l];
		struct flight **link = &lane->flights;

		while (*link) {
			struct flight *f = *link;
			coll_status status = advance_flight(run, inst, f);

			if (status == COLL_AGAIN) {
				link = &f->next;
				continue;
			}
			if (status != COLL_OK)
				return status;
			*link = f->next;
			if (lane->tail == &f->next)
				lane->tail = link;
			land(run, inst, f);
		}
	}
	return COLL_OK;
}
