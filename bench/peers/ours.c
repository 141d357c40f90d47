/*
 * The driver of this library, through its public interface: see driver.h.
 */
#include <stdio.h>

#include "coll/coll.h"
#include "driver.h"

static coll_comm *comm;

static int begin(int *argc, char ***argv, int *rank, int *size, char *text, size_t text_bytes)
{
	const int v = coll_version();

	if (coll_comm_create(&comm, NULL) != COLL_OK) {
		snprintf(text, text_bytes, "%s", coll_last_error(NULL)->message);
		return 1;
	}
	*rank = coll_comm_rank(comm);
	*size = coll_comm_size(comm);
	snprintf(text, text_bytes, "libcoll %d.%d.%d over %s", v / 10000, v / 100 % 100, v % 100,
	         coll_comm_transport(comm, *size > 1 ? !*rank : 0));
	return 0;
}

static int all_reduce(const struct bench_job *j)
{
	return (int)coll_all_reduce(j->in, j->out, j->count, COLL_F32, COLL_SUM, comm, NULL);
}

static int broadcast(const struct bench_job *j)
{
	return (int)coll_broadcast(j->in, j->out, j->count, COLL_F32, j->root, comm, NULL);
}

static int reduce_scatter(const struct bench_job *j)
{
	return (int)coll_reduce_scatter(j->in, j->out, j->count, COLL_F32, COLL_SUM, comm, NULL);
}

static int all_gather(const struct bench_job *j)
{
	return (int)coll_all_gather(j->in, j->out, j->count, COLL_F32, comm, NULL);
}

static int all_to_all(const struct bench_job *j)
{
	return (int)coll_all_to_all(j->in, j->out, j->count, COLL_F32, comm, NULL);
}

static int barrier(const struct bench_job *j)
{
	return (int)coll_barrier(comm, NULL);
}

static int reduce(const struct bench_job *j)
{
	return (int)coll_reduce(j->in, j->out, j->count, COLL_F32, COLL_SUM, j->root, comm, NULL);
}

static int send(const struct bench_job *j)
{
	return (int)coll_send(j->in, j->count, COLL_F32, j->rank ^ 1, comm, NULL);
}

static int recv(const struct bench_job *j)
{
	return (int)coll_recv(j->out, j->count, COLL_F32, j->rank ^ 1, comm, NULL);
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

	return (j->kind == BENCH_ALL_TO_ALL || j->kind == BENCH_SEND_RECV) && j->in_place ? NULL : calls[j->kind];
}

static void place(const struct bench_job *j, size_t *in_at, size_t *out_at)
{
	*in_at = j->kind == BENCH_ALL_GATHER ? (size_t)j->rank * j->count : 0;
	*out_at = j->kind == BENCH_REDUCE_SCATTER ? (size_t)j->rank * j->count : 0;
}

static void *alloc(size_t bytes)
{
	void *p = NULL;

	return coll_mem_alloc(comm, &p, bytes) == COLL_OK ? p : NULL;
}

static void release(void *memory)
{
	coll_mem_free(comm, memory);
}

static void end(void)
{
	coll_comm_destroy(&comm);
}

const struct bench_library bench_library = {
        .name = "ours", .begin = begin, .find = find, .alloc = alloc, .release = release, .place = place, .end = end};
