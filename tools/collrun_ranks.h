/*
 * The ranks of one host, for the agent.
 */
#ifndef COLLRUN_RANKS_H
#define COLLRUN_RANKS_H

#include "collrun.h"

struct job {
	int size;
	enum coll_topology_bind bind;
	const char *cwd;
	const char *root; /* COLL_ROOT */
	const char *key;  /* COLL_JOB_KEY */
	int count;        /* ranks here */
	int *ranks;
	char **program;
	char **env; /* "NAME=value", ended by NULL */
	char *text; /* holds the strings */
};

struct rank {
	int rank;
	int local_rank;
	pid_t pid;     /* 0: never started; reaped only at the very end */
	int trouble;   /* closed when it has become the program; an errno comes through if it cannot; -1: known */
	bool ended;    /* status is its wait status */
	bool reported; /* to the front */
	int status;
	int out[2];   /* read ends of its output and error pipes, -1 when closed */
	int stdin_fd; /* write end of rank 0's input, -1 for the others */
};

/* Read a FRAME_JOB. */
bool job_read(struct job *j, const struct frame *f);
void job_free(struct job *j);

/* Fork one rank. False with a reason in why. */
bool rank_start(struct rank *r, const struct job *j, char *why, size_t why_bytes);
/* Whether it has become the program: RANK_RUNS, RANK_NOT (why says why not), RANK_UNDECIDED. Does not wait. */
enum rank_become { RANK_RUNS, RANK_NOT, RANK_UNDECIDED };
enum rank_become rank_became(struct rank *r, const struct job *j, char *why, size_t why_bytes);
/* Notice whether it has ended (it stays a zombie, so that its number and its
 * process group stay its own). */
void rank_look(struct rank *r);
/* To its whole process group. */
void rank_signal(const struct rank *r, int signal);

/* Reap orphans that came to this process, but no rank. */
void reap_orphans(const struct rank *ranks, int count);

/* Kill every process below this one, whatever session or group it went to, and reap it. True when none is left; else
 * once more. */
bool kill_descendants(void);

#endif
