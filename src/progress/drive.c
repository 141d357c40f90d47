/*
 * Driving: one look at everything that is pending in a context, and waits for some of it.
 *
 * A look never blocks. Waiting threads sleep outside the lock.
 *
 * After a run has failed, its communicator is only examined for the cause, and its runs are no
 * longer polled. Its other runs may depend on the failed one, and all of them end with it.
 */

#include "progress/drive.h"

#include "base/clock.h"
#include "base/delay.h"
#include "control/gossip.h"
#include "core/error.h"
#include "engine/run.h"
#include "progress/async.h"
#include "progress/capture_launch.h"
#include "progress/inflight.h"
#include "progress/loop.h"
#include "progress/notify.h"
#include "progress/persistent.h"
#include "progress/stage.h"
#include "progress/stage_late.h"
#include "progress/stage_ring.h"
#include "watch/diagnose.h"

enum { PROGRESS_EVERY = 8, ASSESS_EVERY = 16 };
enum { MESSAGES_AT_A_TIME = 4 };

static const uint64_t MS = 1000000;

/* ---- One look ---- */

/* The communicator has failed. */
static bool poll_lost(struct coll_request *r)
{
	const uint64_t now = coll_clock_ns();

	if (!coll_stage_drained(r) && now < r->lost_until_ns)
		return false;
	/* Nor may other ranks use the memory that is about to be the user's again. */
	if (r->direct && !coll_mapped_is_let_go(r->comm, now + COLL_DELAY_NS(DEVICE_DRAIN) >=
	                                                         r->lost_until_ns + COLL_DELAY_NS(PEERS_DRAIN)))
		return false;
	coll_inflight_complete(r, r->lost);
	return true;
}

/* True: the request moved or ended. */
static bool poll_request(struct coll_request *r)
{
	bool moved = false, waits = false;

	if (r->lost != COLL_OK)
		return poll_lost(r);
	moved = r->staged && coll_stage_copy(r);
	for (int i = 0; i < r->wait.nruns; i++) {
		bool m = false;
		coll_status st = coll_run_poll(r->wait.runs[i], &m);

		moved |= m;
		if (st == COLL_AGAIN) {
			waits = true;
		} else if (st != COLL_OK) {
			r->comm->inflight.faulty = r;
			r->comm->inflight.faulty_run = r->wait.runs[i];
			r->comm->inflight.fault = st;
			return moved;
		}
	}
	if (moved)
		coll_wait_timer_moved(r->comm, &r->timer);
	if (r->staged && !r->reached && !coll_stage_waits_for_stream(r)) {
		r->reached = true;
		coll_inflight_publish(r->comm, NULL);
	}
	if (!waits && r->staged)
		coll_inflight_free_channels(r);
	if (waits || (r->staged && !(coll_stage_is_copied(r) && coll_stage_drained(r))))
		return moved;
	coll_inflight_complete(r, COLL_OK);
	return true;
}

/* A send that its stream must come to. When the payload has been copied it is one like any other: the user's memory
 * is read no more, and the stream goes on. */
static bool poll_staged_tag(struct coll_request *r)
{
	struct coll_async *a = r->comm->ctx->async;

	if (r->lost != COLL_OK)
		return poll_lost(r);
	if (!coll_stage_copy(r))
		return false;
	if (coll_stage_is_copied(r)) {
		r->staged = false;
		coll_recorder_way(r->wait.entries[0], COLL_WAY_SEND_RECV | COLL_WAY_STAGED);
		atomic_fetch_sub_explicit(&a->staged, 1, memory_order_relaxed);
		coll_inflight_publish(r->comm, NULL);
		a->tags->start(r);
	}
	return true;
}

/* Requests of tagged messages are not polled one by one: see poll_tagged(). */
static bool poll_running(struct coll_comm *comm)
{
	struct coll_inflight *f = &comm->inflight;
	struct coll_link *next;
	bool moved = false;

	for (struct coll_link *l = f->running.next; l != &f->running && !f->faulty; l = next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, running);

		next = l->next;
		if (r->kind != COLL_REQUEST_TAG)
			moved |= poll_request(r);
		else if (r->staged && poll_staged_tag(r))
			return true; /* it may have ended others, so the list is another one */
	}
	return moved;
}

