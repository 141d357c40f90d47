/*
 * The end of a job at which one rank comes late, as one does that writes a file first: the
 * others have waited for it in coll_comm_destroy(), have given up and are gone. That is no
 * failure, neither theirs nor of the late rank, who finds their doors shut.
 *
 * usage: late_end TRANSPORT
 */
#define PLAIN_OWN_MAIN
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll/coll.h"
#include "meeting.h"
#include "plain.h"

enum { RANKS = MEETING_RANKS_MAX };

struct shared {
	struct meeting meeting;
	coll_status status[RANKS]; /* of destroy */
	char message[RANKS][400];
};

static struct shared *shared;
static const char *transport;

/* gone: ends when nobody holds its other end any more. */
static void rank_main(int rank, bool late, int gone)
{
	char transports[64], byte;
	const char *settings[] = {transports, "COLL_DEBUG=error", NULL};
	struct meeting_seat seat = {&shared->meeting, rank, RANKS};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;
	int32_t x = 1;

	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", transport);
	meeting_sit(&seat, &cfg);
	cfg.settings = settings;
	if (coll_comm_create(&comm, &cfg) != COLL_OK)
		_exit(2);
	if (coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, NULL) != COLL_OK || x != RANKS)
		_exit(3);
	if (late && read(gone, &byte, 1) != 0)
		_exit(4);
	shared->status[rank] = coll_comm_destroy(&comm);
	snprintf(shared->message[rank], sizeof(shared->message[rank]), "%s", coll_last_error(NULL)->message);
	_exit(0);
}

static void run(int late)
{
	pid_t pids[RANKS];
	int ends[2];

	memset(shared, 0, sizeof(*shared));
	REQUIRE(pipe(ends) == 0);
	fflush(stdout);
	for (int r = 0; r < RANKS; r++) {
		pids[r] = fork();
		if (pids[r] == 0) {
			if (r == late)
				close(ends[1]);
			rank_main(r, r == late, ends[0]);
		}
	}
	close(ends[1]);
	close(ends[0]);
	for (int r = 0; r < RANKS; r++) {
		int status = 0;

		REQUIRE(pids[r] > 0 && waitpid(pids[r], &status, 0) == pids[r]);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d ended with %#x", r, (unsigned)status);
		CHECK(shared->status[r] == COLL_OK, "rank %d, where rank %d is late: %d %s", r, late,
		      (int)shared->status[r], shared->message[r]);
	}
}

static void the_first_rank_is_late(void)
{
	run(0);
}

static void a_rank_in_between_is_late(void)
{
	run(5);
}

int main(int argc, char **argv)
{
	transport = argc > 1 ? argv[1] : "shm";
	shared = meeting_page(sizeof(*shared));
	PLAIN_RUN(the_first_rank_is_late);
	PLAIN_RUN(a_rank_in_between_is_late);
	return plain_summary();
}
