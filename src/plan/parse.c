/*
 * Text to plan, the converse of print.c. Accepts exactly the grammar of
 * docs/design/plans.md: whitespace is free within a line, comments begin with #.
 * It checks form, not sense: the verifier does that.
 */
#include "plan/parse.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/pack.h"
#include "plan/plan.h"
#include "plan/step.h"

enum { WORD_MAX = 64, CHUNKS_MAX = 1 << 20 };

struct parser {
	const char *at;
	struct coll_plan head;
	bool have_head;
	struct coll_plan_scratch scratch[COLL_SCRATCH_MAX];
	struct coll_loose_lane lanes[COLL_LANES_MAX];
	uint32_t lane;
	uint32_t nlanes;
	uint32_t *blocks; /* malloc */
	bool bad;
	coll_status status; /* out of memory */
};

/* ---- Words ---- */

static void skip_space(struct parser *p)
{
	while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r')
		p->at++;
}

static bool at_end_of_line(struct parser *p)
{
	skip_space(p);
	return *p->at == '\0' || *p->at == '\n' || *p->at == '#';
}

/* Take text if it is next. */
static bool take(struct parser *p, const char *text)
{
	size_t n = strlen(text);

	if (p->bad || strncmp(p->at, text, n) != 0)
		return false;
	p->at += n;
	return true;
}

static void need(struct parser *p, const char *text)
{
	skip_space(p);
	if (!take(p, text))
		p->bad = true;
}

static bool is_word_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

/* Take a whole word if it is next. */
static bool take_word(struct parser *p, const char *text)
{
	size_t n = strlen(text);

	skip_space(p);
	if (p->bad || strncmp(p->at, text, n) != 0 || is_word_char(p->at[n]))
		return false;
	p->at += n;
	return true;
}

static void need_word(struct parser *p, const char *text)
{
	if (!take_word(p, text))
		p->bad = true;
}

static void word(struct parser *p, char out[WORD_MAX])
{
	size_t n = 0;

	skip_space(p);
	while (is_word_char(*p->at) && n < WORD_MAX - 1)
		out[n++] = *p->at++;
	out[n] = '\0';
	if (n == 0 || is_word_char(*p->at))
		p->bad = true;
}

/* A decimal number at most max. */
static uint32_t number(struct parser *p, uint32_t max)
{
	uint64_t v = 0;

	skip_space(p);
	if (*p->at < '0' || *p->at > '9')
		p->bad = true;
	while (!p->bad && *p->at >= '0' && *p->at <= '9') {
		v = v * 10 + (uint64_t)(*p->at++ - '0');
		if (v > max)
			p->bad = true;
	}
	return p->bad ? 0 : (uint32_t)v;
}

static uint32_t labelled(struct parser *p, const char *label, uint32_t max)
{
	need_word(p, label);
	return number(p, max);
}

/* ---- Places ---- */

static uint8_t buffer(struct parser *p)
{
	skip_space(p);
	if (take(p, "in"))
		return COLL_BUF_IN;
	if (take(p, "out"))
		return COLL_BUF_OUT;
	if (take(p, "s"))
		return (uint8_t)(COLL_BUF_SCRATCH + number(p, COLL_SCRATCH_MAX - 1));
	p->bad = true;
	return 0;
}

/* [first+run/group:stride%] or [first+run%span]; both runs of a step must agree. */
static uint32_t run(struct parser *p, struct coll_step *s, bool second)
{
	uint32_t first, count = 1, group = 0, stride = 0;
	bool wrap;

	need(p, "[");
	first = number(p, UINT32_MAX);
	if (take(p, "+"))
		count = number(p, UINT32_MAX);
	if (take(p, "/")) {
		group = number(p, COLL_NO_SPLICE - 1);
		need(p, ":");
		stride = number(p, UINT32_MAX);
	}
	wrap = take(p, "%");
	if (wrap && !group && *p->at >= '0' && *p->at <= '9')
		stride = number(p, UINT32_MAX);
	need(p, "]");
	if (second &&
	    (count != s->run || (!wrap && s->flags & COLL_STEP_WRAP) || (wrap && !(s->flags & COLL_STEP_WRAP))))
		p->bad = true;
	if (second && s->op != COLL_STEP_REDUCE && (group != s->group || stride != s->stride))
		p->bad = true;
	if (s->op == COLL_STEP_REDUCE && group)
		p->bad = true;
	s->run = count;
	if (s->op != COLL_STEP_REDUCE) {
		s->group = (uint16_t)group;
		s->stride = stride;
	}
	if (wrap)
		s->flags |= COLL_STEP_WRAP;
	return first;
}

