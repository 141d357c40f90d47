/*
 * See crowd.h. The barrier sleeps on a futex: whoever comes last wakes the others. Once a second rank 0
 * looks whether all still live.
 */
#include "crowd.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void crowd_begin(struct crowd *c, int size)
{
	*c = (struct crowd){.size = size};
	c->shared = mmap(NULL, sizeof(*c->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (c->shared == MAP_FAILED)
		exit(1);
	for (int r = 1; r < size; r++) {
		c->child[r] = fork();
		if (c->child[r] < 0)
			exit(1);
		if (c->child[r] > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		c->rank = r;
		return;
	}
}

/* The rest is waited for in vain. Children of rank 0 end with it. */
static void give_up(const struct crowd *c, const char *what, int r)
{
	fprintf(stderr, "rank %d: rank %d %s\n", c->rank, r, what);
	exit(1);
}

static void look_after_others(const struct crowd *c, time_t since)
{
	struct timespec now;

	for (int r = 1; c->rank == 0 && r < c->size; r++)
		if (waitpid(c->child[r], NULL, WNOHANG) != 0)
			give_up(c, "has ended", r);
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (now.tv_sec - since < CROWD_PATIENCE_S)
		return;
	for (int r = 0; r < c->size; r++)
		if (atomic_load(&c->shared->came[r]) < atomic_load(&c->shared->came[c->rank]))
			give_up(c, "does not come", r);
}

void crowd_barrier(struct crowd *c)
{
	const unsigned round = atomic_load(&c->shared->round);
	const struct timespec a_second = {.tv_sec = 1};
	struct timespec since;

	atomic_fetch_add(&c->shared->came[c->rank], 1);
	if (atomic_fetch_add(&c->shared->arrived, 1) + 1 == (unsigned)c->size) {
		atomic_store(&c->shared->arrived, 0);
		atomic_fetch_add(&c->shared->round, 1);
		syscall(SYS_futex, &c->shared->round, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &since);
	while (atomic_load(&c->shared->round) == round)
		if (syscall(SYS_futex, &c->shared->round, FUTEX_WAIT, round, &a_second, NULL, 0) != 0 &&
		    errno == ETIMEDOUT)
			look_after_others(c, since.tv_sec);
}

int crowd_exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	struct crowd *c = arg;

	for (size_t at = 0; at < len_bytes; at += CROWD_NOTE_BYTES) {
		const size_t len = len_bytes - at < CROWD_NOTE_BYTES ? len_bytes - at : CROWD_NOTE_BYTES;

		memcpy(c->shared->note[c->rank], (const char *)mine + at, len);
		crowd_barrier(c);
		for (int r = 0; r < c->size; r++)
			memcpy((char *)all + (size_t)r * len_bytes + at, c->shared->note[r], len);
		crowd_barrier(c);
	}
	return 0;
}

void crowd_check(const coll_comm *comm, coll_status status, const char *what)
{
	if (status == COLL_OK)
		return;
	fprintf(stderr, "%s: %s\n", what, coll_last_error(comm)->message);
	exit(1);
}

coll_comm *crowd_create(struct crowd *c, const char *const *settings)
{
	coll_config cfg = COLL_CONFIG_INIT;
	coll_comm *comm = NULL;

	cfg.rank = c->rank;
	cfg.size = c->size;
	cfg.exchange = crowd_exchange;
	cfg.exchange_arg = c;
	cfg.settings = settings;
	crowd_check(NULL, coll_comm_create(&comm, &cfg), "create");
	return comm;
}

int crowd_end(struct crowd *c, int status)
{
	fflush(stdout);
	if (c->rank != 0)
		_exit(status);
	for (int r = 1; r < c->size; r++) {
		int child = 0;

		if (waitpid(c->child[r], &child, 0) != c->child[r] || child != 0)
			status = status ? status : 1;
	}
	return status;
}
