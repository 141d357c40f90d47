/*
 * The driver of an MPI: built once with each of those found. See driver.h.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"

static int begin(int *argc, char ***argv, int *rank, int *size, char *text, size_t text_bytes)
{
	char version[MPI_MAX_LIBRARY_VERSION_STRING];
	int len;

	if (MPI_Init(argc, argv) != MPI_SUCCESS)
		return 1;
	MPI_Comm_rank(MPI_COMM_WORLD, rank);
	MPI_Comm_size(MPI_COMM_WORLD, size);
	MPI_Get_library_version(version, &len);
	version[strcspn(version, ",\n")] = 0;
	for (char *c = version; *c; c++)
		if (*c == '\t' || *c == ':')
			*c = ' ';
	snprintf(text, text_bytes, "%s", version);
	return 0;
}

static const void *source(const struct bench_job *j)
{
	return j->in_place ? MPI_IN_PLACE : j->in;
}

static int all_reduce(const struct bench_job *j)
{
	return MPI_Allreduce(source(j), j->out, (int)j->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static int broadcast(const struct bench_job *j)
{
	return MPI_Bcast(j->out, (int)j->count, MPI_FLOAT, j->root, MPI_COMM_WORLD);
}

static int reduce_scatter(const struct bench_job *j)
{
	return MPI_Reduce_scatter_block(source(j), j->out, (int)j->count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static int all_gather(const struct bench_job *j)
{
	return MPI_Allgather(source(j), (int)j->count, MPI_FLOAT, j->out, (int)j->count, MPI_FLOAT, MPI_COMM_WORLD);
}

static int all_to_all(const struct bench_job *j)
{
	return MPI_Alltoall(j->in, (int)j->count, MPI_FLOAT, j->out, (int)j->count, MPI_FLOAT, MPI_COMM_WORLD);
}

static int barrier(const struct bench_job *j)
{
	return MPI_Barrier(MPI_COMM_WORLD);
}

/* Where the result is not, no buffer for it is given. */
static int reduce(const struct bench_job *j)
{
	return MPI_Reduce(j->in, j->rank == j->root ? j->out : NULL, (int)j->count, MPI_FLOAT, MPI_SUM, j->root,
	                  MPI_COMM_WORLD);
}

static int send(const struct bench_job *j)
{
	return MPI_Send(j->in, (int)j->count, MPI_FLOAT, j->rank ^ 1, 0, MPI_COMM_WORLD);
}

static int recv(const struct bench_job *j)
{
	return MPI_Recv(j->out, (int)j->count, MPI_FLOAT, j->rank ^ 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int send_recv(const struct bench_job *j)
{
	const int first = j->rank % 2 ? recv(j) : send(j);

	return first != 0 ? first : j->rank % 2 ? send(j) : recv(j);
}

static bench_call *find(const struct bench_job *j)
{
	static bench_call *const calls[BENCH_KINDS] = {all_reduce, broadcast, reduce_scatter, all_gather,
	                                               all_to_all, barrier,   reduce,         send_recv};
	const bool apart = j->kind == BENCH_ALL_TO_ALL || j->kind == BENCH_REDUCE || j->kind == BENCH_SEND_RECV;

	return (apart && j->in_place) || (j->kind == BENCH_BROADCAST && !j->in_place) ? NULL : calls[j->kind];
}

/* In place, the own block of an all-gather is where it belongs; a reduce-scatter leaves its result at the start. */
static void place(const struct bench_job *j, size_t *in_at, size_t *out_at)
{
	*in_at = j->kind == BENCH_ALL_GATHER ? (size_t)j->rank * j->count : 0;
	*out_at = 0;
}

static void end(void)
{
	MPI_Finalize();
}

const struct bench_library bench_library = {
        .name = BENCH_MPI_NAME, .begin = begin, .find = find, .place = place, .end = end};
