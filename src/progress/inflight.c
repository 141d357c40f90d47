/*
 * Requests in flight: their order, start and completion, and their end when the communicator fails.
 * Everything here runs under the async lock.
 *
 * A request has one blocker for each event that must precede its start, and one until its
 * submission is complete. The code that causes the event removes the blocker. When the last blocker
 * is gone, the request enters the ready list. coll_inflight_launch() starts requests from that
 * list, so long chains of requests cause no recursion.
 */
#include "progress/inflight.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "core/error.h"
#include "engine/run.h"
#include "progress/async.h"
#include "progress/capture_launch.h"
#include "progress/persistent.h"
#include "progress/request.h"
#include "progress/stage.h"
#include "progress/stream.h"
#include "select/bind_pair.h"

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
	free_list(f->spare);
	for (int i = 0; i < COLL_IN_FLIGHT_MAX; i++) {
		coll_run_destroy(&f->slots[i].run);
		free(f->slots[i].scratch);
	}
	free(f->pairs[0]);
	free(f->pairs[1]);
}

/* ---- Order ---- */

static void enter_collective(struct coll_request *r)
{
	struct coll_comm *comm = r->comm;
	struct coll_inflight *f = &comm->inflight;

	r->job.sequence = ++comm->sequence;
	if (f->tail) {
		f->tail->follower[0] = r;
		r->blockers++;
	}
	f->tail = r;
}

static void enter_pair(struct coll_request *r)
{
	struct coll_comm *comm = r->comm;

	for (int half = 0; half < 2; half++) {
		const int peer = coll_pair_peer(&r->pair, half);
		struct coll_request **last;

		if (!r->pair_plan[half])
			continue;
		r->pair_sequence[half] = coll_pair_number(comm, half, peer);
		last = &comm->inflight.pairs[half][peer];
		if (*last) {
			(*last)->follower[half] = r;
			r->blockers++;
		}
		*last = r;
	}
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
	if (r->staged)
		atomic_fetch_add_explicit(&a->staged, 1, memory_order_relaxed);
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
	f->started++;
	f->last = r;
}

void coll_inflight_enter(struct coll_request *r)
{
	count_in(r);
	r->state = COLL_REQUEST_QUEUED;
	r->blockers = 1;
	if (r->kind == COLL_REQUEST_COLLECTIVE)
		enter_collective(r);
	else
		enter_pair(r);
}

/* Requests of a failed communicator are excluded: coll_inflight_lost() ends them one by one. */
static void make_ready(struct coll_async *a, struct coll_request *r)
{
	if (r->comm && r->comm->failed)
		return;
	r->next = NULL;
	*a->ready_tail = r;
	a->ready_tail = &r->next;
}

void coll_inflight_unblock(struct coll_request *r)
{
	struct coll_async *a = r->comm ? r->comm->ctx->async : r->stream->ctx->async;

	if (--r->blockers > 0)
		return;
	if (r->whole)
		coll_inflight_unblock(r->whole);
	else
		make_ready(a, r);
}

/* ---- Start ---- */

/* A receive that was posted in advance is nothing that this rank is doing, and neither is a call that its stream has
 * not reached: to its peers this rank is late. */
static bool shows(const struct coll_request *r)
{
	if (r->staged && !r->reached)
		return false;
	return r->kind != COLL_REQUEST_TAG || !r->held || atomic_load_explicit(&r->awaited, memory_order_relaxed);
}

/* Prefer the oldest collective, else the oldest message. */
void coll_inflight_publish(struct coll_comm *comm, struct coll_request *ended)
{
	struct coll_request *found = NULL;

	for (struct coll_link *l = comm->inflight.running.next; l != &comm->inflight.running; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, running);

		if (shows(r) && (!found || r->kind == COLL_REQUEST_COLLECTIVE))
			found = r;
		if (found && found->kind == COLL_REQUEST_COLLECTIVE)
			break;
	}
	if (!found)
		found = ended;
	if (!found)
		return;
	found->record.active = found != ended;
	coll_record_publish(&comm->record, &found->record);
}

static coll_status need_scratch(struct coll_slot *s, size_t bytes)
{
	void *p;

	if (!s->run && coll_run_create(&s->run) != COLL_OK)
		return COLL_ERR_MEMORY;
	if (bytes <= s->scratch_bytes)
		return COLL_OK;
	if (posix_memalign(&p, 4096, bytes))
		return COLL_ERR_MEMORY;
	free(s->scratch);
	s->scratch = p;
	s->scratch_bytes = bytes;
	return COLL_OK;
}

