/*
 * One function per step operation: what a step does when its lane reaches it.
 *
 * Contract of each: OK means that the step has retired, or, for SEND, that it
 * has started and is in the lane's list of flights; AGAIN means that nothing
 * has happened and the step is to be tried again; an error ends the run. A step
 * that must wait holds at most the view of its incoming frame, which stays where
 * it is until done(). Nothing here allocates, locks or waits.
 *
 * A frame that came in is compared with the call before a byte of it is used.
 */
#include "engine/range.h"

#include <string.h>

#include "base/clock.h"
#include "base/hash.h"

/* Fused steps that also store work in blocks of this size: the second pass over
 * a block then finds it in the first-level cache. */
enum { BLOCK_BYTES = 8192, STREAM_BYTES = 1024 };

/* Copies of a few bytes are most of an 8-byte call: keep them inline. */
static inline void copy_bytes(void *dst, const void *src, size_t len_bytes)
{
	if (len_bytes == 8)
		memcpy(dst, src, 8);
	else if (len_bytes == 4)
		memcpy(dst, src, 4);
	else
		coll_reduce_copy(dst, src, len_bytes);
}

/* Bytes of the result that this call does not read again. */
static inline void store_result(const struct coll_run *run, const struct coll_step *s, void *dst, const void *src,
                                size_t len_bytes)
{
	if (run->stream && s->dst == COLL_BUF_OUT)
		coll_reduce_copy_nt(dst, src, len_bytes);
	else
		copy_bytes(dst, src, len_bytes);
}

static inline size_t min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* ---- Channels --------------------------------------------------------- */

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
	port->pace = dir == COLL_DIR_SEND ? ep->pace : NULL;
	if (dir == COLL_DIR_RECV)
		run->unopened--;
	return COLL_OK;
}

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
	count = side == SIDE_SRC ? run->job.in.counts[s->src_chunk] : run->job.out.counts[s->dst_chunk];
	return run->job.signature ^ (uint32_t)coll_mix64(count);
}

static inline struct coll_frame frame_of(const struct coll_run *run, const struct coll_step *s, int side,
                                         size_t len_bytes)
{
	return (struct coll_frame){run->job.sequence, signature_of(run, s, side), (uint32_t)len_bytes};
}

static coll_status refuse_frame(struct coll_run *run, struct instance *inst, struct lane *lane,
                                const struct coll_step *s, const struct coll_frame *frame)
{
	run->bad_frame = *frame;
	run->bad_instance = inst;
	run->bad_lane = lane;
	if (frame->sequence != run->job.sequence || frame->signature != signature_of(run, s, SIDE_DST))
		return COLL_ERR_MISMATCH;
	return COLL_ERR_CORRUPT;
}

/* The next frame, if it has come and is the one this step expects. */
static inline coll_status view_frame(struct coll_run *run, struct instance *inst, struct lane *lane,
                                     const struct coll_step *s, struct port *port, size_t len_bytes, const char **p)
{
	const void *bytes;
	struct coll_frame frame;
	coll_status status = port->transport->view(port->channel, &bytes, &frame);

	if (status != COLL_OK)
		return status;
	if (mutant(MUTANT_SKIP_SIGNATURE))
		frame = frame_of(run, s, SIDE_DST, frame.len_bytes);
	if (frame.sequence != run->job.sequence || frame.signature != signature_of(run, s, SIDE_DST) ||
	    frame.len_bytes != len_bytes)
		return refuse_frame(run, inst, lane, s, &frame);
	*p = bytes;
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
	status = port->transport->push(port->channel, &frame, &bytes);
	if (status == COLL_ERR_UNSUPPORTED)
		return get_slot(run, port, len_bytes, p);
	if (status == COLL_OK) {
		*p = bytes;
		*pushed = true;
		run->stats.pushed++;
	}
	return status;
}

static inline coll_status post_frame(struct coll_run *run, const struct coll_step *s, struct port *port,
                                     size_t len_bytes)
{
	const struct coll_frame frame = frame_of(run, s, SIDE_SRC, len_bytes);

	run->stats.frames_sent++;
	run->stats.bytes_sent += len_bytes;
	return port->transport->post(port->channel, &frame);
}

/* ---- Arithmetic ------------------------------------------------------- */

/* dst = src, scaled where the step says so and the operation does. */
static inline void copy_elements(struct coll_run *run, const struct coll_step *s, char *dst, const char *src,
                                 size_t len)
{
	const void *from = src;
	const bool pre = s->flags & COLL_STEP_PRE && run->prescale;
	const bool post = s->flags & COLL_STEP_POST && run->job.reduction;

	if (!pre && !post) {
		copy_bytes(dst, src, len * run->job.elem_bytes);
		run->stats.bytes_copied += len * run->job.elem_bytes;
		return;
	}
	coll_reduce_run(run->job.reduction, dst, &from, 1, pre ? 0 : -1, post, len);
	run->stats.bytes_reduced += len * run->job.elem_bytes;
}

