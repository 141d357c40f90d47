/*
 * Ends a wait that cannot complete. The reasons are the alarm (deaths, failures and aborts reported by the
 * control plane), the deadlines (watchdog.c), and an error of a run itself (diagnose.c).
 *
 * Nothing here blocks or sleeps. The thread that drives a wait inspects it repeatedly, until the runs are done
 * or coll_comm_inspect() returns the reason why they never will be. Deadlines (from the two limits timeout_ms
 * and arrival_timeout_ms):
 *   dead       a note of the control plane; at once, after a short settle time in
 *              which the note of a better informed rank may arrive;
 *   silent     it was pinged, and its service thread has not answered for timeout_ms;
 *   late       it answers but has not entered the call for arrival_timeout_ms
 *              (a warning after 30 s);
 *   lost       both ranks wait for each other, or it has completed the call,
 *              and no step retires for timeout_ms: a frame was lost.
 */
#ifndef COLL_WATCH_WATCHDOG_H
#define COLL_WATCH_WATCHDOG_H

#include "core/comm.h"
#include "engine/position.h"
#include "watch/deadlock.h"

/* What a wait is about, for deadlines and messages. */
struct coll_wait {
	struct coll_run *runs[2];
	int nruns;
	const struct coll_record *record;
	struct coll_entry *entries[2]; /* of the runs, in the recorder; NULL: none */
	/* Without runs: the wait is for a rank, to take something (sends) or to send it. */
	bool of_rank, sends;
	int peer;
};

/* Where it stands: run of its runs, or NULL: without runs. */
static inline void coll_wait_where(const struct coll_wait *w, const struct coll_run *run, struct coll_run_where *where)
{
	if (run)
		coll_run_where(run, where);
	else
		*where = (struct coll_run_where){.peer = w->of_rank ? w->peer : -1, .sends = w->sends};
}

/* The timer of one wait; zero before the first look. */
struct coll_wait_timer {
	uint64_t since_ns; /* first look after the last movement, 0: not looked */
	uint64_t asked_ns; /* last time the peer was asked */
	uint64_t begun_ns; /* of the wait, 0: not looked */
	uint64_t fault_ns; /* when a run reported an error of its own, 0: it has not */
	struct coll_uptime fault_age, left_age;
	struct coll_uptime leaving_age; /* since the peer first said that it destroys the communicator */
	struct coll_run *faulty;
	coll_status fault;
	int broken; /* the rank that the fault concerns; the run may wait for others too */
	int next;   /* of a wait for any rank: the first that may still send */
	/* The verdict and its rank at this look and at the previous one, packed; 0: none. */
	int suspects, suspected;
	bool warned;
	bool caught_up; /* what the control links have brought was read before blaming */
	/* The rank whose calls are compared was asked after fault_ns was taken. */
	bool inquired;
	/* The communicator's thread is in a call that cannot return before this wait ends. */
	bool blocking;
	bool alone; /* and nothing else is pending on the communicator */
	bool aside; /* the call record of the communicator shows another wait */
	bool shown; /* see deadlock.h */
	bool warned_abroad;
};

/* A step has moved: the timer starts again. */
static inline void coll_wait_timer_moved(struct coll_comm *comm, struct coll_wait_timer *p)
{
	if (p->since_ns)
		coll_waits_moved(comm->waits);
	p->since_ns = 0;
	p->warned = p->warned_abroad = false;
	p->leaving_age = (struct coll_uptime){0};
	p->suspects = 0;
	if (p->shown)
		coll_deadlock_hide(comm, p);
}

/* Whether coll_comm_inspect() would do more than start the clock. */
bool coll_wait_timer_is_due(const struct coll_wait_timer *p, uint64_t now_ns);

/* Check the deadlines at time now_ns: ping the rank that the wait depends on, and end the wait when a
 * deadline has passed. OK: keep waiting. */
coll_status coll_comm_inspect(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p,
                              uint64_t now_ns);

/* The verdict: the communicator fails, and its error says after how long in which call. */
coll_status coll_wait_fail(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p,
                           coll_status status, int culprit, const char *cause);

/* The same of a rank that has ended. */
struct coll_end;
coll_status coll_wait_fail_by(struct coll_comm *comm, const struct coll_wait *w, const struct coll_wait_timer *p,
                              const struct coll_end *e);

#endif
