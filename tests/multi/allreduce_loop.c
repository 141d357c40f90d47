/*
 * A rank of a job that does all-reduces until it is told to stop or one fails: what
 * strangers.py, kills.py and syscalls.py run and do things to. Every result is checked.
 *
 * usage: allreduce_loop CALLS COUNT [STOP-FILE [LATE-RANK LATE-MS]]
 *
 * CALLS 0: until STOP-FILE exists, as rank 0 sees it (it tells the others in the data).
 * MEET_BY in the environment: see by_files.h. LATE-RANK sleeps LATE-MS before its 25th call. Lines: "explain RANK TEXT"
 * of such a call; "running RANK PID TRANSPORT" after 20 calls; at the end "done RANK CALLS", or "error RANK CULPRIT
 * NANOSECONDS TEXT", the time being that of CLOCK_MONOTONIC.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "by_files.h"
#include "coll/coll.h"

enum { RUNNING_AT = 20, LATE_AT = 25, LOOK_EVERY = 64 };

static int lost(const coll_comm *comm, int rank)
{
	const coll_error *e = coll_last_error(comm);

	printf("error %d %d %llu %s\n", rank, e->rank, (unsigned long long)coll_clock_ns(), e->message);
	return 1;
}

static bool right(const float *x, size_t count, int size)
{
	for (size_t i = 0; i < count; i++)
		if (x[i] != (float)size)
			return false;
	return true;
}

/* Element 0 carries rank 0's wish to stop, the rest is data. */
static int run(coll_comm *comm, float *x, size_t count, char **argv, int argc)
{
	const long calls = atol(argv[1]);
	const char *stop_file = argc > 3 ? argv[3] : NULL;
	const int rank = coll_comm_rank(comm), size = coll_comm_size(comm);
	const int late_rank = argc > 5 ? atoi(argv[4]) : -1;
	bool stop = false;
	char text[1600];
	long i;

	if (coll_comm_explain(comm, "all_reduce", count, COLL_F32, text, sizeof(text)) == COLL_OK)
		printf("explain %d %s\n", rank, text);
	for (i = 0; !stop && (calls == 0 || i < calls); i++) {
		if (i == RUNNING_AT)
			printf("running %d %d %s\n", rank, (int)getpid(), coll_comm_transport(comm, (rank + 1) % size));
		if (i == LATE_AT && rank == late_rank)
			usleep((unsigned)atoi(argv[5]) * 1000);
		for (size_t k = 1; k < count; k++)
			x[k] = 1;
		x[0] = calls == 0 && rank == 0 && i > LATE_AT && i % LOOK_EVERY == 0 && access(stop_file, F_OK) == 0;
		if (coll_all_reduce(x, x, count, COLL_F32, COLL_SUM, comm, NULL) != COLL_OK)
			return lost(comm, rank);
		stop = x[0] != 0;
		if (!right(x + 1, count - 1, size)) {
			printf("wrong %d in call %ld\n", rank, i);
			return 2;
		}
	}
	printf("done %d %ld\n", rank, i);
	return 0;
}

int main(int argc, char **argv)
{
	size_t count = argc > 2 ? (size_t)atol(argv[2]) : 0;
	float *x = calloc(count, sizeof(*x));
	coll_config cfg = COLL_CONFIG_INIT;
	struct by_files files;
	coll_comm *comm = NULL;
	int status;

	if (count == 0 || !x || (atol(argv[1]) == 0 && argc < 4)) {
		fprintf(stderr, "usage: allreduce_loop CALLS COUNT [STOP-FILE [LATE-RANK LATE-MS]]\n");
		return 64;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (coll_comm_create(&comm, by_files(&files, &cfg) ? &cfg : NULL) != COLL_OK) {
		status = lost(NULL, -1);
	} else {
		status = run(comm, x, count, argv, argc);
		coll_comm_destroy(&comm);
	}
	free(x);
	return status;
}
