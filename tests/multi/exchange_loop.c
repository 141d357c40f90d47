/*
 * A rank of a job that does all-reduces and all-to-alls in turn until it is told to stop or
 * one fails: what resets.py and unplugged.py cut connections of. Every element of every
 * result is checked, and differs from call to call, so that a byte of an earlier call, a
 * lost and a doubled one are seen.
 *
 * usage: exchange_loop COUNT STOP-FILE [NETWORK-NAMESPACE [again|idle|split|last]]
 *
 * Until STOP-FILE exists, as rank 0 sees it (it tells the others in the data). Lines:
 * "running RANK PID" after 20 rounds; "round RANK N" for each 64 rounds; at the end
 * "done RANK ROUNDS MS", with the longest time of a round since "running", "wrong RANK ROUND", or
 * "error RANK CULPRIT NANOSECONDS STATUS TEXT", the time being that of CLOCK_MONOTONIC.
 *
 * again: after the end or an error, one more communicator in the same process, 20 rounds, and "again RANK".
 * idle: the same, but no call after "running" until STOP-FILE exists, and then 20 rounds.
 * last: no call after "running" until STOP-FILE exists, then one broadcast, behind which rank 0 need not wait for the
 * others, and destroy.
 * split: the rounds are of a child of all ranks in reverse order, to which the last rank comes late.
 */
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "coll/coll.h"

enum { IDLE_MS = 10000, LATE_MS = 600, RUNNING_AT = 20, LOOK_EVERY = 8, TELL_EVERY = 64 };

struct job {
	coll_comm *comm;
	int rank, size;
	size_t count; /* elements of the all-reduce, and of a block of the all-to-all */
	const char *stop_file;
	uint32_t *in, *out;
	uint64_t longest_ns; /* of a round */
};

static int lost(const coll_comm *comm, int rank)
{
	const coll_error *e = coll_last_error(comm);

	printf("error %d %d %llu %s %s\n", rank, e->rank, (unsigned long long)coll_clock_ns(),
	       coll_status_string(e->status), e->message);
	return 1;
}

static uint32_t value(uint32_t round, int from, int to, size_t k)
{
	uint32_t h = round * 2654435761u ^ (uint32_t)from * 40503u ^ (uint32_t)to * 9176u ^ (uint32_t)k;

	h ^= h >> 15;
	return h * 2246822519u;
}

static bool reduce_right(const struct job *j, uint32_t round)
{
	for (size_t k = 1; k < j->count; k++) {
		uint32_t sum = 0;

		for (int r = 0; r < j->size; r++)
			sum += value(round, r, 0, k);
		if (j->out[k] != sum)
			return false;
	}
	return true;
}

static bool exchange_right(const struct job *j, uint32_t round)
{
	for (int r = 0; r < j->size; r++)
		for (size_t k = 0; k < j->count; k++)
			if (j->out[(size_t)r * j->count + k] != value(round, r, j->rank, k))
				return false;
	return true;
}

/* One of each. 0, or the exit status. */
static int exchange(struct job *j, uint32_t round, bool *stop)
{
	for (size_t k = 0; k < j->count; k++)
		j->in[k] = value(round, j->rank, 0, k);
	j->in[0] = j->rank == 0 && round > RUNNING_AT && round % LOOK_EVERY == 0 && access(j->stop_file, F_OK) == 0;
	if (coll_all_reduce(j->in, j->out, j->count, COLL_U32, COLL_SUM, j->comm, NULL) != COLL_OK)
		return lost(j->comm, j->rank);
	*stop = j->out[0] != 0;
	if (!reduce_right(j, round))
		return 2;
	for (int r = 0; r < j->size; r++)
		for (size_t k = 0; k < j->count; k++)
			j->in[(size_t)r * j->count + k] = value(round, j->rank, r, k);
	if (coll_all_to_all(j->in, j->out, j->count, COLL_U32, j->comm, NULL) != COLL_OK)
		return lost(j->comm, j->rank);
	return exchange_right(j, round) ? 0 : 2;
}

static int round_of(struct job *j, uint32_t round, bool *stop)
{
	const uint64_t since = coll_clock_ns();
	const int status = exchange(j, round, stop);
	const uint64_t took = coll_clock_ns() - since;

	if (round >= RUNNING_AT && took > j->longest_ns)
		j->longest_ns = took;
	return status;
}

static int told(const struct job *j, uint32_t rounds, int status)
{
	if (status == 0)
		printf("done %d %u %u\n", j->rank, rounds, (unsigned)(j->longest_ns / 1000000));
	else if (status == 2)
		printf("wrong %d %u\n", j->rank, rounds - 1);
	return status;
}

