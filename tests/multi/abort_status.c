/*
 * An abort with an exit status: other ranks read it in the error, and collrun ends with it, whatever the ranks end
 * with. And names of communicators: in errors, in the log and in dumps.
 *
 * usage: abort_status COLLRUN | rank STATUS OWN OTHERS
 *
 * rank: one of a job, of which rank 1 aborts with STATUS and ends with OWN, and the others end with OTHERS.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PLAIN_OWN_MAIN
#include "meeting.h"
#include "plain.h"

enum { RANKS = 3, ABORTER = 1, STATUS = 7 };

static struct shared {
	struct meeting meeting;
	coll_status status[RANKS];
	int exit_status[RANKS], named_none[RANKS];
	char message[RANKS][1024], log[RANKS][4096];
} * shared;

static void note_line(void *arg, int level, const char *line)
{
	char *log = arg;
	const size_t used = strlen(log);

	(void)level;
	snprintf(log + used, sizeof(shared->log[0]) - used, "%s\n", line);
}

static void run_rank(const void *arg, int rank)
{
	const char *name = arg;
	struct meeting_seat seat = {&shared->meeting, rank, RANKS};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;
	float x[1] = {1};

	meeting_sit(&seat, &cfg);
	cfg.log = note_line;
	cfg.log_arg = shared->log[rank];
	if (coll_comm_create(&comm, &cfg) != COLL_OK || (name && coll_comm_set_name(comm, name) != COLL_OK))
		_exit(9);
	shared->named_none[rank] = coll_comm_get_name(comm)[0] == '\0';
	if (rank == ABORTER)
		coll_comm_abort_with(comm, STATUS, "disk full");
	shared->status[rank] = coll_all_reduce(x, x, 1, COLL_F32, COLL_SUM, comm, NULL);
	shared->exit_status[rank] = coll_last_error(comm)->exit_status;
	snprintf(shared->message[rank], sizeof(shared->message[0]), "%s", coll_last_error(comm)->message);
	coll_comm_destroy(&comm);
	_exit(0);
}

static void run(const char *name)
{
	pid_t pids[RANKS];

	meeting_start(pids, RANKS, shared, sizeof(*shared), run_rank, name);
	for (int r = 0; r < RANKS; r++)
		waitpid(pids[r], NULL, 0);
}

static void every_rank_reads_the_status(void)
{
	run(NULL);
	for (int r = 0; r < RANKS; r++) {
		CHECK(shared->status[r] == COLL_ERR_ABORTED && shared->exit_status[r] == STATUS, "rank %d: %d, %d", r,
		      (int)shared->status[r], shared->exit_status[r]);
		CHECK(strstr(shared->message[r], "rank 1 aborted the communicator with exit status 7: disk full"), "%s",
		      shared->message[r]);
		CHECK(shared->named_none[r] && strncmp(shared->message[r] + 6, " of 3: ", 7) == 0, "%s",
		      shared->message[r]);
	}
	CHECK(strstr(shared->log[ABORTER], "with exit status 7"), "%s", shared->log[ABORTER]);
	CHECK(shared->log[0][0] == '\0', "whoever is told logs no error: %s", shared->log[0]);
}

static void a_name_stands_in_errors_and_the_log(void)
{
	char before[48];

	run("tp:0");
	for (int r = 0; r < RANKS; r++) {
		snprintf(before, sizeof(before), "rank %d of %d (tp:0): all_reduce: ", r, RANKS);
		CHECK(strncmp(shared->message[r], before, strlen(before)) == 0, "%s", shared->message[r]);
	}
	CHECK(strstr(shared->log[ABORTER], "tp:0: rank 1 aborted"), "%s", shared->log[ABORTER]);
}

static void names_are_checked(void)
{
	static const char *const wrong[] = {"a b", "\"", "a\n", "\xc3\xa4", "12345678901234567890123456789012"};
	coll_comm *comm = NULL;

	REQUIRE(coll_comm_create_all(&comm, 1, NULL) == COLL_OK);
	CHECK(strcmp(coll_comm_get_name(comm), "") == 0 && !coll_comm_get_name(NULL));
	CHECK(coll_comm_set_name(comm, "1234567890123456789012345678901") == COLL_OK);
	CHECK(coll_comm_set_name(comm, "dp/Model-3_a.b:+") == COLL_OK);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		CHECK(coll_comm_set_name(comm, wrong[i]) == COLL_ERR_ARGUMENT, "%s", wrong[i]);
	CHECK(strcmp(coll_comm_get_name(comm), "dp/Model-3_a.b:+") == 0, "%s", coll_comm_get_name(comm));
	CHECK(strstr(coll_last_error(comm)->message, "(dp/Model-3_a.b:+): comm_set_name: "), "%s",
	      coll_last_error(comm)->message);
	CHECK(coll_comm_set_name(comm, NULL) == COLL_OK && coll_comm_get_name(comm)[0] == '\0');
	CHECK(coll_comm_set_name(NULL, "a") == COLL_ERR_ARGUMENT);
	coll_comm_destroy(&comm);
}

/* ---- Under collrun ---- */

static const char *collrun, *self;

static int job(int status, int own, int others)
{
	char command[1200];
	int ended;

	snprintf(command, sizeof(command), "'%s' -n 3 '%s' rank %d %d %d >/dev/null 2>&1", collrun, self, status, own,
	         others);
	ended = system(command);
	return WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
}

static void collrun_ends_with_it(void)
{
	CHECK(job(STATUS, 1, 1) == STATUS);
	CHECK(job(STATUS, 0, 0) == STATUS);
	CHECK(job(STATUS, 3, 4) == STATUS);
	CHECK(job(256, 1, 1) == 1);
	CHECK(job(-1, 1, 1) == 255);
	CHECK(job(0, 5, 5) == 5);
	CHECK(job(0, 0, 0) == 0);
}

static int be_rank(char **argv)
{
	coll_comm *comm = NULL;
	float x[1] = {1};
	int rank;

	if (coll_comm_create(&comm, NULL) != COLL_OK)
		return 9;
	rank = coll_comm_rank(comm);
	if (rank == ABORTER) {
		coll_comm_abort_with(comm, atoi(argv[2]), "disk full");
		_exit(atoi(argv[3]));
	}
	if (coll_all_reduce(x, x, 1, COLL_F32, COLL_SUM, comm, NULL) != COLL_ERR_ABORTED)
		return 8;
	coll_comm_destroy(&comm);
	return atoi(argv[4]);
}

int main(int argc, char **argv)
{
	if (argc == 5 && strcmp(argv[1], "rank") == 0)
		return be_rank(argv);
	if (argc != 2)
		return 2;
	collrun = argv[1];
	self = argv[0];
	shared = meeting_page(sizeof(*shared));
	PLAIN_RUN(every_rank_reads_the_status);
	PLAIN_RUN(a_name_stands_in_errors_and_the_log);
	PLAIN_RUN(names_are_checked);
	PLAIN_RUN(collrun_ends_with_it);
	return plain_summary();
}
