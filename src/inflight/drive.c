/*
 * Driving: one look at everything that is pending in a context, and waits for some of it. A look never blocks; waiting
 * threads sleep outside the lock.
 *
 * After a run has failed, its communicator is only examined for the cause, and its runs are no longer polled. Its other
 * runs may depend on the failed one, and all of them end with it.
 */
#include "inflight/drive.h"

#include "base/clock.h"
#include "base/delay.h"
#include "control/gossip.h"
#include "core/dead.h"
#include "core/error.h"
#include "core/thread_error.h"
#include "engine/run.h"
#include "inflight/async.h"
#include "inflight/inlined.h"
#include "inflight/lock.h"
#include "inflight/loop.h"
#include "inflight/notify.h"
#include "inflight/queue.h"
#include "inflight/request.h"
#include "inflight/thread.h"
#include "watch/alarm.h"
#include "watch/diagnose.h"

enum { PROGRESS_EVERY = 8, ASSESS_EVERY = 16, MESSAGES_AT_A_TIME = 4 };

static const uint64_t MS = 1000000;

/* ---- One look ---- */

bool coll_drive_runs(struct coll_request *r, bool *waits)
{
	struct coll_inflight *f = &r->comm->inflight;
	bool moved = false;

	*waits = false;
	for (int i = 0; i < r->wait.nruns; i++) {
		bool m = false;
		coll_status st = coll_run_poll(r->wait.runs[i], &m);

		moved |= m;
		*waits |= st != COLL_OK;
		if (st != COLL_OK && st != COLL_AGAIN) {
			f->faulty = r;
			f->faulty_run = r->wait.runs[i];
			f->fault = st;
			break;
		}
	}
	return moved;
}

bool coll_drive_poll(struct coll_request *r)
{
	bool waits;
	const bool moved = coll_drive_runs(r, &waits);

	if (moved && !r->comm->inflight.faulty)
		coll_wait_timer_moved(r->comm, &r->timer);
	if (waits)
		return moved;
	coll_inflight_complete(r, COLL_OK);
	return true;
}

static bool poll_running(struct coll_comm *comm)
{
	struct coll_inflight *f = &comm->inflight;
	struct coll_link *next;
	bool moved = false;

	for (struct coll_link *l = f->running.next; l != &f->running && !f->faulty; l = next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, running);
		const bool alone = r->is != COLL_IS_TAG;

		next = l->next;
		if (!r->kind->poll || !r->kind->poll(r))
			continue;
		moved = true;
		if (!alone)
			return true; /* it may have ended others, so the list is another one */
	}
	return moved;
}

/* A rank has sent a wake request: find the communicators that it meant. */
static void admit(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	/* Acquire: the communicators were marked before. */
	const unsigned wakes = atomic_load_explicit(&ctx->wakes, memory_order_acquire);

	if (wakes == atomic_load_explicit(&a->wakes_seen, memory_order_relaxed) || !a->poll_tags)
		return;
	atomic_store_explicit(&a->wakes_seen, wakes, memory_order_relaxed);
	pthread_mutex_lock(&ctx->comms_lock);
	for (struct coll_comm *comm = ctx->comms; comm; comm = comm->next)
		if (atomic_load_explicit(&comm->tagged.woken, memory_order_relaxed))
			coll_drive_tagged(comm);
	pthread_mutex_unlock(&ctx->comms_lock);
}

void coll_drive_tagged(struct coll_comm *comm)
{
	struct coll_async *a = comm->ctx->async;

	if (comm->tagged.ended || atomic_load_explicit(&comm->tagged.listed, memory_order_relaxed))
		return;
	coll_list_append(&a->tagged, &comm->inflight.tagged);
	atomic_store_explicit(&comm->tagged.listed, true, memory_order_relaxed);
	atomic_store_explicit(&a->any_tagged, true, memory_order_relaxed);
}

void coll_drive_untagged(struct coll_comm *comm)
{
	struct coll_async *a = comm->ctx->async;

	comm->tagged.ended = true;
	coll_list_remove(&comm->inflight.tagged);
	atomic_store_explicit(&a->any_tagged, !coll_list_empty(&a->tagged), memory_order_relaxed);
}

