/*
 * For bootstrap's tests: n forked processes, each with its rank, and a shared
 * page in which each leaves its status and message.
 */
#ifndef COLL_BOOTSTRAP_JOB_TEST_H
#define COLL_BOOTSTRAP_JOB_TEST_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bootstrap/bootstrap.h"

enum { JOB_RANKS_MAX = 128 };

struct job_result {
	coll_status status;
	int culprit;
	char message[640];
};

struct job {
	int n;
	pid_t pid[JOB_RANKS_MAX];
	struct job_result *result; /* shared */
	/* What rank r does; its return value and *err become the result. */
	coll_status (*run)(struct job *j, int rank, struct coll_error_box *err);
	struct coll_identity id; /* rank is filled in for each */
	struct coll_settings settings;
	void *arg;
};

static inline void job_init(struct job *j, int n, coll_status (*run)(struct job *, int, struct coll_error_box *))
{
	memset(j, 0, sizeof(*j));
	j->n = n;
	j->run = run;
	j->result = mmap(NULL, sizeof(*j->result) * JOB_RANKS_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
	                 -1, 0);
	coll_settings_load(&j->settings, NULL, NULL, NULL);
	j->settings.create_timeout_ms = 30000;
	j->id.size = n;
	j->id.local_rank = j->id.local_size = -1;
}

/* Start rank; slot is where its process and result go (its rank, unless one rank
 * is started twice). */
static inline void job_start_as(struct job *j, int slot, int rank)
{
	j->result[slot].status = COLL_AGAIN;
	j->pid[slot] = fork();
	if (j->pid[slot] != 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(120);
	j->id.rank = rank;
	struct coll_error_box err;
	coll_error_clear(&err);
	coll_status st = j->run(j, rank, &err);
	j->result[slot].culprit = err.rank;
	memcpy(j->result[slot].message, err.message, sizeof(err.message));
	j->result[slot].status = st;
	_exit(0);
}

static inline void job_start(struct job *j, int rank)
{
	job_start_as(j, rank, rank);
}

static inline void job_wait(struct job *j)
{
	for (int r = 0; r < JOB_RANKS_MAX; r++)
		if (j->pid[r] > 0)
			waitpid(j->pid[r], NULL, 0);
}

static inline void job_free(struct job *j)
{
	munmap(j->result, sizeof(*j->result) * JOB_RANKS_MAX);
}

#endif