/* A rank has knocked: find the communicators that it meant. */
static void admit(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	/* Acquire: the communicators were marked before. */
	const unsigned knocks = atomic_load_explicit(&ctx->knocks, memory_order_acquire);

	if (knocks == atomic_load_explicit(&a->knocks_seen, memory_order_relaxed) || !a->tags)
		return;
	atomic_store_explicit(&a->knocks_seen, knocks, memory_order_relaxed);
	pthread_mutex_lock(&ctx->comms_lock);
	for (struct coll_comm *comm = ctx->comms; comm; comm = comm->next)
		if (atomic_load_explicit(&comm->tagged.knocked, memory_order_relaxed))
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
			moved |= a->tags->poll(comm);
	}
	return moved;
}

/* Whether b cannot end before r has ended. */
static bool needs(const struct coll_request *b, const struct coll_request *r)
{
	if (b == r)
		return true;
	if (b->kind != r->kind || b->captured || r->captured)
		return false;
	if (b->kind == COLL_REQUEST_COLLECTIVE)
		return r->job.sequence < b->job.sequence;
	for (int half = 0; half < 2; half++)
		if (b->pair_plan[half] && r->pair_plan[half] &&
		    coll_pair_peer(&b->pair, half) == coll_pair_peer(&r->pair, half) &&
		    r->pair_sequence[half] < b->pair_sequence[half])
			return true;
	return false;
}

/* Whether the communicator's thread is in a call that cannot return before r ends. */
static bool keeps_thread(const struct coll_comm *comm, const struct coll_request *r)
{
	const struct coll_inflight *f = &comm->inflight;

	for (struct coll_link *l = f->all.next; l != &f->all; l = l->next) {
		const struct coll_request *b = COLL_ENTRY(l, struct coll_request, all);

		/* A request of a stream does not count: other threads may use the communicator
		 * while one waits for it. */
		if (!b->stream && atomic_load_explicit(&b->awaited, memory_order_relaxed) && needs(b, r))
			return true;
	}
	return false;
}

/* A stream that does not come to the call, or not to its end, has the time of a peer that is late. */
static coll_status inspect_stream(struct coll_comm *comm, struct coll_request *r, uint64_t now)
{
	if (!r->waiting_ns)
		r->waiting_ns = now;
	if (now - r->waiting_ns < (uint64_t)comm->arrival_timeout_ms * MS)
		return COLL_OK;
	return coll_stage_late(r);
}

static coll_status inspect_one(struct coll_comm *comm, struct coll_request *r, bool aside, uint64_t now)
{
	if (coll_stage_waits_for_stream(r))
		return inspect_stream(comm, r, now);
	r->waiting_ns = 0;
	r->timer.blocking = coll_wait_timer_is_due(&r->timer, now) && keeps_thread(comm, r);
	r->timer.alone = comm->inflight.pending == 1 + comm->inflight.kept;
	r->timer.aside = aside;
	return coll_comm_inspect(comm, &r->wait, &r->timer, now);
}

/* Whether deadlines count for a message. */
static bool is_limited(struct coll_request *r)
{
	return r->kind == COLL_REQUEST_PAIR || coll_stage_waits_for_stream(r) ||
	       (r->kind == COLL_REQUEST_TAG && r->comm->ctx->async->tags->limited(r));
}

/* Inspect the deadlines of the oldest running collective, because the others run behind it. Inspect
 * those of messages as well. If there are many, inspect a few at a time, because each inspection
 * asks peers. */
static coll_status inspect(struct coll_comm *comm, uint64_t now)
{
	struct coll_inflight *f = &comm->inflight;
	coll_status st = COLL_OK;
	unsigned messages = 0, first = 0, i = 0;
	bool collective = false;

	for (struct coll_link *l = f->running.next; l != &f->running && st == COLL_OK; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, running);

		if (r->kind != COLL_REQUEST_COLLECTIVE)
			messages += is_limited(r);
		else if (r->captured)
			st = inspect_one(comm, r, collective, now);
		else if (!collective && r->wait.nruns > 0)
			st = inspect_one(comm, r, false, now);
		collective |= r->kind == COLL_REQUEST_COLLECTIVE && !r->captured;
	}
	if (messages > MESSAGES_AT_A_TIME)
		first = (unsigned)(now / COLL_DELAY_NS(MESSAGE_TURN)) * MESSAGES_AT_A_TIME % messages;
	for (struct coll_link *l = f->running.next; l != &f->running && st == COLL_OK; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, running);

		if (r->kind == COLL_REQUEST_COLLECTIVE || !is_limited(r) ||
		    (i++ + messages - first) % messages >= MESSAGES_AT_A_TIME)
			continue;
		r->record.sequence = f->begun; /* this rank's current position */
		if (r->wait.nruns > 0 || r->wait.of_rank || coll_stage_waits_for_stream(r))
			st = inspect_one(comm, r, collective, now);
	}
	return st;
}

