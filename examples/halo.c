/*
 * Heat in a rod: each rank has a part of the cells, and needs the cell beyond
 * each end from its neighbour before every step.
 *
 *     collrun -n 4 example_halo
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELLS 240
#define STEPS 2000

/* One helper for all calls: what failed last in this thread, whatever it was. */
static void check(coll_status status)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "halo: %s\n", coll_last_error(NULL)->message);
	exit(1);
}

int main(void)
{
	static double old[CELLS + 2], new[CELLS + 2]; /* [0] and [n + 1] are the neighbours' */
	coll_f64_i32 mine = {-1, 0}, hottest;
	double sum = 0, all;
	coll_comm *comm;
	int rank, size, first, n, left, right;

	check(coll_comm_create(&comm, NULL));
	rank = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	if (size > CELLS)
		return 1;
	first = rank * CELLS / size;
	n = (rank + 1) * CELLS / size - first;
	/* The rod ends at the first and the last rank: a message to nobody is no message. */
	left = rank > 0 ? rank - 1 : COLL_NO_PEER;
	right = rank < size - 1 ? rank + 1 : COLL_NO_PEER;
	for (int i = 0; i < n; i++) /* one hot spot */
		old[i + 1] = first + i == CELLS / 3 ? 1000 : 0;

	for (int step = 0; step < STEPS; step++) {
		/* To the right what the right needs, from the left what I need; and back. */
		check(coll_send_recv(&old[n], 1, right, &old[0], 1, left, COLL_F64, comm, NULL));
		check(coll_send_recv(&old[1], 1, left, &old[n + 1], 1, right, COLL_F64, comm, NULL));
		if (left == COLL_NO_PEER) /* nothing flows out of the ends */
			old[0] = old[1];
		if (right == COLL_NO_PEER)
			old[n + 1] = old[n];
		for (int i = 1; i <= n; i++)
			new[i] = old[i] + 0.25 * (old[i - 1] - 2 * old[i] + old[i + 1]);
		memcpy(old + 1, new + 1, (size_t)n * sizeof(double));
	}

	for (int i = 1; i <= n; i++) {
		sum += old[i];
		if (old[i] > mine.value)
			mine = (coll_f64_i32){old[i], first + i - 1};
	}
	/* The sum at one rank; the greatest value and where it is at all. */
	check(coll_reduce(&sum, &all, 1, COLL_F64, COLL_SUM, 0, comm, NULL));
	check(coll_all_reduce(&mine, &hottest, 1, COLL_F64_I32, COLL_MAXLOC, comm, NULL));
	if (rank == 0)
		printf("heat %.6f, hottest cell %d with %.6f\n", all, hottest.index, hottest.value);
	return coll_comm_destroy(&comm) == COLL_OK ? 0 : 1;
}