static bool poll_tagged(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	bool moved = false;

	admit(ctx);
	for (struct coll_link *l = a->tagged.next; l != &a->tagged; l = l->next) {
		struct coll_comm *comm = COLL_ENTRY(l, struct coll_comm, inflight.tagged);

		if (!comm->inflight.faulty)
			moved |= a->poll_tags(comm);
	}
	return moved;
}

/* Whether they are in a queue together. */
static bool share_queue(const struct coll_request *a, const struct coll_request *b)
{
	return (a->queue[0] && a->queue[0] == b->queue[0]) || (a->queue[1] && a->queue[1] == b->queue[1]);
}

/* Whether the communicator's thread is in a call that cannot return before r ends: r, or one behind it. */
static bool keeps_thread(const struct coll_comm *comm, const struct coll_request *r)
{
	for (const struct coll_link *l = &r->all; l != &comm->inflight.all; l = l->next) {
		const struct coll_request *b = COLL_ENTRY(l, struct coll_request, all);

		/* A request of a stream does not count: other threads may use the communicator meanwhile. */
		if (!b->stream && atomic_load_explicit(&b->awaited, memory_order_relaxed) &&
		    (b == r || share_queue(b, r)))
			return true;
	}
	return false;
}

coll_status coll_drive_inspect(struct coll_request *r, uint64_t now_ns)
{
	struct coll_comm *comm = r->comm;

	r->timer.blocking = coll_wait_timer_is_due(&r->timer, now_ns) && keeps_thread(comm, r);
	r->timer.alone = comm->inflight.pending == 1 + comm->inflight.kept;
	return coll_comm_inspect(comm, &r->wait, &r->timer, now_ns);
}

/* aside: the communicator has more that runs, which is inspected first. */
static coll_status inspect_one(struct coll_request *r, bool aside, uint64_t now)
{
	r->timer.aside = aside;
	return r->kind->inspect ? r->kind->inspect(r, now) : coll_drive_inspect(r, now);
}

static enum coll_limit limit_of(struct coll_request *r)
{
	return r->kind->limited ? r->kind->limited(r) : COLL_UNLIMITED;
}

/* Inspect the deadlines of the oldest running collective, because the others run behind it. Inspect those of messages
 * as well. If there are many, inspect a few at a time, because each inspection asks peers. */
static coll_status inspect(struct coll_comm *comm, uint64_t now)
{
	struct coll_inflight *f = &comm->inflight;
	coll_status st = COLL_OK;
	unsigned messages = 0, first = 0, i = 0;
	bool collective = false;

	for (struct coll_link *l = f->running.next; l != &f->running && st == COLL_OK; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, running);
		const enum coll_limit limit = limit_of(r);

		messages += limit == COLL_LIMITED_MESSAGE;
		if (limit == COLL_LIMITED_EACH || (limit == COLL_LIMITED_OLDEST && !collective))
			st = inspect_one(r, collective, now);
		collective |= limit == COLL_LIMITED_OLDEST;
	}
	if (messages > MESSAGES_AT_A_TIME)
		first = (unsigned)(now / COLL_DELAY_NS(MESSAGE_TURN)) * MESSAGES_AT_A_TIME % messages;
	for (struct coll_link *l = f->running.next; l != &f->running && st == COLL_OK; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, running);

		if (limit_of(r) != COLL_LIMITED_MESSAGE || (i++ + messages - first) % messages >= MESSAGES_AT_A_TIME)
			continue;
		r->record.sequence = f->begun; /* this rank's current position */
		st = inspect_one(r, collective, now);
	}
	return st;
}

/* Nothing moved: check for gossip notes and deadlines. now_ns 0: the clock was not read this time. Moves nothing. */
static bool assess(struct coll_comm *comm, uint64_t now_ns)
{
	struct coll_inflight *f = &comm->inflight;
	struct coll_request *r = f->faulty;
	coll_status st;

	if (comm->ended || coll_list_empty(&f->all))
		return false;
	if (r) {
		st = coll_comm_inquire(comm, &r->wait, &r->timer, f->faulty_run, f->fault);
	} else {
		r = COLL_ENTRY(f->all.next, struct coll_request, all);
		st = coll_comm_heed_alarm(comm, &r->wait, &r->timer);
		if (st == COLL_OK && now_ns)
			st = inspect(comm, now_ns);
	}
	if (st != COLL_OK)
		coll_inflight_lost(comm);
	return false;
}