/* Nothing moved: check for gossip notes and deadlines. now_ns 0: the clock was not read this time. */
static void assess(struct coll_comm *comm, uint64_t now_ns)
{
	struct coll_inflight *f = &comm->inflight;
	struct coll_request *r = f->faulty;
	coll_status st;

	if (comm->failed || coll_list_empty(&f->all))
		return;
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

/* The streams of a communicator that has failed go on to their end, however much work of the user is in them: a peer
 * whose own stream goes on writes the words once more that have let this one pass. */
static void release_streams(struct coll_comm *comm)
{
	coll_stage_release(comm);
	if (coll_stage_has_left(comm))
		coll_inflight_unkeep(comm, COLL_KEPT_BY_STREAMS);
}

/* Direct calls that have no place among the running ones yet. What has one may be behind them in a stream, which waits
 * for their copies of host memory. */
static bool copy_ahead(struct coll_comm *comm)
{
	struct coll_inflight *f = &comm->inflight;
	bool moved = false;

	for (struct coll_link *l = f->all.next; l != &f->all; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, all);

		if (r->state == COLL_REQUEST_QUEUED && r->enqueued && r->direct)
			moved |= coll_mapped_copy(comm->mapped, &r->job, &r->direct_call, &r->ahead);
	}
	return moved;
}

/* Check for an alarm even when requests move: some may move all the time, and an abort must not
 * wait until they stop. */
static bool visit_running(struct coll_comm *comm, uint64_t now)
{
	bool moved = coll_capture_poll(comm);

	/* In front of what may end the last request: behind that the communicator is its thread's. */
	if (comm->failed)
		release_streams(comm);
	if (comm->inflight.stalled)
		moved |= copy_ahead(comm);
	moved |= poll_running(comm);

	if (moved && comm->inflight.pending > 0 &&
	    atomic_load_explicit(&comm->attention, memory_order_relaxed) & COLL_ATTENTION_ALARM)
		assess(comm, now);
	return moved;
}

static bool visit_assess(struct coll_comm *comm, uint64_t now)
{
	assess(comm, now);
	return false;
}

bool coll_drive(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	bool moved = for_each(a, visit_running, 0);
	const unsigned pass = a->passes++;
	const bool assessing = pass % ASSESS_EVERY == 0; /* independent of movement elsewhere */

	moved |= poll_tagged(ctx);
	if (a->ready) {
		coll_inflight_launch(a);
		moved = true;
	}
	if (!moved || pass % PROGRESS_EVERY == 0)
		moved |= coll_context_progress(ctx) > 0;
	/* Data that has already arrived counts before a gossip note that was sent after it. */
	if (moved && assessing) {
		for_each(a, visit_running, 0);
		poll_tagged(ctx);
	}
	if (!moved || assessing)
		for_each(a, visit_assess, assessing ? coll_clock_ns() : 0);
	if (a->ready) { /* requests behind those that ended in streams */
		coll_inflight_launch(a);
		moved = true;
	}
	return moved;
}

void coll_async_lock(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;

	if (pthread_mutex_trylock(&a->lock) == 0)
		return;
	/* Relaxed: only a hint, and its readers look again. */
	atomic_fetch_add_explicit(&a->lock_waiters, 1, memory_order_relaxed);
	pthread_mutex_lock(&a->lock);
	atomic_fetch_sub_explicit(&a->lock_waiters, 1, memory_order_relaxed);
}

void coll_async_unlock(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	const bool completed = a->completed;
	struct coll_notice *due = a->due;

	a->completed = false;
	a->due = NULL;
	a->due_tail = &a->due;
	pthread_mutex_unlock(&a->lock);
	if (completed)
		coll_context_wake(ctx);
	if (due)
		coll_notify_run(due);
}

bool coll_drive_try(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	bool moved;

	if (coll_async_is_idle(ctx) || atomic_load_explicit(&a->lock_waiters, memory_order_relaxed) > 0 ||
	    pthread_mutex_trylock(&a->lock) != 0)
		return false;
	moved = coll_drive(ctx);
	coll_async_unlock(ctx);
	return moved;
}

