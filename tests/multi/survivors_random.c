/*
 * Random programs of messages and groups with kills. Ranks are processes.
 *
 * A program is a list of acts that every rank derives from its seed: a message by number or by tag, short or long; a
 * rank that gathers from any source; a circle of ranks that send and receive in one call; a group that is made and
 * used. Each rank makes the acts in which it takes part, in order, and goes on after an error. One or two ranks are
 * killed. What is right:
 *
 *   an act whose ranks all live to the end succeeds, with the right data, whoever has died elsewhere
 *   any other act succeeds, or its error is a death and names a rank that was killed
 *
 * usage: survivors_random shm|tcp|mixed [SEED [PROGRAMS]]
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hash.h"
#include "meeting.h"
#include "plain.h"

enum { RANKS_MAX = 6, ACTS = 60, LONGEST = 60000, HANG_S = 100 };

enum act_kind { NUMBERED, TAGGED, GATHERED, CIRCLE, GROUP, ACT_KINDS };

struct act {
	enum act_kind kind;
	int n, ranks[RANKS_MAX]; /* the first sends, makes the root; distinct */
	int count;
};

struct program {
	uint64_t seed;
	int size, dying[RANKS_MAX]; /* by rank: killed in front of this act; ACTS: never */
	struct act acts[ACTS];
};

struct shared {
	struct meeting meeting;
	char text[RANKS_MAX][500];
};

static struct shared *shared;
static const char *transport;
static uint64_t first_seed = 1;
static int programs = 6;

static void write_program(struct program *p, uint64_t seed)
{
	struct coll_rng rng = {coll_mix64(seed)};
	int victims = 1 + (int)coll_rng_below(&rng, 2);

	*p = (struct program){.seed = seed, .size = 3 + (int)coll_rng_below(&rng, RANKS_MAX - 2)};
	for (int r = 0; r < p->size; r++)
		p->dying[r] = ACTS;
	while (victims-- > 0)
		p->dying[coll_rng_below(&rng, (uint32_t)p->size)] = (int)coll_rng_below(&rng, ACTS);
	for (int i = 0; i < ACTS; i++) {
		struct act *a = &p->acts[i];

		a->kind = (enum act_kind)coll_rng_below(&rng, ACT_KINDS);
		a->n = a->kind <= TAGGED ? 2 : 2 + (int)coll_rng_below(&rng, (uint32_t)p->size - 1);
		a->count = 1 + (int)coll_rng_below(&rng, coll_rng_below(&rng, 3) ? 50 : LONGEST);
		for (int k = 0; k < p->size; k++)
			a->ranks[k] = k;
		for (int k = 0; k < a->n; k++) {
			const int other = k + (int)coll_rng_below(&rng, (uint32_t)(p->size - k)), mine = a->ranks[k];

			a->ranks[k] = a->ranks[other];
			a->ranks[other] = mine;
		}
	}
}

/* ---- In a rank ---- */

struct run {
	const struct program *p;
	coll_comm *comm;
	int rank, at;
	bool known[RANKS_MAX]; /* dead, by an error */
	int *out, *in;
};

static void wrong(const struct run *u, const char *what, coll_status st)
{
	const coll_error *e = coll_last_error(u->comm);

	snprintf(shared->text[u->rank], sizeof(shared->text[0]), "act %d (%d): %s: status %d, rank %d: %s", u->at,
	         (int)u->p->acts[u->at].kind, what, (int)st, e->rank, e->message);
	_exit(7);
}

/* Whether an act succeeded. Its error is a death of a rank of the act that was killed; of: where the error is. */
static bool judge(struct run *u, coll_status st, const coll_comm *of)
{
	const struct act *a = &u->p->acts[u->at];
	const coll_error *e = coll_last_error(of);
	bool fits = false;

	if (st == COLL_OK)
		return true;
	for (int k = 0; k < a->n; k++)
		fits |= u->p->dying[a->ranks[k]] < ACTS && (of != u->comm || a->ranks[k] == e->rank);
	if (st != COLL_ERR_PEER_DEAD || !fits)
		wrong(u, "an act failed", st);
	if (of == u->comm)
		u->known[e->rank] = true;
	return false;
}

static int value(int act, int rank, int i)
{
	return act * 1000003 + rank * 7919 + i;
}

static void fill(const struct run *u, int count)
{
	for (int i = 0; i < count; i++)
		u->out[i] = value(u->at, u->rank, i);
}

static void check(const struct run *u, int from, int count)
{
	for (int i = 0; i < count; i++)
		if (u->in[i] != value(u->at, from, i))
			wrong(u, "wrong data", COLL_OK);
}

static void message(struct run *u, const struct act *a)
{
	const bool sends = u->rank == a->ranks[0];
	const int other = a->ranks[sends];
	coll_status st;

	if (a->kind == NUMBERED)
		st = sends ? coll_send(u->out, (size_t)a->count, COLL_I32, other, u->comm, NULL)
		           : coll_recv(u->in, (size_t)a->count, COLL_I32, other, u->comm, NULL);
	else
		st = sends ? coll_send_tag(u->out, (size_t)a->count, COLL_I32, other, u->at, u->comm, NULL)
		           : coll_recv_tag(u->in, (size_t)a->count, COLL_I32, other, u->at, u->comm, NULL);
	if (judge(u, st, u->comm) && !sends)
		check(u, other, a->count);
}

