/*
 * The first program: every rank says who it is, then all of them add a number.
 *
 *     collrun -n 4 example_hello
 *
 * Each process that the launcher starts is one rank. Without a launcher the
 * program runs alone, as rank 0 of 1.
 */
#include <coll/coll.h>
#include <stdio.h>

int main(void)
{
	coll_comm *comm = NULL;
	float mine, total;
	int rank, size;

	/* NULL: who and how many we are comes from the environment, where the
	 * launcher put it. All ranks meet here. */
	if (coll_comm_create(&comm, NULL) != COLL_OK) {
		fprintf(stderr, "hello: %s\n", coll_last_error(NULL)->message);
		return 1;
	}
	rank = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	printf("rank %d of %d on %s\n", rank, size, coll_comm_host(comm, rank));

	/* Every rank gives one number and gets the sum over all ranks. The last
	 * argument is a stream; NULL means that the result is there on return. */
	mine = (float)(rank + 1);
	if (coll_all_reduce(&mine, &total, 1, COLL_F32, COLL_SUM, comm, NULL) != COLL_OK) {
		fprintf(stderr, "hello: %s\n", coll_last_error(comm)->message);
		coll_comm_destroy(&comm);
		return 1;
	}
	if (rank == 0)
		printf("the sum of 1 to %d is %g\n", size, (double)total);

	/* All ranks leave together. */
	return coll_comm_destroy(&comm) == COLL_OK ? 0 : 1;
}
