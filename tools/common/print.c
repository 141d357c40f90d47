/*
 * A plan as text; docs/design/plans.md has the grammar.
 */
#include "tools/common/print.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"
#include "plan/step.h"

struct printer {
	const struct coll_plan *plan;
	char *buf;
	size_t cap;
	size_t used; /* may exceed cap: the length needed */
};

static void put(struct printer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void put(struct printer *w, const char *format, ...)
{
	size_t room = w->used < w->cap ? w->cap - w->used : 0;
	va_list ap;
	int n;

	va_start(ap, format);
	n = vsnprintf(room ? w->buf + w->used : NULL, room, format, ap);
	va_end(ap);
	if (n > 0)
		w->used += (size_t)n;
}

static void put_buffer(struct printer *w, uint8_t buf)
{
	if (buf == COLL_BUF_IN)
		put(w, "in");
	else if (buf == COLL_BUF_OUT)
		put(w, "out");
	else
		put(w, "s%u", buf - COLL_BUF_SCRATCH);
}

/* [first+run/group:stride%] or [first+run%span], leaving out what is as usual. */
static void put_run(struct printer *w, const struct coll_step *s, uint32_t first)
{
	put(w, "[%u", first);
	if (s->run != 1)
		put(w, "+%u", s->run);
	if (s->op != COLL_STEP_REDUCE && s->group)
		put(w, "/%u:%u", s->group, s->stride);
	if (s->flags & COLL_STEP_WRAP) {
		put(w, "%%");
		if (s->op != COLL_STEP_REDUCE && !s->group && s->stride)
			put(w, "%u", s->stride);
	}
	put(w, "]");
}

static void put_src(struct printer *w, const struct coll_step *s)
{
	put_buffer(w, s->src);
	put_run(w, s, s->src_chunk);
}

static void put_dst(struct printer *w, const struct coll_step *s)
{
	put(w, " ");
	put_buffer(w, s->dst);
	put_run(w, s, s->dst_chunk);
}

/* " from 3 op in[2]" or " in[2] op from 3". */
static void put_operands(struct printer *w, const struct coll_step *s)
{
	if (s->flags & COLL_STEP_INCOMING_LEFT) {
		put(w, " from %d op ", w->plan->peers[s->peer_recv]);
		put_src(w, s);
	} else {
		put(w, " ");
		put_src(w, s);
		put(w, " op from %d", w->plan->peers[s->peer_recv]);
	}
}

/* " s0..s2[4]", the inputs of a REDUCE. */
static void put_inputs(struct printer *w, const struct coll_step *s)
{
	put(w, " ");
	put_buffer(w, s->src);
	if (s->stride > 1) {
		put(w, "..");
		put_buffer(w, (uint8_t)(s->src + s->stride - 1));
	}
	put_run(w, s, s->src_chunk);
	if (s->group != COLL_NO_SPLICE)
		put(w, " splice %u", s->group);
}

static void put_body(struct printer *w, const struct coll_step *s)
{
	switch ((enum coll_step_op)s->op) {
	case COLL_STEP_SEND:
		put(w, " ");
		put_src(w, s);
		break;
	case COLL_STEP_RECV:
	case COLL_STEP_RECV_COPY_SEND:
		put_dst(w, s);
		put(w, " from %d", w->plan->peers[s->peer_recv]);
		break;
	case COLL_STEP_COPY:
		put_dst(w, s);
		put(w, " = ");
		put_src(w, s);
		break;
	case COLL_STEP_REDUCE:
		put_dst(w, s);
		put(w, " =");
		put_inputs(w, s);
		break;
	case COLL_STEP_RECV_REDUCE:
	case COLL_STEP_RECV_REDUCE_COPY_SEND:
		put_dst(w, s);
		put(w, " =");
		put_operands(w, s);
		break;
	case COLL_STEP_RECV_REDUCE_SEND: put_operands(w, s); break;
	default: break;
	}
	if (coll_step_sends(s->op))
		put(w, " to %d", w->plan->peers[s->peer_send]);
}

/* " of 2+1", or " of 2+2x3,1+2x1": what the operands hold, and for how many chunks if that varies. */
static void put_weights(struct printer *w, const struct coll_step *s)
{
	const bool left = s->flags & COLL_STEP_INCOMING_LEFT;
	uint32_t count, first = 0;
	const struct coll_plan_weight *weight = coll_step_weights(w->plan, s, &count);

	for (uint32_t k = 0; k < count; k++, first = weight++->end) {
		put(w, "%s%u+%u", k ? "," : " of ", left ? weight->incoming : weight->own,
		    left ? weight->own : weight->incoming);
		if (count > 1)
			put(w, "x%u", weight->end - first);
	}
}

static void put_step(struct printer *w, uint32_t number, const struct coll_step *s)
{
	put(w, "%4u %s", number, coll_step_op_name(s->op));
	put_body(w, s);
	put_weights(w, s);
	if (s->flags & COLL_STEP_PRE)
		put(w, " pre");
	if (s->flags & COLL_STEP_POST)
		put(w, " post");
	if (s->flags & COLL_STEP_ARM)
		put(w, " arm");
	if (s->flags & COLL_STEP_ASIDE)
		put(w, " aside");
	if (s->wait_count)
		put(w, " after %u:%u", s->wait_lane, s->wait_count);
	put(w, "\n");
}

size_t coll_plan_print(const struct coll_plan *p, char *buf, size_t len_bytes)
{
	struct printer w = {.plan = p, .buf = buf, .cap = len_bytes};

	if (len_bytes)
		buf[0] = '\0';
	put(&w, "plan %s %s rank %d size %d root %d chunks %u run %u in_flight %u %s\n", coll_plan_kind_name(p->kind),
	    p->algo, p->rank, p->size, p->root, p->chunks, p->max_run, p->max_in_flight,
	    p->fused ? "fused" : "logical");
	for (uint32_t k = 0; k < p->nscratch; k++)
		put(&w, "scratch %u first %u count %u\n", k, p->scratch[k].first, p->scratch[k].count);
	for (uint32_t c = 0; p->block_at && c < p->chunks; c++)
		put(&w, "%s%u%s", c ? " " : "blocks ", p->block_at[c], c + 1 == p->chunks ? "\n" : "");
	for (uint32_t l = 0; l < p->nlanes; l++) {
		put(&w, "lane %u\n", l);
		for (uint32_t i = p->lane_first[l]; i < p->lane_first[l + 1]; i++)
			put_step(&w, i - p->lane_first[l], &p->steps[i]);
	}
	return w.used;
}
