/*
 * Cases of capture, graphs and user objects.
 */
#include "tests/softcuda/cases.h"

#include <sched.h>

static CUgraphExec capture_end(CUstream s, CUgraph *graph)
{
	CUgraphExec exec;

	OK(cuStreamEndCapture(s, graph));
	OK(cuGraphInstantiateWithFlags(&exec, *graph, 0));
	return exec;
}

static void capture_records(void)
{
	CUgraphExec exec;
	CUgraph graph;
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();
	CUdeviceptr p = on_device(&w[8]), one = on_device(&w[1]);
	CUfunction f = kernel("softtest_add");

	OK(launch(f, 1, 1, s, p, p, 1, 0));
	OK(cuStreamSynchronize(s));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuStreamWaitValue32(s, one, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWriteValue32(s, one, 0, 0));
	OK(launch(f, 1, 1, s, p, p, 1, 5));
	OK(cuMemcpyAsync(p + 4, p, 4, s));
	exec = capture_end(s, &graph);
	OK(cuGraphDestroy(graph)); /* the executable has its own */
	IS(w[8], 0);
	for (uint32_t i = 1; i <= 20; i++) {
		OK(cuGraphLaunch(exec, s));
		put(&w[1], 1); /* the graph resets it */
		OK(cuStreamSynchronize(s));
		IS(get(&w[1]), 0);
		IS(w[8], 5 * i);
		IS(w[9], 5 * i);
	}
	OK(cuGraphExecDestroy(exec));
	IS(cuGraphLaunch(exec, s), CUDA_ERROR_INVALID_VALUE);
}

