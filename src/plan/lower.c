/*
 * Lowering: a logical plan becomes a fused one, for the engine.
 *
 * A RECV or RECV_REDUCE followed on its lane by a SEND of exactly what it wrote
 * becomes one step that passes over the bytes once. A store that is overwritten
 * before anything reads it, and so is not part of the result, is removed. All
 * steps then pass through a draft again, in an order that agrees with the old
 * waits. Since a fused step is not asynchronous, many waits vanish, and counts
 * shift. Frames and roundings do not change.
 *
 * A fused step holds its lane until it has a slot, which the SEND did not. Slots
 * are two per channel, so that the first two frames of a channel never wait for
 * one. Later frames are fused only where the rest of the lane sends to the same
 * peer: then no other peer can be waiting for this lane. One rank can decide no more
 * than that. Whether ranks block each other in a cycle is a question about
 * all plans, which the verifier answers for every generator.
 */
#include "plan/lower.h"

#include <stdlib.h>
#include <string.h>

#include "plan/draft.h"
#include "plan/step.h"

enum next_use { NEXT_NONE, NEXT_READ, NEXT_WRITE };

struct lowering {
	const struct coll_plan *plan;
	uint32_t *order;   /* steps in an order that agrees with lanes and waits */
	uint8_t *fuse;     /* per step: it is the receive of a pair */
	uint8_t *dead;     /* per step: nothing reads what it stores */
	uint8_t *held;     /* per step: a SEND that might hold up others if it were fused */
	uint8_t *next_use; /* per place: what comes later in order */
	struct coll_draft draft;
};

/* Fill order; COLL_ERR_INTERNAL when waits are circular. */
static coll_status linearise(struct lowering *w)
{
	const struct coll_plan *p = w->plan;
	uint32_t head[COLL_LANES_MAX] = {0}, placed = 0, before;

	do {
		before = placed;
		for (uint32_t l = 0; l < p->nlanes; l++)
			while (head[l] < coll_lane_length(p, l)) {
				const struct coll_step *s = &p->steps[p->lane_first[l] + head[l]];

				if (s->wait_count > head[s->wait_lane])
					break;
				w->order[placed++] = p->lane_first[l] + head[l]++;
			}
	} while (placed > before);
	return placed == coll_plan_nsteps(p) ? COLL_OK : COLL_ERR_INTERNAL;
}

/* held[]: SENDs that are not among the first two of their channel, before the part
 * of the lane where all SENDs go to one peer. */
static coll_status find_held(struct lowering *w)
{
	const struct coll_plan *p = w->plan;
	uint8_t *frames = malloc((size_t)p->npeers + 1);

	if (!frames)
		return COLL_ERR_MEMORY;
	for (uint32_t l = 0; l < p->nlanes; l++) {
		const uint32_t first = p->lane_first[l], end = p->lane_first[l + 1];
		uint32_t tail = end, peer = UINT32_MAX;

		for (; tail > first; tail--) {
			const struct coll_step *s = &p->steps[tail - 1];

			if (s->op == COLL_STEP_SEND && peer != UINT32_MAX && s->peer_send != peer)
				break;
			if (s->op == COLL_STEP_SEND)
				peer = s->peer_send;
		}
		memset(frames, 0, p->npeers);
		for (uint32_t i = first; i < tail; i++)
			if (p->steps[i].op == COLL_STEP_SEND && frames[p->steps[i].peer_send]++ >= 2) {
				frames[p->steps[i].peer_send] = 2;
				w->held[i] = 1;
			}
	}
	free(frames);
	return COLL_OK;
}

/* Whether steps i and i + 1 are a pair. */
static bool is_pair(const struct lowering *w, uint32_t i)
{
	const struct coll_plan *p = w->plan;
	const struct coll_step *a = &p->steps[i], *b = a + 1;

	if (a->op != COLL_STEP_RECV && a->op != COLL_STEP_RECV_REDUCE)
		return false;
	if (i + 1 >= p->lane_first[a->lane + 1] || b->op != COLL_STEP_SEND)
		return false;
	if (b->wait_count || w->held[i + 1] || b->flags & COLL_STEP_PRE)
		return false;
	return a->dst == b->src && a->dst_chunk == b->src_chunk && a->run == b->run && a->group == b->group &&
	       a->stride == b->stride;
}

/* ---- Which stores nothing reads ---- */

static uint8_t *use_of(const struct lowering *w, uint8_t buf, uint32_t chunk)
{
	size_t space = buf < COLL_BUF_SCRATCH ? 0 : (size_t)buf - COLL_BUF_SCRATCH + 1;

	return &w->next_use[space * w->plan->chunks + chunk];
}

static void mark(const struct lowering *w, const struct coll_step *s, uint8_t buf, uint32_t first, enum next_use use)
{
	for (uint32_t i = 0; i < s->run; i++)
		*use_of(w, buf, coll_step_chunk(w->plan, s, first, i)) = (uint8_t)use;
}