bool coll_drive_last(struct coll_context *ctx)
{
	bool moved;

	/* Relaxed: the request that this thread waits for was submitted before, and this thread saw
	 * that. */
	if (coll_async_is_idle(ctx))
		return false;
	coll_async_lock(ctx);
	moved = coll_drive(ctx);
	coll_async_unlock(ctx);
	return moved;
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
	if (coll_comm_abort_locally(comm, COLL_INTERRUPTED) && comm->ctx->control)
		coll_control_flush(comm->ctx->control, COLL_DELAY_FAILURE_FLUSH_MS);
}

/* The lock keeps communicators from being destroyed: destroy takes it when nothing is pending. The
 * aborts complete all requests, so the wait goes on until its own are complete. */
static void interrupt(void *arg)
{
	const struct waiter *w = arg;

	if (w->comm) {
		coll_comm_interrupt(w->comm);
		return;
	}
	for (int i = 0; i < w->n; i++) {
		struct coll_async *a = w->ctxs[i]->async;

		coll_async_lock(w->ctxs[i]);
		for (struct coll_link *l = a->comms.next; l != &a->comms; l = l->next)
			coll_comm_abort_locally(COLL_ENTRY(l, struct coll_comm, inflight.link), COLL_INTERRUPTED);
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

static coll_status await(struct coll_context **ctxs, int n, struct coll_comm *comm, bool (*done)(void *arg), void *arg,
                         int timeout_ms)
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

coll_status coll_async_await(struct coll_context **ctxs, int n, bool (*done)(void *arg), void *arg, int timeout_ms)
{
	return await(ctxs, n, NULL, done, arg, timeout_ms);
}

coll_status coll_async_await_comm(struct coll_comm *comm, bool (*done)(void *arg), void *arg, int timeout_ms)
{
	return await(&comm->ctx, 1, comm, done, arg, timeout_ms);
}

/* ---- A communicator as a whole ---- */

static bool pending(const struct coll_comm *comm)
{
	return atomic_load_explicit(&comm->attention, memory_order_acquire) & COLL_ATTENTION_PENDING;
}

coll_status coll_comm_status(const struct coll_comm *comm)
{
	coll_status st;

	if (!pending(comm))
		return comm->failed;
	coll_async_lock(comm->ctx);
	st = comm->failed;
	pthread_mutex_unlock(&comm->ctx->async->lock);
	return st;
}

coll_status coll_comm_usable(struct coll_comm *comm, const char *kind)
{
	const unsigned attention = atomic_load_explicit(&comm->attention, memory_order_acquire);
	coll_status st;

	/* Not as coll_comm_refuse() does it: another thread may be in a call on comm. */
	if (coll_notify_forbids(comm->ctx, kind))
		return COLL_ERR_ARGUMENT;
	if (!(attention & COLL_ATTENTION_PENDING)) {
		if (comm->failed || !(attention & COLL_ATTENTION_ALARM))
			return comm->failed;
		/* An operation that was started inline must end with the communicator. */
		coll_operation_hand_over(comm);
		if (!pending(comm))
			return coll_comm_attend(comm, kind);
	}
	coll_async_lock(comm->ctx);
	st = comm->failed;
	if (st == COLL_OK && (attention & COLL_ATTENTION_ALARM)) {
		st = coll_comm_attend(comm, kind);
		if (st != COLL_OK)
			coll_inflight_lost(comm);
	}
	coll_async_unlock(comm->ctx);
	return st;
}

coll_status coll_comm_lose(struct coll_comm *comm, coll_status status, int culprit, const char *cause)
{
	coll_operation_hand_over(comm);
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
	coll_operation_hand_over(comm);
	coll_async_lock(comm->ctx);
	comm->inflight.closing = true;
	coll_inflight_unkeep(comm, COLL_KEPT_BY_STREAMS);
	coll_async_unlock(comm->ctx);
	if (comm->stage)
		coll_stage_await(comm->ctx, comm, nothing_pending, comm, -1);
	else
		coll_async_await_comm(comm, nothing_pending, comm, -1);
	/* Taking the lock once ensures that the driver that completed the last request has left the
	 * communicator. */
	coll_async_lock(comm->ctx);
	pthread_mutex_unlock(&comm->ctx->async->lock);
}
