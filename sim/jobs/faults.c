/*
 * What only the simulated network can do at will: hosts that are out of reach for a while or for good, connections that
 * are reset, processes that are stopped or killed at any moment. Four ranks, each on a host of its own, make small
 * all_reduces; each row says how they must end.
 *
 * usage: sim-faults TRANSPORT [PART-OF-A-TEST'S-NAME [TIMES]]
 */
#define PLAIN_OWN_MAIN
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/coll.h"
#include "meeting.h"
#include "plain.h"
#include "sim/jobs/links.h"
#include "sim/jobs/network.h"

enum { RANKS = 4, VICTIM = 2 };

struct shared {
	struct meeting meeting;
	atomic_int ready, stop;
	uint64_t fault_ns;
	struct result {
		atomic_int done, calls;
		coll_status status;
		int culprit;
		uint64_t ns;
		char message[600];
	} result[RANKS];
};

static struct shared shared;
static pid_t pids[RANKS];
static const char *transport = "tcp";
static const char *timeout = "COLL_TIMEOUT_MS=5000"; /* and so COLL_UNREACHABLE_MS */

/* Sums until it fails, or until all have been told to stop. */
static void rank_body(const void *arg, int rank)
{
	char host[40], transports[40];
	const char *settings[] = {transports, host, timeout, "COLL_ARRIVAL_TIMEOUT_MS=60000", "COLL_DEBUG=error", NULL};
	struct result *r = &shared.result[rank];
	coll_comm *comm;
	coll_status st = COLL_OK;
	int32_t x[2];

	(void)arg;
	snprintf(host, sizeof(host), "COLL_HOST_ID=faults-%d", strcmp(transport, "shm") ? rank : 0);
	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", transport);
	comm = meeting_world(&shared.meeting, rank, RANKS, settings);
	do {
		x[0] = 1;
		x[1] = atomic_load(&shared.stop);
		st = coll_all_reduce(x, x, 2, COLL_I32, COLL_SUM, comm, NULL);
		if (st == COLL_OK && x[0] != RANKS)
			st = COLL_ERR_INTERNAL;
		if (st == COLL_OK && atomic_fetch_add(&r->calls, 1) == 0)
			atomic_fetch_add(&shared.ready, 1);
		usleep(100);
	} while (st == COLL_OK && x[1] == 0);
	r->ns = coll_clock_ns();
	r->status = st;
	r->culprit = coll_last_error(comm)->rank;
	snprintf(r->message, sizeof(r->message), "%s", coll_last_error(comm)->message);
	coll_comm_destroy(&comm);
	atomic_store(&r->done, 1);
	_exit(0);
}

static struct sim_process *process_of(int rank)
{
	return sim_process_find(pids[rank]);
}

static void begin(void)
{
	meeting_start(pids, RANKS, &shared, sizeof(shared), rank_body, NULL);
	while (atomic_load(&shared.ready) < RANKS)
		usleep(100);
	usleep((useconds_t)sim_below(20000));
	shared.fault_ns = coll_clock_ns();
}

static void end(void)
{
	for (int r = 0; r < RANKS; r++) {
		for (int i = 0; i < 20000 && waitpid(pids[r], NULL, WNOHANG) != pids[r]; i++)
			usleep(1000);
		kill(pids[r], SIGCONT);
		kill(pids[r], SIGKILL);
	}
}

/* All but the victim end with this status within the time, and name the victim. */
static void expect_named(coll_status status, double within_s)
{
	for (int r = 0; r < RANKS; r++) {
		const struct result *q = &shared.result[r];

		if (r == VICTIM)
			continue;
		for (int i = 0; i < 20000 && !atomic_load(&q->done); i++)
			usleep(1000);
		CHECK(atomic_load(&q->done), "rank %d hangs", r);
		CHECK(q->status == status && q->culprit == VICTIM, "rank %d: status %d, rank %d: %s", r, (int)q->status,
		      q->culprit, q->message);
		CHECK((double)(q->ns - shared.fault_ns) * 1e-9 < within_s, "rank %d: after %.3f s: %s", r,
		      (double)(q->ns - shared.fault_ns) * 1e-9, q->message);
	}
}

