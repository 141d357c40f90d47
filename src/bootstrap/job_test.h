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

#include "base/fork.h"
#include "base/hash.h"
#include "bootstrap/address.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/exchange.h"
#include "bootstrap/meeting_file.h"
#include "tests/plain.h"

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
	exit(0); /* not _exit(): a leak checker speaks at exit */
}

static inline void job_start(struct job *j, int rank)
{
	job_start_as(j, rank, rank);
}

static inline void job_wait(struct job *j)
{
	for (int r = 0; r < JOB_RANKS_MAX; r++) {
		int status = 0;

		if (j->pid[r] > 0)
			waitpid(j->pid[r], &status, 0);
		CHECK(status == 0, "process %d ended with wait status %d", r, status);
	}
}

static inline void job_free(struct job *j)
{
	munmap(j->result, sizeof(*j->result) * JOB_RANKS_MAX);
}

/* ---- What most jobs do ------------------------------------------------- */

static inline unsigned char pattern(int rank, size_t i)
{
	return (unsigned char)coll_mix64((uint64_t)rank * 7919 + i);
}

static inline bool table_is_right(const unsigned char *all, int n, size_t len_bytes)
{
	for (int r = 0; r < n; r++)
		for (size_t i = 0; i < len_bytes; i++)
			if (all[(size_t)r * len_bytes + i] != pattern(r, i))
				return false;
	return true;
}

static inline coll_status gather(struct job *j, int rank, size_t len_bytes, struct coll_error_box *err)
{
	unsigned char *mine = calloc(1, len_bytes + 1), *all = calloc((size_t)j->n, len_bytes + 1);
	coll_status st;

	for (size_t i = 0; i < len_bytes; i++)
		mine[i] = pattern(rank, i);
	st = coll_bootstrap_exchange(NULL, &j->settings, &j->id, mine, all, len_bytes, err);
	if (st == COLL_OK && !table_is_right(all, j->n, len_bytes))
		st = coll_error_set(err, COLL_ERR_CORRUPT, "wrong table");
	free(mine);
	free(all);
	return st;
}

static inline coll_status gather_200(struct job *j, int rank, struct coll_error_box *err)
{
	return gather(j, rank, 200, err);
}

static int names; /* of meetings so far */

static inline void over_unix(struct job *j)
{
	snprintf(j->id.unix_name, sizeof(j->id.unix_name), "coll-test-%d-%d", (int)getpid(), names++);
	j->id.job_key[0] = 11;
	j->id.job_key[1] = 12;
}

/* Where rank 0 waits, once it does. */
static inline struct coll_address meeting_place(const struct job *j)
{
	const struct coll_meeting_words w = {j->id.unix_name, j->id.job_key};
	struct coll_places found = {0};

	while (found.count == 0) {
		usleep(1000);
		coll_meeting_find(&w, true, &found);
	}
	return found.place[0];
}

/* A port that was free a moment ago. */
static inline void over_tcp(struct job *j)
{
	uint16_t port = 0;
	struct coll_address a;
	int fd;

	coll_address_numeric(&a, "127.0.0.1", 0);
	fd = coll_listen_tcp(&a, 0, &port);
	coll_fd_close(fd);
	snprintf(j->id.root_host, sizeof(j->id.root_host), "127.0.0.1");
	j->id.root_port = port;
	j->id.job_key[0] = 13;
	j->id.job_key[1] = 14;
}

static inline void all_ok(struct job *j)
{
	for (int r = 0; r < j->n; r++)
		CHECK(j->result[r].status == COLL_OK, "rank %d of %d: %d %s", r, j->n, j->result[r].status,
		      j->result[r].message);
}

/* Every rank that came says what is wrong, and names the culprit. */
static inline void all_say(const struct job *j, int but, coll_status status, const char *text)
{
	for (int r = 0; r < j->n; r++) {
		if (r == but)
			continue;
		CHECK(j->result[r].status == status, "rank %d: %d %s", r, j->result[r].status, j->result[r].message);
		CHECK(strstr(j->result[r].message, text) != NULL, "rank %d says: %s", r, j->result[r].message);
	}
}

static inline void start_all_but(struct job *j, int missing)
{
	for (int r = 0; r < j->n; r++)
		if (r != missing)
			job_start(j, r);
}

#endif
