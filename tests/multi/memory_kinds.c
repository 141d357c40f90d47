/*
 * Memory that is not the host's: a kind of memory that this test adds claims pages that nobody
 * may read or write, so whoever touches them dies. Every public call with such a pointer is
 * refused with the kind's name, and the communicator goes on as if it had not been made. Ranks
 * are threads.
 *
 * usage: memory_kinds TRANSPORT
 */
#define PLAIN_OWN_MAIN
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "coll/coll.h"
#include "core/comm.h"
#include "device/device.h"
#include "plain.h"
#include "progress/async.h"
#include "thread_ranks.h"

enum { RANKS = 2, FIELD_BYTES = 1 << 22, LONG = 100000, PRIMED = 20 };

static char *field;
static atomic_int asked;

static bool in_field(void *arg, const void *ptr, size_t len_bytes)
{
	const char *p = ptr;

	atomic_fetch_add(&asked, 1);
	return p < field + FIELD_BYTES && p + len_bytes > field;
}

static const struct coll_device device = {.name = "forbidden", .owns = in_field};

static bool refused(coll_comm *comm, coll_status st)
{
	const coll_error *e = coll_last_error(comm);

	return st == COLL_ERR_UNSUPPORTED && e->status == st && strstr(e->message, "[COLL-1203]") &&
	       strstr(e->message, "forbidden memory");
}

#define REFUSED(call) CHECK(refused(c, (call)), "%s: %s", #call, coll_last_error(c)->message)

/* All that takes pointers, from either side, for blocking calls and for those in a stream. */
static void try_all(coll_comm *c, int rank, size_t n, coll_stream *stream)
{
	const size_t counts[RANKS] = {n, n}, offsets[RANKS] = {0, n};
	int *good = calloc(RANKS * n, sizeof(int));
	int *bad = (int *)(void *)field;
	size_t *bad_counts = (size_t *)(void *)field;
	const coll_dtype t = COLL_I32;

	REFUSED(coll_all_reduce(bad, good, n, t, COLL_SUM, c, stream));
	REFUSED(coll_all_reduce(good, bad, n, t, COLL_SUM, c, stream));
	REFUSED(coll_all_reduce(bad, bad, n, t, COLL_SUM, c, stream));
	REFUSED(coll_scan(bad, good, n, t, COLL_SUM, c, stream));
	REFUSED(coll_scan(good, bad, n, t, COLL_SUM, c, stream));
	REFUSED(coll_reduce(bad, good, n, t, COLL_SUM, 0, c, stream));
	REFUSED(coll_reduce(good, bad, n, t, COLL_SUM, rank, c, stream));
	REFUSED(coll_broadcast(bad, good, n, t, rank, c, stream));
	REFUSED(coll_broadcast(good, bad, n, t, 0, c, stream));
	REFUSED(coll_all_gather(bad, good, n, t, c, stream));
	REFUSED(coll_all_gather(good, bad, n, t, c, stream));
	REFUSED(coll_reduce_scatter(bad, good, n, t, COLL_SUM, c, stream));
	REFUSED(coll_reduce_scatter(good, bad, n, t, COLL_SUM, c, stream));
	REFUSED(coll_all_to_all(bad, good, n, t, c, stream));
	REFUSED(coll_all_to_all(good, bad, n, t, c, stream));
	REFUSED(coll_gather(bad, good, n, t, 0, c, stream));
	REFUSED(coll_gather(good, bad, n, t, rank, c, stream));
	REFUSED(coll_scatter(bad, good, n, t, rank, c, stream));
	REFUSED(coll_scatter(good, bad, n, t, 0, c, stream));
	REFUSED(coll_all_gatherv(bad, good, counts, offsets, t, c, stream));
	REFUSED(coll_all_gatherv(good, bad, counts, offsets, t, c, stream));
	REFUSED(coll_all_gatherv(good, good, bad_counts, NULL, t, c, stream));
	REFUSED(coll_all_gatherv(good, good, counts, bad_counts, t, c, stream));
	REFUSED(coll_reduce_scatterv(bad, good, counts, offsets, t, COLL_SUM, c, stream));
	REFUSED(coll_reduce_scatterv(good, bad, counts, offsets, t, COLL_SUM, c, stream));
	REFUSED(coll_all_to_allv(bad, counts, offsets, good, counts, offsets, t, c, stream));
	REFUSED(coll_all_to_allv(good, counts, offsets, bad, counts, offsets, t, c, stream));
	REFUSED(coll_gatherv(bad, n, good, counts, offsets, t, 0, c, stream));
	REFUSED(coll_gatherv(good, n, bad, counts, offsets, t, rank, c, stream));
	REFUSED(coll_scatterv(bad, counts, offsets, good, n, t, rank, c, stream));
	REFUSED(coll_scatterv(good, counts, offsets, bad, n, t, 0, c, stream));
	REFUSED(coll_send(bad, n, t, !rank, c, stream));
	REFUSED(coll_recv(bad, n, t, !rank, c, stream));
	REFUSED(coll_send_recv(bad, n, !rank, good, n, !rank, t, c, stream));
	REFUSED(coll_send_recv(good, n, !rank, bad, n, !rank, t, c, stream));
	free(good);
}

