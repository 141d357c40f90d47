/*
 * See race.h. Steps are visited in an order that agrees with lanes and waits;
 * each lane keeps a vector of the steps that have certainly retired, and every place
 * its last writer and the readers since. Independent of the draft that computed
 * the waits: it uses dense tables and derives the same rules in another way.
 */
#include "proof/race.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "plan/step.h"

struct place {
	uint32_t writer; /* index in its lane + 1; 0: none */
	uint32_t writer_lane;
	uint32_t readers[COLL_LANES_MAX]; /* last reader of each lane since that write, + 1 */
	uint32_t sends[COLL_LANES_MAX];   /* last SEND of each lane since that write, + 1 */
};

struct race {
	const struct coll_plan *plan;
	const struct coll_model *model;
	struct place *places; /* user chunks, then each scratch buffer's extent */
	size_t scratch_base[COLL_SCRATCH_MAX];
	size_t nplaces;
	uint32_t (*at_start)[COLL_LANES_MAX]; /* per step: the vector of its lane */
	uint32_t known[COLL_LANES_MAX][COLL_LANES_MAX];
	uint32_t head[COLL_LANES_MAX];
	uint32_t sends[COLL_LANES_MAX];     /* SENDs so far, ... */
	uint32_t retired[COLL_LANES_MAX];   /* ... those known retired, ... */
	uint32_t scanned[COLL_LANES_MAX];   /* ... and where that count stands */
	uint32_t in_flight[COLL_LANES_MAX]; /* most SENDs not known retired */
	uint32_t step;                      /* under examination */
	char *why;
	size_t why_bytes;
	bool failed;
};

