/*
 * A rank that goes round and round: create, first calls, all-reduces, all-to-alls, pairs,
 * calls on streams, communicators made of others, destroy, create again. What soak.py
 * kills, stops and pauses. Where the rank is, and how it ended, stands in a file that all ranks
 * of the job and the driver map (struct board): what a killed rank wrote last stays there.
 * The calls are in rounds_calls.c and rounds_family.c.
 *
 * usage: rounds BOARD SEED [hosts=N] [netns=PREFIX] [strike=RANK:PHASE:ROUND:CALL:DELAY_NS:SIGNAL]...
 *
 * strike: when RANK enters CALL of PHASE in ROUND, a timer is set that sends SIGNAL to it
 * DELAY_NS later, whatever it does by then. hosts: COLL_HOST_ID is that of rank % N.
 * netns: enter the network namespace PREFIX followed by rank % 2.
 */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "holdings.h"
#include "rounds.h"

static const char *const phase_names[PHASES] = {"start", "create",  "connect", "all_reduce", "all_to_all",
                                                "pairs", "streams", "split",   "destroy"};

enum { STRIKES_MAX = 4 };

struct strike {
	int rank, phase, round, call;
	uint64_t delay_ns;
	int signal;
};

struct board *board;
struct seat *seat;
int my_rank;
uint64_t seed;
static struct strike strikes[STRIKES_MAX];
static int strike_count;

/* ---- The signal ---- */

static void arm(const struct strike *s)
{
	const uint64_t at = coll_clock_ns() + s->delay_ns;
	const struct itimerspec when = {.it_value = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)}};
	struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = s->signal};
	timer_t timer;

	atomic_store(&seat->strike_ns, at);
	if (timer_create(CLOCK_MONOTONIC, &how, &timer) != 0 || timer_settime(timer, TIMER_ABSTIME, &when, NULL) != 0) {
		perror("rounds: timer");
		_exit(9);
	}
}

void enter(enum phase phase, int round, int call)
{
	atomic_store(&seat->round, (uint32_t)round);
	atomic_store(&seat->call, (uint32_t)call);
	atomic_store(&seat->phase_ns, coll_clock_ns());
	atomic_store(&seat->phase, phase);
	for (int i = 0; i < strike_count; i++)
		if (strikes[i].rank == my_rank && strikes[i].phase == (int)phase && strikes[i].round == round &&
		    strikes[i].call == call)
			arm(&strikes[i]);
}

/* ---- What the process owns ---- */

static void count_belongings(int round)
{
	const uint16_t descriptors = (uint16_t)holdings_descriptors(), threads = (uint16_t)holdings_threads();

	if (round == 0)
		seat->descriptors = descriptors, seat->threads = threads;
	if (descriptors > seat->descriptors_most)
		seat->descriptors_most = descriptors;
	if (threads > seat->threads_most)
		seat->threads_most = threads;
}

/* ---- A round ---- */

void record(coll_status st, const coll_error *e, const struct crowd *c)
{
	const int culprit = st == COLL_OK ? -1 : e->rank;

	if (atomic_load(&seat->state))
		return;
	seat->error_ns = coll_clock_ns();
	seat->status = (int32_t)st;
	seat->culprit = c && culprit >= 0 && culprit < c->size ? c->job_rank[culprit] : culprit;
	snprintf(seat->message, sizeof(seat->message), "%s", st == COLL_OK ? "no error" : e->message);
	atomic_store(&seat->state, 1);
}

coll_status failed_on(const struct crowd *c, coll_status st)
{
	if (st != COLL_OK)
		record(st, coll_last_error(c->comm), c);
	return st;
}

static coll_status use(const struct crowd *world, struct family *family, int round, bool *stop)
{
	coll_status st;

	enter(CONNECT, round, 0);
	st = reduce_once(world, round, CONNECT, 0, stop);
	if (st == COLL_OK)
		st = exchange_once(world, round, ALL_TO_ALL, EXCHANGES);
	for (int i = 0; st == COLL_OK && i < REDUCES; i++) {
		enter(ALL_REDUCE, round, i);
		st = reduce_once(world, round, ALL_REDUCE, i, NULL);
		atomic_fetch_add(&seat->calls, 1);
	}
	for (int i = 0; st == COLL_OK && i < EXCHANGES; i++) {
		enter(ALL_TO_ALL, round, i);
		st = exchange_once(world, round, ALL_TO_ALL, i);
		atomic_fetch_add(&seat->calls, 1);
	}
	for (int i = 0; st == COLL_OK && i < CHAINS; i++) {
		enter(PAIRS, round, i);
		st = chain_once(world, round, i);
		atomic_fetch_add(&seat->calls, 1);
	}
	for (int i = 0; st == COLL_OK && i < STREAM_CALLS; i++) {
		enter(STREAMS, round, i);
		st = streams_once(world, round, i);
		atomic_fetch_add(&seat->calls, 1);
	}
	for (int i = 0; st == COLL_OK && i < SPLIT_CALLS; i++) {
		enter(SPLIT, round, i);
		st = split_once(world, family, round, i);
		atomic_fetch_add(&seat->calls, 1);
	}
	return st;
}

