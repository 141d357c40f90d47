/*
 * Waiting, inline in the caller's thread: spin a little, then sleep on descriptors. What
 * ends a wait that cannot end well is watchdog.c's.
 */
#include <poll.h>
#include <sched.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/guards.h"
#include "engine/run.h"
#include "progress/async.h"
#include "progress/drive.h"
#include "progress/persistent.h"
#include "progress/wait.h"
#include "watch/diagnose.h"

enum { EAGER_POLLS = 24 };

/* Poll all runs. OK: all are done; AGAIN: some wait, *moved if any did not; an error is
 * the first run's, *run. */
static coll_status poll_runs(const struct coll_wait *w, bool *moved, struct coll_run **run)
{
	coll_status result = COLL_OK;

	for (int i = 0; i < w->nruns; i++) {
		bool m = false;
		coll_status st = coll_run_poll(w->runs[i], &m);

		*moved |= m;
		*run = w->runs[i];
		if (st == COLL_AGAIN)
			result = COLL_AGAIN;
		else if (st != COLL_OK)
			return st;
	}
	return result;
}

/* What a sleeper looks at once more. */
struct look {
	struct coll_context *ctx;
	const struct coll_wait *wait;
	unsigned alarm; /* as it was before it was heeded: what was told since then may have woken another */
};

static bool stirs(void *arg)
{
	struct look *l = arg;
	struct coll_run *run;
	bool moved = coll_drive_last(l->ctx);

	return poll_runs(l->wait, &moved, &run) != COLL_AGAIN || moved || /* met again by who asks next */
	       atomic_load_explicit(&l->ctx->alarm, memory_order_relaxed) != l->alarm;
}

/* Nothing moved: pause, and once in a while look at the clock. */
static coll_status idle(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p, unsigned alarm,
                        unsigned *polls)
{
	struct coll_context *ctx = comm->ctx;
	bool tired;
	uint64_t now;
	coll_status st;

	if (!coll_context_pause(ctx, ctx->dedicated_cores, polls, &tired))
		return COLL_OK;
	coll_operations_sweep(ctx);
	now = coll_clock_ns();
	st = coll_comm_inspect(comm, w, p, now);
	if (st == COLL_OK && (tired || coll_context_spun(ctx, now - p->since_ns)))
		coll_context_sleep(ctx, coll_context_nap_ms(now - p->since_ns), stirs, &(struct look){ctx, w, alarm});
	return st;
}

/* What a frame takes from core to core, a few times over: while a peer is on time it
 * comes within these polls, and the rest of the loop only delays noticing it. Only
 * where each rank has a core, and nothing else needs this thread. */
coll_status coll_comm_wait_eagerly(struct coll_comm *comm, const struct coll_wait *w)
{
	if (coll_async_needs_callers(comm->ctx->async))
		return COLL_AGAIN;
	for (int i = 0; i < EAGER_POLLS; i++) {
		coll_status st = coll_run_poll(w->runs[0], NULL);

		if (st != COLL_AGAIN)
			return st;
		if (coll_run_awaits_progress(w->runs[0]))
			coll_context_progress(comm->ctx);
	}
	return COLL_AGAIN;
}

/* What is left without guards: see base/guards.h. */
static coll_status wait_bare(struct coll_comm *comm, const struct coll_wait *w)
{
	for (;;) {
		bool moved = false;
		struct coll_run *run = NULL;
		coll_status st = poll_runs(w, &moved, &run);

		if (st != COLL_AGAIN)
			return st;
		coll_context_progress(comm->ctx);
		if (!comm->ctx->dedicated_cores && !moved)
			sched_yield();
	}
}

static coll_status wait_guarded(struct coll_comm *comm, const struct coll_wait *w, struct coll_wait_timer *p)
{
	unsigned polls = 0;

	for (;;) {
		bool moved = false;
		struct coll_run *run = NULL;
		const unsigned alarm = atomic_load_explicit(&comm->ctx->alarm, memory_order_relaxed);
		coll_status st = p->fault ? p->fault : poll_runs(w, &moved, &run);

		if (st == COLL_OK)
			return COLL_OK;
		if (st != COLL_AGAIN) {
			st = coll_comm_inquire(comm, w, p, run, st);
			if (st != COLL_OK)
				return st;
			coll_context_progress(comm->ctx);
			poll(NULL, 0, COLL_DELAY_FAULT_LOOK_MS);
			continue;
		}
		if (moved) {
			polls = 0;
			coll_wait_timer_moved(comm, p);
			/* A long call may move all the time. */
			st = coll_comm_heed_alarm(comm, w, p);
			if (st != COLL_OK)
				return st;
			continue;
		}
		coll_context_progress(comm->ctx);
		/* What others have in flight must not wait for this call. */
		coll_drive_try(comm->ctx);
		st = coll_comm_heed_alarm(comm, w, p);
		if (st == COLL_OK)
			st = idle(comm, w, p, alarm, &polls);
		if (st != COLL_OK)
			return st;
	}
}

coll_status coll_comm_wait(struct coll_comm *comm, const struct coll_wait *w)
{
	struct coll_wait_timer p = {.blocking = true, .alone = true};
	coll_status st;

	if (w->nruns == 1 && comm->ctx->dedicated_cores && coll_comm_wait_eagerly(comm, w) == COLL_OK)
		return COLL_OK; /* an error is sticky: met again below */
	if (!COLL_GUARDS)
		return wait_bare(comm, w);
	st = wait_guarded(comm, w, &p);
	coll_deadlock_hide(comm, &p);
	return st;
}