static void src(struct parser *p, struct coll_step *s, bool second)
{
	s->src = buffer(p);
	s->src_chunk = run(p, s, second);
}

static void dst(struct parser *p, struct coll_step *s)
{
	s->dst = buffer(p);
	s->dst_chunk = run(p, s, false);
}

static void inputs(struct parser *p, struct coll_step *s)
{
	s->src = buffer(p);
	s->stride = 1;
	if (take(p, "..")) {
		uint8_t last = buffer(p);

		if (last < s->src)
			p->bad = true;
		else
			s->stride = (uint32_t)(last - s->src) + 1;
	}
	s->src_chunk = run(p, s, true);
	s->group = COLL_NO_SPLICE;
	if (take_word(p, "splice"))
		s->group = (uint16_t)number(p, COLL_SCRATCH_MAX);
}

static int rank_after(struct parser *p, const char *label)
{
	return (int)labelled(p, label, INT_MAX);
}

static void operands(struct parser *p, struct coll_step *s, int *from, bool second)
{
	skip_space(p);
	if (strncmp(p->at, "from ", 5) == 0) {
		s->flags |= COLL_STEP_INCOMING_LEFT;
		*from = rank_after(p, "from");
		need_word(p, "op");
		src(p, s, second);
	} else {
		src(p, s, second);
		need_word(p, "op");
		*from = rank_after(p, "from");
	}
}

/* ---- Lines ---- */

static uint8_t op(struct parser *p)
{
	char name[WORD_MAX];

	word(p, name);
	for (int i = 1; i < COLL_STEP_OP_COUNT; i++)
		if (strcmp(name, coll_step_op_name((uint8_t)i)) == 0)
			return (uint8_t)i;
	p->bad = true;
	return 0;
}

static void body(struct parser *p, struct coll_step *s, int *from)
{
	switch ((enum coll_step_op)s->op) {
	case COLL_STEP_SEND: src(p, s, false); break;
	case COLL_STEP_RECV:
	case COLL_STEP_RECV_COPY_SEND:
		dst(p, s);
		*from = rank_after(p, "from");
		break;
	case COLL_STEP_COPY:
		dst(p, s);
		need(p, "=");
		src(p, s, true);
		break;
	case COLL_STEP_REDUCE:
		dst(p, s);
		need(p, "=");
		inputs(p, s);
		break;
	case COLL_STEP_RECV_REDUCE:
	case COLL_STEP_RECV_REDUCE_COPY_SEND:
		dst(p, s);
		need(p, "=");
		operands(p, s, from, true);
		break;
	case COLL_STEP_RECV_REDUCE_SEND: operands(p, s, from, false); break;
	default: break;
	}
}

