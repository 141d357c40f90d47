/*
 * Graphs, their executables, and user objects. A launch enqueues the nodes in the order of
 * capture: those of the branch where the capture began in the stream of the launch, others in
 * streams of the executable. A node waits for its dependencies, the first of each branch for
 * the start of the launch, and the launch ends when all branches have.
 */
#include "tests/softcuda/graph.h"

#include <stdlib.h>
#include <string.h>

struct CUuserObject_st {
	unsigned refs;
	void *ptr;
	CUhostFn destroy;
	CUuserObject next;
};

struct CUgraphExec_st {
	CUgraph graph; /* its own copy */
	CUcontext ctx;
	CUstream *streams; /* by branch; that of branch 0 is the launch's */
	struct soft_op *last;
	int running;
	bool dead;
	CUgraphExec next;
};

static CUgraph graphs;
static CUgraphExec execs;
static CUuserObject objects;

/* ---- user objects ---- */

static void *destroy_main(void *arg)
{
	CUuserObject o = arg;

	soft_in_callback = true; /* may not call the driver */
	o->destroy(o->ptr);
	return NULL;
}

static void object_release(CUuserObject o, unsigned count)
{
	pthread_attr_t attr;
	pthread_t thread;

	o->refs -= count;
	if (o->refs)
		return;
	if (soft_planted(RULE_user_object)) {
		o->destroy(o->ptr);
		return;
	}
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	if (pthread_create(&thread, &attr, destroy_main, o))
		abort();
	pthread_attr_destroy(&attr);
}

static bool is_object(CUuserObject object)
{
	for (CUuserObject o = objects; o; o = o->next)
		if (o == object)
			return o->refs > 0;
	return false;
}

static void objects_release(CUgraph graph)
{
	while (graph->objects) {
		struct soft_object *o = graph->objects;

		graph->objects = o->next;
		object_release(o->object, o->count);
		free(o);
	}
}

static bool objects_add(CUgraph graph, CUuserObject object, unsigned count)
{
	struct soft_object *o = calloc(1, sizeof(*o));

	if (!o)
		return false;
	o->object = object;
	o->count = count;
	o->next = graph->objects;
	graph->objects = o;
	return true;
}

