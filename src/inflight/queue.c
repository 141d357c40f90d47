/*
 * Requests in flight: their order, start and completion, and their end when the communicator fails.
 * Everything here runs under the async lock.
 *
 * A request has one blocker for each event that must precede its start, and one until its
 * submission is complete. The code that causes the event removes the blocker. When the last blocker
 * is gone, the request enters the ready list. coll_inflight_launch() starts requests from that
 * list, so long chains of requests cause no recursion.
 */
#include "inflight/queue.h"

#include <stdlib.h>

#include "core/dead.h"
#include "core/error.h"
#include "engine/run.h"
#include "inflight/async.h"
#include "inflight/request.h"
#include "inflight/stream.h"

/* ---- Creation and destruction ---- */

void coll_inflight_init(struct coll_inflight *f)
{
	coll_list_init(&f->link);
	coll_list_init(&f->tagged);
	coll_list_init(&f->all);
	coll_list_init(&f->running);
	coll_list_init(&f->operations);
	coll_list_init(&f->to_device);
}

static void free_list(struct coll_request *r)
{
	while (r) {
		struct coll_request *next = r->next;

		coll_request_fini(r);
		free(r);
		r = next;
	}
}

void coll_inflight_fini(struct coll_comm *comm)
{
	struct coll_inflight *f = &comm->inflight;

	/* A merged request returns its parts. */
	while (f->done) {
		struct coll_request *r = f->done;

		f->done = r->next;
		coll_request_recycle(r);
	}
	for (int i = 0; i < COLL_IS_EVENT; i++)
		free_list(f->spare[i]);
	for (int i = 0; i < COLL_IN_FLIGHT_MAX; i++) {
		coll_run_destroy(&f->slots[i].run);
		free(f->slots[i].scratch);
	}
	free(f->pairs[0]);
	free(f->pairs[1]);
}

/* ---- Order ---- */

void coll_inflight_queue(struct coll_request *r, int i, struct coll_request **last)
{
	r->queue[i] = last;
	if (*last) {
		(*last)->follower[i] = r;
		r->blockers++;
	}
	*last = r;
}

void coll_inflight_pass(struct coll_request *r, int i)
{
	if (r->queue[i] && *r->queue[i] == r)
		*r->queue[i] = NULL;
	if (r->follower[i])
		coll_inflight_unblock(r->follower[i]);
	r->follower[i] = NULL;
}

static void count_one(struct coll_comm *comm)
{
	struct coll_inflight *f = &comm->inflight;

	if (f->pending == f->kept) {
		f->begun = comm->sequence;
		coll_error_clear(&comm->box);
	}
	if (f->pending++ == 0) {
		coll_list_append(&comm->ctx->async->comms, &f->link);
		atomic_fetch_or_explicit(&comm->attention, COLL_ATTENTION_PENDING, memory_order_relaxed);
	}
}

static void count_in(struct coll_request *r)
{
	struct coll_comm *comm = r->comm;
	struct coll_async *a = comm->ctx->async;
	struct coll_inflight *f = &comm->inflight;

	count_one(comm);
	/* Sequentially consistent, like the load of a->drivers that follows in submit and its
	 * counterpart in stop_driving(). Either the leaving driver sees this request and wakes the
	 * progress thread, or the submitter sees that there is no driver and wakes it. */
	atomic_fetch_add(&a->pending, 1);
	coll_list_append(&f->all, &r->all);
}

void coll_inflight_keep(struct coll_comm *comm, unsigned by)
{
	struct coll_async *a = comm->ctx->async;

	comm->inflight.kept_by |= by;
	if (comm->inflight.kept)
		return;
	count_one(comm);
	comm->inflight.kept = 1;
	atomic_fetch_add_explicit(&a->kept, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&a->staged, 1, memory_order_relaxed);
	atomic_fetch_add(&a->pending, 1);
}

void coll_inflight_unkeep(struct coll_comm *comm, unsigned by)
{
	struct coll_async *a = comm->ctx->async;
	struct coll_inflight *f = &comm->inflight;

	f->kept_by &= ~by;
	if (!f->kept || f->kept_by)
		return;
	f->kept = 0;
	atomic_fetch_sub_explicit(&a->kept, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&a->staged, 1, memory_order_relaxed);
	atomic_fetch_sub_explicit(&a->pending, 1, memory_order_relaxed);
	a->completed = true;
	if (--f->pending > 0)
		return;
	coll_list_remove(&f->link);
	atomic_fetch_and_explicit(&comm->attention, ~(unsigned)COLL_ATTENTION_PENDING, memory_order_release);
}

