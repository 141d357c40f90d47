/*
 * A rank of an NCCL program whose last rank does not come, for nccl_stalls.py: what is said of the wait.
 *
 * usage: nccl_stalls call|group|graph STOP-FILE     under collrun
 *
 * All ranks make a first call. Then the last waits for STOP-FILE before it makes the second: a sum, a group of messages
 * in a circle, or the launch of a graph with a sum. Lines: "running RANK PID" before that, "done RANK" at the end.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/compat/functions.h"
#include "tests/compat/memory.h"

enum { COUNT = 1000 };

static void must(ncclResult_t r, const char *what)
{
	if (r == ncclSuccess)
		return;
	printf("error: %s: %d %s\n", what, (int)r, ncclGetLastError(NULL));
	_exit(1);
}

static void cuda(CUresult r, const char *what)
{
	if (r == CUDA_SUCCESS)
		return;
	printf("error: %s: %d\n", what, (int)r);
	_exit(1);
}

/* Rank 0 writes the id beside STOP-FILE. */
static ncclUniqueId meet(int rank, const char *stop_file)
{
	char path[512], draft[520];
	ncclUniqueId id;
	FILE *f;

	snprintf(path, sizeof(path), "%s.id", stop_file);
	snprintf(draft, sizeof(draft), "%s.new", path);
	if (rank == 0) {
		must(ncclGetUniqueId(&id), "an id");
		f = fopen(draft, "w");
		if (!f || fwrite(&id, sizeof(id), 1, f) != 1 || fclose(f) != 0 || rename(draft, path) != 0)
			_exit(2);
		return id;
	}
	while (access(path, F_OK) != 0)
		usleep(10000);
	f = fopen(path, "r");
	if (!f || fread(&id, sizeof(id), 1, f) != 1)
		_exit(2);
	fclose(f);
	return id;
}

static CUgraphExec capture(float *x, ncclComm_t comm, cudaStream_t s)
{
	CUgraph graph = NULL;
	CUgraphExec exec = NULL;

	cuda(DRIVER(cuStreamBeginCapture_v2)((CUstream)s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "capture");
	must(ncclAllReduce(x, x, COUNT, ncclFloat32, ncclSum, comm, s), "captured");
	cuda(DRIVER(cuStreamEndCapture)((CUstream)s, &graph), "end of the capture");
	cuda(DRIVER(cuGraphInstantiateWithFlags)(&exec, graph, 0), "graph");
	return exec;
}

static void circle(const float *in, float *out, int rank, int n, ncclComm_t comm, cudaStream_t s)
{
	must(ncclGroupStart(), "group");
	must(ncclSend(in, COUNT, ncclFloat32, (rank + 1) % n, comm, s), "send");
	must(ncclRecv(out, COUNT, ncclFloat32, (rank + n - 1) % n, comm, s), "receive");
	must(ncclGroupEnd(), "end of the group");
}

int main(int argc, char **argv)
{
	const int rank = atoi(getenv("COLL_RANK")), n = atoi(getenv("COLL_SIZE"));
	const char *mode = argc > 2 ? argv[1] : "";
	CUgraphExec graph = NULL;
	ncclComm_t comm = NULL;
	cudaStream_t s;
	float *in = NULL, *out = NULL;

	setvbuf(stdout, NULL, _IOLBF, 0);
	find_driver();
	use_device(rank % devices());
	s = make_stream();
	must(ncclMemAlloc((void **)&in, COUNT * sizeof(float)), "memory");
	must(ncclMemAlloc((void **)&out, COUNT * sizeof(float)), "memory");
	must(ncclCommInitRank(&comm, n, meet(rank, argv[2]), rank), "init");
	must(ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, comm, s), "the first call");
	wait_stream(s);
	if (strcmp(mode, "graph") == 0)
		graph = capture(in, comm, s);
	printf("running %d %d\n", rank, (int)getpid());
	while (rank == n - 1 && access(argv[2], F_OK) != 0)
		usleep(10000);
	if (graph)
		cuda(DRIVER(cuGraphLaunch)(graph, (CUstream)s), "launch");
	else if (strcmp(mode, "group") == 0)
		circle(in, out, rank, n, comm, s);
	else
		must(ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, comm, s), "the second call");
	if (!wait_stream(s))
		return 1;
	must(ncclCommDestroy(comm), "destroy");
	printf("done %d\n", rank);
	return 0;
}
