/*
 * Ranks as threads of this program, over the transport that threads_over() named.
 */
#ifndef TESTS_THREAD_RANKS_H
#define TESTS_THREAD_RANKS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

#include "coll/coll.h"
#include "plain.h"

enum { RANKS_MAX = 4 };

static const char *transport;
static char transports[64]; /* the setting that says so */

static inline void threads_over(const char *name)
{
	transport = name;
	snprintf(transports, sizeof(transports), "COLL_TRANSPORTS=%s", name);
}

typedef void (*rank_fn)(coll_comm **comm, int rank, void *arg);

struct rank {
	pthread_t thread;
	coll_comm **comm;
	int rank;
	rank_fn fn;
	void *arg;
};

static inline void *rank_main(void *p)
{
	struct rank *r = p;

	r->fn(r->comm, r->rank, r->arg);
	return NULL;
}

static inline void each_rank(coll_comm **comms, int n, rank_fn fn, void *arg)
{
	struct rank ranks[RANKS_MAX];

	for (int r = 0; r < n; r++) {
		ranks[r] = (struct rank){.comm = &comms[r], .rank = r, .fn = fn, .arg = arg};
		pthread_create(&ranks[r].thread, NULL, rank_main, &ranks[r]);
	}
	for (int r = 0; r < n; r++)
		pthread_join(ranks[r].thread, NULL);
}

static inline bool create(coll_comm **comms, int n)
{
	const char *settings[] = {transports, "COLL_DEBUG=error", NULL};
	coll_config cfg = COLL_CONFIG_INIT;
	coll_status st;

	cfg.settings = settings;
	st = coll_comm_create_all(comms, n, &cfg);
	CHECK(st == COLL_OK, "%s", coll_last_error(NULL)->message);
	return st == COLL_OK;
}

static inline coll_status sum_once(coll_comm *comm)
{
	int x[700], n = coll_comm_size(comm);
	coll_status st;

	for (int i = 0; i < 700; i++)
		x[i] = coll_comm_rank(comm) + i;
	st = coll_all_reduce(x, x, 700, COLL_I32, COLL_SUM, comm, NULL);
	for (int i = 0; st == COLL_OK && i < 700; i++)
		if (x[i] != n * i + n * (n - 1) / 2)
			return COLL_ERR_INTERNAL;
	return st;
}

#define AND_DESTROY ((void *)1)

/* arg: AND_DESTROY or NULL */
static inline void sums(coll_comm **comm, int rank, void *arg)
{
	for (int i = 0; i < 5; i++) {
		coll_status st = sum_once(*comm);

		CHECK(st == COLL_OK, "rank %d: %s", rank, coll_last_error(*comm)->message);
	}
	if (arg)
		CHECK(coll_comm_destroy(comm) == COLL_OK && *comm == NULL);
}

static inline void destroys(coll_comm **comm, int rank, void *arg)
{
	CHECK(coll_comm_destroy(comm) == COLL_OK && *comm == NULL);
}

#endif
