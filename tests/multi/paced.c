/*
 * A rank of a job in which some ranks are slow: what slow.py runs. Before each all-reduce, ranks that are named sleep.
 *
 * usage: paced STOP-FILE COUNT MS [RANK]...
 *
 * Ends when STOP-FILE exists, as rank 0 sees it (it tells the others in the data). Lines: "running RANK PID" after 20
 * calls, at the end "done RANK CALLS"; and "waited RANK PEER CALLS" for each peer that was last at least once.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "coll/coll.h"

enum { RUNNING_AT = 20, ROWS = 64 };

static int lost(const coll_comm *comm)
{
	fprintf(stderr, "paced: %s\n", coll_last_error(comm)->message);
	return 1;
}

static void say_waits(coll_comm *comm)
{
	coll_peer_stats rows[ROWS] = {COLL_PEER_STATS_INIT};
	int n = ROWS;

	if (coll_comm_peer_stats(comm, rows, &n) != COLL_OK)
		n = 0;
	for (int i = 0; i < n && i < ROWS; i++)
		if (rows[i].last > 0 && rows[i].waited_s > 0)
			printf("waited %d %d %llu\n", coll_comm_rank(comm), rows[i].rank,
			       (unsigned long long)rows[i].last);
}

static int run(coll_comm *comm, float *x, size_t count, int argc, char **argv)
{
	const int rank = coll_comm_rank(comm);
	bool slow = false, stop = false;
	long calls = 0;

	for (int i = 4; i < argc; i++)
		slow |= atoi(argv[i]) == rank;
	for (; !stop; calls++) {
		if (calls == RUNNING_AT)
			printf("running %d %d\n", rank, (int)getpid());
		if (slow)
			usleep((unsigned)atoi(argv[3]) * 1000);
		x[0] = rank == 0 && access(argv[1], F_OK) == 0;
		if (coll_all_reduce(x, x, count, COLL_F32, COLL_SUM, comm, NULL) != COLL_OK)
			return lost(comm);
		stop = x[0] != 0;
	}
	say_waits(comm);
	printf("done %d %ld\n", rank, calls);
	return 0;
}

int main(int argc, char **argv)
{
	coll_comm *comm = NULL;
	float *x;
	int status;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 4)
		return 2;
	x = calloc((size_t)atol(argv[2]), sizeof(*x));
	if (!x || coll_comm_create(&comm, NULL) != COLL_OK)
		return lost(NULL);
	status = run(comm, x, (size_t)atol(argv[2]), argc, argv);
	coll_comm_destroy(&comm);
	free(x);
	return status;
}