/* Visit each communicator. A communicator leaves the list when its last request completes. */
static bool for_each(struct coll_async *a, bool (*visit)(struct coll_comm *comm, uint64_t now), uint64_t now)
{
	struct coll_link *next;
	bool moved = false;

	for (struct coll_link *l = a->comms.next; l != &a->comms; l = next) {
		next = l->next;
		moved |= visit(COLL_ENTRY(l, struct coll_comm, inflight.link), now);
	}
	return moved;
}

/* Check for an alarm even when requests move: some may move all the time, and an abort must not wait until they stop.
 */
static bool visit_running(struct coll_comm *comm, uint64_t now)
{
	const struct coll_device_driver *devices = comm->ctx->async->devices;
	/* In front of what may end the last request: behind that the communicator is its thread's. */
	bool moved = devices && devices->poll(comm);

	moved |= poll_running(comm);
	if (moved && comm->inflight.pending > 0 &&
	    atomic_load_explicit(&comm->attention, memory_order_relaxed) & COLL_ATTENTION_ALARM)
		assess(comm, now);
	return moved;
}

bool coll_drive(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	bool moved = for_each(a, visit_running, 0);
	const unsigned pass = a->passes++;
	const bool assessing = pass % ASSESS_EVERY == 0; /* independent of movement elsewhere */

	moved |= poll_tagged(ctx);
	moved |= coll_inflight_launch(a);
	if (!moved || pass % PROGRESS_EVERY == 0)
		moved |= coll_context_progress(ctx) > 0;
	/* Data that has already arrived counts before a gossip note that was sent after it. */
	if (moved && assessing) {
		for_each(a, visit_running, 0);
		poll_tagged(ctx);
	}
	if (!moved || assessing)
		for_each(a, assess, assessing ? coll_clock_ns() : 0);
	return coll_inflight_launch(a) || moved; /* requests behind those that ended in streams */
}

/* The lock is held, and let go. */
static bool drive_once(struct coll_context *ctx)
{
	const bool moved = coll_drive(ctx);

	coll_async_unlock(ctx);
	return moved;
}

bool coll_drive_try(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;

	return !coll_async_is_idle(ctx) && atomic_load_explicit(&a->lock_waiters, memory_order_relaxed) == 0 &&
	       pthread_mutex_trylock(&a->lock) == 0 && drive_once(ctx);
}

bool coll_drive_last(struct coll_context *ctx)
{
	/* Relaxed: the request that this thread waits for was submitted before, and this thread saw that. */
	if (coll_async_is_idle(ctx))
		return false;
	coll_async_lock(ctx);
	return drive_once(ctx);
}

bool coll_drive_ask(struct coll_context *ctx, bool (*done)(void *arg), void *arg)
{
	bool yes;

	coll_async_lock(ctx);
	yes = done(arg);
	if (!yes && !coll_async_is_idle(ctx)) {
		coll_drive(ctx);
		yes = done(arg);
	}
	coll_async_unlock(ctx);
	return yes;
}

/* ---- Waiting ---- */

/* A thread that waits for an event of these contexts and drives them meanwhile. */
struct waiter {
	struct coll_context **ctxs;
	int n;
	struct coll_comm *comm; /* NULL: it waits for any of the contexts */
	bool (*done)(void *arg);
	void *arg;
};

/* Another thread may hold the lock. It may have looked before this thread was armed, and it may
 * leave at any moment. So this thread makes the last look before a sleep itself. */
static coll_status look(void *arg, bool last, bool *moved)
{
	const struct waiter *w = arg;

	for (int i = 0; i < w->n; i++)
		*moved |= last ? coll_drive_last(w->ctxs[i]) : coll_drive_try(w->ctxs[i]);
	return w->done(w->arg) ? COLL_OK : COLL_AGAIN;
}

