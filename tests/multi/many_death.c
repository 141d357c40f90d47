/*
 * A rank ends in the middle of calls of many ranks that share few cores: all others have an error that
 * names it within two seconds, whatever it was to them: the owner of the memory they meet in, a root, anybody.
 *
 * usage: many_death [RANKS]
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "crowd.h"
#include "plain.h"
#include "starved.h"

static int ranks = 24;

struct last_words {
	_Atomic int64_t died_ns;
};

enum which { REDUCE_SHORT, REDUCE_LONG, BROADCAST_LONG, TO_ROOT, BROADCAST_FIRST };

static coll_status call(coll_comm *comm, enum which which, int root, float *in, float *out)
{
	switch (which) {
	case REDUCE_SHORT: return coll_all_reduce(in, out, 1, COLL_F32, COLL_SUM, comm, NULL);
	case REDUCE_LONG: return coll_all_reduce(in, out, 100000, COLL_F32, COLL_SUM, comm, NULL);
	case BROADCAST_LONG:
	case BROADCAST_FIRST: return coll_broadcast(in, out, 100000, COLL_F32, root, comm, NULL);
	default: return coll_reduce(in, out, 5000, COLL_F32, COLL_SUM, root, comm, NULL);
	}
}

/* The ranks meet on comm; the links to the root are made by a duplicate, and break before comm has ever used them. */
static void meet_and_link(coll_comm *comm, struct last_words *words, int victim, int root, float *in, float *out)
{
	coll_comm *other = NULL;

	crowd_check(comm, coll_all_reduce(in, out, 1, COLL_F32, COLL_SUM, comm, NULL), "all_reduce");
	crowd_check(comm, coll_comm_duplicate(comm, &other), "duplicate");
	crowd_check(other, call(other, BROADCAST_LONG, root, in, out), "broadcast");
	crowd_check(other, call(other, BROADCAST_LONG, victim, in, out), "broadcast");
	crowd_check(other, coll_barrier(other, NULL), "barrier");
	if (coll_comm_rank(comm) == victim) {
		atomic_store(&words->died_ns, coll_clock_ns());
		_exit(0);
	}
	/* A call that begins while the death is known to the link and not yet to the communicator. */
	while (atomic_load(&words->died_ns) == 0 || coll_clock_ns() - atomic_load(&words->died_ns) < 20000000)
		sched_yield();
}

/* Of the communicator's ranks; its rank 0 is another process than the first. */
static int one_rank(struct crowd *c, enum which which, int victim, int root)
{
	struct last_words *words = (struct last_words *)(void *)c->shared->user;
	float *in = calloc(100000, sizeof(*in)), *out = calloc(100000, sizeof(*out));
	coll_comm *world = crowd_create(c, NULL), *comm = NULL;
	coll_status st = COLL_OK;
	int order[CROWD_MAX], me;
	double late_s;

	for (int i = 0; i < c->size; i++)
		order[i] = (i + 5) % c->size;
	crowd_check(world, coll_comm_create_from_ranks(world, order, c->size, &comm), "create");
	me = coll_comm_rank(comm);
	if (which == BROADCAST_FIRST)
		meet_and_link(comm, words, victim, root, in, out);
	for (int i = 0; i < 1000000 && st == COLL_OK; i++) {
		if (me == victim && i == 30) {
			atomic_store(&words->died_ns, coll_clock_ns());
			_exit(0);
		}
		st = call(comm, which, root, in, out);
	}
	late_s = (double)(coll_clock_ns() - atomic_load(&words->died_ns)) * 1e-9;
	CHECK(st == COLL_ERR_PEER_DEAD, "rank %d: %s", me, coll_last_error(comm)->message);
	CHECK(coll_last_error(comm)->rank == victim, "rank %d: %s", me, coll_last_error(comm)->message);
	CHECK(late_s < 2 + (double)starved_ns() * 1e-9, "rank %d: %.3f s", me, late_s);
	coll_comm_destroy(&comm);
	coll_comm_destroy(&world);
	return atomic_load(&plain_failures) > 0;
}

/* In a process of its own: rank 0 is a child, too. */
static void dies(enum which which, int victim, int root)
{
	const pid_t pid = fork();
	int status = 1;

	if (pid == 0) {
		struct crowd c;

		crowd_begin(&c, ranks);
		_exit(crowd_end(&c, one_rank(&c, which, victim, root)));
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

TEST(many_death, owner_dies)
{
	dies(REDUCE_SHORT, 0, 0);
	dies(REDUCE_LONG, 0, 0);
}

TEST(many_death, anybody_dies)
{
	dies(REDUCE_SHORT, ranks - 2, 0);
	dies(REDUCE_LONG, 7, 0);
	dies(BROADCAST_LONG, 3, 9);
	dies(BROADCAST_FIRST, 9, 5);
	dies(BROADCAST_FIRST, 9, 9);
}

TEST(many_death, root_dies)
{
	dies(BROADCAST_LONG, 4, 4);
	dies(TO_ROOT, 9, 9);
}

PROGRAM(many_death, "")
{
	if (argc > 1)
		ranks = atoi(argv[1]);
	return argc;
}
