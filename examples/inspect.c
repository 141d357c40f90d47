/*
 * What the library can tell about itself: version, types, how a call would run
 * and did run, what was waited for.
 *
 *     collrun -n 2 example_inspect
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 1000

static void check(coll_status status)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "inspect: %s\n", coll_last_error(NULL)->message);
	exit(1);
}

int main(void)
{
	coll_peer_stats peers[64] = {COLL_PEER_STATS_INIT};
	coll_stats rows[16] = {COLL_STATS_INIT};
	int rank, size, row_count = 16, peer_count = 64;
	char text[4096];
	float x[COUNT] = {1};
	coll_comm *comm;

	check(coll_comm_create(&comm, NULL));
	rank = coll_comm_rank(comm);
	size = coll_comm_size(comm);
	for (int i = 0; i < 10; i++)
		check(coll_all_reduce(x, x, COUNT, COLL_F32, COLL_MAX, comm, NULL));
	check(coll_barrier(comm, NULL));
	if (rank == 0) {
		printf("libcoll %s, number %d\n", coll_version_text(), coll_version());
		for (int r = 0; r < size; r++)
			printf("rank %d is on %s, reached by %s\n", r, coll_comm_host(comm, r),
			       coll_comm_transport(comm, r));
		printf("%d elements of %s are %zu bytes, device %s\n", COUNT, coll_dtype_name(COLL_F32),
		       COUNT * coll_dtype_size(COLL_F32), coll_comm_device(comm));
		/* One line on how a call of this shape would run, and why. */
		check(coll_comm_explain(comm, "all_reduce", COUNT, COLL_F32, text, sizeof(text)));
		printf("%s\n", text);
		printf("the last call went by: %s\n", coll_comm_last_way(comm));
		/* One row for each transport and way; more than asked for may be there. */
		check(coll_comm_stats(comm, rows, &row_count));
		for (int i = 0; i < row_count && i < 16; i++)
			printf("%llu calls by %s over %s, %llu bytes, %.6f s\n", (unsigned long long)rows[i].calls,
			       rows[i].way, rows[i].transport, (unsigned long long)rows[i].bytes, rows[i].waited_s);
		check(coll_comm_peer_stats(comm, peers, &peer_count));
		for (int i = 0; i < peer_count && i < 64; i++)
			printf("waited %.6f s for rank %d, which was last in %llu calls\n", peers[i].waited_s,
			       peers[i].rank, (unsigned long long)peers[i].last);
	}
	return coll_comm_destroy(&comm) == COLL_OK ? 0 : 1;
}