void coll_inflight_join(struct coll_request *r)
{
	count_in(r);
	r->state = COLL_REQUEST_RUNNING;
	coll_list_append(&r->comm->inflight.running, &r->running);
}

void coll_inflight_adopt(struct coll_request *r)
{
	struct coll_inflight *f = &r->comm->inflight;

	coll_inflight_join(r);
	r->queue[0] = &f->tail;
	f->started++;
	f->last = r;
}

void coll_inflight_enter(struct coll_request *r)
{
	count_in(r);
	r->state = COLL_REQUEST_QUEUED;
	r->blockers = 1;
	r->kind->enter(r);
}

/* Requests of a failed communicator are excluded: coll_inflight_lost() ends them one by one. */
void coll_inflight_make_ready(struct coll_request *r)
{
	struct coll_async *a = r->comm ? r->comm->ctx->async : r->stream->ctx->async;

	if (r->comm && (r->comm->ended || (r->comm->failed && r->is == COLL_IS_COLLECTIVE)))
		return;
	r->next = NULL;
	*a->ready_tail = r;
	a->ready_tail = &r->next;
}

void coll_inflight_unblock(struct coll_request *r)
{
	if (--r->blockers == 0)
		coll_inflight_make_ready(r);
}

/* ---- Start ---- */

static bool shows(const struct coll_request *r)
{
	return r->shown == COLL_SHOWN ||
	       (r->shown == COLL_SHOWN_AWAITED && atomic_load_explicit(&r->awaited, memory_order_relaxed));
}

/* Prefer the oldest collective, else the oldest message. */
void coll_inflight_publish(struct coll_comm *comm, struct coll_request *ended)
{
	struct coll_request *found = NULL;

	for (struct coll_link *l = comm->inflight.running.next; l != &comm->inflight.running; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, running);

		if (shows(r) && (!found || r->is == COLL_IS_COLLECTIVE))
			found = r;
		if (found && found->is == COLL_IS_COLLECTIVE)
			break;
	}
	if (!found)
		found = ended;
	if (!found)
		return;
	found->record.active = found != ended;
	coll_record_publish(&comm->record, &found->record);
}

void coll_inflight_started(struct coll_request *r)
{
	struct coll_comm *comm = r->comm;

	if (r->state == COLL_REQUEST_RUNNING)
		return;
	r->state = COLL_REQUEST_RUNNING;
	coll_list_append(&comm->inflight.running, &r->running);
	for (int i = 0; i < 2; i++)
		if (r->wait.entries[i])
			coll_recorder_start(&comm->recorder, r->wait.entries[i]);
}

static void start(struct coll_request *r)
{
	struct coll_comm *comm = r->comm; /* r may end */
	const coll_status st = r->kind->start(r);

	if (st == COLL_OK)
		return;
	coll_comm_fail(comm, st, -1, "cannot start the plan: ", coll_status_string(st));
	coll_inflight_lost(comm);
}

bool coll_inflight_launch(struct coll_async *a)
{
	const bool any = a->ready != NULL;

	while (a->ready) {
		struct coll_request *r = a->ready;

		a->ready = r->next;
		if (!a->ready)
			a->ready_tail = &a->ready;
		r->next = NULL;
		if (r->state == COLL_REQUEST_QUEUED)
			start(r);
	}
	return any;
}

/* ---- End ---- */

/* Remove a request from its communicator. When the last request leaves, the communicator belongs to
 * its thread alone again. That thread must not see this before all other work here is done. */
static void leave(struct coll_request *r)
{
	struct coll_comm *comm = r->comm;
	struct coll_inflight *f = &comm->inflight;

	if (r->kind->leave)
		r->kind->leave(r);
	coll_list_remove(&r->all);
	coll_list_remove(&r->running);
	if (r->state == COLL_REQUEST_RUNNING)
		coll_inflight_publish(comm, r);
	for (int i = 0; i < r->wait.nruns; i++)
		coll_recorder_way(r->wait.entries[i], coll_run_way(r->wait.runs[i]));
	for (int i = 0; i < 2; i++)
		coll_recorder_end(&comm->recorder, r->wait.entries[i], r->status);
	if (--f->pending == 0)
		coll_list_remove(&f->link);
}

