/*
 * Stream capture. While a stream captures, its work becomes nodes of a graph; its tips are the nodes
 * which the next one depends on. An event carries tips to other streams, which then capture
 * as well. A wrong call kills the capture: what follows gets 901, and its end gives no graph.
 */
#include "tests/softcuda/graph.h"

#include <stdlib.h>
#include <string.h>

enum { BRANCHES_MAX = 64 };

struct soft_capture {
	CUgraph graph;
	CUstream branch[BRANCHES_MAX]; /* 0: where it began */
	CUstreamCaptureMode mode;
	pthread_t thread;
	unsigned long long id;
	bool dead, ended;
	struct soft_capture *next;
};

static struct soft_capture *captures; /* all; ended ones too, since events point to them */
static __thread CUstreamCaptureMode thread_mode;

/* ---- tips ---- */

static void tips_set(CUgraphNode **tips, int *count, CUgraphNode *from, int from_count)
{
	CUgraphNode *copy = NULL;

	if (from_count) {
		copy = malloc((size_t)from_count * sizeof(CUgraphNode));
		if (!copy)
			abort();
		memcpy(copy, from, (size_t)from_count * sizeof(CUgraphNode));
	}
	free(*tips);
	*tips = copy;
	*count = from_count;
}

static void tips_add(CUstream s, CUgraphNode *from, int from_count)
{
	for (int i = 0; i < from_count; i++) {
		CUgraphNode *tips;
		bool known = false;

		for (int j = 0; j < s->tips_count; j++)
			known |= s->tips[j] == from[i];
		if (known)
			continue;
		tips = realloc(s->tips, (size_t)(s->tips_count + 1) * sizeof(*tips));
		if (!tips)
			abort();
		s->tips = tips;
		s->tips[s->tips_count++] = from[i];
	}
}

/* ---- what other calls ask ---- */

CUresult soft_capture_wrong(struct soft_capture *c, CUresult why)
{
	if (!soft_planted(RULE_capture_dead))
		c->dead = true;
	return why;
}

CUresult soft_capture_unsafe(void)
{
	CUresult result = CUDA_SUCCESS;

	if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || soft_planted(RULE_capture_unsafe))
		return CUDA_SUCCESS;
	for (struct soft_capture *c = captures; c; c = c->next) {
		const bool own = pthread_equal(c->thread, pthread_self()) && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
		const bool any =
		        c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL && thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

		if (!c->ended && (own || any))
			result = soft_capture_wrong(c, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	}
	return result;
}

static struct soft_capture *blocking_capture(CUcontext ctx)
{
	for (CUstream s = ctx->streams; s; s = s->next)
		if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING))
			return s->capture;
	return NULL;
}