/* dst = incoming (op) src in the operand order of the step; any thread. */
static inline void combine_piece(const struct coll_run *run, const struct coll_step *s, char *dst, const char *incoming,
                                 const char *src, size_t len)
{
	const bool left = s->flags & COLL_STEP_INCOMING_LEFT && !mutant(MUTANT_SWAP_OPERANDS);
	const void *operands[2] = {left ? incoming : src, left ? src : incoming};
	const int raw = s->flags & COLL_STEP_PRE ? left : -1;

	coll_reduce_run(run->job.reduction, dst, operands, 2, raw, s->flags & COLL_STEP_POST, len);
}

static inline void combine(struct coll_run *run, const struct coll_step *s, char *dst, const char *incoming,
                           const char *src, size_t len)
{
	combine_piece(run, s, dst, incoming, src, len);
	run->stats.bytes_reduced += len * run->job.elem_bytes;
}

/* ---- SEND ------------------------------------------------------------- */

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

/* Whether nothing but bytes moves: no operand is scaled. */
static inline bool plain_bytes(const struct coll_run *run, const struct coll_step *s)
{
	return !(s->flags & COLL_STEP_PRE && run->prescale) && !(s->flags & COLL_STEP_POST && run->job.reduction);
}

static void fill_paced(struct coll_run *run, struct instance *inst, const struct coll_step *s, struct walk *w,
                       struct port *port, char *slot, size_t len_bytes)
{
	bool timed;
	const bool stream = coll_pace_streams(port->pace, len_bytes, &timed);
	const uint64_t since_ns = timed ? coll_clock_ns() : 0;

	fill(run, inst, s, w, slot, stream);
	if (timed)
		coll_pace_took(port->pace, len_bytes, coll_clock_ns() - since_ns);
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
		status = port->transport->push(port->channel, &frame, (void **)&slot);
	pushed = status == COLL_OK;
	run->stats.pushed += pushed;
	if (status == COLL_ERR_UNSUPPORTED)
		status = port->transport->slot(port->channel, len_bytes, (void **)&slot);
	if (status != COLL_OK)
		return status;
	if (len_bytes == 0) /* only a planted defect sends an empty frame */
		return post_frame(run, s, port, 0);
	if (port->pace && len_bytes >= port->pace->rule.least_bytes && !pushed && plain_bytes(run, s))
		fill_paced(run, inst, s, w, port, slot, len_bytes);
	else
		fill(run, inst, s, w, slot, false);
	return post_frame(run, s, port, len_bytes);
}

/*
 * Whether to lend the source as it lies. Not a raw contribution in place: the result is
 * going to overwrite it, and the lane would wait for the reader: unless the kernel takes the
 * bytes, whether the reader runs or not, or of two ranks the one that overwrites it is the
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

/* The handle of the memory a step's side names; NULL: nothing is known of it. */
static inline const struct coll_memory *memory_of(const struct coll_run *run, uint8_t buf)
{
	return buf >= COLL_BUF_SCRATCH ? NULL : buf == COLL_BUF_IN ? run->job.in.mem : run->job.out.mem;
}

/* Try to send a flight that has no slot yet. OK: it has left; it has retired
 * when its cookie is not pending. */
static coll_status launch(struct coll_run *run, struct instance *inst, struct flight *f)
{
	const struct coll_step *s = f->step;
	struct port *port = f->port;
	struct walk w;
	const size_t len_bytes = walk_begin(run, inst, s, SIDE_SRC, &w) * run->job.elem_bytes;
	const struct coll_frame frame = frame_of(run, s, SIDE_SRC, len_bytes);
	coll_status status = COLL_ERR_UNSUPPORTED;

	if (lendable(run, s, &w, len_bytes)) {
		f->cookie = (struct coll_cookie){1, COLL_OK};
		status = port->transport->post_ref(port->channel, w.span.src, memory_of(run, source_of(run, s)), &frame,
		                                   &f->cookie);
		if (status == COLL_OK) {
			run->stats.frames_sent++;
			run->stats.bytes_sent += len_bytes;
			run->stats.by_reference++;
			run->cookies++;
			f->lent = true;
		}
	}
	if (status == COLL_ERR_UNSUPPORTED) {
		f->cookie = (struct coll_cookie){0, COLL_OK};
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
	run->cookies -= f->lent;
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
	if (!f->parked && (!coll_cookie_pending(&f->cookie) || mutant(MUTANT_RETIRE_REF_EARLY))) {
		status = f->cookie.status;
		land(run, inst, f);
		return status;
	}
	*lane->tail = f;
	lane->tail = &f->next;
	return COLL_OK;
}

static coll_status start_send(struct coll_run *run, struct instance *inst, struct lane *lane, const struct coll_step *s)
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
	if (coll_cookie_pending(&f->cookie) && !mutant(MUTANT_RETIRE_REF_EARLY))
		return COLL_AGAIN;
	return f->cookie.status;
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
			port->transport->invite(port->channel, ahead[s->peer_recv], w.span.dst, memory_of(run, s->dst),
			                        &expect); /* a hint: whatever it says */
		}
		ahead[s->peer_recv]++;
	}
}