static void report_transports(const coll_comm *comm)
{
	for (int r = 0; r < coll_comm_size(comm) && r < SEATS; r++)
		if (r != my_rank && !strstr(seat->transport, coll_comm_transport(comm, r)))
			snprintf(seat->transport + strlen(seat->transport),
			         sizeof(seat->transport) - strlen(seat->transport), "%s%.8s",
			         seat->transport[0] ? "," : "", coll_comm_transport(comm, r));
}

static coll_status go_round(int round, bool *stop)
{
	struct crowd world = {NULL};
	struct family family = {.twin = {NULL}};
	coll_status st, end;

	enter(CREATE, round, 0);
	st = coll_comm_create(&world.comm, NULL);
	if (st != COLL_OK) {
		record(st, coll_last_error(NULL), NULL);
		return st;
	}
	world.rank = coll_comm_rank(world.comm);
	world.size = coll_comm_size(world.comm);
	for (int r = 0; r < world.size && r < SEATS; r++)
		world.job_rank[r] = r;
	if (round == 0)
		report_transports(world.comm);
	st = use(&world, &family, round, stop);
	if (st == COLL_OK)
		enter(DESTROY, round, 0);
	end = part(&world, &family, round);
	return st != COLL_OK ? st : end;
}

/* ---- Start ---- */

static bool open_board(const char *path)
{
	const int fd = open(path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return false;
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return board != MAP_FAILED;
}

static bool enter_namespace(const char *prefix)
{
	char path[300];
	int fd;
	bool ok;

	snprintf(path, sizeof(path), "%s%d", prefix, my_rank % 2);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	ok = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
	if (fd >= 0)
		close(fd);
	return ok;
}

static bool parse_strike(const char *text)
{
	struct strike *s = &strikes[strike_count];
	char name[16];

	if (strike_count == STRIKES_MAX || sscanf(text, "%d:%15[a-z_]:%d:%d:%lu:%d", &s->rank, name, &s->round,
	                                          &s->call, &s->delay_ns, &s->signal) != 6)
		return false;
	for (s->phase = 0; s->phase < PHASES && strcmp(phase_names[s->phase], name) != 0;)
		s->phase++;
	strike_count++;
	return s->phase < PHASES;
}

static bool parse(int argc, char **argv)
{
	char host[24];

	for (int i = 3; i < argc; i++) {
		if (strncmp(argv[i], "hosts=", 6) == 0 && atoi(argv[i] + 6) > 0) {
			snprintf(host, sizeof(host), "soak-%d", my_rank % atoi(argv[i] + 6));
			setenv("COLL_HOST_ID", host, 1);
		} else if (strncmp(argv[i], "netns=", 6) == 0
		                   ? !enter_namespace(argv[i] + 6)
		                   : strncmp(argv[i], "strike=", 7) != 0 || !parse_strike(argv[i] + 7)) {
			fprintf(stderr, "rounds: cannot use %s\n", argv[i]);
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	const char *rank = getenv("COLL_RANK");
	bool stop = false;
	coll_status st = COLL_OK;

	my_rank = rank ? atoi(rank) : -1;
	if (argc < 3 || my_rank < 0 || my_rank >= SEATS || !open_board(argv[1])) {
		fprintf(stderr,
		        "usage: rounds BOARD SEED [hosts=N] [netns=PREFIX] [strike=...], with COLL_RANK below %d\n",
		        SEATS);
		return 64;
	}
	seed = strtoull(argv[2], NULL, 0);
	seat = &board->seats[my_rank];
	atomic_store(&seat->pid, (uint32_t)getpid());
	if (!buffers_open() || !parse(argc, argv))
		return 64;
	enter(START, 0, 0);
	for (int round = 0; st == COLL_OK && !stop; round++) {
		count_belongings(round);
		st = go_round(round, &stop);
	}
	if (st == COLL_OK)
		record(st, NULL, NULL);
	buffers_close();
	seat->end_ns = coll_clock_ns();
	atomic_store(&seat->state, 2);
	return st == COLL_OK && !atomic_load(&seat->wrong) ? 0 : 1;
}
