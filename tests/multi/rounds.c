/*
 * A rank that goes round and round: create, first calls, all-reduces, all-to-alls, pairs,
 * destroy, create again. What soak.py kills, stops and pauses. Every element of every
 * result is checked. Where the rank is, and how it ended, stands in a file that all ranks
 * of the job and the driver map (struct board): what a killed rank wrote last stays there.
 *
 * usage: rounds BOARD SEED [hosts=N] [netns=PREFIX] [strike=RANK:PHASE:ROUND:CALL:DELAY_NS:SIGNAL]...
 *
 * strike: when RANK enters CALL of PHASE in ROUND, a timer is set that sends SIGNAL to it
 * DELAY_NS later, whatever it does by then. hosts: COLL_HOST_ID is that of rank % N.
 * netns: enter the network namespace PREFIX followed by rank % 2.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "coll/coll.h"

enum phase { START, CREATE, CONNECT, ALL_REDUCE, ALL_TO_ALL, PAIRS, SPLIT, DESTROY, PHASES };

static const char *const phase_names[PHASES] = {"start",      "create", "connect", "all_reduce",
                                                "all_to_all", "pairs",  "split",   "destroy"};

enum { SEATS = 8, STRIKES_MAX = 4, COUNT_MAX = 150000 };
enum { REDUCES = 12, EXCHANGES = 6, CHAINS = 3 };

/* soak.py reads this by offset. */
struct seat {
	_Atomic uint32_t pid;
	_Atomic uint32_t phase;
	_Atomic uint64_t phase_ns; /* when it entered the phase */
	_Atomic uint32_t round;
	_Atomic uint32_t call;      /* of the phase */
	_Atomic uint64_t strike_ns; /* when the signal comes, 0: not armed */
	_Atomic uint32_t state;     /* 0 runs, 1 has a status, 2 has destroyed its communicator */
	int32_t status;
	int32_t culprit;
	_Atomic uint32_t wrong; /* results that were */
	uint64_t error_ns, end_ns;
	char transport[32];
	_Atomic uint64_t calls;                 /* completed */
	uint16_t descriptors, descriptors_most; /* between communicators: before the first, most since */
	uint16_t threads, threads_most;
	char spare[16];
	char message[896];
};
_Static_assert(sizeof(struct seat) == 1024, "soak.py knows the layout");

struct board {
	_Atomic uint32_t stop;
	char spare[1020];
	struct seat seats[SEATS];
};

struct strike {
	int rank, phase, round, call;
	uint64_t delay_ns;
	int signal;
};

static struct board *board;
static struct seat *seat;
static struct strike strikes[STRIKES_MAX];
static int strike_count, my_rank;
static uint64_t seed;
static int32_t *in, *out;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

/* ---- The signal ---- */

static void arm(const struct strike *s)
{
	const uint64_t at = now_ns() + s->delay_ns;
	const struct itimerspec when = {.it_value = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)}};
	struct sigevent how = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = s->signal};
	timer_t timer;

	atomic_store(&seat->strike_ns, at);
	if (timer_create(CLOCK_MONOTONIC, &how, &timer) != 0 || timer_settime(timer, TIMER_ABSTIME, &when, NULL) != 0) {
		perror("rounds: timer");
		_exit(9);
	}
}

static void enter(enum phase phase, int round, int call)
{
	atomic_store(&seat->round, (uint32_t)round);
	atomic_store(&seat->call, (uint32_t)call);
	atomic_store(&seat->phase_ns, now_ns());
	atomic_store(&seat->phase, phase);
	for (int i = 0; i < strike_count; i++)
		if (strikes[i].rank == my_rank && strikes[i].phase == (int)phase && strikes[i].round == round &&
		    strikes[i].call == call)
			arm(&strikes[i]);
}

/* ---- Calls ---- */

/* Equal on all ranks. Mostly small, now and then past every threshold of the library. */
static size_t count_of(int round, int phase, int call)
{
	const uint64_t r = mix(seed ^ mix((uint64_t)round << 32 | (uint64_t)(phase << 16 | call)));
	static const size_t most[4] = {4, 1000, 20000, COUNT_MAX};

	return 1 + (size_t)(r >> 8) % most[r % 4];
}

static int32_t value(int from, int to, size_t i, int call)
{
	return (int32_t)((uint32_t)(from + 1) * 1000003u + (uint32_t)to * 7919u + (uint32_t)i * 31u + (uint32_t)call);
}

static void check(bool right)
{
	if (!right)
		atomic_fetch_add(&seat->wrong, 1);
}

/* The first element says whether rank 0 wants to stop. */
static coll_status reduce_once(coll_comm *comm, int round, int phase, int call, bool *stop)
{
	const size_t count = count_of(round, phase, call) + 1;
	const int size = coll_comm_size(comm), rank = coll_comm_rank(comm);
	uint32_t ranks = 0;
	bool right = true;
	coll_status st;

	for (size_t i = 1; i < count; i++)
		in[i] = value(rank, 0, i, call);
	in[0] = rank == 0 && stop && atomic_load(&board->stop);
	st = coll_all_reduce(in, out, count, COLL_I32, COLL_SUM, comm, NULL);
	if (st != COLL_OK)
		return st;
	for (int r = 0; r < size; r++)
		ranks += (uint32_t)value(r, 0, 0, call);
	for (size_t i = 1; i < count; i++)
		right &= (uint32_t)out[i] == ranks + (uint32_t)size * (uint32_t)i * 31u;
	check(right);
	if (stop)
		*stop = out[0] != 0;
	return COLL_OK;
}

