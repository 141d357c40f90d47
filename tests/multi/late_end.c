/*
 * The end of a job at which one rank comes late, as one does that writes a file first: the
 * others have waited for it in coll_comm_destroy(), have given up and are gone. That is no
 * failure, neither theirs nor of the late rank, who finds their doors shut; or, where their addresses have gone with
 * them, as those of pods and virtual machines do, no way there.
 *
 * usage: late_end TRANSPORT
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "processes.h"
#ifdef COLL_SIM_JOBS
#include "sim/jobs/network.h"
#endif

enum { RANKS = MEETING_RANKS_MAX };

struct shared {
	struct processes job;
	atomic_int gone; /* ranks that have ended */
};

static struct shared *shared;

/* In place of the system's: a refusal by another host looks as if the host were gone. */
static bool hosts_go;

int connect(int fd, const struct sockaddr *address, socklen_t len_bytes)
{
	const int rc = (int)syscall(SYS_connect, fd, address, len_bytes);

	if (rc != 0 && errno == ECONNREFUSED && hosts_go && address->sa_family != AF_UNIX)
		errno = EHOSTUNREACH;
	return rc;
}

int getsockopt(int fd, int level, int option, void *value, socklen_t *len_bytes)
{
	const int rc = (int)syscall(SYS_getsockopt, fd, level, option, value, len_bytes);
	int *error = value;

	if (rc == 0 && level == SOL_SOCKET && option == SO_ERROR && *error == ECONNREFUSED && hosts_go)
		*error = EHOSTUNREACH;
	return rc;
}

/* Its addresses go with it. */
static void go_with_host(void)
{
#ifdef COLL_SIM_JOBS
	sim_network_leaves(sim_process_self());
#endif
	hosts_go = true;
}

struct end {
	int late;   /* this rank */
	bool alone; /* a host of its own for each rank, and no call before the last: nobody has a link with all others
	             */
};

static void rank_main(const void *arg, int rank)
{
	const struct end *end = arg;
	char host[40];
	coll_comm *comm;
	int32_t x = 1;

	snprintf(host, sizeof(host), "COLL_HOST_ID=host-%d", rank);
	if (end->alone)
		go_with_host();
	comm = processes_world(rank, RANKS, 0, (const char *[]){end->alone ? host : NULL, NULL});
	if (!end->alone && (coll_all_reduce(&x, &x, 1, COLL_I32, COLL_SUM, comm, NULL) != COLL_OK || x != RANKS))
		_exit(3);
	while (rank == end->late && atomic_load(&shared->gone) < RANKS - 1)
		usleep(1000);
	processes_report(rank, coll_comm_destroy(&comm), NULL);
	_exit(0);
}

static void run(int late, bool alone)
{
	const struct end end = {late, alone};
	pid_t pids[RANKS];

	processes_start(pids, RANKS, rank_main, &end);
	for (int i = 1; i <= RANKS; i++) {
		const int r = (late + i) % RANKS; /* the late one last */
		int status = 0;

		REQUIRE(pids[r] > 0 && waitpid(pids[r], &status, 0) == pids[r]);
		atomic_fetch_add(&shared->gone, 1);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "rank %d ended with %#x", r, (unsigned)status);
		CHECK(processes->report[r].status == COLL_OK, "rank %d, where rank %d is late: %d %s", r, late,
		      (int)processes->report[r].status, processes->report[r].message);
	}
}

TEST(late_end, the_first_rank_is_late)
{
	run(0, false);
}

TEST(late_end, a_rank_in_between_is_late)
{
	run(5, false);
}

TEST(late_end, the_hosts_of_the_others_are_gone)
{
	if (strcmp(transport, "tcp") != 0)
		SKIP("one transport tells all");
	run(0, true);
	run(5, true);
}

PROGRAM(late_end, "TRANSPORT")
{
	shared = processes_begin(argv[1], sizeof(*shared));
	return argc;
}