void coll_comm_interrupt(struct coll_comm *comm)
{
	if (coll_comm_abort_locally(comm, 0, COLL_INTERRUPTED) && comm->ctx->control)
		coll_control_flush(comm->ctx->control, COLL_DELAY_FAILURE_FLUSH_MS);
}

/* The lock keeps communicators from being destroyed: destroy takes it when nothing is pending. The aborts complete all
 * requests, so the wait goes on until its own are complete. */
static void interrupt(void *arg)
{
	const struct waiter *w = arg;

	if (w->comm)
		coll_comm_interrupt(w->comm);
	for (int i = 0; i < w->n && !w->comm; i++) {
		struct coll_async *a = w->ctxs[i]->async;

		coll_async_lock(w->ctxs[i]);
		for (struct coll_link *l = a->comms.next; l != &a->comms; l = l->next)
			coll_comm_abort_locally(COLL_ENTRY(l, struct coll_comm, inflight.link), 0, COLL_INTERRUPTED);
		pthread_mutex_unlock(&a->lock);
		if (w->ctxs[i]->control)
			coll_control_flush(w->ctxs[i]->control, COLL_DELAY_FAILURE_FLUSH_MS);
	}
}

static void stop_driving(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;

	if (atomic_fetch_sub(&a->drivers, 1) > 1 || atomic_load(&a->pending) == 0)
		return;
	pthread_mutex_lock(&a->lock);
	if (atomic_load(&a->drivers) == 0)
		coll_async_call(ctx);
	pthread_mutex_unlock(&a->lock);
}

coll_status coll_async_await(struct coll_context **ctxs, int n, struct coll_comm *comm, bool (*done)(void *arg),
                             void *arg, int timeout_ms)
{
	struct waiter w = {.ctxs = ctxs, .n = n, .comm = comm, .done = done, .arg = arg};
	struct coll_wait_loop loop = {.ctxs = ctxs, .n = n, .look = look, .interrupt = interrupt, .arg = &w};
	coll_status st;

	if (coll_notify_forbids(ctxs[0], "a wait"))
		return COLL_ERR_ARGUMENT;
	if (done(arg))
		return COLL_OK;
	if (timeout_ms >= 0)
		loop.until_ns = coll_clock_ns() + (uint64_t)timeout_ms * MS + 1;
	for (int i = 0; i < n; i++) {
		atomic_fetch_add(&ctxs[i]->async->drivers, 1);
		atomic_fetch_add_explicit(&ctxs[i]->async->waits, 1, memory_order_relaxed);
	}
	st = coll_wait_loop_run(&loop);
	for (int i = 0; i < n; i++)
		stop_driving(ctxs[i]);
	return st;
}

coll_status coll_async_await_one(struct coll_context *ctx, struct coll_comm *comm, bool device, bool (*done)(void *arg),
                                 void *arg, int timeout_ms)
{
	const uint64_t until = timeout_ms < 0 ? 0 : coll_clock_ns() + (uint64_t)timeout_ms * MS;

	if (!device)
		return coll_async_await(&ctx, 1, comm, done, arg, timeout_ms);
	for (;;) {
		const uint64_t now = until ? coll_clock_ns() : 0;
		const uint64_t left_ms = until ? (until > now ? (until - now) / MS + 1 : 0) : UINT64_MAX;
		const int slice = left_ms < COLL_DELAY_DEVICE_LOOK_MS ? (int)left_ms : COLL_DELAY_DEVICE_LOOK_MS;
		const coll_status st = coll_async_await(&ctx, 1, comm, done, arg, slice);

		if (st != COLL_AGAIN || left_ms == 0)
			return st;
		ctx->async->devices->look(ctx, false);
	}
}

/* ---- A communicator as a whole ---- */

static bool pending(const struct coll_comm *comm)
{
	return atomic_load_explicit(&comm->attention, memory_order_acquire) & COLL_ATTENTION_PENDING;
}