static void expect_all_well(void)
{
	usleep(7000000);
	atomic_store(&shared.stop, 1);
	for (int r = 0; r < RANKS; r++) {
		const struct result *q = &shared.result[r];

		for (int i = 0; i < 20000 && !atomic_load(&q->done); i++)
			usleep(1000);
		CHECK(q->status == COLL_OK && atomic_load(&q->done), "rank %d: %d: %s", r, (int)q->status, q->message);
	}
}

static void a_killed_rank_is_named(void)
{
	begin();
	kill(pids[VICTIM], SIGKILL);
	expect_named(COLL_ERR_PEER_DEAD, 2.0);
	end();
}

static void a_stopped_rank_is_silent(void)
{
	begin();
	kill(pids[VICTIM], SIGSTOP);
	expect_named(COLL_ERR_PEER_SILENT, 7.5);
	end();
}

static void a_short_stop_harms_nobody(void)
{
	begin();
	kill(pids[VICTIM], SIGSTOP);
	usleep((useconds_t)(100000 + sim_below(2000000)));
	kill(pids[VICTIM], SIGCONT);
	expect_all_well();
	end();
}

/* Its own side finds all others out of reach, and may name any of them. */
static void a_host_out_of_reach_is_dead(void)
{
	if (strcmp(transport, "tcp") != 0)
		SKIP("ranks of one host");
	begin();
	sim_network_cut(process_of(VICTIM), true);
	sim_links_cut(process_of(VICTIM));
	expect_named(COLL_ERR_PEER_DEAD, 6.5);
	for (int i = 0; i < 10000 && !atomic_load(&shared.result[VICTIM].done); i++)
		usleep(1000);
	CHECK(shared.result[VICTIM].status == COLL_ERR_PEER_DEAD && shared.result[VICTIM].culprit != VICTIM, "%d: %s",
	      (int)shared.result[VICTIM].status, shared.result[VICTIM].message);
	end();
}

static void a_short_cut_harms_nobody(void)
{
	begin();
	sim_network_cut(process_of(VICTIM), true);
	usleep((useconds_t)(10000 + sim_below(4000000)));
	sim_network_cut(process_of(VICTIM), false);
	expect_all_well();
	end();
}

/* As a firewall does: the links of the control plane end, those of the data path do not. */
static void resets_of_control_links_harm_nobody(void)
{
	begin();
	for (int i = 0; i < 5; i++) {
		sim_network_reset(process_of((int)sim_below(RANKS)));
		usleep((useconds_t)sim_below(300000));
	}
	expect_all_well();
	end();
}

/* The links are reset at the moment at which the rank dies. */
static void a_death_after_resets_is_named(void)
{
	begin();
	for (int r = 0; r < RANKS; r++)
		sim_network_reset(process_of(r));
	usleep((useconds_t)sim_below(50000));
	shared.fault_ns = coll_clock_ns();
	kill(pids[VICTIM], SIGKILL);
	expect_named(COLL_ERR_PEER_DEAD, 2.0);
	end();
}

int main(int argc, char **argv)
{
	static const struct plain_case cases[] = {
	        PLAIN_CASE(a_killed_rank_is_named),        PLAIN_CASE(a_stopped_rank_is_silent),
	        PLAIN_CASE(a_short_stop_harms_nobody),     PLAIN_CASE(a_host_out_of_reach_is_dead),
	        PLAIN_CASE(a_short_cut_harms_nobody),      PLAIN_CASE(resets_of_control_links_harm_nobody),
	        PLAIN_CASE(a_death_after_resets_is_named),
	};
	const uint64_t begun_ns = coll_clock_ns();

	if (argc > 1)
		transport = argv[1];
	for (int times = argc > 3 ? atoi(argv[3]) : 5; times > 0; times--)
		plain_run_cases(transport, cases, sizeof(cases) / sizeof(cases[0]), argc > 2 ? argv[2] : NULL);
	printf("seed %llu, %.1f virtual seconds\n", (unsigned long long)sim_seed(),
	       (double)(coll_clock_ns() - begun_ns) * 1e-9);
	return plain_summary();
}