static void unloaded(void)
{
	CUgraphExec exec;
	CUmodule module;
	CUfunction f;
	CUgraph graph;
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();
	CUdeviceptr p = on_device(&w[8]);

	OK(cuModuleLoadData(&module, case_ptx));
	OK(cuModuleGetFunction(&f, module, "softtest_add"));
	OK(launch(f, 1, 1, s, p, p, 1, 0));
	OK(cuStreamSynchronize(s));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(launch(f, 1, 1, s, p, p, 1, 5));
	exec = capture_end(s, &graph);
	OK(cuGraphLaunch(exec, s));
	OK(cuStreamSynchronize(s));
	OK(cuModuleUnload(module));
	OK(cuGraphLaunch(exec, s));
	IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static void fork_to(CUstream from, CUstream to, CUevent *e)
{
	OK(cuEventCreate(e, CU_EVENT_DISABLE_TIMING));
	OK(cuEventRecord(*e, from));
	OK(cuStreamWaitEvent(to, *e, 0));
}

static void capture_joins(void)
{
	CUstreamCaptureStatus status;
	CUgraphExec exec;
	CUgraph graph;
	CUevent e, back;
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	fork_to(a, b, &e);
	OK(cuStreamIsCapturing(b, &status));
	IS(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	write_word(b, &w[1], 1);
	IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	TRUE(!graph);
	OK(cuStreamIsCapturing(b, &status));
	IS(status, CU_STREAM_CAPTURE_STATUS_NONE);
	IS(get(&w[1]), 0);
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	fork_to(a, b, &e);
	write_word(b, &w[1], 1);
	fork_to(b, a, &back);
	write_word(a, &w[2], 1);
	exec = capture_end(a, &graph);
	OK(cuGraphLaunch(exec, a));
	OK(cuStreamSynchronize(a));
	IS(get(&w[1]), 1);
	IS(get(&w[2]), 1);
}

static void capture_isolated(void)
{
	CUgraph graph;
	CUevent e;
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	write_word(b, &w[1], 1);
	OK(cuEventRecord(e, b));
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	IS(cuStreamWaitEvent(a, e, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void capture_query(void)
{
	CUstreamCaptureStatus status;
	CUgraph graph;
	CUstream s = stream(CU_STREAM_NON_BLOCKING);

	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamIsCapturing(s, &status)); /* may be asked */
	IS(cuStreamQuery(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamIsCapturing(s, &status));
	IS(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
	IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuStreamQuery(s)); /* usable again */
}

static void capture_event(void)
{
	CUgraph graph;
	CUevent e;
	CUstream s = stream(CU_STREAM_NON_BLOCKING);

	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuEventRecord(e, s));
	IS(cuEventQuery(e), CUDA_ERROR_CAPTURED_EVENT);
	IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuEventRecord(e, s)); /* as good as new */
	OK(cuEventSynchronize(e));
}

static void capture_legacy(void)
{
	CUstreamCaptureStatus status;
	CUgraph graph;
	CUstream s = stream(CU_STREAM_DEFAULT), apart = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	IS(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	OK(cuStreamBeginCapture(apart, CU_STREAM_CAPTURE_MODE_RELAXED));
	write_word(NULL, &w[1], 1); /* no matter to a non-blocking stream */
	OK(cuStreamEndCapture(apart, &graph));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	IS(cuStreamIsCapturing(NULL, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	OK(cuStreamIsCapturing(s, &status));
	IS(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	IS(cuStreamWriteValue32(NULL, on_device(w), 1, 0), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static CUresult call_alloc(void *arg)
{
	return cuMemAlloc(arg, 64);
}

static void capture_unsafe(void)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	struct other_call other;
	CUgraph graph, whole;
	CUgraphExec exec;
	CUdeviceptr p;
	CUstream s = stream(CU_STREAM_NON_BLOCKING);

	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuStreamEndCapture(s, &whole));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	IS(cuGraphInstantiateWithFlags(&exec, whole, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	IS(cuMemAlloc(&p, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	call_begin(&other, call_alloc, &p); /* any thread */
	IS(call_end(&other), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	call_begin(&other, call_alloc, &p);
	OK(call_end(&other));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	OK(cuMemAlloc(&p, 64));
	OK(cuThreadExchangeStreamCaptureMode(&mode));
	IS(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuStreamEndCapture(s, &graph));
}

static CUresult call_end_capture(void *arg)
{
	CUgraph graph;

	return cuStreamEndCapture(arg, &graph);
}

static void capture_thread(void)
{
	struct other_call other;
	CUgraph graph;
	CUevent e;
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);

	IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	IS(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_ILLEGAL_STATE);
	call_begin(&other, call_end_capture, a);
	IS(call_end(&other), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	fork_to(a, b, &e);
	IS(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	OK(cuStreamEndCapture(a, &graph));
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	call_begin(&other, call_end_capture, a);
	OK(call_end(&other));
}

static void capture_dead(void)
{
	CUgraph graph = (CUgraph)8;
	CUstream s = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_RELAXED));
	IS(cuStreamSynchronize(s), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	IS(cuStreamWriteValue32(s, on_device(w), 1, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	IS(cuStreamEndCapture(s, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	TRUE(!graph);
	write_word(s, w, 1);
	OK(cuStreamSynchronize(s));
}

static void graph_serial(void)
{
	CUgraphExec exec;
	CUgraph graph;
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	write_word(a, &w[1], 1);
	hold(a, &w[0], 1);
	exec = capture_end(a, &graph);
	OK(cuGraphLaunch(exec, a));
	await(&w[1], 1);
	put(&w[1], 0);
	OK(cuGraphLaunch(exec, b)); /* on a free stream, but behind the first launch */
	hold(b, &w[0], 1);
	TRUE(stays_pending(b));
	IS(get(&w[1]), 0);
	put(&w[0], 1);
	OK(cuStreamSynchronize(b));
	IS(get(&w[1]), 1);
}

static void graph_branches(void)
{
	CUgraphExec exec;
	CUevent e, back;
	CUgraph graph;
	CUstream a = stream(CU_STREAM_NON_BLOCKING), b = stream(CU_STREAM_NON_BLOCKING);
	uint32_t *w = words();

	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	fork_to(a, b, &e);
	hold(a, &w[0], 1);
	write_word(b, &w[1], 1); /* beside the wait */
	fork_to(b, a, &back);
	write_word(a, &w[2], 1);
	exec = capture_end(a, &graph);
	for (int i = 0; i < 3; i++) {
		put(&w[0], 0), put(&w[1], 0), put(&w[2], 0);
		OK(cuGraphLaunch(exec, a));
		await(&w[1], 1);
		IS(get(&w[2]), 0);
		put(&w[0], 1);
		OK(cuStreamSynchronize(a));
		IS(get(&w[2]), 1);
	}
}

/* Two graphs, each of which waits for the event and records it, in streams of their own. */
static void graph_external(void)
{
	CUgraphExec exec[2];
	CUgraph graph;
	CUstream s[2];
	CUevent e;
	uint32_t *w = words();

	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	for (int i = 0; i < 2; i++) {
		s[i] = stream(CU_STREAM_NON_BLOCKING);
		IS(cuStreamWaitEvent(s[i], e, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
		IS(cuEventRecordWithFlags(e, s[i], CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_INVALID_VALUE);
		OK(cuStreamBeginCapture(s[i], CU_STREAM_CAPTURE_MODE_GLOBAL));
		OK(cuStreamWaitEvent(s[i], e, CU_EVENT_WAIT_EXTERNAL));
		hold(s[i], &w[i], 1);
		write_word(s[i], &w[2 + i], 1);
		OK(cuEventRecordWithFlags(e, s[i], CU_EVENT_RECORD_EXTERNAL));
		exec[i] = capture_end(s[i], &graph);
	}
	for (int turn = 0; turn < 4; turn++) {
		const int first = turn % 2, second = !first;

		for (int i = 0; i < 4; i++)
			put(&w[i], 0);
		put(&w[second], 1);
		OK(cuGraphLaunch(exec[first], s[first]));
		OK(cuGraphLaunch(exec[second], s[second]));
		TRUE(stays_pending(s[second]));
		IS(get(&w[2 + second]), 0);
		put(&w[first], 1);
		OK(cuStreamSynchronize(s[second]));
		IS(get(&w[2]) + get(&w[3]), 2);
	}
	OK(cuEventQuery(e));
}

static uint32_t destroyed;
static bool same_thread;
static pthread_t here;

static void destroy(void *arg)
{
	same_thread = pthread_equal(here, pthread_self());
	__atomic_fetch_add((uint32_t *)arg, 1, __ATOMIC_RELEASE);
}

static void user_object(void)
{
	CUstreamCaptureStatus status;
	CUuserObject object;
	CUgraphExec exec;
	CUgraph graph, building;
	CUstream s;
	uint32_t *w;
	cuuint64_t id;

	start();
	here = pthread_self();
	s = stream(CU_STREAM_NON_BLOCKING);
	w = words();
	OK(cuUserObjectCreate(&object, &destroyed, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuStreamGetCaptureInfo(s, &status, &id, &building, NULL, NULL));
	OK(cuGraphRetainUserObject(building, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
	hold(s, &w[0], 1);
	exec = capture_end(s, &graph);
	TRUE(graph == building);
	OK(cuGraphDestroy(graph));
	IS(get(&destroyed), 0);
	OK(cuGraphLaunch(exec, s));
	OK(cuGraphExecDestroy(exec)); /* still runs */
	IS(get(&destroyed), 0);
	put(&w[0], 1);
	await(&destroyed, 1);
	TRUE(!same_thread);
	/* Without an executable, the graph's reference is the last one. */
	OK(cuUserObjectCreate(&object, &destroyed, destroy, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(cuStreamGetCaptureInfo(s, &status, &id, &building, NULL, NULL));
	OK(cuGraphRetainUserObject(building, object, 1, 0));
	OK(cuStreamEndCapture(s, &graph));
	OK(cuUserObjectRelease(object, 1));
	OK(cuGraphDestroy(graph));
	await(&destroyed, 2);
	TRUE(!same_thread);
}

const struct softcuda_case cases_graphs[] = {
        {"capture_records", capture_records, {NULL}},
        {"capture_joins", capture_joins, {NULL}},
        {"capture_isolated", capture_isolated, {NULL}},
        {"capture_query", capture_query, {NULL}},
        {"capture_event", capture_event, {NULL}},
        {"capture_legacy", capture_legacy, {NULL}},
        {"capture_unsafe", capture_unsafe, {NULL}},
        {"capture_thread", capture_thread, {NULL}},
        {"capture_dead", capture_dead, {NULL}},
        {"graph_serial", graph_serial, {NULL}},
        {"graph_branches", graph_branches, {NULL}},
        {"graph_external", graph_external, {NULL}},
        {"user_object", user_object, {NULL}},
        {"unloaded", unloaded, {NULL}},
        {NULL, NULL, {NULL}},
};
