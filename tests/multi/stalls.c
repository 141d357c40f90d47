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

int main(int argc, char **argv)
{
	coll_comm *comm = NULL;
	int rank, status;

	if (argc != 3) {
		fprintf(stderr, "usage: stalls sleep|chain|differ STOP-FILE\n");
		return 64;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (coll_comm_create(&comm, NULL) != COLL_OK)
		return failed(NULL, -1);
	rank = coll_comm_rank(comm);
	status = strcmp(argv[1], "chain") == 0 ? chain(comm, argv[2]) : all_reduces(comm, argv[1], argv[2]);
	coll_comm_destroy(&comm);
	if (status == 0)
		printf("done %d\n", rank);
	return status;
}
