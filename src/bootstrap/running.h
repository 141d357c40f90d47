/*
 * The table of running ranks: the ranks of all jobs of this user on this machine that use one file, and the processors
 * that each may use.
 *
 * Each rank has an entry, and a lock of the kernel on it, which ends with the process however that ends. So an entry
 * whose lock nobody holds is free, whatever is in it. The first word of the file changes with every entry that comes or
 * goes in order. Only a file of this user that nobody else may open counts: others cannot write it. It stays behind, a
 * few KiB.
 */
#ifndef COLL_BOOTSTRAP_RUNNING_H
#define COLL_BOOTSTRAP_RUNNING_H

#include <stdbool.h>
#include <stdint.h>

enum { COLL_RUNNING_MAX = 1024 };

struct coll_running_rank {
	uint64_t job;           /* differs between jobs */
	uint64_t process_space; /* of `process`: coll_bootstrap_process_space() */
	uint64_t cpus[4];       /* it may use, numbers modulo 256 */
	uint32_t cores;         /* it may use, its share of a quota considered */
	int32_t process;
};

/* fd -1: there is no table, and so no other job. */
struct coll_running {
	int fd, entry; /* entry -1: the table is full */
	uint64_t change;
};

/* Enter a rank. path NULL: the usual file. */
void coll_running_enter(struct coll_running *t, const char *path, const struct coll_running_rank *self);
/* Whether ranks have come or gone in order since the last call; at first they have. */
bool coll_running_changed(struct coll_running *t);
/* The running ranks of other jobs than `job`, in list[COLL_RUNNING_MAX]; their number. */
int coll_running_others(const struct coll_running *t, uint64_t job, struct coll_running_rank *list);
/* Accepts a table that was never entered. */
void coll_running_leave(struct coll_running *t);

#endif