static struct coll_slot *free_slot(struct coll_inflight *f)
{
	for (int i = 0; i < COLL_IN_FLIGHT_MAX; i++)
		if (!f->slots[i].busy)
			return &f->slots[i];
	return NULL;
}

/* Copy the inputs of merged calls side by side. */
static void pack(struct coll_request *r)
{
	char *to = r->pack;

	for (const struct coll_request *p = r->parts; p; p = p->next_part) {
		const size_t bytes = p->call.count * p->job.elem_bytes;

		if (bytes > 0)
			memcpy(to, p->call.in, bytes);
		to += bytes;
	}
}

static void unpack(struct coll_request *r)
{
	const char *from = r->pack;

	for (struct coll_request *p = r->parts; p; p = p->next_part) {
		const size_t bytes = p->call.count * p->job.elem_bytes;

		if (bytes > 0)
			memcpy(p->call.out, from, bytes);
		from += bytes;
	}
}

/* Copies that were made before the run has begun. */
static coll_status go_on(struct coll_request *r, coll_status st)
{
	if (st == COLL_OK && r->staged && r->direct)
		coll_run_begun(r->wait.runs[0], &r->ahead);
	return st;
}

static coll_status start_collective(struct coll_request *r)
{
	struct coll_inflight *f = &r->comm->inflight;
	coll_status st = COLL_OK;

	if (r->parts)
		pack(r);
	/* The device orders direct calls, and a staged call before one may need what is behind it in a stream. */
	r->job.after = f->last && !(r->staged && r->direct) ? f->last->wait.runs[0] : NULL;
	if (r->operation) {
		st = coll_operation_run(r);
	} else {
		r->slot = free_slot(f);
		st = need_scratch(r->slot, r->scratch_bytes);
		if (st == COLL_OK) {
			r->slot->busy = true;
			r->job.scratch = r->slot->scratch;
			r->wait.runs[0] = r->slot->run;
			st = coll_run_start(r->slot->run, &r->comm->collective.fabric, &r->job);
		}
	}
	r->wait.nruns = r->wait.runs[0] != NULL; /* none: its allocation failed */
	f->started++;
	f->begun = r->job.sequence;
	f->last = r;
	if (f->tail == r)
		f->tail = NULL;
	if (r->follower[0])
		coll_inflight_unblock(r->follower[0]);
	r->follower[0] = NULL;
	return go_on(r, st);
}

static coll_status start_pair(struct coll_request *r)
{
	coll_status st = COLL_OK;

	r->record.sequence = r->comm->inflight.begun;
	if (coll_pair_self(r->comm, &r->pair) && r->pair.send_count > 0 && !r->staged)
		memmove(r->pair.recv, r->pair.send, r->pair.send_count * coll_dtype_size(r->pair.type));
	for (int half = 0; half < 2 && st == COLL_OK; half++) {
		struct coll_job job;

		if (!r->pair_plan[half])
			continue;
		coll_pair_job(r->comm, &r->pair, half, r->pair_plan[half], &job);
		job.sequence = r->pair_sequence[half];
		job.stage = r->staged ? &r->stage[half] : NULL;
		r->wait.runs[r->wait.nruns++] = r->pair_run[half];
		st = coll_run_start(r->pair_run[half], &r->comm->pairs.fabric, &job);
	}
	return st;
}

static void start(struct coll_request *r)
{
	struct coll_comm *comm = r->comm;
	struct coll_inflight *f = &comm->inflight;
	coll_status st;

	if (r->kind == COLL_REQUEST_COLLECTIVE && f->started == COLL_IN_FLIGHT_MAX) {
		f->stalled = r; /* the collectives behind it wait for it */
		return;
	}
	r->state = COLL_REQUEST_RUNNING;
	coll_list_append(&f->running, &r->running);
	for (int i = 0; i < 2; i++)
		if (r->wait.entries[i])
			coll_recorder_start(&comm->recorder, r->wait.entries[i]);
	if (r->kind == COLL_REQUEST_TAG) {
		r->record.sequence = f->begun;
		coll_inflight_publish(comm, NULL);
		if (!r->staged) /* else when its payload is in host memory: see poll_staged_tag() */
			comm->ctx->async->tags->start(r);
		return;
	}
	st = r->kind == COLL_REQUEST_COLLECTIVE ? start_collective(r) : start_pair(r);
	coll_inflight_publish(comm, NULL);
	if (st == COLL_OK)
		return;
	coll_comm_fail(comm, st, -1, "cannot start the plan: ", coll_status_string(st));
	coll_inflight_lost(comm);
}