/* ---- Receives --------------------------------------------------------- */

/* The announced destination has been filled, or the frame was refused. */
static coll_status finish_armed(struct coll_run *run, struct instance *inst, struct lane *lane,
                                const struct coll_step *s, struct port *port)
{
	const void *bytes;
	struct coll_frame frame;

	if (coll_cookie_pending(&lane->cookie) && !mutant(MUTANT_RECV_INTO_EARLY))
		return COLL_AGAIN;
	lane->armed = false;
	run->cookies--;
	run->stats.frames_received++;
	if (mutant(MUTANT_LOST_IS_RECEIVED) && lane->cookie.status != COLL_ERR_MISMATCH)
		return COLL_OK;
	if (lane->cookie.status == COLL_ERR_MISMATCH && port->transport->view(port->channel, &bytes, &frame) == COLL_OK)
		return refuse_frame(run, inst, lane, s, &frame);
	return lane->cookie.status;
}

static inline coll_status arm(struct coll_run *run, struct lane *lane, const struct coll_step *s, struct port *port,
                              char *dst, size_t len_bytes)
{
	const struct coll_frame expect = frame_of(run, s, SIDE_DST, len_bytes);
	coll_status status;

	lane->cookie = (struct coll_cookie){1, COLL_OK};
	status = port->transport->recv_into(port->channel, dst, memory_of(run, s->dst), &expect, &lane->cookie);
	if (status == COLL_OK) {
		lane->armed = true;
		run->cookies++;
		run->stats.by_reference++;
	}
	return status;
}

static coll_status recv(struct coll_run *run, struct instance *inst, struct lane *lane, const struct coll_step *s)
{
	struct walk w;
	struct port *port;
	const char *p;
	bool placed;
	const size_t len_bytes = walk_begin(run, inst, s, SIDE_DST, &w) * run->job.elem_bytes;
	coll_status status;

	if (len_bytes == 0)
		return COLL_OK;
	status = get_port(run, inst, lane, s->peer_recv, COLL_DIR_RECV, &port);
	if (status != COLL_OK)
		return status;
	if (lane->armed)
		return finish_armed(run, inst, lane, s, port);
	if (len_bytes >= run->ref_bytes && w.span.len * run->job.elem_bytes == len_bytes) {
		status = arm(run, lane, s, port, w.span.dst, len_bytes);
		if (status == COLL_OK)
			return finish_armed(run, inst, lane, s, port);
		if (status != COLL_ERR_UNSUPPORTED)
			return status;
	}
	status = view_frame(run, inst, lane, s, port, len_bytes, &p);
	if (status != COLL_OK)
		return status;
	placed = p == w.span.dst; /* the peer has put it there */
	if (run->job.signal && *p != *run->job.in.base)
		return COLL_ERR_CORRUPT;
	done_early(port);
	do {
		store_result(run, s, w.span.dst, p, w.span.len * run->job.elem_bytes);
		p += w.span.len * run->job.elem_bytes;
	} while (walk_more(run, inst, s, SIDE_DST, &w));
	run->stats.bytes_copied += placed ? 0 : len_bytes;
	return done_frame(run, port, len_bytes);
}

static void take_piece(void *arg, const void *bytes, size_t at, size_t len_bytes)
{
	const struct taking *t = arg;

	combine_piece(t->run, t->step, t->dst + at, bytes, t->src + at, len_bytes / t->run->job.elem_bytes);
}

/* The frame is reduced as it comes in. */
static coll_status arm_taking(struct coll_run *run, struct lane *lane, const struct coll_step *s, struct port *port,
                              const struct span *span, size_t len_bytes)
{
	const struct coll_frame expect = frame_of(run, s, SIDE_DST, len_bytes);
	coll_status status;

	lane->taking = (struct taking){run, s, span->dst, span->src, {take_piece, &lane->taking}};
	lane->cookie = (struct coll_cookie){1, COLL_OK};
	status = port->transport->recv_through(port->channel, &lane->taking.taker, &expect, &lane->cookie);
	if (status == COLL_OK) {
		lane->armed = true;
		run->cookies++;
		run->stats.by_reference++;
		run->stats.bytes_reduced += len_bytes;
	}
	return status;
}

