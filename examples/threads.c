/*
 * Ranks without a launcher: threads of one process, each with a communicator;
 * and one thread that makes the calls of all of them, in groups.
 *
 *     example_threads
 */
#include <coll/coll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define RANKS 4

static void check(coll_status status)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "threads: %s\n", coll_last_error(NULL)->message);
	exit(1);
}

static coll_unique_id id; /* made by anybody, carried to the ranks by any means */

static void *one_rank(void *arg)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm;
	int32_t mine, sum;

	cfg.rank = (int)(size_t)arg;
	cfg.size = RANKS;
	cfg.id = &id;
	check(coll_comm_create(&comm, &cfg));
	mine = cfg.rank;
	check(coll_all_reduce(&mine, &sum, 1, COLL_I32, COLL_SUM, comm, NULL));
	printf("thread %d: sum %d\n", cfg.rank, sum);
	check(coll_comm_destroy(&comm));
	return NULL;
}

int main(void)
{
	int32_t mine[RANKS], sum[RANKS], left[RANKS];
	coll_comm *comms[RANKS];
	pthread_t threads[RANKS];

	check(coll_unique_id_create(&id));
	for (size_t r = 0; r < RANKS; r++)
		if (pthread_create(&threads[r], NULL, one_rank, (void *)r))
			return 1;
	for (int r = 0; r < RANKS; r++)
		pthread_join(threads[r], NULL);

	/* All ranks of a job in this process. One thread would wait for itself, but for groups: their calls go on
	 * together. */
	check(coll_comm_create_all(comms, RANKS, NULL));
	check(coll_group_begin());
	for (int r = 0; r < RANKS; r++) {
		mine[r] = r * r;
		check(coll_all_reduce(&mine[r], &sum[r], 1, COLL_I32, COLL_SUM, comms[r], NULL));
	}
	check(coll_group_end());
	/* Sends and receives of a group cannot wait for each other: a ring. */
	check(coll_group_begin());
	for (int r = 0; r < RANKS; r++) {
		check(coll_send(&mine[r], 1, COLL_I32, (r + 1) % RANKS, comms[r], NULL));
		check(coll_recv(&left[r], 1, COLL_I32, (r + RANKS - 1) % RANKS, comms[r], NULL));
	}
	check(coll_group_end());
	printf("in groups: sum %d, rank 0 got %d\n", sum[RANKS - 1], left[0]);
	for (int r = 0; r < RANKS; r++)
		check(coll_comm_destroy(&comms[r]));
	return 0;
}