CUresult cuUserObjectCreate(CUuserObject *out, void *ptr, CUhostFn destroy, unsigned refs, unsigned flags)
{
	CUuserObject o;

	ENTER(cuUserObjectCreate);
	if (!out || !destroy || !refs || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	o = calloc(1, sizeof(*o));
	if (!o)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	o->refs = refs;
	o->ptr = ptr;
	o->destroy = destroy;
	o->next = objects;
	objects = o;
	*out = o;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned count)
{
	ENTER(cuUserObjectRelease);
	if (!is_object(object) || !count || count > object->refs)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	object_release(object, count);
	return soft_leave(CUDA_SUCCESS);
}

/* ---- graphs ---- */

CUgraph soft_graph_new(void)
{
	CUgraph graph = calloc(1, sizeof(*graph));

	if (!graph)
		return NULL;
	graph->next = graphs;
	graphs = graph;
	return graph;
}

CUgraphNode soft_graph_add(CUgraph graph, struct soft_work *work, int branch, CUgraphNode *deps, int deps_count)
{
	CUgraphNode *nodes = realloc(graph->nodes, (size_t)(graph->count + 1) * sizeof(*nodes));
	CUgraphNode node = calloc(1, sizeof(*node));

	if (!nodes || !node || !(node->deps = calloc((size_t)deps_count + 1, sizeof(CUgraphNode))))
		abort();
	node->work = *work;
	work->kind = OP_NOP;
	node->branch = branch;
	node->index = graph->count;
	node->deps_count = deps_count;
	if (deps_count)
		memcpy(node->deps, deps, (size_t)deps_count * sizeof(CUgraphNode));
	graph->nodes = nodes;
	nodes[graph->count++] = node;
	return node;
}

void soft_graph_end(CUgraph graph)
{
	for (int i = 0; i < graph->count; i++) {
		soft_work_clear(&graph->nodes[i]->work);
		free(graph->nodes[i]->deps);
		free(graph->nodes[i]);
	}
	free(graph->nodes);
	graph->nodes = NULL;
	graph->count = 0;
	graph->dead = true;
	objects_release(graph);
}

static bool is_graph(CUgraph graph)
{
	for (CUgraph g = graphs; g; g = g->next)
		if (g == graph)
			return !g->dead;
	return false;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	ENTER(cuGraphDestroy);
	if (!is_graph(graph) || graph->capturing)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	soft_graph_end(graph);
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags)
{
	ENTER(cuGraphRetainUserObject);
	if (!is_graph(graph) || !is_object(object) || !count || flags > CU_GRAPH_USER_OBJECT_MOVE ||
	    (flags && count > object->refs))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (!objects_add(graph, object, count))
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	if (!flags)
		object->refs += count;
	return soft_leave(CUDA_SUCCESS);
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count)
{
	ENTER(cuGraphReleaseUserObject);
	if (!is_graph(graph) || !is_object(object) || !count)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	for (struct soft_object **p = &graph->objects; *p; p = &(*p)->next) {
		struct soft_object *o = *p;

		if (o->object != object || o->count < count)
			continue;
		o->count -= count;
		if (!o->count) {
			*p = o->next;
			free(o);
		}
		object_release(object, count);
		return soft_leave(CUDA_SUCCESS);
	}
	return soft_leave(CUDA_ERROR_INVALID_VALUE);
}

/* ---- executables ---- */

static bool copy_graph(CUgraph to, CUgraph from)
{
	to->branches = from->branches;
	for (int i = 0; i < from->count; i++) {
		const struct CUgraphNode_st *n = from->nodes[i];
		struct soft_work work;
		CUgraphNode copy;

		if (!soft_work_copy(&work, &n->work))
			return false;
		copy = soft_graph_add(to, &work, n->branch, n->deps, n->deps_count);
		for (int j = 0; j < n->deps_count; j++)
			copy->deps[j] = to->nodes[n->deps[j]->index];
	}
	for (struct soft_object *o = from->objects; o; o = o->next) {
		if (!objects_add(to, o->object, 1))
			return false;
		o->object->refs++;
	}
	return true;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph graph, unsigned long long flags)
{
	CUcontext ctx;
	CUgraphExec exec;
	CUresult result;

	ENTER_CTX(cuGraphInstantiateWithFlags, ctx);
	result = soft_capture_unsafe();
	if (result)
		return soft_leave(result);
	if (!out || !is_graph(graph) || graph->capturing || flags & ~(unsigned long long)15)
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	exec = calloc(1, sizeof(*exec));
	if (!exec)
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	exec->ctx = ctx;
	exec->graph = soft_graph_new();
	exec->streams = calloc((size_t)graph->branches + 1, sizeof(CUstream));
	if (!exec->graph || !exec->streams || !copy_graph(exec->graph, graph))
		return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
	exec->graph->capturing = true; /* not the user's */
	for (int i = 1; i < graph->branches; i++) {
		exec->streams[i] = soft_stream_new(ctx, CU_STREAM_NON_BLOCKING);
		if (!exec->streams[i])
			return soft_leave(CUDA_ERROR_OUT_OF_MEMORY);
		exec->streams[i]->internal = true;
	}
	exec->next = execs;
	execs = exec;
	*out = exec;
	return soft_leave(CUDA_SUCCESS);
}

static bool is_exec(CUgraphExec exec)
{
	for (CUgraphExec e = execs; e; e = e->next)
		if (e == exec)
			return !e->dead;
	return false;
}

static void exec_end(CUgraphExec exec)
{
	for (int i = 1; i < exec->graph->branches; i++)
		exec->streams[i]->dead = true;
	soft_graph_end(exec->graph);
	soft_op_unref(exec->last);
	exec->last = NULL;
}

void soft_exec_done(CUgraphExec exec)
{
	if (--exec->running == 0 && exec->dead)
		exec_end(exec);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	ENTER(cuGraphExecDestroy);
	if (!is_exec(exec))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	exec->dead = true;
	if (!exec->running)
		exec_end(exec);
	return soft_leave(CUDA_SUCCESS);
}

static struct soft_op *push_nop(CUstream s, struct soft_op *const *deps, int count)
{
	struct soft_work work = {.kind = OP_NOP, .ctx = s->ctx};

	return soft_push(s, &work, deps, count);
}

/* The node's work as an operation. An external event has at each launch the record that is its last one then. */
static struct soft_op *push_node(CUgraphNode n, CUstream on, struct soft_op **wait, int count)
{
	const bool event = n->work.kind == OP_EVENT && !soft_planted(RULE_graph_external);
	struct soft_work work;
	struct soft_op *op;

	if (!soft_work_copy(&work, &n->work))
		abort();
	if (event && !n->work.event.record && n->work.event.event->op)
		wait[count++] = n->work.event.event->op;
	op = soft_op_ref(soft_push(on, &work, wait, count));
	if (event && n->work.event.record)
		soft_event_set(n->work.event.event, op);
	return op;
}

static CUresult launch(CUgraphExec exec, CUstream s)
{
	CUgraph graph = exec->graph;
	struct soft_op **ops = calloc((size_t)graph->count + (size_t)graph->branches + 2, sizeof(*ops));
	struct soft_op **deps = ops + graph->count;
	struct soft_op *start;
	int count = 0;

	if (!ops)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec->running++; /* before any wait for room */
	start = soft_op_ref(push_nop(s, &exec->last, exec->last && !soft_planted(RULE_graph_serial) ? 1 : 0));
	for (int i = 0; i < graph->count; i++) {
		CUgraphNode n = graph->nodes[i];
		CUstream on = n->branch && !soft_planted(RULE_graph_branches) ? exec->streams[n->branch] : s;
		struct soft_op **wait = calloc((size_t)n->deps_count + 2, sizeof(*wait));

		if (!wait)
			abort();
		for (int j = 0; j < n->deps_count; j++)
			wait[j] = ops[n->deps[j]->index];
		wait[n->deps_count] = start;
		ops[i] = push_node(n, on, wait, n->deps_count + 1);
		free(wait);
	}
	for (int i = 1; i < graph->branches; i++)
		if (exec->streams[i]->last)
			deps[count++] = exec->streams[i]->last;
	soft_op_unref(exec->last);
	exec->last = soft_op_ref(push_nop(s, deps, count));
	exec->last->exec = exec;
	for (int i = 0; i < graph->count; i++)
		soft_op_unref(ops[i]);
	soft_op_unref(start);
	free(ops);
	return CUDA_SUCCESS;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream handle)
{
	CUcontext ctx;
	CUresult result;
	CUstream s;

	ENTER_CTX(cuGraphLaunch, ctx);
	result = soft_stream(ctx, handle, &s);
	if (result)
		return soft_leave(result);
	if (!is_exec(exec))
		return soft_leave(CUDA_ERROR_INVALID_VALUE);
	if (s->capture) /* a graph as a node of another one is not imitated */
		return soft_leave(soft_capture_wrong(s->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED));
	if (s->legacy) {
		result = soft_capture_implicit(ctx);
		if (result)
			return soft_leave(result);
	}
	return soft_leave(launch(exec, s));
}