void coll_inflight_complete(struct coll_request *r, coll_status status)
{
	struct coll_comm *comm = r->comm;
	struct coll_async *a = comm ? comm->ctx->async : r->stream->ctx->async;

	r->status = status;
	if (comm) {
		if (r->timer.begun_ns)
			coll_waits_end(comm->waits, r->timer.since_ns != 0);
		coll_deadlock_hide(comm, &r->timer);
		leave(r);
	}
	r->state = COLL_REQUEST_IDLE;
	if (r->stream)
		coll_stream_pop(r->stream, r, status);
	atomic_fetch_sub_explicit(&a->pending, 1, memory_order_relaxed);
	a->completed = true;
	if (!comm) {
		r->next = a->spare_events;
		a->spare_events = r;
		return;
	}
	if (!r->held) {
		r->next = comm->inflight.done;
		comm->inflight.done = r;
	}
	if (comm->inflight.pending == 0)
		atomic_fetch_and_explicit(&comm->attention, ~(unsigned)COLL_ATTENTION_PENDING, memory_order_release);
	if (r->held)
		atomic_store_explicit(&r->done, true, memory_order_release);
}

static void forget_ready(struct coll_async *a, const struct coll_comm *comm)
{
	struct coll_request **at = &a->ready;

	while (*at) {
		if ((*at)->comm == comm && (comm->ended || (*at)->is == COLL_IS_COLLECTIVE))
			*at = (*at)->next;
		else
			at = &(*at)->next;
	}
	a->ready_tail = at;
}

/* The device may be writing the user's memory, or other ranks reading it: the request ends when that has ended, or
 * after a bounded time. Drivers look at those that run, so one that has had no place yet joins them. */
static void hold(struct coll_request *r, coll_status status)
{
	r->lost = status;
	if (r->state == COLL_REQUEST_QUEUED)
		coll_list_append(&r->comm->inflight.running, &r->running);
}

/* Those behind one that ends may start, so the list is another one then. */
static bool lose_one(struct coll_inflight *f)
{
	for (struct coll_link *l = f->all.next; l != &f->all; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, all);

		if (r->is == COLL_IS_COLLECTIVE)
			coll_inflight_complete(r, r->comm->failed);
		else if (!r->kind->lose_dead || !r->kind->lose_dead(r))
			continue;
		return true;
	}
	return false;
}

/* A member has died: collectives end, and what needs it. Tagged messages see to themselves. */
static void lose_dead(struct coll_comm *comm)
{
	struct coll_inflight *f = &comm->inflight;

	for (struct coll_link *l = f->running.next; l != &f->running; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, running);

		for (int i = 0; r->is == COLL_IS_COLLECTIVE && i < r->wait.nruns; i++)
			coll_run_cancel(r->wait.runs[i], comm->failed);
	}
	f->faulty = NULL;
	f->stalled = NULL;
	forget_ready(comm->ctx->async, comm);
	if (f->started > 0)
		coll_comm_death_reported(comm);
	while (lose_one(f))
		;
}

void coll_inflight_lost(struct coll_comm *comm)
{
	const struct coll_device_driver *devices = comm->ctx->async->devices;
	struct coll_inflight *f = &comm->inflight;
	const coll_status status = comm->ended;

	if (!comm->ended) {
		lose_dead(comm);
		return;
	}

	/* The channels are closed, so no peer reads or writes the memory of the runs any more.
	 * Cancel all runs before any request completes, because a run reads the state of the run
	 * before it. */
	for (struct coll_link *l = f->running.next; l != &f->running; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, running);

		for (int i = 0; i < r->wait.nruns; i++)
			coll_run_cancel(r->wait.runs[i], status);
	}
	f->faulty = NULL;
	f->stalled = NULL;
	forget_ready(comm->ctx->async, comm);
	/* In front of the release: behind it a stream may come to the end of a call that has not been made. */
	for (struct coll_link *l = f->all.next; l != &f->all; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, all);

		if (r->lost == COLL_OK && r->kind->left && !r->kind->left(r))
			hold(r, status);
	}
	if (devices)
		devices->release(comm);
	if (devices && !f->closing && f->pending > f->kept && !devices->has_left(comm))
		coll_inflight_keep(comm, COLL_KEPT_BY_STREAMS);
	for (struct coll_link *l = f->all.next, *next; l != &f->all; l = next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, all);

		next = l->next;
		if (r->lost == COLL_OK)
			coll_inflight_complete(r, status);
	}
}
