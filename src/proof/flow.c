/*
 * See flow.h. Memory is arrays of values (value.h). A frame is captured when it is
 * sent: no step may change it later, as the race check proves.
 */
#include "proof/flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "plan/step.h"
#include "proof/value.h"

#define UNDEFINED COLL_VALUE_UNDEFINED

struct frame {
	size_t payload; /* index of its first value */
	int sender;
	uint32_t step;
};

struct coll_flow {
	const struct coll_plan *const *plans;
	struct coll_verify_options opt;
	enum coll_kind kind;
	int size;
	int root;
	uint32_t chunks;

	uint32_t *out;        /* rank * chunks + chunk; in place: in too */
	uint32_t *scratch;    /* values of all scratch buffers */
	size_t *scratch_of;   /* where each scratch buffer begins, rank by rank ... */
	size_t *scratch_base; /* ... and each rank's first entry there */

	struct coll_values values; /* and what failed */
	uint32_t *payload;
	size_t payload_used, payload_capacity;
	struct frame *frames;

	/* Barrier: who is known to have entered, a bit per rank. */
	uint64_t *lane_known;
	uint64_t *frame_known;
	uint64_t *step_known;
	size_t words;
	size_t *step_base;

	int rank; /* under examination */
	uint32_t step;
	char *why;
	size_t why_bytes;
};

/* Put the step before the failure and hand it on. */
static void report(struct coll_flow *f)
{
	const struct coll_plan *p = f->plans[f->rank];
	const struct coll_step *s = &p->steps[f->step];

	if (f->values.status == COLL_ERR_INTERNAL)
		snprintf(f->why, f->why_bytes, "rank %d lane %u step %u (%s): %s", f->rank, s->lane,
		         f->step - p->lane_first[s->lane], coll_step_op_name(s->op), f->values.error);
}

#define fail(f, ...) coll_values_fail(&(f)->values, __VA_ARGS__)

/* ---- Memory of the ranks ---- */

static bool is_in_place(const struct coll_flow *f, int rank)
{
	return f->opt.in_place >> (rank % 64) & 1;
}

static uint32_t *scratch_at(struct coll_flow *f, int rank, uint8_t buf, uint32_t chunk)
{
	const struct coll_plan *p = f->plans[rank];
	uint32_t k = (uint32_t)buf - COLL_BUF_SCRATCH;
	const struct coll_plan_scratch *x = &p->scratch[k];
	size_t at = f->scratch_of[f->scratch_base[rank] + k];

	return &f->scratch[at + (chunk + p->chunks - x->first) % p->chunks];
}

static uint32_t load(struct coll_flow *f, int rank, uint8_t buf, uint32_t chunk)
{
	if (buf >= COLL_BUF_SCRATCH)
		return *scratch_at(f, rank, buf, chunk);
	if (buf == COLL_BUF_OUT || is_in_place(f, rank))
		return f->out[(size_t)rank * f->chunks + chunk];
	return (uint32_t)rank * f->chunks + chunk;
}

static void store(struct coll_flow *f, int rank, uint8_t buf, uint32_t chunk, uint32_t v)
{
	if (buf >= COLL_BUF_SCRATCH)
		*scratch_at(f, rank, buf, chunk) = v;
	else
		f->out[(size_t)rank * f->chunks + chunk] = v;
}

/* Equal for places whose lengths are sure to be equal. */
static uint32_t length_class(const struct coll_flow *f, int rank, uint8_t buf, uint32_t chunk)
{
	uint32_t n = (uint32_t)f->size, r = (uint32_t)rank;

	if (f->opt.uniform && coll_plan_kind_is_block(f->kind))
		return 0;
	if (f->kind != COLL_KIND_ALL_TO_ALL)
		return chunk;
	/* Scratch is as long as the blocks of in. */
	return buf == COLL_BUF_OUT ? chunk * n + r : r * n + chunk;
}