CUresult soft_capture_implicit(CUcontext ctx)
{
	struct soft_capture *c = blocking_capture(ctx);

	if (!c || soft_planted(RULE_capture_legacy))
		return CUDA_SUCCESS;
	return soft_capture_wrong(c, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void soft_capture_stream_gone(CUstream s)
{
	s->capture->dead = true;
	for (int i = 0; i < BRANCHES_MAX; i++)
		if (s->capture->branch[i] == s)
			s->capture->branch[i] = NULL;
	s->capture = NULL;
}

static int branch_of(struct soft_capture *c, CUstream s)
{
	for (int i = 0; i < BRANCHES_MAX; i++)
		if (c->branch[i] == s)
			return i;
	return -1;
}

CUresult soft_capture_add(CUstream s, struct soft_work *work)
{
	struct soft_capture *c = s->capture;
	CUgraphNode node;

	if (c->dead)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (soft_planted(RULE_capture_records)) {
		soft_push(s, work, NULL, 0);
		return CUDA_SUCCESS;
	}
	node = soft_graph_add(c->graph, work, branch_of(c, s), s->tips, s->tips_count);
	tips_set(&s->tips, &s->tips_count, &node, 1);
	return CUDA_SUCCESS;
}

CUresult soft_capture_record(CUstream s, CUevent e)
{
	if (s->capture->dead)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	e->capture = s->capture;
	tips_set(&e->tips, &e->tips_count, s->tips, s->tips_count);
	return CUDA_SUCCESS;
}

CUresult soft_capture_wait(CUstream s, CUevent e)
{
	struct soft_capture *c = e->capture;
	int branch;

	if (c && c->ended)
		return CUDA_ERROR_CAPTURED_EVENT;
	if ((c && c->dead) || (s->capture && s->capture->dead))
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!c) {
		if (!e->op || soft_planted(RULE_capture_isolated))
			return CUDA_SUCCESS;
		return soft_capture_wrong(s->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	}
	if (s->capture && s->capture != c) {
		soft_capture_wrong(s->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
		return soft_capture_wrong(c, CUDA_ERROR_STREAM_CAPTURE_MERGE);
	}
	if (s->legacy)
		return soft_capture_wrong(c, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	if (!s->capture && !soft_planted(RULE_capture_joins)) {
		branch = branch_of(c, NULL);
		if (branch < 0)
			return CUDA_ERROR_OUT_OF_MEMORY;
		c->branch[branch] = s;
		if (branch >= c->graph->branches)
			c->graph->branches = branch + 1;
		s->capture = c;
	}
	if (s->capture)
		tips_add(s, e->tips, e->tips_count);
	return CUDA_SUCCESS;
}

/* ---- entry points ---- */

#define STREAM(handle, s)                                          \
	do {                                                       \
		CUresult found = soft_stream(ctx, (handle), &(s)); \
		if (found)                                         \
			return soft_leave(found);                  \
	} while (0)

CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode)
{
	struct soft_capture *c;
	CUcontext ctx;
	CUstream s;

	ENTER_CTX(cuStreamBeginCapture, ctx);
	STREAM(handle, s);
	if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (s->legacy && !soft_planted(RULE_capture_legacy))
		return soft_leave(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	if (s->capture)
		return soft_leave(CUDA_ERROR_ILLEGAL_STATE);
	c = calloc(1, sizeof(*c));
	if (!c || !(c->graph = soft_graph_new())) {
		free(c);
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	}
	c->graph->capturing = true;
	c->graph->branches = 1;
	c->branch[0] = s;
	c->mode = mode;
	c->thread = pthread_self();
	c->id = ++soft.ids;
	c->next = captures;
	captures = c;
	s->capture = c;
	return soft_leave(CUDA_SUCCESS);
}

/* Whether all nodes are ancestors of the tips. */
static bool joined(CUgraph graph, CUgraphNode *tips, int count)
{
	for (int i = 0; i < graph->count; i++)
		graph->nodes[i]->mark = false;
	for (int i = 0; i < count; i++)
		tips[i]->mark = true;
	for (int i = graph->count - 1; i >= 0; i--) { /* dependencies come before */
		if (!graph->nodes[i]->mark)
			return false;
		for (int j = 0; j < graph->nodes[i]->deps_count; j++)
			graph->nodes[i]->deps[j]->mark = true;
	}
	return true;
}

CUresult cuStreamEndCapture(CUstream handle, CUgraph *out)
{
	struct soft_capture *c;
	CUresult result = CUDA_SUCCESS;
	CUcontext ctx;
	CUstream s;

	ENTER_CTX(cuStreamEndCapture, ctx);
	STREAM(handle, s);
	if (!out)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	*out = NULL;
	c = s->capture;
	if (!c)
		return soft_leave(CUDA_ERROR_ILLEGAL_STATE);
	if (c->branch[0] != s && !soft_planted(RULE_capture_thread))
		return soft_leave(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()) &&
	    !soft_planted(RULE_capture_thread))
		return soft_leave(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	if (c->dead)
		result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	else if (!joined(c->graph, s->tips, s->tips_count) && !soft_planted(RULE_capture_joins))
		result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
	c->ended = true;
	c->graph->capturing = false;
	for (int i = 0; i < BRANCHES_MAX; i++) {
		if (!c->branch[i])
			continue;
		tips_set(&c->branch[i]->tips, &c->branch[i]->tips_count, NULL, 0);
		c->branch[i]->capture = NULL;
	}
	if (result)
		soft_graph_end(c->graph);
	else
		*out = c->graph;
	return soft_leave(result);
}

static CUstreamCaptureStatus status(const struct soft_capture *c)
{
	return !c        ? CU_STREAM_CAPTURE_STATUS_NONE
	       : c->dead ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
	                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *out)
{
	CUcontext ctx;
	CUstream s;

	ENTER_CTX(cuStreamIsCapturing, ctx);
	STREAM(handle, s);
	if (!out)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (s->legacy && blocking_capture(ctx) && !soft_planted(RULE_capture_legacy))
		return soft_leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT); /* this query leaves the capture alive */
	*out = status(s->capture);
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *graph,
                                   const CUgraphNode **deps, size_t *count)
{
	CUcontext ctx;
	CUstream s;

	ENTER_CTX(cuStreamGetCaptureInfo, ctx);
	STREAM(handle, s);
	if (!out)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (s->legacy && blocking_capture(ctx) && !soft_planted(RULE_capture_legacy))
		return soft_leave(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	*out = status(s->capture);
	if (!s->capture)
		return soft_leave(CUDA_SUCCESS);
	if (id)
		*id = s->capture->id;
	if (graph)
		*graph = s->capture->graph;
	if (deps)
		*deps = s->tips;
	if (count)
		*count = (size_t)s->tips_count;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode before = thread_mode;

	ENTER(cuThreadExchangeStreamCaptureMode);
	if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	thread_mode = *mode;
	*mode = before;
	return soft_leave(CUDA_SUCCESS);
}
