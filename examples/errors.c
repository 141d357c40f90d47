/*
 * What failures look like, and what may be done after one.
 *
 *     collrun -n 3 example_errors
 *     collrun -n 3 example_errors 7        the job ends with status 7
 *
 * Three kinds, told apart by what is lost:
 *  - a call: the arguments were wrong; correct them and go on;
 *  - a peer: a process died, or does not answer; what it took part in is over;
 *  - the communicator: ranks made different calls, or somebody aborted it.
 * No failure is a hang: every call returns, with a status.
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>

/* Everything that is known about a failure. The message is the same in one line. */
static void explain(const coll_comm *comm, int rank)
{
	const coll_error *e = coll_last_error(comm);

	printf("rank %d: %s\n", rank, e->message);
	printf("rank %d:   status \"%s\", in %s, operation %llu, after %.3f s, culprit: ", rank,
	       coll_status_string(e->status), e->kind, (unsigned long long)e->operation, e->elapsed_s);
	if (e->rank >= 0)
		printf("rank %d on %s\n", e->rank, e->host);
	else
		printf("none\n");
}

/* A lost call: sums of floats exist, bitwise ands of floats do not. The
 * communicator is as it was before, on all ranks, and the next call works. */
static coll_status wrong_arguments(coll_comm *comm, int rank)
{
	float x = 1, y = 0;
	coll_status status = coll_all_reduce(&x, &y, 1, COLL_F32, COLL_BAND, comm, NULL);

	if (status != COLL_ERR_ARGUMENT)
		return COLL_ERR_INTERNAL;
	if (rank == 0)
		explain(comm, rank);
	status = coll_all_reduce(&x, &y, 1, COLL_F32, COLL_SUM, comm, NULL);
	if (rank == 0 && status == COLL_OK)
		printf("rank 0: and the next call works: %g\n", (double)y);
	return status;
}

/* A lost communicator: the last rank gives up while the others wait for it. */
static coll_status giving_up(coll_comm *comm, int rank, int size, int exit_status)
{
	if (rank < size - 1)
		return coll_barrier(comm, NULL);
	if (exit_status)
		coll_comm_abort_with(comm, exit_status, "this rank has had enough");
	else
		coll_comm_abort(comm, "this rank has had enough");
	return COLL_ERR_ABORTED;
}

int main(int argc, char **argv)
{
	coll_comm *comm = NULL;
	int rank, size, exit_status = argc > 1 ? atoi(argv[1]) : 0;
	coll_status status;

	/* With no communicator yet, the story of a failed creation is asked for
	 * with NULL. */
	if (coll_comm_create(&comm, NULL) != COLL_OK) {
		fprintf(stderr, "errors: %s\n", coll_last_error(NULL)->message);
		return 1;
	}
	rank = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	status = wrong_arguments(comm, rank);
	if (status == COLL_OK && size == 1) {
		printf("this example needs 2 ranks or more; try: collrun -n 2 example_errors\n");
		return coll_comm_destroy(&comm) == COLL_OK ? 0 : 1;
	}
	if (status == COLL_OK)
		status = giving_up(comm, rank, size, exit_status);

	/* An abort ends whatever a rank is in: a slow one may even meet it before
	 * its sum is finished, or, when the other process ends at once, see that
	 * first and call it dead. */
	if (status != COLL_OK && rank < size - 1)
		explain(comm, rank);

	/* A broken communicator is of one use only: to be destroyed. Its end
	 * cannot be orderly, so what that returns is not looked at. */
	coll_comm_destroy(&comm);
	if (status == COLL_ERR_ABORTED || status == COLL_ERR_PEER_DEAD)
		return exit_status;
	fprintf(stderr, "errors: rank %d: expected to lose the communicator, got: %s\n", rank,
	        coll_status_string(status));
	return 1;
}