/* Whether the rank has the length of this chunk. */
static bool knows_length(const struct coll_flow *f, int rank, uint32_t chunk)
{
	if (!f->opt.pairwise || !coll_plan_kind_is_block(f->kind) || f->kind == COLL_KIND_ALL_TO_ALL)
		return true;
	if ((f->kind == COLL_KIND_GATHER || f->kind == COLL_KIND_SCATTER) && rank == f->root)
		return true;
	return chunk == (uint32_t)rank;
}

/* ---- Steps ---- */

static void check_classes(struct coll_flow *f, uint32_t a, uint32_t b, uint32_t i)
{
	if (a != b)
		fail(f, "chunk %u of the run: lengths of the two sides differ", i);
}

/* The place a frame is sent from: (buffer, first chunk) of its sender's step. */
static void source_of(const struct coll_step *s, uint8_t *buf, uint32_t *first)
{
	bool src = s->op == COLL_STEP_SEND || s->op == COLL_STEP_RECV_REDUCE_SEND;

	*buf = src ? s->src : s->dst;
	*first = src ? s->src_chunk : s->dst_chunk;
}

/* Append one value to the frame under construction. */
static void put(struct coll_flow *f, uint32_t v)
{
	if (f->payload_used == f->payload_capacity) {
		size_t capacity = f->payload_capacity ? 2 * f->payload_capacity : 4096;
		uint32_t *payload = realloc(f->payload, capacity * sizeof(*payload));

		if (!payload) {
			f->values.status = COLL_ERR_MEMORY;
			return;
		}
		f->payload = payload;
		f->payload_capacity = capacity;
	}
	f->payload[f->payload_used++] = v;
}

static uint32_t read_operand(struct coll_flow *f, const struct coll_step *s, uint8_t buf, uint32_t chunk)
{
	uint32_t v = load(f, f->rank, buf, chunk);

	if (v == UNDEFINED && f->kind != COLL_KIND_BARRIER)
		fail(f, "reads a chunk that was never written");
	if (buf == COLL_BUF_IN && s->flags & COLL_STEP_PRE)
		v = coll_value_scale(&f->values, f->rank, v);
	return v;
}

static uint32_t copy_value(struct coll_flow *f, const struct coll_step *s, uint32_t chunk)
{
	uint32_t v = read_operand(f, s, s->src, chunk);
	struct coll_expression x;

	if (!(s->flags & COLL_STEP_POST) || !coll_value_expand(&f->values, v, &x))
		return v;
	coll_value_post(&f->values, f->rank, &x);
	return coll_value_of(&f->values, &x);
}

/* The plan weighs the operands by what they hold. */
static void check_weights(struct coll_flow *f, const struct coll_step *s, uint32_t i, uint32_t incoming, uint32_t own)
{
	uint32_t count;
	const struct coll_plan_weight *w = coll_step_weights(f->plans[f->rank], s, &count);

	while (count > 1 && i >= w->end) {
		w++;
		count--;
	}
	if (count == 0 || i >= w->end)
		fail(f, "chunk %u of the run has no weights", i);
	else if (w->incoming != incoming || w->own != own)
		fail(f, "weighs %u and %u contributions as %u and %u", incoming, own, w->incoming, w->own);
}

/* incoming (op) src, in the order the flag says. */
static uint32_t reduce_incoming(struct coll_flow *f, const struct coll_step *s, uint32_t i, uint32_t incoming,
                                uint32_t own)
{
	const bool left_incoming = s->flags & COLL_STEP_INCOMING_LEFT;
	struct coll_expression left, right;

	if (!coll_value_expand(&f->values, left_incoming ? incoming : own, &left) ||
	    !coll_value_expand(&f->values, left_incoming ? own : incoming, &right))
		return UNDEFINED;
	check_weights(f, s, i, left_incoming ? left.count : right.count, left_incoming ? right.count : left.count);
	if (!coll_value_combine(&f->values, &left, &right, false))
		return UNDEFINED;
	if (s->flags & COLL_STEP_POST)
		coll_value_post(&f->values, f->rank, &left);
	return coll_value_of(&f->values, &left);
}

