/*
 * The state of the job: what holds each other process up, as it answers over the control plane. coll-info sees the
 * processes of one network namespace; the rank to blame, or those that wait for it, may be elsewhere.
 *
 * Driven by the service thread, never waits, and ends within JOB_STATE.
 */
#ifndef COLL_INSPECT_JOB_STATE_H
#define COLL_INSPECT_JOB_STATE_H

#include "base/text.h"
#include "context/context.h"

enum { COLL_JOB_STATE_AT_ONCE = 8 };

struct coll_job_state {
	uint64_t begun_ns;     /* 0: nobody asks */
	enum coll_about about; /* JOB, or SLOW */
	int next;              /* process to be asked next */
	struct {
		int process; /* -1: free */
		uint64_t asked_ns;
	} asked[COLL_JOB_STATE_AT_ONCE];
	/* Of each process that has answered, a dump: its context, communicator and operation; or a line of its facts.
	 */
	struct coll_text heard;
};

void coll_job_state_begin(struct coll_job_state *s, enum coll_about about);
/* Ask further, and take in what was answered. False: not all have answered, and their time is not over. */
bool coll_job_state_step(struct coll_job_state *s, struct coll_context *ctx);
void coll_job_state_end(struct coll_job_state *s);

/* The line of this process's own facts. */
void coll_job_state_add_own_slow(struct coll_context *ctx, struct coll_text *t);

#endif