/* of: the communicator's `failed` or `ended`. */
static coll_status status_of(const struct coll_comm *comm, const coll_status *of)
{
	const bool locked = pending(comm);
	coll_status st;

	if (locked)
		coll_async_lock(comm->ctx);
	st = *of;
	if (locked)
		pthread_mutex_unlock(&comm->ctx->async->lock);
	return st;
}

coll_status coll_comm_status(const struct coll_comm *comm)
{
	return status_of(comm, &comm->failed);
}

bool coll_comm_lives_on(const struct coll_comm *comm)
{
	return coll_comm_dead(comm) && status_of(comm, &comm->ended) == COLL_OK;
}

coll_status coll_comm_keep(struct coll_comm *comm, coll_status st)
{
	const bool locked = pending(comm);
	const coll_error *e;

	if (locked)
		coll_async_lock(comm->ctx);
	e = coll_comm_ended_error(comm);
	if (!e || e->status != st)
		e = &comm->refused.error;
	if (e->status == st)
		coll_thread_error_copy(e);
	else
		coll_thread_error_say("call", st, NULL);
	if (locked)
		pthread_mutex_unlock(&comm->ctx->async->lock);
	return st;
}

/* The thread of the communicator reads its notes. */
static void attend(struct coll_comm *comm, const char *kind)
{
	const unsigned attention = atomic_load_explicit(&comm->attention, memory_order_acquire);

	if (!(attention & COLL_ATTENTION_ALARM))
		return;
	/* An operation that was started inline must end with the communicator. */
	if (!(attention & COLL_ATTENTION_PENDING))
		coll_inlined_hand_over(comm);
	if (!pending(comm)) {
		if (!comm->ended)
			coll_comm_attend(comm, kind);
		return;
	}
	coll_async_lock(comm->ctx);
	if (!comm->ended && coll_comm_attend(comm, kind) != COLL_OK)
		coll_inflight_lost(comm);
	coll_async_unlock(comm->ctx);
}

/* A call after an error of this process, perhaps on another communicator. Who uses one that has lost a member knows of
 * that. */
static void go_on(struct coll_comm *comm)
{
	if (comm->ctx->control && !coll_control_goes_on(comm->ctx->control, coll_comm_dead(comm) != NULL))
		atomic_fetch_or_explicit(&comm->attention, COLL_ATTENTION_ALARM, memory_order_relaxed);
}

coll_status coll_comm_usable(struct coll_comm *comm, const char *kind, bool message)
{
	const unsigned attention = atomic_load_explicit(&comm->attention, memory_order_relaxed);
	coll_status st;

	/* Not as coll_comm_refuse() does it: another thread may be in a call on comm. */
	if (coll_notify_forbids(comm->ctx, kind))
		return COLL_ERR_ARGUMENT;
	attend(comm, kind);
	st = status_of(comm, message ? &comm->ended : &comm->failed);
	if (st == COLL_OK) {
		if (attention & COLL_ATTENTION_ALARM)
			go_on(comm);
		return COLL_OK;
	}
	coll_comm_death_reported(comm);
	if (coll_comm_dead(comm))
		coll_comm_dead(comm)->refused = false;
	return coll_comm_keep(comm, st);
}

coll_status coll_comm_lose(struct coll_comm *comm, coll_status status, int culprit, const char *cause)
{
	coll_inlined_hand_over(comm);
	coll_async_lock(comm->ctx);
	status = coll_comm_fail(comm, status, culprit, cause, "");
	coll_inflight_lost(comm);
	coll_async_unlock(comm->ctx);
	return status;
}

static bool nothing_pending(void *arg)
{
	return !pending(arg);
}

void coll_comm_drain(struct coll_comm *comm)
{
	coll_inlined_hand_over(comm);
	coll_async_lock(comm->ctx);
	comm->inflight.closing = true;
	coll_inflight_unkeep(comm, COLL_KEPT_BY_STREAMS);
	coll_async_unlock(comm->ctx);
	coll_async_await_one(comm->ctx, comm, comm->stage != NULL, nothing_pending, comm, -1);
	/* Taking the lock once ensures that the driver that completed the last request has left the communicator. */
	coll_async_lock(comm->ctx);
	pthread_mutex_unlock(&comm->ctx->async->lock);
}