/* The inputs of a REDUCE at one chunk, left to right. */
static uint32_t reduce_list(struct coll_flow *f, const struct coll_step *s, uint32_t chunk)
{
	struct coll_expression sum = {.count = 0}, x;
	uint32_t first = 0, n = s->stride + (s->group != COLL_NO_SPLICE), k = 0;

	for (uint32_t i = 0; i < n; i++) {
		bool spliced = s->group != COLL_NO_SPLICE && i == s->group;
		uint8_t buf = spliced ? COLL_BUF_IN : (uint8_t)(s->src + k++);

		if (!coll_value_expand(&f->values, read_operand(f, s, buf, chunk), &x))
			return UNDEFINED;
		check_classes(f, length_class(f, f->rank, buf, chunk), length_class(f, f->rank, s->dst, s->dst_chunk),
		              0);
		first = i == 0 ? x.count : first;
		if (x.count != first && coll_plan_kind_averages(f->kind))
			fail(f, "weighs %u and %u contributions alike", first, x.count);
		if (i == 0)
			sum = x;
		else if (!coll_value_combine(&f->values, &sum, &x, n > 2))
			return UNDEFINED;
	}
	if (s->flags & COLL_STEP_POST)
		coll_value_post(&f->values, f->rank, &sum);
	return coll_value_of(&f->values, &sum);
}

static void reduce_run(struct coll_flow *f, const struct coll_plan *p, const struct coll_step *s)
{
	for (uint32_t i = 0; i < s->run && !f->values.status; i++) {
		struct coll_step one = *s;
		uint32_t chunk = coll_step_chunk(p, s, s->src_chunk, i);

		one.dst_chunk = coll_step_chunk(p, s, s->dst_chunk, i);
		store(f, f->rank, s->dst, one.dst_chunk, reduce_list(f, &one, chunk));
	}
}

/* Check that the frame fits this step's places, chunk by chunk. */
static void check_lengths(struct coll_flow *f, const struct coll_plan *p, const struct coll_step *s,
                          const struct frame *in)
{
	const struct coll_plan *q = f->plans[in->sender];
	const struct coll_step *t = &q->steps[in->step];
	uint8_t buf;
	uint32_t first;

	source_of(t, &buf, &first);
	if (t->run != s->run) {
		fail(f, "receives a frame of %u chunks from rank %d in a run of %u", t->run, in->sender, s->run);
		return;
	}
	for (uint32_t i = 0; i < s->run && !f->values.status; i++) {
		uint32_t there = coll_step_chunk(q, t, first, i);
		uint32_t sent = length_class(f, in->sender, buf, there);

		if (coll_step_reads_src(s->op))
			check_classes(f, sent, length_class(f, f->rank, s->src, coll_step_chunk(p, s, s->src_chunk, i)),
			              i);
		if (coll_step_writes_dst(s->op))
			check_classes(f, sent, length_class(f, f->rank, s->dst, coll_step_chunk(p, s, s->dst_chunk, i)),
			              i);
		if (!knows_length(f, in->sender, there) || !knows_length(f, f->rank, there))
			fail(f, "moves block %u from rank %d, but one of the two does not have its length", there,
			     in->sender);
	}
}

/* Out of place: nothing is copied aside, what would be sent from there is sent from in. */
static bool is_aside(const struct coll_flow *f, const struct coll_step *s)
{
	return s->flags & COLL_STEP_ASIDE && !is_in_place(f, f->rank);
}

/* Everything one step does to one chunk of its run. */
static void move_chunk(struct coll_flow *f, const struct coll_plan *p, const struct coll_step *s, uint32_t i,
                       const struct frame *in, bool sends)
{
	uint32_t v = in ? f->payload[in->payload + i] : UNDEFINED;
	uint32_t src = coll_step_chunk(p, s, s->src_chunk, i), dst = coll_step_chunk(p, s, s->dst_chunk, i);

	switch ((enum coll_step_op)s->op) {
	case COLL_STEP_SEND: v = read_operand(f, s, is_aside(f, s) ? COLL_BUF_IN : s->src, src); break;
	case COLL_STEP_COPY:
		v = copy_value(f, s, src);
		check_classes(f, length_class(f, f->rank, s->src, src), length_class(f, f->rank, s->dst, dst), i);
		break;
	case COLL_STEP_RECV_REDUCE:
	case COLL_STEP_RECV_REDUCE_SEND:
	case COLL_STEP_RECV_REDUCE_COPY_SEND: v = reduce_incoming(f, s, i, v, read_operand(f, s, s->src, src)); break;
	default: break;
	}
	if (coll_step_writes_dst(s->op) && !is_aside(f, s))
		store(f, f->rank, s->dst, dst, v);
	if (sends)
		put(f, v);
}

