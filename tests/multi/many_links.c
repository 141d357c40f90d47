/*
 * Links that short calls of many ranks on few cores open: a few for each rank, not one for every two. Those cost
 * seconds (docs/results/experiments/many-ranks.md). And the descriptors that a link takes, also where the soft limit
 * allows fewer. Started by collrun.
 *
 * usage: many_links WAY   the way that a short all_reduce goes
 */
#define PLAIN_OWN_MAIN
#include <stdlib.h>
#include <string.h>

#include "coll/coll.h"
#include "core/comm.h"
#include "plain.h"
#include "transports/shm/shm.h"

static coll_comm *world;
static const char *way;

/* To other ranks, by this one. */
static int64_t links(void)
{
	int64_t n = 0;

	for (int r = 0; r < world->ctx->size; r++)
		n += world->ctx->processes[r].link != NULL;
	return n;
}

/* Of all ranks together, each counted at both ends: looked at by a call that opens none itself. */
static int64_t links_of_all(int64_t *most)
{
	int64_t sum[2] = {0};

	*most = coll_comm_rank(world) == 0 ? 0 : links(); /* rank 0 may have a link to each */
	CHECK(coll_all_reduce(most, most, 1, COLL_I64, COLL_MAX, world, NULL) == COLL_OK);
	sum[0] = links();
	CHECK(coll_all_reduce(sum, sum, 1, COLL_I64, COLL_SUM, world, NULL) == COLL_OK);
	return sum[0];
}

static int rounds(int n)
{
	int log2 = 0;

	while (1 << log2 < n)
		log2++;
	return log2;
}

static void short_calls_link_few_ranks(void)
{
	const int n = coll_comm_size(world), rank = coll_comm_rank(world);
	int64_t mine = rank, sum = 0, most = 0;
	coll_comm *other = NULL;

	CHECK(coll_all_reduce(&mine, &sum, 1, COLL_I64, COLL_SUM, world, NULL) == COLL_OK);
	CHECK(sum == (int64_t)n * (n - 1) / 2, "%lld", (long long)sum);
	CHECK(strcmp(coll_comm_last_way(world), way) == 0, "%s", coll_comm_last_way(world));
	sum = links_of_all(&most);
	CHECK(most > 0 && most <= 2 * rounds(n), "%lld of %d ranks", (long long)most, n);
	CHECK(sum <= 2 * (int64_t)n * rounds(n), "%lld of %d ranks", (long long)sum, n);

	/* A duplicate is an all_gather, and its end a barrier. */
	CHECK(coll_comm_duplicate(world, &other) == COLL_OK);
	CHECK(coll_barrier(other, NULL) == COLL_OK);
	CHECK(coll_comm_destroy(&other) == COLL_OK);
	sum = links_of_all(&most);
	CHECK(most <= 5 * rounds(n), "%lld of %d ranks", (long long)most, n);
	CHECK(sum <= 5 * (int64_t)n * rounds(n), "%lld of %d ranks", (long long)sum, n);
	if (rank == 0)
		printf("%d ranks: %lld links in all, %lld of one rank at most\n", n, (long long)sum, (long long)most);
}

/* Of a link over shared memory that is up: its socket, and the doorbell of the peer. */
static void a_link_takes_two_descriptors(void)
{
	int up = 0;

	for (int r = 0; r < world->ctx->size; r++) {
		const struct shm_link *l = world->ctx->processes[r].link;

		if (!l || strcmp(world->ctx->processes[r].opened->table.name, "shm") != 0 ||
		    coll_shm_link_state(l) != COLL_OK)
			continue;
		up++;
		CHECK(l->conn && l->peer_wake_fd >= 0 && l->pid.fd < 0, "the link to rank %d", r);
	}
	CHECK(up > 0);
}

int main(int argc, char **argv)
{
	way = argc > 1 ? argv[1] : "";
	if (coll_comm_create(&world, NULL) != COLL_OK) {
		fprintf(stderr, "create: %s\n", coll_last_error(NULL)->message);
		return 1;
	}
	PLAIN_RUN(short_calls_link_few_ranks);
	PLAIN_RUN(a_link_takes_two_descriptors);
	if (coll_comm_destroy(&world) != COLL_OK)
		return 1;
	return plain_failed ? plain_summary() : 0;
}