static void mark_reads(const struct lowering *w, const struct coll_step *s)
{
	switch ((enum coll_step_op)s->op) {
	case COLL_STEP_SEND:
	case COLL_STEP_RECV_REDUCE:
	case COLL_STEP_COPY: mark(w, s, s->src, s->src_chunk, NEXT_READ); break;
	case COLL_STEP_REDUCE:
		for (uint32_t k = 0; k < s->stride; k++)
			mark(w, s, (uint8_t)(s->src + k), s->src_chunk, NEXT_READ);
		if (s->group != COLL_NO_SPLICE)
			mark(w, s, COLL_BUF_IN, s->src_chunk, NEXT_READ);
		break;
	default: break;
	}
}

static void mark_writes(const struct lowering *w, const struct coll_step *s)
{
	if (s->op != COLL_STEP_SEND && s->op != COLL_STEP_WAIT)
		mark(w, s, s->dst, s->dst_chunk, NEXT_WRITE);
}

/* Nothing after send reads what it reads, and it is not the result. */
static bool unread_after(const struct lowering *w, const struct coll_step *send)
{
	for (uint32_t i = 0; i < send->run; i++) {
		enum next_use use = *use_of(w, send->src, coll_step_chunk(w->plan, send, send->src_chunk, i));

		if (use == NEXT_READ || (use == NEXT_NONE && send->src < COLL_BUF_SCRATCH))
			return false;
	}
	return true;
}

/* Backwards through the order: fuse[] and dead[]. */
static void find_pairs(struct lowering *w)
{
	for (uint32_t n = coll_plan_nsteps(w->plan); n-- > 0;) {
		uint32_t i = w->order[n];
		const struct coll_step *s = &w->plan->steps[i];

		if (s->op == COLL_STEP_SEND && i > w->plan->lane_first[s->lane] && is_pair(w, i - 1)) {
			w->fuse[i - 1] = 1;
			w->dead[i - 1] = unread_after(w, s);
		}
		mark_writes(w, s);
		mark_reads(w, s);
	}
}

/* ---- The new plan ---- */

static struct coll_step fused(const struct lowering *w, uint32_t i)
{
	struct coll_step s = w->plan->steps[i];

	if (s.op == COLL_STEP_RECV)
		s.op = COLL_STEP_RECV_COPY_SEND;
	else if (!w->dead[i])
		s.op = COLL_STEP_RECV_REDUCE_COPY_SEND;
	else {
		s.op = COLL_STEP_RECV_REDUCE_SEND;
		s.dst = 0;
		s.dst_chunk = 0;
	}
	return s;
}

static void emit(struct lowering *w)
{
	const struct coll_plan *p = w->plan;

	for (uint32_t n = 0; n < coll_plan_nsteps(p) && !w->draft.status; n++) {
		uint32_t i = w->order[n];
		struct coll_step s = p->steps[i];
		int from = coll_step_receives(s.op) ? p->peers[s.peer_recv] : -1;
		int to = s.op == COLL_STEP_SEND ? p->peers[s.peer_send] : -1;
		uint32_t count;

		if (s.op == COLL_STEP_WAIT || (s.op == COLL_STEP_SEND && i > p->lane_first[s.lane] && w->fuse[i - 1]))
			continue;
		if (w->fuse[i]) {
			s = fused(w, i);
			to = p->peers[p->steps[i + 1].peer_send];
		}
		coll_draft_append(&w->draft, &s, from, to, coll_step_weights(p, &p->steps[i], &count));
	}
}

static coll_status allocate(struct lowering *w)
{
	size_t n = coll_plan_nsteps(w->plan);

	w->order = malloc((n + 1) * sizeof(*w->order));
	w->fuse = calloc(3, n + 1);
	w->next_use = calloc(w->plan->nscratch + 1, w->plan->chunks);
	if (!w->order || !w->fuse || !w->next_use)
		return COLL_ERR_MEMORY;
	w->dead = w->fuse + n + 1;
	w->held = w->dead + n + 1;
	return COLL_OK;
}

coll_status coll_plan_lower(const struct coll_plan *logical, struct coll_plan **lowered)
{
	struct lowering w = {.plan = logical,
	                     .draft = {.chunks = logical->chunks, .block_at = logical->block_at, .arm = true}};
	struct coll_plan head = *logical;
	coll_status status;

	assert(!logical->fused);
	head.fused = true;
	status = allocate(&w);
	if (!status)
		status = linearise(&w);
	if (!status)
		status = find_held(&w);
	if (!status) {
		find_pairs(&w);
		emit(&w);
		status = coll_draft_finish(&w.draft, &head, lowered);
	}
	coll_draft_fini(&w.draft);
	free(w.order);
	free(w.fuse);
	free(w.next_use);
	return status;
}