static coll_status recv_reduce(struct coll_run *run, struct instance *inst, struct lane *lane,
                               const struct coll_step *s)
{
	struct walk w;
	struct port *port;
	const char *p;
	const size_t len_bytes = walk_begin(run, inst, s, SIDE_BOTH, &w) * run->job.elem_bytes;
	coll_status status;

	if (len_bytes == 0)
		return COLL_OK;
	status = get_port(run, inst, lane, s->peer_recv, COLL_DIR_RECV, &port);
	if (status != COLL_OK)
		return status;
	if (lane->armed)
		return finish_armed(run, inst, lane, s, port);
	if (run->through && len_bytes >= run->ref_bytes && w.span.len * run->job.elem_bytes == len_bytes) {
		status = arm_taking(run, lane, s, port, &w.span, len_bytes);
		if (status == COLL_OK)
			return finish_armed(run, inst, lane, s, port);
		if (status != COLL_ERR_UNSUPPORTED)
			return status;
	}
	status = view_frame(run, inst, lane, s, port, len_bytes, &p);
	if (status != COLL_OK)
		return status;
	done_early(port);
	do {
		combine(run, s, w.span.dst, p, w.span.src, w.span.len);
		p += w.span.len * run->job.elem_bytes;
	} while (walk_more(run, inst, s, SIDE_BOTH, &w));
	return done_frame(run, port, len_bytes);
}

/* ---- Fused steps ------------------------------------------------------ */

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
	const size_t block = (stream_there ? STREAM_BYTES : BLOCK_BYTES) / elem_bytes;
	_Alignas(64) char between[STREAM_BYTES];

	for (size_t at = 0; at < span->len; at += block) {
		const size_t len = min_size(block, span->len - at), len_bytes = len * elem_bytes;
		const size_t at_bytes = at * elem_bytes;
		char *here = span->dst + at_bytes, *there = slot + at_bytes;
		char *first = stream_there && stream_here ? between : stream_there ? here : there;

		if (s->op == COLL_STEP_RECV_REDUCE_COPY_SEND)
			combine(run, s, first, p + at_bytes, span->src + at_bytes, len);
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
	const size_t elem_bytes = run->job.elem_bytes, block = STREAM_BYTES / elem_bytes;
	_Alignas(64) char between[STREAM_BYTES];

	for (size_t at = 0; at < span->len; at += block) {
		const size_t len = min_size(block, span->len - at), at_bytes = at * elem_bytes;

		combine(run, s, between, p + at_bytes, span->src + at_bytes, len);
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
		combine(run, s, slot, p, span->src, span->len);
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
	away = pushed ? AWAY_PUSHED : to->pace && coll_pace_is_far(to->pace, len_bytes) ? AWAY_FAR : AWAY_SLOT;
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

/* ---- Local steps ------------------------------------------------------ */

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
		const uint32_t src = wrapped(plan, s->src_chunk + i), dst = wrapped(plan, s->dst_chunk + i);
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

static coll_status recv_copy_send(struct coll_run *run, struct instance *inst, struct lane *lane,
                                  const struct coll_step *s)
{
	return forward(run, inst, lane, s, SIDE_DST);
}

static coll_status recv_reduce_send(struct coll_run *run, struct instance *inst, struct lane *lane,
                                    const struct coll_step *s)
{
	return forward(run, inst, lane, s, SIDE_SRC);
}

static coll_status recv_reduce_copy_send(struct coll_run *run, struct instance *inst, struct lane *lane,
                                         const struct coll_step *s)
{
	return forward(run, inst, lane, s, SIDE_BOTH);
}

coll_step_fn *const coll_run_steps[COLL_STEP_OP_COUNT] = {
        [COLL_STEP_SEND] = start_send,
        [COLL_STEP_RECV] = recv,
        [COLL_STEP_RECV_REDUCE] = recv_reduce,
        [COLL_STEP_COPY] = copy,
        [COLL_STEP_REDUCE] = reduce,
        [COLL_STEP_WAIT] = wait,
        [COLL_STEP_RECV_COPY_SEND] = recv_copy_send,
        [COLL_STEP_RECV_REDUCE_SEND] = recv_reduce_send,
        [COLL_STEP_RECV_REDUCE_COPY_SEND] = recv_reduce_copy_send,
};
