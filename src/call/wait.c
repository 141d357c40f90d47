/*
 * Waiting inline in the caller's thread: spin for a short time, then sleep on descriptors.
 * watchdog.c ends a wait that cannot succeed.
 */
#include "call/wait.h"

#include "base/clock.h"
#include "base/delay.h"
#include "base/guards.h"
#include "engine/run.h"
#include "inflight/async.h"
#include "inflight/drive.h"
#include "inflight/loop.h"
#include "net/net.h"
#include "watch/alarm.h"
#include "watch/diagnose.h"

enum { EAGER_POLLS = 24 };

/* Poll all runs. OK: all are done. AGAIN: some are not, and *moved says whether any moved. An error
 * is that of the first failed run, *run. */
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

/* Poll for a few times the transfer time of a frame between cores. The frame of a punctual peer
 * arrives within these polls, and the rest of the loop would only delay its detection. This applies
 * only if each rank has a core and nothing else needs this thread. */
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
		coll_cpu_relax();
	}
	return COLL_AGAIN;
}

/* The wait without guards: see base/guards.h. */
static coll_status wait_bare(struct coll_comm *comm, const struct coll_wait *w)
{
	for (;;) {
		bool moved = false;
		struct coll_run *run = NULL;
		coll_status st = poll_runs(w, &moved, &run);

		if (st != COLL_AGAIN)
			return st;
		coll_context_progress(comm->ctx);
		if (!coll_context_spins(comm->ctx) && !moved)
			coll_net->yield();
	}
}

/* A blocking call that waits. */
struct waiter {
	struct coll_comm *comm;
	const struct coll_wait *wait;
	struct coll_wait_timer timer;
	/* The alarm before it was read. A gossip note since then may have woken another thread
	 * instead of this one. */
	unsigned alarm;
};

/* The last look before a sleep. The next look handles deadlines and errors. */
static coll_status last_look(struct waiter *w, bool *moved)
{
	struct coll_context *ctx = w->comm->ctx;
	struct coll_run *run;
	coll_status st;

	*moved = coll_drive_last(ctx);
	st = poll_runs(w->wait, moved, &run);
	*moved |= atomic_load_explicit(&ctx->alarm, memory_order_relaxed) != w->alarm;
	return st;
}

static coll_status look(void *arg, bool last, bool *moved)
{
	struct waiter *w = arg;
	struct coll_comm *comm = w->comm;
	struct coll_run *run = NULL;
	coll_status st;

	if (last)
		return last_look(w, moved);
	w->alarm = atomic_load_explicit(&comm->ctx->alarm, memory_order_relaxed);
	st = w->timer.fault ? w->timer.fault : poll_runs(w->wait, moved, &run);
	if (st == COLL_OK)
		return COLL_OK;
	if (st != COLL_AGAIN) {
		st = coll_comm_inquire(comm, w->wait, &w->timer, run, st);
		if (st != COLL_OK)
			return st;
		coll_context_progress(comm->ctx);
		coll_net->poll(NULL, 0, COLL_DELAY_FAULT_LOOK_MS);
		*moved = true;
		return COLL_AGAIN;
	}
	if (*moved) {
		coll_wait_timer_moved(comm, &w->timer);
	} else {
		coll_context_progress(comm->ctx);
		/* Operations of other threads must not wait for this call. */
		coll_drive_try(comm->ctx);
	}
	/* Check also while the call moves: a long call may move all the time. */
	st = coll_comm_heed_alarm(comm, w->wait, &w->timer);
	return st == COLL_OK ? COLL_AGAIN : st;
}

static coll_status inspect(void *arg, uint64_t now_ns)
{
	struct waiter *w = arg;

	return coll_comm_inspect(w->comm, w->wait, &w->timer, now_ns);
}

/* The next look sees the abort. */
static void interrupt(void *arg)
{
	const struct waiter *w = arg;

	coll_comm_interrupt(w->comm);
}

/* The wait has left the fast path, where a yield to other processes may have taken long: it counts from the beginning
 * of its call, which the recorder has noted. */
static void begin_count(struct coll_comm *comm, const struct coll_wait *w)
{
	const struct coll_moment *birth = &comm->ctx->birth;
	const struct coll_entry *e = w->entries[0];
	const uint64_t now = coll_clock_ns();
	const uint64_t ticks = e ? coll_ticks(comm->recorder.counter) : 0;
	uint64_t took_ns = 0;

	if (e && ticks > birth->ticks && now > birth->mono_ns)
		took_ns = (uint64_t)((double)(ticks - atomic_load_explicit(&e->begun, memory_order_relaxed)) *
		                     ((double)(now - birth->mono_ns) / (double)(ticks - birth->ticks)));
	coll_waits_look(comm->waits, true, false, took_ns < now ? now - took_ns : now, -1);
}

coll_status coll_comm_wait(struct coll_comm *comm, const struct coll_wait *w)
{
	struct waiter waiter = {.comm = comm, .wait = w, .timer = {.blocking = true, .alone = true}};
	struct coll_wait_loop loop = {.ctxs = &comm->ctx,
	                              .n = 1,
	                              .look = look,
	                              .inspect = inspect,
	                              .interrupt = comm->ctx->interrupt.fn ? interrupt : NULL,
	                              .arg = &waiter};
	coll_status st;

	if (w->nruns == 1 && coll_context_spins(comm->ctx) && coll_comm_wait_eagerly(comm, w) == COLL_OK)
		return COLL_OK; /* an error is sticky: the loop below returns it */
	if (!COLL_GUARDS)
		return wait_bare(comm, w);
	if (comm->waits)
		begin_count(comm, w);
	st = coll_wait_loop_run(&loop);
	coll_waits_end(comm->waits, waiter.timer.since_ns || !waiter.timer.begun_ns);
	coll_deadlock_hide(comm, &waiter.timer);
	return st;
}
