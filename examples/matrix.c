/*
 * A matrix times a vector: columns are on different ranks, and some have one
 * more than others.
 *
 *     collrun -n 3 example_matrix
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 50, ROUNDS = 100, RANKS = 32 };

static void check(coll_status status)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "matrix: %s\n", coll_last_error(NULL)->message);
	exit(1);
}

/* The matrix that is 2 on its diagonal and 1 beside it. */
static double element(int row, int column)
{
	return row == column ? 2 : abs(row - column) == 1 ? 1 : 0;
}

int main(void)
{
	double x[N], part[N], y[N], squares, length = 0;
	coll_comm *comm;
	size_t counts[RANKS], first = 0;
	int rank, size;

	check(coll_comm_create(&comm, NULL));
	rank = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	if (size > RANKS)
		return 1;
	for (int r = 0; r < size; r++) {
		counts[r] = (size_t)((r + 1) * N / size - r * N / size);
		first += r < rank ? counts[r] : 0;
	}
	for (size_t i = 0; i < counts[rank]; i++)
		x[i] = 1;
	for (int round = 0; round < ROUNDS; round++) {
		/* What my columns add to every row; then each rank gets the sum of its own rows. */
		for (int row = 0; row < N; row++) {
			part[row] = 0;
			for (size_t i = 0; i < counts[rank]; i++)
				part[row] += element(row, (int)(first + i)) * x[i];
		}
		check(coll_reduce_scatterv(part, x, counts, NULL, COLL_F64, COLL_SUM, comm, NULL));
		squares = 0;
		for (size_t i = 0; i < counts[rank]; i++)
			squares += x[i] * x[i];
		check(coll_all_reduce(&squares, &length, 1, COLL_F64, COLL_SUM, comm, NULL));
		for (size_t i = 0; i < counts[rank]; i++) /* the length goes to the largest eigenvalue, squared */
			x[i] /= length > 0 ? length / 4 : 1;
	}
	/* Everybody gets the whole vector. */
	check(coll_all_gatherv(x, y, counts, NULL, COLL_F64, comm, NULL));
	/* The same length for all: a plain reduce_scatter and gather of one number for each rank. */
	for (int r = 0; r < size; r++)
		part[r] = y[r];
	check(coll_reduce_scatter(part, &squares, 1, COLL_F64, COLL_MIN, comm, NULL));
	if (rank == 0)
		printf("the middle is %.3f times the end, and all ranks agree: %s\n", y[N / 2] / y[0],
		       squares == y[0] ? "yes" : "no");
	return coll_comm_destroy(&comm) == COLL_OK ? 0 : 1;
}
