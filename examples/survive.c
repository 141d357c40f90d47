/*
 * A rank dies in the middle of a job; the others notice, agree who is left, and
 * go on.
 *
 *     collrun -n 4 example_survive
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STEPS 10

/* A step adds the number of ranks to the total, which all have alike. */
static coll_status step(coll_comm *comm, double *total)
{
	double one = 1, sum = 0;
	coll_status status = coll_all_reduce(&one, &sum, 1, COLL_F64, COLL_SUM, comm, NULL);

	if (status == COLL_OK)
		*total += sum;
	return status;
}

int main(void)
{
	coll_comm *comm, *rest;
	coll_status status;
	int lost[256], count = 0, rank, victim;
	double total = 0, now[2];

	if (coll_comm_create(&comm, NULL) != COLL_OK) {
		fprintf(stderr, "survive: %s\n", coll_last_error(NULL)->message);
		return 1;
	}
	rank = coll_comm_rank(comm);
	victim = coll_comm_size(comm) - 1;
	/* How long to wait: for a peer that does not answer, and for one that answers but does not call. */
	status = coll_comm_set_timeout(comm, 5000, 60000);
	for (int i = 0; i < STEPS && status == COLL_OK; i++) {
		if (i == 5 && rank == victim && victim > 0)
			_exit(0); /* no goodbye: as if it were killed */
		status = step(comm, &total);
		if (status < COLL_ERR_PEER_DEAD) /* done, or an error that loses nothing */
			continue;
		/* All who live come here, though some may have ended a step that others have not. */
		if (rank == 0)
			printf("%s\n", coll_last_error(comm)->message);
		do /* COLL_AGAIN: too few have answered yet */
			status = coll_comm_shrink(comm, &rest, lost, &count);
		while (status == COLL_AGAIN);
		if (status != COLL_OK)
			break;
		coll_comm_destroy(&comm);
		comm = rest;
		rank = coll_comm_rank(comm);
		if (rank == 0)
			printf("rank %d is gone, %d go on\n", lost[0], coll_comm_size(comm));
		/* Go on from the farthest state that anybody has. */
		now[0] = i;
		now[1] = total;
		status = coll_all_reduce(now, now, 2, COLL_F64, COLL_MAX, comm, NULL);
		i = (int)now[0] - 1;
		total = now[1];
	}
	if (status == COLL_OK && rank == 0)
		printf("%d steps, total %g\n", STEPS, total);
	if (status != COLL_OK)
		fprintf(stderr, "survive: %s\n", coll_last_error(comm)->message);
	return coll_comm_destroy(&comm) == COLL_OK && status == COLL_OK ? 0 : 1;
}
