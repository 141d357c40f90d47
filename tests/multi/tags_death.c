/*
 * A rank is killed while others wait for tagged messages: of it, of any rank, for it to take one. All of them get an
 * error that names it. Ranks are processes.
 *
 * usage: tags_death shm|tcp|mixed (mixed: every other rank on another host by name)
 */
#include "processes.h"

enum { RANKS = 5, VICTIM = 2, LARGE = 1 << 20 };

static int *data(void)
{
	return calloc(LARGE, sizeof(int));
}

/* What each rank does when the victim dies. */
static coll_status wait_for_it(coll_comm *comm, int rank, int round)
{
	int *x = data();
	coll_request *r = NULL;
	coll_status st = COLL_OK;

	switch ((rank + round) % 6) {
	case 0: return coll_recv_tag(x, 1, COLL_I32, COLL_ANY_SOURCE, COLL_ANY_TAG, comm, NULL);
	case 1: return coll_recv_tag(x, 1, COLL_I32, VICTIM, 3, comm, NULL);
	case 2: return coll_send_tag(x, LARGE, COLL_I32, VICTIM, 4, comm, NULL);
	case 3: return coll_probe(round % 2 ? COLL_ANY_SOURCE : VICTIM, 6, comm, NULL);
	case 4:
		do
			st = coll_iprobe(round % 2 ? VICTIM : COLL_ANY_SOURCE, 6, comm, NULL);
		while (st == COLL_AGAIN);
		return st;
	default:
		/* Long messages between the others go on meanwhile. */
		st = coll_irecv(x, LARGE, COLL_I32, VICTIM, 5, comm, &r);
		for (int i = 0; st == COLL_OK; i++) {
			coll_request *own = NULL;

			st = coll_request_test(&r, NULL);
			if (st != COLL_AGAIN)
				return st;

			st = coll_irecv(x, 100000, COLL_I32, rank, i, comm, &own);
			if (st == COLL_OK)
				st = coll_send_tag(x, 100000, COLL_I32, rank, i, comm, NULL);
			if (own)
				st = coll_request_wait(&own, -1, NULL);
		}
		return r ? coll_request_wait(&r, -1, NULL) : st;
	}
}

static void body(const void *arg, int rank)
{
	const int round = *(const int *)arg;
	coll_comm *comm = processes_world(rank, RANKS, rank % 2, NULL);
	int x = rank;

	alarm(60);
	/* A message to the next one, so that some channels are open. */
	if (coll_send_tag(&x, 1, COLL_I32, (rank + 1) % RANKS, 1, comm, NULL) != COLL_OK ||
	    coll_recv_tag(&x, 1, COLL_I32, COLL_ANY_SOURCE, 1, comm, NULL) != COLL_OK)
		_exit(8);
	if (rank == VICTIM) {
		processes_reach(&processes->ready, RANKS - 1);
		usleep(20000 * (unsigned)round);
		kill(getpid(), SIGKILL);
	}
	atomic_fetch_add(&processes->ready, 1);
	processes_report(rank, wait_for_it(comm, rank, round), comm);
	coll_comm_destroy(&comm);
	_exit(0);
}

static void run(int round)
{
	pid_t pids[RANKS];

	processes_start(pids, RANKS, body, &round);
	processes_reap(pids, RANKS, VICTIM);
	for (int r = 0; r < RANKS; r++)
		CHECK(r == VICTIM || (processes->report[r].status == COLL_ERR_PEER_DEAD &&
		                      processes->report[r].culprit == VICTIM),
		      "rank %d: %d %s", r, processes->report[r].status, processes->report[r].message);
}

TEST(tags_death, test_killed)
{
	for (int round = 0; round < 8; round++)
		run(round);
}

PROGRAM(tags_death, "shm|tcp|mixed")
{
	processes_begin(argv[1], sizeof(*processes));
	return argc;
}