static void fail(struct race *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void fail(struct race *r, const char *format, ...)
{
	const struct coll_step *s = &r->plan->steps[r->step];
	va_list ap;
	int n;

	if (r->failed)
		return;
	r->failed = true;
	n = snprintf(r->why, r->why_bytes, "rank %d lane %u step %u (%s): ", r->plan->rank, s->lane,
	             r->step - r->plan->lane_first[s->lane < COLL_LANES_MAX ? s->lane : 0],
	             coll_step_op_name(s->op) ? coll_step_op_name(s->op) : "?");
	if (n < 0 || (size_t)n >= r->why_bytes)
		return;
	va_start(ap, format);
	vsnprintf(r->why + n, r->why_bytes - (size_t)n, format, ap);
	va_end(ap);
}

/* ---- Form ---- */

/* Whether this rank may read chunk c of in. */
static bool has_in(const struct coll_plan *p, uint32_t c)
{
	switch (p->kind) {
	case COLL_KIND_ALL_REDUCE:
	case COLL_KIND_REDUCE:
	case COLL_KIND_REDUCE_SCATTER:
	case COLL_KIND_ALL_TO_ALL:
	case COLL_KIND_SCAN:
	case COLL_KIND_EXCLUSIVE_SCAN: return true;
	case COLL_KIND_BROADCAST:
	case COLL_KIND_SCATTER: return p->rank == p->root;
	case COLL_KIND_ALL_GATHER:
	case COLL_KIND_GATHER: return c == (uint32_t)p->rank;
	case COLL_KIND_BARRIER: return true; /* a signal that no step reads */
	default: return false;
	}
}

/* Whether this rank has chunk c of out. */
static bool has_out(const struct coll_plan *p, uint32_t c)
{
	switch (p->kind) {
	case COLL_KIND_ALL_REDUCE:
	case COLL_KIND_BROADCAST:
	case COLL_KIND_ALL_GATHER:
	case COLL_KIND_ALL_TO_ALL:
	case COLL_KIND_SCAN: return true;
	case COLL_KIND_EXCLUSIVE_SCAN: return p->rank > 0;
	case COLL_KIND_REDUCE:
	case COLL_KIND_GATHER: return p->rank == p->root;
	case COLL_KIND_REDUCE_SCATTER:
	case COLL_KIND_SCATTER: return c == (uint32_t)p->rank;
	default: return false;
	}
}

static void check_flags(struct race *r, const struct coll_step *s)
{
	const bool reducing = coll_plan_kind_reduces(r->plan->kind);
	const bool combines = s->op == COLL_STEP_RECV_REDUCE || s->op == COLL_STEP_REDUCE ||
	                      s->op == COLL_STEP_RECV_REDUCE_SEND || s->op == COLL_STEP_RECV_REDUCE_COPY_SEND;
	const bool raw = (coll_step_reads_src(s->op) && s->src == COLL_BUF_IN) ||
	                 (s->op == COLL_STEP_REDUCE && s->group != COLL_NO_SPLICE);

	if (combines && !reducing)
		fail(r, "reduces in a %s", coll_plan_kind_name(r->plan->kind));
	if (!!(s->flags & COLL_STEP_PRE) != (reducing && raw))
		fail(r, "pre is %s", s->flags & COLL_STEP_PRE ? "set without a read of in" : "missing on a read of in");
	if (s->flags & COLL_STEP_POST && (!reducing || !(combines || s->op == COLL_STEP_COPY)))
		fail(r, "post on a step that completes nothing");
	if (s->flags & COLL_STEP_ARM && s->op != COLL_STEP_RECV)
		fail(r, "arm on a step that is not a recv");
	if (s->flags & COLL_STEP_ASIDE &&
	    (r->plan->kind != COLL_KIND_ALL_TO_ALL || !((s->op == COLL_STEP_COPY && s->src == COLL_BUF_IN &&
	                                                 s->dst >= COLL_BUF_SCRATCH && s->src_chunk == s->dst_chunk) ||
	                                                (s->op == COLL_STEP_SEND && s->src >= COLL_BUF_SCRATCH))))
		fail(r, "aside on a step that neither copies a block of in aside nor sends it from there");
}

static void check_peers(struct race *r, const struct coll_step *s)
{
	const struct coll_plan *p = r->plan;

	if (coll_step_receives(s->op) && s->peer_recv >= p->npeers)
		fail(r, "no peer %u", s->peer_recv);
	if (coll_step_sends(s->op) && s->peer_send >= p->npeers)
		fail(r, "no peer %u", s->peer_send);
	if ((coll_step_receives(s->op) || coll_step_sends(s->op)) && s->run > p->max_run)
		fail(r, "run %u exceeds max_run %u", s->run, p->max_run);
}

static void check_form(struct race *r, const struct coll_step *s, uint32_t lane)
{
	const struct coll_plan *p = r->plan;

	if (!coll_step_op_name(s->op)) {
		fail(r, "unknown op %u", s->op);
		return;
	}
	if (s->lane != lane)
		fail(r, "stands in lane %u", lane);
	if (coll_step_is_fused(s->op) && !p->fused)
		fail(r, "fused step in a logical plan");
	if (s->wait_count && (s->wait_lane >= p->nlanes || s->wait_count > coll_lane_length(p, s->wait_lane)))
		fail(r, "waits for step %u of lane %u, which does not exist", s->wait_count, s->wait_lane);
	if (s->op == COLL_STEP_WAIT)
		return;
	if (s->run == 0 || s->run > p->chunks)
		fail(r, "run of %u chunks", s->run);
	if (s->op != COLL_STEP_REDUCE && !s->group && s->stride &&
	    (!(s->flags & COLL_STEP_WRAP) || s->run > s->stride || p->chunks % s->stride))
		fail(r, "run of %u chunks in spans of %u", s->run, s->stride);
	if (coll_step_writes_dst(s->op) && s->dst == COLL_BUF_IN)
		fail(r, "writes in");
	if (s->op == COLL_STEP_REDUCE &&
	    (s->src < COLL_BUF_SCRATCH || s->stride == 0 || (s->group != COLL_NO_SPLICE && s->group > s->stride)))
		fail(r, "bad list of inputs");
	if (s->op == COLL_STEP_REDUCE && s->stride > p->nscratch)
		fail(r, "no such scratch");
	check_peers(r, s);
	check_flags(r, s);
}

static bool is_permutation(const struct coll_plan *p)
{
	uint64_t *seen;
	bool once = true;

	if (!p->block_at)
		return true;
	seen = calloc(p->chunks / 64 + 1, sizeof(*seen));
	for (uint32_t c = 0; seen && c < p->chunks && once; c++) {
		const uint32_t b = p->block_at[c];

		once = b < p->chunks && !(seen[b / 64] >> (b % 64) & 1);
		if (once)
			seen[b / 64] |= (uint64_t)1 << (b % 64);
	}
	once = once && seen;
	free(seen);
	return once;
}

static void check_plan(struct race *r)
{
	const struct coll_plan *p = r->plan;

	if (p->nlanes == 0 || p->nlanes > COLL_LANES_MAX || p->chunks == 0 || p->nscratch > COLL_SCRATCH_MAX ||
	    p->size < 1 || p->rank < 0 || p->rank >= p->size || p->root < 0 || p->root >= p->size ||
	    (coll_plan_kind_is_block(p->kind) && p->chunks != (uint32_t)p->size)) {
		r->failed = true;
		snprintf(r->why, r->why_bytes, "rank %d: malformed plan", p->rank);
		return;
	}
	if (!is_permutation(p)) {
		r->failed = true;
		snprintf(r->why, r->why_bytes, "rank %d: the order of blocks is not a permutation", p->rank);
		return;
	}
	for (uint32_t i = 0; i < p->npeers; i++)
		if (p->peers[i] < 0 || p->peers[i] >= p->size || p->peers[i] == p->rank ||
		    (i && p->peers[i] <= p->peers[i - 1])) {
			r->failed = true;
			snprintf(r->why, r->why_bytes, "rank %d: bad table of peers", p->rank);
			return;
		}
	for (uint32_t l = 0; l < p->nlanes && !r->failed; l++)
		for (r->step = p->lane_first[l]; r->step < p->lane_first[l + 1] && !r->failed; r->step++)
			check_form(r, &p->steps[r->step], l);
}

/* ---- Places ---- */

static struct place *place_of(struct race *r, uint8_t buf, uint32_t chunk)
{
	const struct coll_plan *p = r->plan;
	const struct coll_plan_scratch *x;
	uint32_t k = (uint32_t)buf - COLL_BUF_SCRATCH, i;

	if (chunk >= p->chunks) {
		fail(r, "chunk %u of %u", chunk, p->chunks);
		return NULL;
	}
	if (buf < COLL_BUF_SCRATCH) {
		if (!(buf == COLL_BUF_IN ? has_in(p, chunk) : has_out(p, chunk))) {
			fail(r, "this rank has no %s chunk %u", buf == COLL_BUF_IN ? "in" : "out", chunk);
			return NULL;
		}
		return &r->places[chunk];
	}
	if (k >= p->nscratch) {
		fail(r, "no scratch %u", k);
		return NULL;
	}
	x = &p->scratch[k];
	i = (chunk + p->chunks - x->first) % p->chunks;
	if (i >= x->count) {
		fail(r, "chunk %u is outside scratch %u", chunk, k);
		return NULL;
	}
	return &r->places[r->scratch_base[k] + i];
}

/* What one lane can rely on about another, under the model's meaning of a wait. */
static uint32_t known_retired(const struct race *r, uint32_t lane, uint32_t other)
{
	return r->model->ignore_waits ? 0 : r->known[lane][other];
}

static bool ordered_after_write(struct race *r, const struct coll_step *s, const struct place *pl)
{
	return !pl->writer || pl->writer_lane == s->lane || known_retired(r, s->lane, pl->writer_lane) >= pl->writer;
}

static void read_place(struct race *r, const struct coll_step *s, uint8_t buf, uint32_t chunk)
{
	struct place *pl = place_of(r, buf, chunk);

	if (!pl)
		return;
	if (!ordered_after_write(r, s, pl))
		fail(r, "reads chunk %u while step %u of lane %u may write it", chunk, pl->writer - 1, pl->writer_lane);
	pl->readers[s->lane] = r->head[s->lane] + 1;
	if (s->op == COLL_STEP_SEND)
		pl->sends[s->lane] = r->head[s->lane] + 1;
}

static void write_place(struct race *r, const struct coll_step *s, uint8_t buf, uint32_t chunk)
{
	struct place *pl = place_of(r, buf, chunk);
	bool armed = s->op == COLL_STEP_RECV && (s->flags & COLL_STEP_ARM || r->model->arm_all), touched = false;

	if (!pl)
		return;
	if (!ordered_after_write(r, s, pl))
		fail(r, "writes chunk %u while step %u of lane %u may write it", chunk, pl->writer - 1,
		     pl->writer_lane);
	for (uint32_t m = 0; m < r->plan->nlanes; m++) {
		uint32_t busy = m == s->lane ? pl->sends[m] : pl->readers[m];

		touched |= pl->readers[m] != 0;
		if (busy && known_retired(r, s->lane, m) < busy)
			fail(r, "writes chunk %u while step %u of lane %u may read it", chunk, busy - 1, m);
		pl->readers[m] = 0;
		pl->sends[m] = 0;
	}
	if (armed && (touched || pl->writer))
		fail(r, "armed, but chunk %u is touched before", chunk);
	pl->writer = r->head[s->lane] + 1;
	pl->writer_lane = s->lane;
}

static void visit_places(struct race *r, const struct coll_step *s)
{
	for (uint32_t i = 0; i < s->run && !r->failed; i++) {
		if (coll_step_reads_src(s->op))
			read_place(r, s, s->src, coll_step_chunk(r->plan, s, s->src_chunk, i));
		if (s->op == COLL_STEP_REDUCE) {
			uint32_t c = coll_step_chunk(r->plan, s, s->src_chunk, i);

			for (uint32_t k = 0; k < s->stride && !r->failed; k++)
				read_place(r, s, (uint8_t)(s->src + k), c);
			if (s->group != COLL_NO_SPLICE)
				read_place(r, s, COLL_BUF_IN, c);
		}
	}
	for (uint32_t i = 0; i < s->run && !r->failed; i++)
		if (coll_step_writes_dst(s->op))
			write_place(r, s, s->dst, coll_step_chunk(r->plan, s, s->dst_chunk, i));
}

/* ---- Order ---- */

/* The lane has waited: it can rely on the prefix, and on all that the prefix could rely on. */
static void learn(struct race *r, uint32_t lane, uint32_t other, uint32_t count)
{
	const uint32_t *then = r->at_start[r->plan->lane_first[other] + count - 1];
	uint32_t *known = r->known[lane];

	/* If waits counted starts, the last step might not be complete, nor any SEND. */
	if (r->model->wait_for_start) {
		const struct coll_step *steps = &r->plan->steps[r->plan->lane_first[other]];

		count--;
		for (uint32_t i = known[other]; i < count; i++)
			if (steps[i].op == COLL_STEP_SEND)
				count = i;
	}
	if (known[other] < count)
		known[other] = count;
	for (uint32_t m = 0; m < r->plan->nlanes; m++)
		if (known[m] < then[m])
			known[m] = then[m];
}

static void count_in_flight(struct race *r, uint32_t lane)
{
	const struct coll_step *steps = &r->plan->steps[r->plan->lane_first[lane]];

	if (steps[r->head[lane]].op != COLL_STEP_SEND)
		return;
	r->sends[lane]++;
	for (; r->scanned[lane] < r->known[lane][lane]; r->scanned[lane]++)
		r->retired[lane] += steps[r->scanned[lane]].op == COLL_STEP_SEND;
	if (r->in_flight[lane] < r->sends[lane] - r->retired[lane])
		r->in_flight[lane] = r->sends[lane] - r->retired[lane];
}

static void visit(struct race *r, const struct coll_step *s)
{
	if (s->wait_count)
		learn(r, s->lane, s->wait_lane, s->wait_count);
	memcpy(r->at_start[r->step], r->known[s->lane], sizeof(r->at_start[0]));
	count_in_flight(r, s->lane);
	if (s->op != COLL_STEP_WAIT)
		visit_places(r, s);
}

/* Lanes advance as far as their waits allow; all must reach their ends. */
static void visit_all(struct race *r)
{
	const struct coll_plan *p = r->plan;
	uint32_t visited = 0, before;

	do {
		before = visited;
		for (uint32_t l = 0; l < p->nlanes; l++)
			for (; r->head[l] < coll_lane_length(p, l) && !r->failed; r->head[l]++, visited++) {
				r->step = p->lane_first[l] + r->head[l];
				if (p->steps[r->step].wait_count > r->head[p->steps[r->step].wait_lane])
					break;
				visit(r, &p->steps[r->step]);
			}
	} while (visited > before && !r->failed);
	for (uint32_t l = 0; l < p->nlanes && !r->failed; l++)
		if (r->head[l] < coll_lane_length(p, l)) {
			r->step = p->lane_first[l] + r->head[l];
			fail(r, "waits are circular");
		}
}

/* The most SENDs that may be in flight, and whether the plan says so. */
static void check_bound(struct race *r)
{
	const struct coll_plan *p = r->plan;
	uint32_t sum = 0;

	for (uint32_t l = 0; l < p->nlanes; l++)
		sum += r->in_flight[l];
	if (sum > p->max_in_flight && !r->failed) {
		r->failed = true;
		snprintf(r->why, r->why_bytes, "rank %d: %u SENDs may be in flight, the plan says %u", p->rank, sum,
		         p->max_in_flight);
	}
}

/* What ends with the instance only because its SENDs have retired by then: if it
 * did not wait for them, its scratch would be written while they read it. */
static void check_reuse(struct race *r)
{
	const struct coll_plan *p = r->plan;
	bool written = false;

	for (uint32_t k = 0; k < p->nscratch && !r->failed; k++)
		for (uint32_t i = 0; i < p->scratch[k].count; i++) {
			const struct place *pl = &r->places[r->scratch_base[k] + i];

			written |= pl->writer != 0;
			for (uint32_t m = 0; m < p->nlanes && r->model->early_reuse; m++)
				if (pl->sends[m] > r->known[m][m])
					fail(r, "the next tile writes scratch %u while a SEND reads it", k);
		}
	if (written && r->model->shared_scratch)
		fail(r, "two tiles in flight write the same scratch");
}

coll_status coll_race_check(const struct coll_plan *plan, const struct coll_model *model, char *why, size_t why_bytes)
{
	struct race r = {.plan = plan, .model = model, .why = why, .why_bytes = why_bytes};
	coll_status status = COLL_OK;

	check_plan(&r);
	if (r.failed)
		return COLL_ERR_INTERNAL;
	r.nplaces = plan->chunks;
	for (uint32_t k = 0; k < plan->nscratch; k++) {
		r.scratch_base[k] = r.nplaces;
		r.nplaces += plan->scratch[k].count;
	}
	r.places = calloc(r.nplaces, sizeof(*r.places));
	r.at_start = malloc(((size_t)coll_plan_nsteps(plan) + 1) * sizeof(*r.at_start));
	if (!r.places || !r.at_start)
		status = COLL_ERR_MEMORY;
	if (!status) {
		visit_all(&r);
		check_bound(&r);
		check_reuse(&r);
		status = r.failed ? COLL_ERR_INTERNAL : COLL_OK;
	}
	free(r.places);
	free(r.at_start);
	return status;
}
