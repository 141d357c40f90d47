/*
 * Operations of one's own, and running sums. The operation joins straight lines
 * x -> a x + b, whose order matters: a chain of them over the ranks.
 *
 *     collrun -n 4 example_user_op
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>

static void check(coll_status status)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "user_op: %s\n", coll_last_error(NULL)->message);
	exit(1);
}

/* A line is a pair: value is b, index is a. A pair is one element, which no plan cuts. left comes from lower ranks. */
static void chain(void *arg, const void *left, void *inout, size_t count, coll_dtype type)
{
	const coll_i64_i32 *first = left;
	coll_i64_i32 *then = inout;

	for (size_t i = 0; i < count; i++) {
		then[i].value += then[i].index * first[i].value;
		then[i].index *= first[i].index;
	}
}

int main(void)
{
	coll_i64_i32 line = {1, 2}, all, before = {0, 1};
	int64_t mine, until = 0, start = 0;
	double half = 0.5, ranks, sum = 0;
	coll_op lines, halves;
	coll_comm *comm;
	int rank;

	check(coll_comm_create(&comm, NULL));
	rank = coll_comm_rank(comm);
	/* 0: not commutative, so operands are joined in the order of ranks. All ranks make the same operations. */
	check(coll_op_create(&lines, comm, chain, NULL, 0));
	line.value = rank + 1;
	check(coll_all_reduce(&line, &all, 1, COLL_I64_I32, lines, comm, NULL));
	/* What the ranks before this one make of x; nothing comes before rank 0, so it keeps what it has. */
	check(coll_exclusive_scan(&line, &before, 1, COLL_I64_I32, lines, comm, NULL));

	/* Where does my part begin? Running sums of the lengths, with and without my own. */
	mine = 10 * (rank + 1);
	check(coll_scan(&mine, &until, 1, COLL_I64, COLL_SUM, comm, NULL));
	check(coll_exclusive_scan(&mine, &start, 1, COLL_I64, COLL_SUM, comm, NULL));

	/* A sum of scaled numbers; each rank may have a scale of its own. */
	ranks = rank;
	check(coll_op_create_premul_sum(&halves, comm, &half, COLL_F64));
	check(coll_all_reduce(&ranks, &sum, 1, COLL_F64, halves, comm, NULL));
	printf("rank %d: all %d x + %lld, before %d x + %lld; part %lld to %lld; half the %s of ranks %g\n", rank,
	       all.index, (long long)all.value, before.index, (long long)before.value, (long long)start,
	       (long long)until - 1, coll_op_name(COLL_SUM), sum);
	check(coll_op_destroy(&halves, comm));
	check(coll_op_destroy(&lines, comm));
	return coll_comm_destroy(&comm) == COLL_OK ? 0 : 1;
}
