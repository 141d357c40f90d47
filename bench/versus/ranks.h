/*
 * The processes of versus: forked by one that only waits for them, each tied to a core.
 * They share a barrier, the exchange that makes communicators without a launcher, and a
 * place for the times of each.
 */
#ifndef COLL_BENCH_VERSUS_RANKS_H
#define COLL_BENCH_VERSUS_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RANKS_MAX = 128 };

struct ranks_shared;

struct ranks {
	int rank, size;
	unsigned patience; /* polls between yields of the core */
	struct ranks_shared *shared;
};

/* Run body(arg) at every rank, in a process of its own, and return the highest of their statuses. A rank
 * that fails or dies ends the others. */
int ranks_run(int size, int (*body)(struct ranks *r, void *arg), void *arg);

/* At a rank: go to the network namespace of its host. n names are spread over the ranks in equal parts, and each is the
 * host id of its ranks, too (COLL_HOST_ID). False after a message. */
bool ranks_enter(const struct ranks *r, char *const *name, int n);

/* All ranks have come. What was written before is seen after. */
void ranks_meet(struct ranks *r);

/* coll_config.exchange; arg is the struct ranks. */
int ranks_exchange(void *arg, const void *mine, void *all, size_t len_bytes);

uint64_t ranks_now_ns(void);

/* Every rank gives when it began and when it ended; all get the seconds from the last begin to the last end. */
double ranks_span(struct ranks *r, uint64_t begin_ns, uint64_t end_ns);

#endif