static coll_status exchange_once(coll_comm *comm, int round, int call)
{
	const int size = coll_comm_size(comm), rank = coll_comm_rank(comm);
	const size_t count = count_of(round, ALL_TO_ALL, call) / (size_t)size + 1;
	bool right = true;
	coll_status st;

	for (int to = 0; to < size; to++)
		for (size_t i = 0; i < count; i++)
			in[(size_t)to * count + i] = value(rank, to, i, call);
	st = coll_all_to_all(in, out, count, COLL_I32, comm, NULL);
	for (int from = 0; st == COLL_OK && from < size; from++)
		for (size_t i = 0; i < count; i++)
			right &= out[(size_t)from * count + i] == value(from, rank, i, call);
	check(right);
	return st;
}

/* Every rank but the last receives before it sends: a chain of ranks that wait for one another. */
static coll_status chain_once(coll_comm *comm, int round, int call)
{
	const int size = coll_comm_size(comm), rank = coll_comm_rank(comm);
	const size_t count = count_of(round, PAIRS, call);
	bool right = true;
	coll_status st = COLL_OK;

	for (size_t i = 0; i < count; i++)
		in[i] = value(rank, rank - 1, i, call);
	if (rank < size - 1) {
		st = coll_recv(out, count, COLL_I32, rank + 1, comm, NULL);
		for (size_t i = 0; st == COLL_OK && i < count; i++)
			right &= out[i] == value(rank + 1, rank, i, call);
	}
	if (st == COLL_OK && rank > 0)
		st = coll_send(in, count, COLL_I32, rank - 1, comm, NULL);
	check(right);
	return st;
}

/* ---- What the process owns ---- */

static uint16_t entries(const char *path)
{
	DIR *d = opendir(path);
	uint16_t n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static void count_belongings(int round)
{
	const uint16_t descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");

	if (round == 0)
		seat->descriptors = descriptors, seat->threads = threads;
	if (descriptors > seat->descriptors_most)
		seat->descriptors_most = descriptors;
	if (threads > seat->threads_most)
		seat->threads_most = threads;
}

/* ---- A round ---- */

static coll_status use(coll_comm *comm, int round, bool *stop)
{
	coll_status st;

	enter(CONNECT, round, 0);
	st = reduce_once(comm, round, CONNECT, 0, stop);
	if (st == COLL_OK)
		st = exchange_once(comm, round, EXCHANGES);
	for (int i = 0; st == COLL_OK && i < REDUCES; i++) {
		enter(ALL_REDUCE, round, i);
		st = reduce_once(comm, round, ALL_REDUCE, i, NULL);
		atomic_fetch_add(&seat->calls, 1);
	}
	for (int i = 0; st == COLL_OK && i < EXCHANGES; i++) {
		enter(ALL_TO_ALL, round, i);
		st = exchange_once(comm, round, i);
		atomic_fetch_add(&seat->calls, 1);
	}
	for (int i = 0; st == COLL_OK && i < CHAINS; i++) {
		enter(PAIRS, round, i);
		st = chain_once(comm, round, i);
		atomic_fetch_add(&seat->calls, 1);
	}
	return st;
}

static void record(coll_status st, const coll_error *e)
{
	seat->error_ns = now_ns();
	seat->status = (int32_t)st;
	seat->culprit = st == COLL_OK ? -1 : e->rank;
	snprintf(seat->message, sizeof(seat->message), "%s", st == COLL_OK ? "no error" : e->message);
	atomic_store(&seat->state, 1);
}

static coll_status go_round(int round, bool *stop)
{
	coll_comm *comm = NULL;
	coll_status st;

	enter(CREATE, round, 0);
	st = coll_comm_create(&comm, NULL);
	if (st != COLL_OK) {
		record(st, coll_last_error(NULL));
		return st;
	}
	for (int r = 0; round == 0 && r < coll_comm_size(comm) && r < SEATS; r++)
		if (r != my_rank && !strstr(seat->transport, coll_comm_transport(comm, r)))
			snprintf(seat->transport + strlen(seat->transport),
			         sizeof(seat->transport) - strlen(seat->transport), "%s%.8s",
			         seat->transport[0] ? "," : "", coll_comm_transport(comm, r));
	st = use(comm, round, stop);
	if (st != COLL_OK)
		record(st, coll_last_error(comm));
	else
		enter(DESTROY, round, 0);
	coll_comm_destroy(&comm);
	return st;
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
	in = calloc(COUNT_MAX + SEATS, 2 * sizeof(*in));
	out = calloc(COUNT_MAX + SEATS, 2 * sizeof(*out));
	if (!in || !out || !parse(argc, argv))
		return 64;
	enter(START, 0, 0);
	for (int round = 0; st == COLL_OK && !stop; round++) {
		count_belongings(round);
		st = go_round(round, &stop);
	}
	if (st == COLL_OK)
		record(st, NULL);
	free(in);
	free(out);
	seat->end_ns = now_ns();
	atomic_store(&seat->state, 2);
	return st == COLL_OK && !atomic_load(&seat->wrong) ? 0 : 1;
}