/* ---- Barrier ---- */

static void merge(uint64_t *to, const uint64_t *from, size_t words)
{
	for (size_t i = 0; i < words; i++)
		to[i] |= from[i];
}

static void barrier_step(struct coll_flow *f, const struct coll_step *s, uint32_t frame_in, uint32_t frame_out)
{
	const struct coll_plan *p = f->plans[f->rank];
	uint64_t *known = f->lane_known + ((size_t)f->rank * COLL_LANES_MAX + s->lane) * f->words;
	uint64_t *steps = f->step_known + f->step_base[f->rank] * f->words;

	if (s->wait_count)
		merge(known, steps + (p->lane_first[s->wait_lane] + s->wait_count - 1) * f->words, f->words);
	if (frame_in != UNDEFINED)
		merge(known, f->frame_known + frame_in * f->words, f->words);
	if (frame_out != UNDEFINED)
		merge(f->frame_known + frame_out * f->words, known, f->words);
	merge(steps + f->step * f->words, known, f->words);
}

static void check_barrier(struct coll_flow *f, int rank)
{
	uint64_t *known = f->lane_known + (size_t)rank * COLL_LANES_MAX * f->words;

	for (uint32_t l = 1; l < COLL_LANES_MAX; l++)
		merge(known, known + l * f->words, f->words);
	for (int r = 0; r < f->size; r++)
		if (!(known[r / 64] >> (r % 64) & 1)) {
			snprintf(f->why, f->why_bytes, "rank %d leaves the barrier before rank %d is sure to enter",
			         rank, r);
			f->values.status = COLL_ERR_INTERNAL;
			return;
		}
}

/* ---- The hook ---- */

bool coll_flow_step(void *arg, int rank, uint32_t step, uint32_t frame_in, uint32_t frame_out)
{
	struct coll_flow *f = arg;
	const struct coll_plan *p = f->plans[rank];
	const struct coll_step *s = &p->steps[step];
	const struct frame *in = frame_in == UNDEFINED ? NULL : &f->frames[frame_in];

	f->rank = rank;
	f->step = step;
	if (f->kind == COLL_KIND_BARRIER)
		barrier_step(f, s, frame_in, frame_out);
	if (s->op == COLL_STEP_WAIT)
		return true;
	if (frame_out != UNDEFINED)
		f->frames[frame_out] = (struct frame){f->payload_used, rank, step};
	if (in)
		check_lengths(f, p, s, in);
	if (s->op == COLL_STEP_REDUCE)
		reduce_run(f, p, s);
	else
		for (uint32_t i = 0; i < s->run && !f->values.status; i++)
			move_chunk(f, p, s, i, in, frame_out != UNDEFINED);
	if (f->values.status)
		report(f);
	return !f->values.status;
}

/* ---- The result ---- */

/* chunk of out on rank must be contribution (from, of). */
static void expect_raw(struct coll_flow *f, int rank, uint32_t chunk, uint32_t from, uint32_t of)
{
	uint32_t v = f->out[(size_t)rank * f->chunks + chunk];

	if (f->values.status || v == from * f->chunks + of)
		return;
	f->values.status = COLL_ERR_INTERNAL;
	if (v == UNDEFINED)
		snprintf(f->why, f->why_bytes, "rank %d: out chunk %u is never written", rank, chunk);
	else
		snprintf(f->why, f->why_bytes,
		         "rank %d: out chunk %u holds chunk %u of rank %u, not chunk %u of rank %u", rank, chunk,
		         v % f->chunks, v / f->chunks, of, from);
}

