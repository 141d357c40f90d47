/*
 * More communicators: ranks in rows and columns, the ranks of each host, some
 * ranks by a list, and a group that only its members make.
 *
 *     collrun -n 6 example_split
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>

#define COLUMNS 3

static void check(coll_status status)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "split: %s\n", coll_last_error(NULL)->message);
	exit(1);
}

int main(void)
{
	coll_comm *comm, *row, *column, *ends, *pair = NULL;
	int32_t mine, in_row, in_column, at_ends = 0, first = 0;
	int rank, size, list[2];

	check(coll_comm_create(&comm, NULL));
	rank = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	mine = rank;
	/* Ranks of one colour come together, ordered by the key. All ranks call. */
	check(coll_comm_split(comm, rank / COLUMNS, rank, &row));
	check(coll_comm_split(comm, rank % COLUMNS, rank, &column));
	/* A name stands in errors and log lines about it. */
	check(coll_comm_set_name(row, "row"));
	check(coll_comm_set_name(column, "column"));
	check(coll_all_reduce(&mine, &in_row, 1, COLL_I32, COLL_SUM, row, NULL));
	check(coll_all_reduce(&mine, &in_column, 1, COLL_I32, COLL_SUM, column, NULL));

	/* The same by a list, which all ranks pass: the first and the last rank. */
	list[0] = 0;
	list[1] = size - 1;
	check(coll_comm_create_from_ranks(comm, list, size > 1 ? 2 : 1, &ends));
	if (ends) /* NULL on the others */
		check(coll_all_reduce(&mine, &at_ends, 1, COLL_I32, COLL_SUM, ends, NULL));

	/* A group is made by its members alone; the others need not know of it. */
	if (size > 1 && rank < 2) {
		list[1] = 1;
		check(coll_comm_create_group(comm, list, 2, 0, &pair));
		first = 7 * !coll_comm_rank(pair);
		check(coll_broadcast(&first, &first, 1, COLL_I32, 0, pair, NULL));
	}
	printf("rank %d: %s %d of %d has %d, %s %d of %d has %d, the ends %d, the pair %d; rank %d of %d on its host\n",
	       rank, coll_comm_get_name(row), coll_comm_rank(row), coll_comm_size(row), in_row,
	       coll_comm_get_name(column), coll_comm_rank(column), coll_comm_size(column), in_column, at_ends, first,
	       coll_comm_local_rank(comm), coll_comm_local_size(comm));

	check(coll_comm_destroy(&pair)); /* NULL is accepted */
	check(coll_comm_destroy(&ends));
	check(coll_comm_destroy(&column));
	check(coll_comm_destroy(&row));
	return coll_comm_destroy(&comm) == COLL_OK ? 0 : 1;
}
