/*
 * Sorting more numbers than one rank has: blocks of different lengths.
 *
 *     collrun -n 4 example_sort
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>

#define TOTAL 10007
#define RANKS 64

static void check(coll_status status)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "sort: %s\n", coll_last_error(NULL)->message);
	exit(1);
}

static int order(const void *a, const void *b)
{
	const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

int main(void)
{
	static uint32_t all[TOTAL], mine[TOTAL], got[TOTAL];
	uint32_t samples[RANKS], splits[RANKS * RANKS], x = 1;
	size_t parts[RANKS], out[RANKS], in[RANKS], sizes[RANKS], n, m = 0;
	int rank, size, bad = 0;
	coll_comm *comm;

	check(coll_comm_create(&comm, NULL));
	rank = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	if (size > RANKS)
		return 1;
	for (int i = 0; rank == 0 && i < TOTAL; i++)
		all[i] = x = x * 1664525 + 1013904223;
	/* Rank 0 hands out the numbers, as evenly as they go. */
	for (int r = 0; r < size; r++)
		parts[r] = (size_t)((r + 1) * TOTAL / size - r * TOTAL / size);
	n = parts[rank];
	check(coll_scatterv(all, parts, NULL, mine, n, COLL_U32, 0, comm, NULL));
	qsort(mine, n, sizeof(*mine), order);

	/* Samples of all ranks tell where to cut: rank r gets what is below cut r + 1. */
	for (int r = 0; r < size; r++)
		samples[r] = mine[n * (size_t)r / (size_t)size];
	check(coll_all_gather(samples, splits, (size_t)size, COLL_U32, comm, NULL));
	qsort(splits, (size_t)(size * size), sizeof(*splits), order);
	for (int r = 0; r < size; r++)
		out[r] = 0;
	for (size_t i = 0, r = 0; i < n; i++, out[r]++)
		while (r + 1 < (size_t)size && mine[i] >= splits[(r + 1) * (size_t)size])
			r++;

	/* First how much goes to each, then the numbers. */
	check(coll_all_to_all(out, in, 1, COLL_U64, comm, NULL));
	check(coll_all_to_allv(mine, out, NULL, got, in, NULL, COLL_U32, comm, NULL));
	for (int r = 0; r < size; r++)
		m += in[r];
	qsort(got, m, sizeof(*got), order);

	/* The sorted parts go back to rank 0, one behind the other. */
	check(coll_gather(&m, sizes, 1, COLL_U64, 0, comm, NULL));
	check(coll_gatherv(got, m, all, sizes, NULL, COLL_U32, 0, comm, NULL));
	for (int i = 1; rank == 0 && i < TOTAL; i++)
		bad += all[i - 1] > all[i];
	if (rank == 0)
		printf("%d numbers, %d out of order\n", TOTAL, bad);
	return coll_comm_destroy(&comm) == COLL_OK && !bad ? 0 : 1;
}
