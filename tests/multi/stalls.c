/*
 * A rank of a job that gets stuck on purpose, for diagnosis.py: what a warning, a dump and
 * coll-info say about it.
 *
 * usage: stalls MODE STOP-FILE
 *
 * sleep   three all_reduces, then the last rank waits for STOP-FILE to exist before it
 *         enters the fourth, in which the others are
 * chain   rank r receives from rank r + 1 before it sends to rank r - 1; the last rank
 *         waits for STOP-FILE before it sends
 * differ  three all_reduces, then a fourth of another count at the last rank
 * halves  the last two ranks have a communicator of their own: the last is in a call of
 *         that while the others are in one of all ranks; the last but one waits for
 *         STOP-FILE before either
 * streams two streams on two duplicated communicators, three all_reduces in each, a group
 *         and a persistent operation; then the last rank puts the next into the first
 *         stream only, and waits for STOP-FILE before it puts it into the second
 * tags    each rank has posted a receive that nobody sends to; rank 0 sends to rank 1, short and long;
 *         then 0 and 1 wait for messages of rank 2, which waits for STOP-FILE before it sends them
 * left    ranks 0 and 2 make calls that differ on a communicator without rank 1, and end; rank 1 waits for STOP-FILE
 *
 * Lines: "running RANK PID" before the call that stalls; at the end "done RANK", or
 * "error RANK TEXT" with status 1.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "coll/coll.h"

static int failed(const coll_comm *comm, int rank)
{
	printf("error %d %s\n", rank, coll_last_error(comm)->message);
	return 1;
}

static void await(const char *stop_file)
{
	while (access(stop_file, F_OK) != 0)
		usleep(10000);
}

static coll_status sum(coll_comm *comm, size_t count)
{
	float x[64] = {1};

	return coll_all_reduce(x, x, count, COLL_F32, COLL_SUM, comm, NULL);
}

static int all_reduces(coll_comm *comm, const char *mode, const char *stop_file)
{
	const int rank = coll_comm_rank(comm), last = coll_comm_size(comm) - 1;
	const int differs = strcmp(mode, "differ") == 0 && rank == last;

	for (int i = 0; i < 3; i++)
		if (sum(comm, 16) != COLL_OK)
			return failed(comm, rank);
	printf("running %d %d\n", rank, (int)getpid());
	if (strcmp(mode, "sleep") == 0 && rank == last)
		await(stop_file);
	return sum(comm, differs ? 17 : 16) == COLL_OK ? 0 : failed(comm, rank);
}

static int chain(coll_comm *comm, const char *stop_file)
{
	const int rank = coll_comm_rank(comm), last = coll_comm_size(comm) - 1;
	float x = 0;

	printf("running %d %d\n", rank, (int)getpid());
	if (rank == last)
		await(stop_file);
	else if (coll_recv(&x, 1, COLL_F32, rank + 1, comm, NULL) != COLL_OK)
		return failed(comm, rank);
	x++;
	if (rank > 0 && coll_send(&x, 1, COLL_F32, rank - 1, comm, NULL) != COLL_OK)
		return failed(comm, rank);
	return rank == 0 && x != (float)last + 1;
}

/* Calls that are there on all ranks but the last two, who meet among themselves before. */
static int halves(coll_comm *comm, const char *stop_file)
{
	const int rank = coll_comm_rank(comm), last = coll_comm_size(comm) - 1;
	coll_comm *half = NULL;
	int status = 0;

	if (coll_comm_split(comm, rank >= last - 1, rank, &half) != COLL_OK || sum(half, 16) != COLL_OK)
		return failed(comm, rank);
	printf("running %d %d\n", rank, (int)getpid());
	if (rank == last - 1)
		await(stop_file);
	if (rank >= last - 1 && sum(half, 32) != COLL_OK)
		status = failed(half, rank);
	if (status == 0 && sum(comm, 16) != COLL_OK)
		status = failed(comm, rank);
	coll_comm_destroy(&half);
	return status;
}

enum { VECTOR = 1 << 16 };

/* Both streams at once, then together as a group, then a persistent operation. */
static coll_status warm_up(coll_comm *const *comms, coll_stream *const *streams, float (*x)[VECTOR])
{
	coll_operation_desc d = COLL_OPERATION_DESC_INIT;
	coll_operation *op = NULL;
	coll_status st = COLL_OK;

	for (int i = 0; i < 6 && st == COLL_OK; i++)
		st = coll_all_reduce(x[i % 2], x[i % 2], VECTOR, COLL_F32, COLL_MAX, comms[i % 2], streams[i % 2]);
	if (st == COLL_OK)
		st = coll_group_begin();
	for (int i = 0; i < 4 && st == COLL_OK; i++)
		st = coll_all_reduce(x[i % 2], x[i % 2], 8, COLL_F32, COLL_MAX, comms[i % 2], streams[i % 2]);
	if (st == COLL_OK)
		st = coll_group_end();
	for (int i = 0; i < 2 && st == COLL_OK; i++)
		st = coll_stream_wait(streams[i], -1);
	d.in = x[0];
	d.out = x[0];
	d.count = 16;
	if (st == COLL_OK)
		st = coll_operation_prepare(&op, &d, comms[0]);
	for (int i = 0; i < 3 && st == COLL_OK; i++) {
		st = coll_operation_start(op, NULL);
		if (st == COLL_OK)
			st = coll_operation_wait(op, -1);
	}
	coll_operation_destroy(&op);
	return st;
}