static void step_line(struct parser *p)
{
	struct coll_loose_step l = {.recv_from = -1, .send_to = -1};
	struct coll_step *s = &l.step;

	if (*p->at >= '0' && *p->at <= '9' && number(p, UINT32_MAX) != p->lanes[p->lane].count)
		p->bad = true;
	s->op = op(p);
	s->lane = (uint8_t)p->lane;
	body(p, s, &l.recv_from);
	if (coll_step_sends(s->op))
		l.send_to = rank_after(p, "to");
	if (take_word(p, "pre"))
		s->flags |= COLL_STEP_PRE;
	if (take_word(p, "post"))
		s->flags |= COLL_STEP_POST;
	if (take_word(p, "arm"))
		s->flags |= COLL_STEP_ARM;
	if (take_word(p, "aside"))
		s->flags |= COLL_STEP_ASIDE;
	if (take_word(p, "after")) {
		s->wait_lane = (uint8_t)number(p, COLL_LANES_MAX - 1);
		need(p, ":");
		s->wait_count = number(p, UINT32_MAX);
	}
	if (p->nlanes == 0)
		p->bad = true;
	if (!p->bad)
		p->status = coll_loose_push(&p->lanes[p->lane], &l);
}

static void plan_line(struct parser *p)
{
	struct coll_plan *h = &p->head;
	char name[WORD_MAX];
	int kind;

	word(p, name);
	kind = coll_plan_kind_from_name(name);
	if (kind < 0 || p->have_head)
		p->bad = true;
	h->kind = (enum coll_kind)(kind < 0 ? 0 : kind);
	word(p, name);
	snprintf(h->algo, sizeof(h->algo), "%.*s", (int)sizeof(h->algo) - 1, name);
	h->rank = (int)labelled(p, "rank", INT_MAX);
	h->size = (int)labelled(p, "size", INT_MAX);
	h->root = (int)labelled(p, "root", INT_MAX);
	h->chunks = labelled(p, "chunks", UINT32_MAX);
	h->max_run = labelled(p, "run", UINT32_MAX);
	h->max_in_flight = labelled(p, "in_flight", UINT32_MAX);
	h->fused = take_word(p, "fused");
	if (!h->fused)
		need_word(p, "logical");
	p->have_head = true;
}

/* One number for each chunk. */
static void blocks_line(struct parser *p)
{
	if (p->blocks || p->head.chunks > CHUNKS_MAX) {
		p->bad = true;
		return;
	}
	p->blocks = calloc(p->head.chunks, sizeof(*p->blocks));
	if (!p->blocks)
		p->status = COLL_ERR_MEMORY;
	for (uint32_t c = 0; p->blocks && c < p->head.chunks && !p->bad; c++)
		p->blocks[c] = number(p, p->head.chunks - 1);
	p->head.block_at = p->blocks;
}

static void line(struct parser *p)
{
	if (at_end_of_line(p))
		return;
	if (take_word(p, "plan")) {
		plan_line(p);
	} else if (!p->have_head) {
		p->bad = true;
	} else if (take_word(p, "scratch")) {
		uint32_t k = number(p, COLL_SCRATCH_MAX - 1);

		if (k != p->head.nscratch)
			p->bad = true;
		p->scratch[k].first = labelled(p, "first", UINT32_MAX);
		p->scratch[k].count = labelled(p, "count", UINT32_MAX);
		p->head.nscratch = k + 1;
	} else if (take_word(p, "blocks")) {
		blocks_line(p);
	} else if (take_word(p, "lane")) {
		p->lane = number(p, COLL_LANES_MAX - 1);
		if (p->lane != p->nlanes++)
			p->bad = true;
	} else {
		step_line(p);
	}
	if (!at_end_of_line(p))
		p->bad = true;
}

coll_status coll_plan_parse(const char *text, struct coll_plan **plan, int *line_number)
{
	struct parser p = {.at = text};
	coll_status status;

	*line_number = 1;
	for (;;) {
		line(&p);
		if (p.bad || p.status)
			break;
		p.at += strcspn(p.at, "\n");
		if (*p.at == '\0')
			break;
		p.at++;
		++*line_number;
	}
	if (!p.bad && !p.have_head)
		p.bad = true;
	status = p.bad ? COLL_ERR_ARGUMENT : p.status;
	if (!status)
		status = coll_plan_pack(&p.head, p.lanes, p.scratch, plan);
	for (uint32_t l = 0; l < COLL_LANES_MAX; l++)
		free(p.lanes[l].steps);
	free(p.blocks);
	return status;
}