void coll_inflight_launch(struct coll_async *a)
{
	while (a->ready) {
		struct coll_request *r = a->ready;

		a->ready = r->next;
		if (!a->ready)
			a->ready_tail = &a->ready;
		r->next = NULL;
		if (r->kind == COLL_REQUEST_EVENT)
			coll_inflight_complete(r, r->status);
		else if (r->state == COLL_REQUEST_QUEUED)
			start(r);
	}
}

/* ---- End ---- */

static void leave_collective(struct coll_request *r)
{
	struct coll_inflight *f = &r->comm->inflight;

	if (f->tail == r)
		f->tail = NULL;
	if (f->last == r)
		f->last = NULL;
	if (f->stalled == r)
		f->stalled = NULL;
	if (r->follower[0])
		coll_inflight_unblock(r->follower[0]);
	if (r->state != COLL_REQUEST_RUNNING)
		return;
	f->started--;
	if (r->slot)
		r->slot->busy = false;
	r->slot = NULL;
	if (f->stalled) {
		make_ready(r->comm->ctx->async, f->stalled);
		f->stalled = NULL;
	}
}

static void leave_pair(struct coll_request *r)
{
	for (int half = 0; half < 2; half++) {
		struct coll_request **last;

		if (!r->pair_plan[half])
			continue;
		last = &r->comm->inflight.pairs[half][coll_pair_peer(&r->pair, half)];
		if (*last == r)
			*last = NULL;
		if (r->follower[half])
			coll_inflight_unblock(r->follower[half]);
		r->follower[half] = NULL;
	}
}

void coll_inflight_free_channels(struct coll_request *r)
{
	if (r->kind == COLL_REQUEST_PAIR && !r->captured)
		leave_pair(r);
}

/* Remove a request from its communicator. When the last request leaves, the communicator belongs to
 * its thread alone again. That thread must not see this before all other work here is done. */
static void leave(struct coll_request *r)
{
	struct coll_comm *comm = r->comm;
	struct coll_inflight *f = &comm->inflight;

	if (r->kind == COLL_REQUEST_COLLECTIVE && !r->captured)
		leave_collective(r);
	else if (!r->captured)
		leave_pair(r);
	r->follower[0] = r->follower[1] = NULL;
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
	if (comm)
		coll_deadlock_hide(comm, &r->timer);
	if (r->parts && status == COLL_OK)
		unpack(r);
	if (comm)
		leave(r);
	r->state = COLL_REQUEST_IDLE;
	if (r->stream)
		coll_stream_pop(r->stream, r, status);
	for (struct coll_request *p = r->parts; p; p = p->next_part)
		if (p->whole) {
			p->whole = NULL;
			coll_stream_pop(p->stream, p, status);
		}
	atomic_fetch_sub_explicit(&a->pending, 1, memory_order_relaxed);
	if (r->staged)
		atomic_fetch_sub_explicit(&a->staged, 1, memory_order_relaxed);
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
		if ((*at)->comm == comm)
			*at = (*at)->next;
		else
			at = &(*at)->next;
	}
	a->ready_tail = at;
}

/* The device may be writing the user's memory, or other ranks reading it: the request ends when that has ended, or
 * after a bounded time. Drivers look at those that run, so one that has had no place yet joins them. */
static void lose_staged(struct coll_request *r, coll_status status)
{
	r->lost = status;
	r->lost_until_ns = coll_clock_ns() + COLL_DELAY_NS(DEVICE_DRAIN);
	if (r->state == COLL_REQUEST_QUEUED)
		coll_list_append(&r->comm->inflight.running, &r->running);
}

void coll_inflight_lost(struct coll_comm *comm)
{
	struct coll_inflight *f = &comm->inflight;
	const coll_status status = comm->failed;

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

		if (r->staged && r->enqueued && r->lost == COLL_OK && !coll_stage_drained(r))
			lose_staged(r, status);
	}
	coll_stage_release(comm);
	coll_capture_release(comm);
	if (!f->closing && f->pending > f->kept && !coll_stage_has_left(comm))
		coll_inflight_keep(comm, COLL_KEPT_BY_STREAMS);
	for (struct coll_link *l = f->all.next, *next; l != &f->all; l = next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, all);

		next = l->next;
		if (r->lost == COLL_OK)
			coll_inflight_complete(r, status);
	}
}