/* The first of the act receives from the others, in whatever order they come. */
static void gathered(struct run *u, const struct act *a)
{
	bool missing[RANKS_MAX] = {false};

	if (u->rank != a->ranks[0]) {
		judge(u, coll_send_tag(u->out, (size_t)a->count, COLL_I32, a->ranks[0], u->at, u->comm, NULL), u->comm);
		return;
	}
	for (int k = 1; k < a->n; k++)
		missing[a->ranks[k]] = true;
	for (;;) {
		coll_message_info info;
		bool any = false;
		coll_status st;

		for (int r = 0; r < u->p->size; r++)
			any |= missing[r] && !u->known[r];
		if (!any)
			return;
		st = coll_recv_tag(u->in, (size_t)a->count, COLL_I32, COLL_ANY_SOURCE, u->at, u->comm, &info);
		if (st == COLL_ERR_PEER_DEAD && u->p->dying[coll_last_error(u->comm)->rank] < ACTS) {
			u->known[coll_last_error(u->comm)->rank] = true;
			continue;
		}
		if (st != COLL_OK || !missing[info.source])
			wrong(u, "any source", st);
		missing[info.source] = false;
		check(u, info.source, a->count);
	}
}

static int place_of(const struct run *u, const struct act *a)
{
	for (int k = 0; k < a->n; k++)
		if (a->ranks[k] == u->rank)
			return k;
	return -1;
}

static void circle(struct run *u, const struct act *a)
{
	const int k = place_of(u, a), to = a->ranks[(k + 1) % a->n], from = a->ranks[(k + a->n - 1) % a->n];
	const coll_status st =
	        coll_send_recv(u->out, (size_t)a->count, to, u->in, (size_t)a->count, from, COLL_I32, u->comm, NULL);

	if (judge(u, st, u->comm) || u->p->dying[from] == ACTS)
		check(u, from, a->count);
}

static void group(struct run *u, const struct act *a)
{
	coll_comm *made = NULL;
	int one = 1, sum = 0;
	coll_status st = coll_comm_create_group(u->comm, a->ranks, a->n, (uint64_t)u->at, &made);

	if (!judge(u, st, u->comm))
		return;
	st = coll_all_reduce(&one, &sum, 1, COLL_I32, COLL_SUM, made, NULL);
	if (judge(u, st, made) && sum != a->n)
		wrong(u, "wrong sum", st);
	coll_comm_destroy(&made);
}

static void body(const void *arg, int rank)
{
	char transports[64], host[64];
	const char *settings[] = {transports, host, "COLL_DEBUG=error", "COLL_TIMEOUT_MS=20000", NULL};
	const bool mixed = strcmp(transport, "mixed") == 0;
	struct run u = {.p = arg, .rank = rank};
	coll_status st;

	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", mixed ? "shm,tcp" : transport);
	snprintf(host, sizeof(host), "COLL_HOST_ID=survivors-%d", mixed ? rank % 2 : 0);
	u.comm = meeting_world(&shared->meeting, rank, u.p->size, settings);
	u.out = calloc(LONGEST, sizeof(int));
	u.in = calloc(LONGEST, sizeof(int));
	alarm(HANG_S);
	for (; u.at < ACTS; u.at++) {
		const struct act *a = &u.p->acts[u.at];

		if (u.p->dying[rank] == u.at) {
			usleep(u.p->seed % 7 * 300);
			kill(getpid(), SIGKILL);
		}
		if (place_of(&u, a) < 0)
			continue;
		fill(&u, a->count);
		if (a->kind <= TAGGED)
			message(&u, a);
		else if (a->kind == GATHERED)
			gathered(&u, a);
		else if (a->kind == CIRCLE)
			circle(&u, a);
		else
			group(&u, a);
	}
	st = coll_comm_destroy(&u.comm);
	_exit(st == COLL_OK || st == COLL_ERR_PEER_DEAD ? 0 : 6);
}

static void run(uint64_t seed)
{
	struct program p;
	pid_t pids[RANKS_MAX];

	write_program(&p, seed);
	meeting_start(pids, p.size, shared, sizeof(*shared), body, &p);
	for (int r = 0; r < p.size; r++) {
		int status = 0;

		waitpid(pids[r], &status, 0);
		if (p.dying[r] == ACTS)
			CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "seed %llu, rank %d of %d: %x %s",
			      (unsigned long long)seed, r, p.size, (unsigned)status, shared->text[r]);
	}
}

TEST(survivors_random, test_programs)
{
	for (int i = 0; i < programs; i++)
		run(first_seed + (uint64_t)i);
}

PROGRAM(survivors_random, "shm|tcp|mixed [SEED [PROGRAMS]]")
{
	if (argc < 2)
		return -1;
	transport = argv[1];
	if (argc > 2)
		first_seed = strtoull(argv[2], NULL, 10);
	if (argc > 3)
		programs = atoi(argv[3]);
	shared = meeting_page(sizeof(*shared));
	return argc;
}
