/*
 * What the tests of asynchronous work share: ranks as threads of this process.
 */
#ifndef COLL_TESTS_ASYNC_RANKS_H
#define COLL_TESTS_ASYNC_RANKS_H

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "coll/coll.h"
#include "plain.h"

enum { RANKS_MAX = 5 };

static char transports[64], progress[64];
/* More settings of the next jobs, ended by NULL. */
static const char *further[4];
/* Communicators are lost: the end of one may be the first to tell a rank. */
static bool ends_badly;

/* ---- Ranks as threads ---- */

typedef void (*rank_fn)(coll_comm *comm, int rank, void *arg);

struct rank {
	pthread_t thread;
	coll_comm *comm;
	int rank;
	rank_fn fn;
	void *arg;
	bool keep;
};

static inline void *rank_main(void *p)
{
	struct rank *r = p;
	coll_status st;

	r->fn(r->comm, r->rank, r->arg);
	if (r->keep)
		return NULL;
	st = coll_comm_destroy(&r->comm);
	CHECK(st == COLL_OK || ends_badly, "%s", coll_status_string(st));
	CHECK(r->comm == NULL);
	return NULL;
}

/* Errors are what most of these tests are about: their lines are shown when VERBOSE is set. */
static void (*heard)(const char *line);

static inline void swallow(void *arg, int level, const char *line)
{
	if (heard)
		heard(line);
}

static inline bool create(coll_comm **comms, int n)
{
	const char *settings[] = {transports, progress, "COLL_DEBUG=error", further[0], further[1], further[2], NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_status st;

	cfg.settings = settings;
	cfg.log = getenv("VERBOSE") ? NULL : swallow;
	st = coll_comm_create_all(comms, n, &cfg);
	CHECK(st == COLL_OK, "%s", coll_last_error(NULL)->message);
	return st == COLL_OK;
}

static inline void run_ranks(int n, rank_fn fn, void *arg)
{
	coll_comm *comms[RANKS_MAX];
	struct rank ranks[RANKS_MAX];

	if (!create(comms, n))
		return;
	for (int r = 0; r < n; r++) {
		ranks[r] = (struct rank){.comm = comms[r], .rank = r, .fn = fn, .arg = arg};
		pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]);
	}
	for (int r = 0; r < n; r++)
		pthread_join(ranks[r].thread, NULL);
}

/* The same where communicators are lost; setting: one more, or NULL. */
static inline void run_ranks_badly(int n, rank_fn fn, void *arg, const char *setting)
{
	ends_badly = true;
	further[0] = setting;
	run_ranks(n, fn, arg);
	further[0] = NULL;
	ends_badly = false;
}

#define OK(comm, call)                                                                                        \
	do {                                                                                                  \
		coll_status ok_st = (call);                                                                   \
		CHECK(ok_st == COLL_OK, "rank %d: %s", coll_comm_rank(comm), coll_last_error(comm)->message); \
	} while (0)

static inline int triangle(int n)
{
	return n * (n - 1) / 2;
}

/* x[i] = rank + i + base; the sum over ranks is known. */
static inline void fill(int *x, size_t count, int rank, int base)
{
	for (size_t i = 0; i < count; i++)
		x[i] = rank + (int)i + base;
}

static inline size_t wrong_sums(const int *x, size_t count, int size, int base)
{
	size_t wrong = 0;

	for (size_t i = 0; i < count; i++)
		wrong += x[i] != size * ((int)i + base) + triangle(size);
	return wrong;
}

/* For PROGRAM(). */
static inline int ranks_begin(int argc, char **argv)
{
	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", argv[1]);
	snprintf(progress, sizeof(progress), "COLL_PROGRESS=%s", argv[2]);
	return 3;
}

#define ASYNC_PROGRAM(name)                     \
	PROGRAM(name, "TRANSPORT on|off|auto")  \
	{                                       \
		return ranks_begin(argc, argv); \
	}

/* A test whose body each rank runs, in jobs of `from` to `to` ranks one after the other. */
#define TEST_OF_RANKS(suite, name, from, to)                           \
	static void name##_of(coll_comm *comm, int rank, void *arg);   \
	TEST(suite, name)                                              \
	{                                                              \
		for (int ranks_n = (from); ranks_n <= (to); ranks_n++) \
			run_ranks(ranks_n, name##_of, NULL);           \
	}                                                              \
	static void name##_of(coll_comm *comm, int rank, void *arg)

/* The same where communicators are lost; setting: one more, or NULL. */
#define TEST_OF_LOST_RANKS(suite, name, ranks, setting)              \
	static void name##_of(coll_comm *comm, int rank, void *arg); \
	TEST(suite, name)                                            \
	{                                                            \
		run_ranks_badly(ranks, name##_of, NULL, setting);    \
	}                                                            \
	static void name##_of(coll_comm *comm, int rank, void *arg)

#endif