static int go_on(struct job *j)
{
	bool stop = false;
	uint32_t round = 0;
	int status = 0;

	for (; !stop && status == 0; round++) {
		if (round == RUNNING_AT)
			printf("running %d %d\n", j->rank, (int)getpid());
		if (round % TELL_EVERY == 0)
			printf("round %d %u\n", j->rank, round);
		status = round_of(j, round, &stop);
	}
	return told(j, round, status);
}

/* The last call of the job, which is over for rank 0 when it has sent. */
static int spread(const struct job *j)
{
	for (size_t k = 0; k < j->count; k++)
		j->out[k] = j->rank == 0 ? value(0, 0, 0, k) : 0;
	if (coll_broadcast(j->out, j->out, j->count, COLL_U32, 0, j->comm, NULL) != COLL_OK)
		return lost(j->comm, j->rank);
	for (size_t k = 0; k < j->count; k++)
		if (j->out[k] != value(0, 0, 0, k))
			return 2;
	return 0;
}

/* No call is made until STOP-FILE exists. */
static int wait_idle(struct job *j, bool last)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	const unsigned long long until = coll_clock_ns() + IDLE_MS * 1000000ull;
	bool stop;
	uint32_t round = 0;
	int status = 0;

	for (; round < RUNNING_AT && status == 0; round++)
		status = round_of(j, round, &stop);
	if (status != 0)
		return status;
	printf("running %d %d\n", j->rank, (int)getpid());
	while (access(j->stop_file, F_OK) != 0 && coll_clock_ns() < until)
		nanosleep(&nap, NULL);
	for (; !last && round < 2 * RUNNING_AT && status == 0; round++)
		status = round_of(j, round, &stop);
	if (last)
		status = spread(j);
	return told(j, round, status);
}

static int once_more(struct job *j)
{
	bool stop;
	int status = 0;

	coll_comm_destroy(&j->comm);
	if (coll_comm_create(&j->comm, NULL) != COLL_OK)
		return lost(NULL, j->rank);
	for (uint32_t round = 0; round < RUNNING_AT && status == 0; round++)
		status = round_of(j, round, &stop);
	if (status == 0)
		printf("again %d\n", j->rank);
	return status;
}

/* The other ranks connect to ask what the last one does. */
static int child_of_all(struct job *j)
{
	const struct timespec late = {.tv_nsec = LATE_MS * 1000000};
	coll_comm *child = NULL;

	if (j->rank == j->size - 1)
		nanosleep(&late, NULL);
	if (coll_comm_split(j->comm, 0, -j->rank, &child) != COLL_OK)
		return lost(j->comm, j->rank);
	coll_comm_destroy(&j->comm);
	j->comm = child;
	j->rank = coll_comm_rank(child);
	return 0;
}

static bool enter(const char *name)
{
	char path[200];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
}

int main(int argc, char **argv)
{
	struct job j = {.rank = -1, .count = argc > 2 ? (size_t)atol(argv[1]) : 0};
	const char *mode = argc > 4 ? argv[4] : "";
	const bool idle = strcmp(mode, "idle") == 0, again = idle || strcmp(mode, "again") == 0;
	const bool split = strcmp(mode, "split") == 0, last = strcmp(mode, "last") == 0;
	int status;

	if ((*mode && !again && !split && !last) || j.count == 0 || (argc > 3 && !enter(argv[3]))) {
		fprintf(stderr, "usage: exchange_loop COUNT STOP-FILE [NETWORK-NAMESPACE [again|idle|split|last]]\n");
		return 64;
	}
	j.stop_file = argv[2];
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (coll_comm_create(&j.comm, NULL) != COLL_OK)
		return lost(NULL, getenv("COLL_RANK") ? atoi(getenv("COLL_RANK")) : -1);
	j.rank = coll_comm_rank(j.comm);
	j.size = coll_comm_size(j.comm);
	j.in = calloc((size_t)j.size * j.count, sizeof(*j.in));
	j.out = calloc((size_t)j.size * j.count, sizeof(*j.out));
	status = !j.in || !j.out ? 3 : split ? child_of_all(&j) : 0;
	if (status == 0)
		status = idle || last ? wait_idle(&j, last) : go_on(&j);
	if (again && status <= 1)
		status = once_more(&j);
	if (coll_comm_destroy(&j.comm) != COLL_OK && status == 0)
		status = lost(NULL, j.rank);
	free(j.in);
	free(j.out);
	return status;
}