static void try_others(coll_comm *c)
{
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	coll_operation *operation = NULL;
	coll_op op;
	int good = 0;

	REFUSED(coll_mem_register(c, field, 4096));
	REFUSED(coll_op_create_premul_sum(&op, c, field, COLL_F32));
	d.in = field;
	d.out = &good;
	d.count = 1;
	REFUSED(coll_operation_prepare(&operation, &d, c));
	CHECK(operation == NULL);
	CHECK(coll_mem_free(c, field) == COLL_ERR_ARGUMENT);
	CHECK(coll_mem_deregister(c, field) == COLL_ERR_ARGUMENT);
	/* Nothing is there to be read. */
	CHECK(coll_all_reduce(field, field, 0, COLL_I32, COLL_SUM, c, NULL) == COLL_OK);
}

/* The same small call so often that it would have a fast path. */
static void prime(coll_comm *c)
{
	int x = 1;

	for (int i = 0; i < PRIMED; i++)
		CHECK(coll_all_reduce(&(int){1}, &x, 1, COLL_I32, COLL_SUM, c, NULL) == COLL_OK && x == RANKS);
}

static bool has_fastpath(coll_comm *c)
{
	int x[2];

	return coll_fastpath_find(c, COLL_KIND_ALL_REDUCE, &x[0], &x[1], 1, COLL_I32, COLL_SUM, 0, NULL) != NULL;
}

static void refuses(coll_comm **comm, int rank, void *arg)
{
	coll_comm *c = *comm;
	coll_stream *stream = NULL;

	prime(c);
	CHECK(!has_fastpath(c), "where memory differs in kind every buffer is looked at");
	try_all(c, rank, 1, NULL);
	try_all(c, rank, LONG, NULL);
	CHECK(coll_stream_create(&stream, c) == COLL_OK);
	try_all(c, rank, 1, stream);
	CHECK(coll_stream_wait(stream, -1) == COLL_OK);
	CHECK(coll_stream_destroy(&stream) == COLL_OK);
	try_others(c);
	CHECK(coll_group_begin() == COLL_OK);
	try_all(c, rank, 100, NULL);
	CHECK(coll_group_end() == COLL_OK, "refused calls are none of the group's");
	prime(c);
	sums(comm, rank, AND_DESTROY);
}

static void other_memory_is_refused_unread(void)
{
	coll_comm *comms[RANKS];
	int kind;

	CHECK(coll_device_add(&device, &kind) == COLL_OK);
	if (create(comms, RANKS))
		each_rank(comms, RANKS, refuses, NULL);
	CHECK(atomic_load(&asked) > 0);
	coll_device_remove(kind);
}

static void asks_nobody(coll_comm **comm, int rank, void *arg)
{
	prime(*comm);
	if (strcmp(transport, "shm") == 0)
		CHECK(has_fastpath(*comm));
	sums(comm, rank, AND_DESTROY);
}

/* A kind that is added later is none of a communicator's business, so the driver is not called. */
static void a_host_only_communicator_calls_no_driver(void)
{
	coll_comm *comms[RANKS];
	int kind;

	if (!create(comms, RANKS))
		return;
	CHECK(coll_device_add(&device, &kind) == COLL_OK);
	atomic_store(&asked, 0);
	each_rank(comms, RANKS, asks_nobody, NULL);
	CHECK(atomic_load(&asked) == 0);
	coll_device_remove(kind);
}

int main(int argc, char **argv)
{
	threads_over(argc > 1 ? argv[1] : "loop");
	field = mmap(NULL, FIELD_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (field == MAP_FAILED)
		return 1;
	PLAIN_RUN(other_memory_is_refused_unread);
	PLAIN_RUN(a_host_only_communicator_calls_no_driver);
	return plain_summary();
}
