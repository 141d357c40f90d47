/*
 * A rank that is stopped in a turn of the central buffer (central.h) is the one the others wait for, wherever it
 * stands: it is traced, one instruction after another, and at each of them rank 0 and another are asked whom they wait
 * for.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "intra/central.h"
#include "intra/central_epoch.h"
#include "tests/plain.h"

/* A step ends the reservation of a load-and-store pair, so elsewhere a loop of such might never come to its end. */
#if defined(__x86_64__)
enum { STEPS_END = true };
#else
enum { STEPS_END = false };
#endif
enum { RANKS = 18, TURN = 5, STEPS_MAX = 1 << 20 };

struct crowd {
	struct coll_intra n[RANKS];
	struct intra_peer peers[RANKS]; /* no links: nobody is nudged */
	struct coll_job job;
	struct coll_plan plan;
	struct central_part part;
	size_t bytes;
};

/* Memory that a child process shares. */
static bool gather(struct crowd *c)
{
	struct central_area *area;

	memset(c, 0, sizeof(*c));
	c->bytes = coll_intra_central_bytes(RANKS, 1);
	area = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		return false;
	c->plan.kind = COLL_KIND_BARRIER;
	c->job = (struct coll_job){.plan = &c->plan, .sequence = 9, .signature = 77, .elem_bytes = 1};
	for (int r = 0; r < RANKS; r++) {
		c->n[r].rank = r;
		c->n[r].size = RANKS;
		c->n[r].peers = c->peers;
		c->n[r].central.area = area;
		c->n[r].central.cell_bytes = COLL_CENTRAL_CELL_MIN;
	}
	return true;
}

static void part_company(struct crowd *c)
{
	munmap(c->n[0].central.area, c->bytes);
}

static void arrive(struct crowd *c, int rank)
{
	coll_central_arrive(&c->n[rank], &c->job, TURN, &c->part);
}

static bool done(struct crowd *c, int rank)
{
	struct coll_intra_state s = {0};

	return coll_central_done(&c->n[rank], &c->job, &s, TURN) == COLL_OK;
}

/* The child, stopped before it does anything; -1: it cannot be traced here. */
static pid_t begin_traced(struct crowd *c, int rank)
{
	const pid_t child = fork();
	int status;

	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
			_exit(1);
		raise(SIGSTOP);
		arrive(c, rank);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child)
		return -1;
	return WIFSTOPPED(status) ? child : -1;
}

/* It is not traced any more. */
static void let_go(pid_t child)
{
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

/* Whether it stands at a further instruction. */
static bool step(pid_t child)
{
	int status;

	if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 || waitpid(child, &status, 0) != child)
		return false;
	return WIFSTOPPED(status);
}

static void stop_everywhere(int rank)
{
	struct crowd c;
	const int other = rank == RANKS - 1 ? RANKS - 2 : RANKS - 1;
	int steps = 0, blamed_wrongly = 0;
	pid_t child;

	REQUIRE(gather(&c));
	for (int r = 0; r < RANKS; r++)
		if (r != rank)
			arrive(&c, r);
	child = begin_traced(&c, rank);
	if (child < 0) {
		part_company(&c);
		SKIP("no process can be traced here");
	}
	if (!step(child)) {
		let_go(child);
		part_company(&c);
		SKIP("no process can be made to step here");
	}
	for (; steps < STEPS_MAX && step(child); steps++) {
		const bool late = !done(&c, 0) && !done(&c, other);

		if (late && (coll_central_late(&c.n[0], TURN) != (uint32_t)rank ||
		             coll_central_late(&c.n[other], TURN) != (uint32_t)rank))
			blamed_wrongly++;
	}
	if (steps == STEPS_MAX)
		let_go(child);
	CHECK(blamed_wrongly == 0, "rank %d: at %d of %d instructions another is blamed", rank, blamed_wrongly, steps);
	CHECK(steps > 20 && steps < STEPS_MAX, "%d instructions", steps);
	CHECK(done(&c, 0), "rank %d goes on, and all with it", rank);
	part_company(&c);
}

TEST(central_stop, within_a_group)
{
	stop_everywhere(7);
}
TEST(central_stop, in_the_last_group)
{
	stop_everywhere(RANKS - 2);
	stop_everywhere(RANKS - 1);
}

PROGRAM(central_stop, "")
{
	if (!STEPS_END) {
		printf("0 passed, 0 failed, 1 skipped\n");
		return 0;
	}
	return argc;
}