static const struct coll_expression *expect_sum(struct coll_flow *f, int rank, uint32_t chunk)
{
	uint32_t v = f->out[(size_t)rank * f->chunks + chunk];
	const struct coll_expression *x = coll_value_expression(&f->values, v);
	const char *what = NULL;

	if (f->values.status)
		return x;
	if (!x)
		what = v == UNDEFINED ? "is never written" : "holds a single contribution";
	else if (x->chunk != chunk)
		what = "holds another chunk";
	else if (!coll_value_is_complete(&f->values, rank, x))
		what = "lacks contributions, or has some twice";
	else if (!x->posted)
		what = "is never post-scaled (no step is final)";
	else if (f->opt.ordered && (x->low != 0 || x->high != coll_value_last(&f->values, rank)))
		what = "is not in rank order";
	if (what) {
		f->values.status = COLL_ERR_INTERNAL;
		snprintf(f->why, f->why_bytes, "rank %d: out chunk %u %s", rank, chunk, what);
	}
	return x;
}

static void expect_same_tree(struct coll_flow *f, int rank)
{
	for (uint32_t c = 0; c < f->chunks && !f->values.status; c++) {
		const struct coll_expression *mine = expect_sum(f, rank, c), *first = expect_sum(f, 0, c);

		if (f->values.status || mine->tree == first->tree)
			continue;
		f->values.status = COLL_ERR_INTERNAL;
		snprintf(f->why, f->why_bytes, "ranks 0 and %d: chunk %u is rounded in different orders", rank, c);
	}
}

static void check_rank(struct coll_flow *f, int rank)
{
	const uint32_t r = (uint32_t)rank;

	switch (f->kind) {
	case COLL_KIND_ALL_REDUCE: expect_same_tree(f, rank); break;
	case COLL_KIND_REDUCE:
		for (uint32_t c = 0; rank == f->root && c < f->chunks; c++)
			expect_sum(f, rank, c);
		break;
	case COLL_KIND_SCAN:
	case COLL_KIND_EXCLUSIVE_SCAN:
		for (uint32_t c = 0; coll_value_last(&f->values, rank) >= 0 && c < f->chunks; c++)
			expect_sum(f, rank, c);
		break;
	case COLL_KIND_REDUCE_SCATTER: expect_sum(f, rank, r); break;
	case COLL_KIND_BROADCAST:
		for (uint32_t c = 0; c < f->chunks; c++)
			expect_raw(f, rank, c, (uint32_t)f->root, c);
		break;
	case COLL_KIND_ALL_GATHER:
		for (uint32_t c = 0; c < f->chunks; c++)
			expect_raw(f, rank, c, c, c);
		break;
	case COLL_KIND_ALL_TO_ALL:
		for (uint32_t c = 0; c < f->chunks; c++)
			expect_raw(f, rank, c, c, r);
		break;
	case COLL_KIND_GATHER:
		for (uint32_t c = 0; rank == f->root && c < f->chunks; c++)
			expect_raw(f, rank, c, c, c);
		break;
	case COLL_KIND_SCATTER: expect_raw(f, rank, r, (uint32_t)f->root, r); break;
	case COLL_KIND_BARRIER: check_barrier(f, rank); break;
	default: f->values.status = COLL_ERR_UNSUPPORTED;
	}
}

coll_status coll_flow_check(struct coll_flow *f)
{
	for (int rank = 0; rank < f->size && !f->values.status; rank++)
		check_rank(f, rank);
	return f->values.status;
}

coll_status coll_flow_status(const struct coll_flow *f)
{
	return f->values.status;
}

/* ---- Life ---- */

static void fill(uint32_t *p, size_t n, uint32_t v)
{
	for (size_t i = 0; i < n; i++)
		p[i] = v;
}

/* Whether this rank's in holds chunk c at the start. */
static bool begins_with(const struct coll_flow *f, int rank, uint32_t c)
{
	switch (f->kind) {
	case COLL_KIND_BROADCAST:
	case COLL_KIND_SCATTER: return rank == f->root;
	case COLL_KIND_ALL_GATHER:
	case COLL_KIND_GATHER: return c == (uint32_t)rank;
	case COLL_KIND_BARRIER: return false;
	default: return true;
	}
}