static int streams(coll_comm *comm, const char *stop_file)
{
	static float x[2][VECTOR];
	const int rank = coll_comm_rank(comm), last = coll_comm_size(comm) - 1;
	coll_comm *comms[2] = {comm, NULL};
	coll_stream *stream[2] = {NULL, NULL};
	coll_status st = coll_comm_duplicate(comm, &comms[1]);

	for (int i = 0; i < 2 && st == COLL_OK; i++)
		st = coll_stream_create(&stream[i], comms[i]);
	if (st == COLL_OK)
		st = warm_up(comms, stream, x);
	printf("running %d %d\n", rank, (int)getpid());
	for (int i = 0; i < 2 && st == COLL_OK; i++) {
		if (i == 1 && rank == last)
			await(stop_file);
		/* The second of each waits for the first. */
		for (int k = 0; k < 2 && st == COLL_OK; k++)
			st = coll_all_reduce(x[i], x[i], 100, COLL_F32, COLL_MAX, comms[i], stream[i]);
	}
	for (int i = 0; i < 2 && st == COLL_OK; i++)
		st = coll_stream_wait(stream[i], -1);
	for (int i = 0; i < 2; i++)
		coll_stream_destroy(&stream[i]);
	if (st != COLL_OK)
		failed(comm, rank);
	coll_comm_destroy(&comms[1]);
	return st != COLL_OK;
}

enum { NEVER = 99, LONG = 300000 };

static coll_status send_short_and_long(coll_comm *comm, float *x)
{
	coll_status st = coll_send_tag(x, 2, COLL_F32, 1, 5, comm, NULL);

	if (st == COLL_OK)
		st = coll_send_tag(x, 3, COLL_F32, 1, 7, comm, NULL);
	if (st == COLL_OK)
		st = coll_send_tag(x, LONG, COLL_F32, 1, 6, comm, NULL);
	return st == COLL_OK ? coll_recv_tag(x, 1, COLL_F32, 2, 9, comm, NULL) : st;
}

static coll_status receive_all(coll_comm *comm, float *x)
{
	coll_request *r = NULL;
	coll_status st = coll_irecv(x, 2, COLL_F32, COLL_ANY_SOURCE, 5, comm, &r);

	if (st == COLL_OK)
		st = coll_request_wait(&r, -1, NULL);
	if (st == COLL_OK)
		st = coll_recv_tag(x, LONG, COLL_F32, 0, 6, comm, NULL);
	/* This one came before the long one, and waits here. */
	if (st == COLL_OK)
		st = coll_recv_tag(x, 3, COLL_F32, COLL_ANY_SOURCE, 7, comm, NULL);
	return st == COLL_OK ? coll_recv_tag(x, 4, COLL_F32, COLL_ANY_SOURCE, COLL_ANY_TAG, comm, NULL) : st;
}

static coll_status send_late(coll_comm *comm, float *x, const char *stop_file)
{
	coll_status st;

	await(stop_file);
	st = coll_send_tag(x, 1, COLL_F32, 0, 9, comm, NULL);
	return st == COLL_OK ? coll_send_tag(x, 1, COLL_F32, 1, 8, comm, NULL) : st;
}

static int tags(coll_comm *comm, const char *stop_file)
{
	static float x[LONG], y;
	const int rank = coll_comm_rank(comm);
	coll_request *never = NULL;
	coll_status st = coll_irecv(&y, 1, COLL_F32, COLL_ANY_SOURCE, NEVER, comm, &never);

	printf("running %d %d\n", rank, (int)getpid());
	if (st == COLL_OK)
		st = rank == 0   ? send_short_and_long(comm, x)
		     : rank == 1 ? receive_all(comm, x)
		                 : send_late(comm, x, stop_file);
	if (st == COLL_OK)
		st = coll_request_cancel(never);
	if (st == COLL_OK && coll_request_wait(&never, -1, NULL) != COLL_ERR_CANCELLED)
		st = COLL_ERR_INTERNAL;
	return st == COLL_OK ? 0 : failed(comm, rank);
}

static int left(coll_comm *comm, const char *stop_file)
{
	const int rank = coll_comm_rank(comm);
	coll_comm *half = NULL;
	coll_status st = coll_comm_split(comm, rank == 1, rank, &half);

	if (st != COLL_OK)
		return failed(comm, rank);
	printf("running %d %d\n", rank, (int)getpid());
	if (rank == 1)
		await(stop_file);
	st = sum(half, rank == 2 ? 17 : 16);
	coll_comm_destroy(&half);
	return st != (rank == 1 ? COLL_OK : COLL_ERR_MISMATCH);
}

static int run_mode(const char *mode, coll_comm *comm, const char *stop_file)
{
	if (strcmp(mode, "chain") == 0)
		return chain(comm, stop_file);
	if (strcmp(mode, "halves") == 0)
		return halves(comm, stop_file);
	if (strcmp(mode, "left") == 0)
		return left(comm, stop_file);
	if (strcmp(mode, "streams") == 0)
		return streams(comm, stop_file);
	if (strcmp(mode, "tags") == 0)
		return tags(comm, stop_file);
	return all_reduces(comm, mode, stop_file);
}

int main(int argc, char **argv)
{
	coll_comm *comm = NULL;
	int rank, status;

	if (argc != 3) {
		fprintf(stderr, "usage: stalls sleep|chain|differ|halves|streams|tags|left STOP-FILE\n");
		return 64;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (coll_comm_create(&comm, NULL) != COLL_OK)
		return failed(NULL, -1);
	rank = coll_comm_rank(comm);
	status = run_mode(argv[1], comm, argv[2]);
	coll_comm_destroy(&comm);
	if (status == 0)
		printf("done %d\n", rank);
	return status;
}
