/*
 * See pair.h. The two meet in anonymous shared memory mapped before the fork; the
 * communicator is made over it as well, so no launcher is needed.
 */
#include "pair.h"

#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "median.h"

struct pair_shared {
	_Alignas(64) atomic_uint arrived;
	_Alignas(64) atomic_uint round;
	_Alignas(64) char note[2][PAIR_NOTE_BYTES];
	int times;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* The rank-th of the cores this process may use. */
static void pin(int rank)
{
	cpu_set_t allowed, mine;
	int seen = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
		die("sched_getaffinity");
	if (CPU_COUNT(&allowed) < 2)
		fprintf(stderr, "warning: one core for two processes, the figures mean nothing\n");
	CPU_ZERO(&mine);
	for (int c = 0; c < CPU_SETSIZE; c++)
		if (CPU_ISSET(c, &allowed) && seen++ % CPU_COUNT(&allowed) == rank % CPU_COUNT(&allowed))
			CPU_SET(c, &mine);
	if (sched_setaffinity(0, sizeof(mine), &mine) != 0)
		die("sched_setaffinity");
}

static void *map_shared(size_t len_bytes)
{
	void *p = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

void pair_begin(struct pair *p, size_t len_bytes)
{
	*p = (struct pair){.shared = map_shared(sizeof(struct pair_shared)), .memory = map_shared(len_bytes)};
	p->child = fork();
	if (p->child < 0)
		die("fork");
	if (p->child == 0) {
		p->rank = 1;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
	pin(p->rank);
	pair_barrier(p);
}

void pair_barrier(struct pair *p)
{
	const unsigned round = atomic_load(&p->shared->round);
	unsigned spins = 0;

	if (atomic_fetch_add(&p->shared->arrived, 1) == 1) {
		atomic_store(&p->shared->arrived, 0);
		atomic_store(&p->shared->round, round + 1);
		return;
	}
	while (atomic_load(&p->shared->round) == round) {
		coll_cpu_relax();
		if (++spins % 4096 == 0)
			sched_yield();
	}
}

int pair_exchange(void *arg, const void *mine, void *all, size_t len_bytes)
{
	struct pair *p = arg;

	for (size_t at = 0; at < len_bytes; at += PAIR_NOTE_BYTES) {
		const size_t len = len_bytes - at < PAIR_NOTE_BYTES ? len_bytes - at : PAIR_NOTE_BYTES;

		memcpy(p->shared->note[p->rank], (const char *)mine + at, len);
		pair_barrier(p);
		for (int r = 0; r < 2; r++)
			memcpy((char *)all + (size_t)r * len_bytes + at, p->shared->note[r], len);
		pair_barrier(p);
	}
	return 0;
}

coll_config pair_config(struct pair *p, const char *const *settings)
{
	coll_config cfg = COLL_CONFIG_INIT;

	cfg.rank = p->rank;
	cfg.size = 2;
	cfg.exchange = pair_exchange;
	cfg.exchange_arg = p;
	cfg.settings = settings;
	return cfg;
}

void pair_connect(struct pair *p, const char *const *settings)
{
	const coll_config cfg = pair_config(p, settings);

	if (coll_comm_create(&p->comm, &cfg) == COLL_OK)
		return;
	fprintf(stderr, "rank %d: %s\n", p->rank, coll_last_error(NULL)->message);
	exit(1);
}

int pair_end(struct pair *p, int status)
{
	int child = 0;

	if (p->comm && coll_comm_destroy(&p->comm) != COLL_OK)
		status = 1;
	if (p->rank == 1) {
		fflush(stdout);
		_exit(status);
	}
	if (waitpid(p->child, &child, 0) != p->child || !WIFEXITED(child) || WEXITSTATUS(child) != 0)
		status = 1;
	return status;
}

void pair_interval(const double *values, int n, double *mean, double *half)
{
	double sum = 0, squares = 0;

	for (int i = 0; i < n; i++)
		sum += values[i];
	*mean = sum / n;
	for (int i = 0; i < n; i++)
		squares += (values[i] - *mean) * (values[i] - *mean);
	/* Student's t, 29 degrees of freedom, two-sided 95 %. */
	*half = 2.045 * sqrt(squares / (n - 1) / n);
}

static double measure(struct pair *p, const struct pair_side *side, int times)
{
	uint64_t begin, end;

	pair_barrier(p);
	begin = coll_clock_ns();
	side->fn(side->arg, times);
	end = coll_clock_ns();
	pair_barrier(p);
	return (double)(side->spent_ns ? *side->spent_ns : end - begin) * 1e-9;
}

void pair_calibrate(struct pair *p, struct pair_side *side)
{
	int times = 1;

	for (;;) {
		const double s = measure(p, side, times);

		if (p->rank == 0)
			p->shared->times = s >= 0.0025 ? -times : s < 0.0003 ? times * 8 : (int)(times * 0.003 / s) + 1;
		pair_barrier(p);
		times = p->shared->times;
		pair_barrier(p);
		if (times < 0) {
			side->times = -times;
			return;
		}
	}
}

void pair_block(struct pair *p, const struct pair_side sides[2], double seconds[2])
{
	for (int turn = 0; turn < 10; turn++) {
		const int which = turn % 2;
		const double s = measure(p, &sides[which], sides[which].times) / sides[which].times;

		if (turn < 2 || s < seconds[which])
			seconds[which] = s;
	}
}

void pair_compare(struct pair *p, const struct pair_side sides[2], int blocks, struct pair_verdict *v)
{
	static double ratios[PAIR_BLOCKS_MAX], times[2][PAIR_BLOCKS_MAX];
	/* Ranks of the order statistics that enclose the median with 95 %: binomial, normal
	 * approximation; no assumption on the distribution. */
	const int reach = (int)ceil(1.96 * sqrt(blocks) / 2), low = blocks / 2 - reach, high = blocks / 2 + reach;

	for (int b = 0; b < blocks; b++) {
		double seconds[2];

		pair_block(p, sides, seconds);
		times[0][b] = seconds[0];
		times[1][b] = seconds[1];
		ratios[b] = seconds[0] / seconds[1];
	}
	v->seconds[0] = median_of(times[0], blocks);
	v->seconds[1] = median_of(times[1], blocks);
	v->ratio = median_of(ratios, blocks);
	v->low = ratios[low > 0 ? low : 0];
	v->high = ratios[high < blocks ? high : blocks - 1];
}