static coll_status allocate_memory(struct coll_flow *f)
{
	size_t places = (size_t)f->size * f->chunks, buffers = 0, total = 0;

	f->out = malloc((places + 1) * sizeof(*f->out));
	f->scratch_base = malloc((size_t)f->size * sizeof(*f->scratch_base));
	for (int r = 0; r < f->size; r++)
		buffers += f->plans[r]->nscratch;
	f->scratch_of = malloc((buffers + 1) * sizeof(*f->scratch_of));
	if (!f->out || !f->scratch_base || !f->scratch_of)
		return COLL_ERR_MEMORY;
	buffers = 0;
	for (int r = 0; r < f->size; r++) {
		f->scratch_base[r] = buffers;
		for (uint32_t k = 0; k < f->plans[r]->nscratch; k++) {
			f->scratch_of[buffers++] = total;
			total += f->plans[r]->scratch[k].count;
		}
	}
	f->scratch = malloc((total + 1) * sizeof(*f->scratch));
	if (!f->scratch)
		return COLL_ERR_MEMORY;
	fill(f->scratch, total, UNDEFINED);
	fill(f->out, places, UNDEFINED);
	for (int r = 0; r < f->size; r++)
		for (uint32_t c = 0; is_in_place(f, r) && c < f->chunks; c++)
			if (begins_with(f, r, c))
				f->out[(size_t)r * f->chunks + c] = (uint32_t)r * f->chunks + c;
	return COLL_OK;
}

static coll_status allocate_barrier(struct coll_flow *f, uint32_t frames)
{
	size_t steps = 0, n = (size_t)f->size;

	f->words = (n + 63) / 64;
	f->step_base = malloc(n * sizeof(*f->step_base));
	if (!f->step_base)
		return COLL_ERR_MEMORY;
	for (size_t r = 0; r < n; r++) {
		f->step_base[r] = steps;
		steps += coll_plan_nsteps(f->plans[r]);
	}
	f->lane_known = calloc(n * COLL_LANES_MAX, f->words * sizeof(uint64_t));
	f->frame_known = calloc((size_t)frames + 1, f->words * sizeof(uint64_t));
	f->step_known = calloc(steps + 1, f->words * sizeof(uint64_t));
	if (!f->lane_known || !f->frame_known || !f->step_known)
		return COLL_ERR_MEMORY;
	for (size_t r = 0; r < n; r++)
		for (uint32_t l = 0; l < COLL_LANES_MAX; l++)
			f->lane_known[(r * COLL_LANES_MAX + l) * f->words + r / 64] |= (uint64_t)1 << (r % 64);
	return COLL_OK;
}

coll_status coll_flow_create(struct coll_flow **flow, const struct coll_plan *const *plans, int size, uint32_t frames,
                             const struct coll_verify_options *opt, char *why, size_t why_bytes)
{
	struct coll_flow *f = calloc(1, sizeof(*f));
	coll_status status;

	if (!f)
		return COLL_ERR_MEMORY;
	f->plans = plans;
	f->opt = *opt;
	f->kind = plans[0]->kind;
	f->size = size;
	f->root = plans[0]->root;
	f->chunks = plans[0]->chunks;
	f->why = why;
	f->why_bytes = why_bytes;
	f->frames = malloc(((size_t)frames + 1) * sizeof(*f->frames));
	status = coll_values_init(&f->values, f->kind, size, f->chunks, opt->ordered);
	if (!status)
		status = f->frames ? allocate_memory(f) : COLL_ERR_MEMORY;
	if (!status && f->kind == COLL_KIND_BARRIER)
		status = allocate_barrier(f, frames);
	if (status)
		coll_flow_destroy(&f);
	else
		*flow = f;
	return status;
}

void coll_flow_destroy(struct coll_flow **flow)
{
	struct coll_flow *f = *flow;

	if (!f)
		return;
	free(f->out);
	free(f->scratch);
	free(f->scratch_of);
	free(f->scratch_base);
	coll_values_fini(&f->values);
	free(f->payload);
	free(f->frames);
	free(f->lane_known);
	free(f->frame_known);
	free(f->step_known);
	free(f->step_base);
	free(f);
	*flow = NULL;
}
