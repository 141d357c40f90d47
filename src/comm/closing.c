/*
 * The end of communicators: destroy and abort.
 *
 * A process must not close a communicator while a peer still reads from it. So destroy ends with a
 * barrier that has a time limit.
 *
 * Ranks may destroy several communicators in different orders, so destroy waits only briefly for
 * each. If some ranks have not called destroy yet, the communicator stays in the closing list. Any
 * idle thread of the context advances it with coll_comm_progress_closing(). It is freed when its
 * barrier has ended or its time limit has passed: at once, or, if it has memory of a device, by a
 * later destroy. To free such memory the driver may wait for all streams, which may wait for the idle
 * thread. The last user of the context waits for all communicators in the list, then closes the
 * context. If all ranks are in this process, the last user of all their contexts does that for all
 * of them.
 *
 * Destroy does not fail because other ranks are late or no longer wait for this rank. It does fail
 * if a member has died or if another rank has reported a failure of the communicator: this rank's
 * user would not learn of it otherwise. Destroy returns this close error. For a communicator that
 * stayed in the closing list, the last destroy of the context returns it.
 */
#include "comm/closing.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/delay.h"
#include "call/blocking.h"
#include "call/group.h"
#include "call/persistent.h"
#include "call/tag.h"
#include "comm/create.h"
#include "comm/last_call.h"
#include "comm/outage.h"
#include "comm/peer_stats.h"
#include "control/gossip.h"
#include "core/dead.h"
#include "core/entry.h"
#include "core/error.h"
#include "core/thread_error.h"
#include "devcall/capture_launch.h"
#include "engine/run.h"
#include "inflight/async.h"
#include "inflight/drive.h"
#include "inflight/loop.h"
#include "inflight/notify.h"
#include "watch/alarm.h"
#include "watch/any_source.h"
#include "watch/diagnose.h"

enum { CLOSINGS_MAX = 32 /* destroy waits longer while more than this many are closing */ };

static const uint64_t MS = 1000000;

/* The error of a close that failed. */
struct coll_close_error {
	struct coll_error_box box;
	char message[1024];
};

/* A communicator that its user has destroyed. */
struct coll_closing {
	struct coll_closing *next;           /* in ctx->closings */
	struct coll_close_error **error_out; /* where its error goes: to destroy or to the context */
	struct coll_comm *comm;
	struct coll_wait wait;
	struct coll_wait_timer timer;
	struct coll_last_call last;
	struct coll_outage outage;
	bool over; /* the barrier has ended: a thread of the user is to free it */
};

/* ---- The last barrier ---- */

static void free_closing(struct coll_closing *p)
{
	coll_comm_free(&p->comm);
	coll_outage_end(&p->outage);
	free(p);
}

static bool is_over(struct coll_closing *p)
{
	bool moved = false;
	coll_status st = p->timer.fault ? p->timer.fault : coll_run_poll(p->comm->run, &moved);
	uint64_t now;

	if (st == COLL_OK) {
		coll_last_call_compare(p->comm, &p->last);
		return true;
	}
	now = coll_clock_ns();
	if (coll_outage_is_late(&p->outage, p->comm->ctx))
		return true;
	if (st != COLL_AGAIN)
		return coll_comm_inquire(p->comm, &p->wait, &p->timer, p->comm->run, st) != COLL_OK;
	if (moved) {
		coll_wait_timer_moved(p->comm, &p->timer);
		return false;
	}
	return coll_comm_heed_alarm(p->comm, &p->wait, &p->timer) != COLL_OK ||
	       coll_comm_inspect(p->comm, &p->wait, &p->timer, now) != COLL_OK;
}

/* Keep the error of a close. If destroy no longer waits for this communicator, the error names
 * ranks of the job. */
static void keep_error(const struct coll_closing *p)
{
	const struct coll_comm *comm = p->comm;
	struct coll_close_error *w;

	if (!(comm->from_gossip || comm->ended == COLL_ERR_MISMATCH) || *p->error_out || !(w = malloc(sizeof(*w))))
		return;
	w->box = coll_comm_dead(comm) ? coll_comm_dead(comm)->box : comm->box;
	snprintf(w->message, sizeof(w->message), "%s", comm->lost.message);
	if (p->error_out == &comm->ctx->close_error && w->box.rank >= 0)
		w->box.rank = coll_comm_process(comm, w->box.rank);
	*p->error_out = w;
}

/* Communicators with memory of a device stay in the list. The lock is held. */
static void advance_locked(struct coll_context *ctx)
{
	for (struct coll_closing **at = &ctx->closings; *at;) {
		struct coll_closing *p = *at;

		if (p->over || !is_over(p)) {
			at = &p->next;
			continue;
		}
		keep_error(p);
		atomic_fetch_sub_explicit(&ctx->nclosing, 1, memory_order_relaxed);
		p->over = p->comm->stage != NULL;
		if (p->over)
			continue;
		*at = p->next;
		free_closing(p);
	}
}

void coll_comm_progress_closing(struct coll_context *ctx)
{
	if (pthread_mutex_trylock(&ctx->closing_lock) != 0)
		return;
	advance_locked(ctx);
	pthread_mutex_unlock(&ctx->closing_lock);
}

/* Free what advance_locked() has left. For threads of the user, without a lock: the driver may wait for streams. */
static void free_over(struct coll_context *ctx)
{
	struct coll_closing *list = NULL;

	pthread_mutex_lock(&ctx->closing_lock);
	for (struct coll_closing **at = &ctx->closings; *at;) {
		struct coll_closing *p = *at;

		if (!p->over) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		p->next = list;
		list = p;
	}
	pthread_mutex_unlock(&ctx->closing_lock);
	while (list) {
		struct coll_closing *p = list;

		list = p->next;
		free_closing(p);
	}
}

/* Whether comm is still closing. NULL: whether any communicator is, of this context and those that ended before it.
 * comm may have been freed, so its address is only compared. */
static bool is_closing(struct coll_context *ctx, const struct coll_comm *comm)
{
	bool others = false;
	struct coll_closing *p;

	for (struct coll_context *c = comm ? NULL : ctx->next_ended; c; c = c->next_ended) {
		coll_context_progress(c);
		coll_comm_progress_closing(c);
		others = others || atomic_load_explicit(&c->nclosing, memory_order_relaxed) > 0;
	}
	pthread_mutex_lock(&ctx->closing_lock);
	advance_locked(ctx);
	p = ctx->closings;
	while (p && (p->over || (comm && p->comm != comm)))
		p = p->next;
	pthread_mutex_unlock(&ctx->closing_lock);
	return p || others;
}

struct close_wait {
	struct coll_context *ctx;
	const struct coll_comm *comm;
	uint64_t deadline_ns;
};

/* The wait ends when comm (NULL: every communicator) has closed. It also ends when the time limit
 * has passed and few communicators are still closing. */
static coll_status look(void *arg, bool last, bool *moved)
{
	const struct close_wait *a = arg;

	if (!is_closing(a->ctx, a->comm))
		return COLL_OK;
	if (coll_clock_ns() > a->deadline_ns &&
	    atomic_load_explicit(&a->ctx->nclosing, memory_order_relaxed) <= CLOSINGS_MAX)
		return COLL_OK;
	if (last)
		return COLL_AGAIN;
	coll_context_progress(a->ctx);
	/* Other operations in flight must progress meanwhile. */
	*moved = coll_drive_try(a->ctx);
	return COLL_AGAIN;
}

/* The program has interrupted destroy: nothing that closes is waited for any longer. */
static void interrupt(void *arg)
{
	const struct close_wait *a = arg;

	for (struct coll_context *c = a->ctx; c; c = c->next_ended) {
		pthread_mutex_lock(&c->closing_lock);
		for (const struct coll_closing *p = c->closings; p; p = p->next)
			if (!p->over && (!a->comm || p->comm == a->comm))
				coll_comm_abort_locally(p->comm, 0, COLL_INTERRUPTED);
		pthread_mutex_unlock(&c->closing_lock);
		if (c->control)
			coll_control_flush(c->control, COLL_DELAY_FAILURE_FLUSH_MS);
	}
}

static void wait_for(struct coll_context *ctx, const struct coll_comm *comm, int ms)
{
	struct close_wait wait = {ctx, comm, coll_clock_ns() + (uint64_t)ms * MS};
	struct coll_wait_loop loop = {.ctxs = &ctx,
	                              .n = 1,
	                              .look = look,
	                              .interrupt = interrupt,
	                              .arg = &wait,
	                              .nap_ms = COLL_DELAY_DESTROY_LOOK_MS};

	coll_wait_loop_run(&loop);
}

/* Whether the barrier is pointless: a member has died, or the communicator has failed. With a dead
 * member the barrier cannot end. The living ranks would see it as a call that differs from theirs.
 * A death must settle before it counts. */
static coll_status look_for_death(void *arg, bool last, bool *moved)
{
	struct coll_comm *comm = arg;

	if (last)
		return COLL_AGAIN;
	coll_context_progress(comm->ctx);
	coll_comm_attend(comm, "comm_destroy");
	return comm->failed || !comm->death_ns ? COLL_OK : COLL_AGAIN;
}

static void interrupt_one(void *arg)
{
	coll_comm_abort(arg, COLL_INTERRUPTED);
}

static bool is_lost(struct coll_comm *comm)
{
	struct coll_wait_loop loop = {.ctxs = &comm->ctx,
	                              .n = 1,
	                              .look = look_for_death,
	                              .interrupt = interrupt_one,
	                              .arg = comm,
	                              .nap_ms = COLL_DELAY_DESTROY_LOOK_MS,
	                              .no_spin = true};

	coll_comm_attend(comm, "comm_destroy");
	if (!comm->failed && comm->death_ns)
		coll_wait_loop_run(&loop);
	return comm->failed != COLL_OK;
}

/* What is left of messages to a living rank may still be in this process. And where all of it is in shared memory, a
 * rank that has not looked yet takes the end of this process for one that left. */
static bool may_owe(struct coll_comm *comm, int rank)
{
	const struct coll_tag_fabric *tags = comm->tagged.own;

	return ((comm->pairs.peers && comm->pairs.peers[rank]) ||
	        (tags && tags->fabric.peers && tags->fabric.peers[rank]));
}

static coll_status look_for_owed(void *arg, bool last, bool *moved)
{
	struct coll_comm *comm = arg;
	const struct coll_record mine = {.comm = comm->id,
	                                 .kind = COLL_RECORD_DESTROY,
	                                 .sequence = comm->sequence,
	                                 .active = 1,
	                                 .waits_for = -1};

	if (last)
		return COLL_AGAIN;
	*moved = coll_context_progress(comm->ctx) > 0;
	coll_comm_attend(comm, "comm_destroy"); /* another member may die meanwhile */
	if (comm->ended || coll_outage_is_late(&comm->end->outage, comm->ctx))
		return COLL_OK;
	coll_record_publish(&comm->record, &mine);
	for (int r = 0; r < comm->size; r++)
		if (may_owe(comm, r) && !coll_rank_is_through(comm, &mine, r))
			return COLL_AGAIN;
	return COLL_OK;
}

/* A member has died, so there is no last barrier. But the process may end next, and others may be on their way to the
 * messages that it has sent them: it stays until they are here, too, for as long as it would wait in the barrier. */
static void stay_for_messages(struct coll_comm *comm)
{
	struct coll_wait_loop loop = {.ctxs = &comm->ctx,
	                              .n = 1,
	                              .look = look_for_owed,
	                              .interrupt = interrupt_one,
	                              .arg = comm,
	                              .nap_ms = COLL_DELAY_DESTROY_LOOK_MS,
	                              .no_spin = true,
	                              .until_ns = coll_clock_ns() + (uint64_t)coll_outage_late_ms(comm->ctx) * MS};

	coll_outage_begin(&comm->end->outage);
	if (coll_comm_dead(comm) && !comm->ended && atomic_load_explicit(&comm->ctx->users, memory_order_relaxed) == 1)
		coll_wait_loop_run(&loop);
	coll_outage_end(&comm->end->outage);
}

coll_status coll_comm_prepare_end(struct coll_comm *comm)
{
	comm->end = calloc(1, sizeof(*comm->end));
	return comm->end ? COLL_OK : COLL_ERR_MEMORY;
}

/* Begin the last barrier. False: no barrier runs, and the caller can free the communicator. */
static bool begin_closing(struct coll_comm *comm, struct coll_close_error **error_out)
{
	struct coll_context *ctx = comm->ctx;
	struct coll_closing *p;
	coll_status st;

	p = comm->end;
	if (comm->failed && coll_comm_dead(comm) &&
	    !atomic_load_explicit(&coll_comm_dead(comm)->reported, memory_order_relaxed)) {
		p->error_out = error_out;
		p->comm = comm;
		keep_error(p);
	}
	if (comm->size == 1 || comm->failed || atomic_load_explicit(&comm->aborted, memory_order_acquire))
		return false;
	comm->closing = true;
	p->comm = comm;
	coll_outage_begin(&p->outage);
	p->error_out = error_out;
	p->wait = (struct coll_wait){.runs = {comm->run}, .nruns = 1, .record = &comm->call};
	if (is_lost(comm)) {
		keep_error(p);
		return false;
	}
	st = coll_last_call_begin(comm, &p->last);
	if (st != COLL_OK) {
		keep_error(p);
		return false;
	}
	comm->end = NULL; /* from here on the closing list owns it */
	pthread_mutex_lock(&ctx->closing_lock);
	p->next = ctx->closings;
	ctx->closings = p;
	atomic_fetch_add_explicit(&ctx->nclosing, 1, memory_order_relaxed);
	pthread_mutex_unlock(&ctx->closing_lock);
	return true;
}

/* Destroy no longer waits for comm (NULL: for any), which may have been freed. From now on its error goes to the
 * context. */
static void hand_to_context(struct coll_context *ctx, const struct coll_comm *comm)
{
	pthread_mutex_lock(&ctx->closing_lock);
	for (struct coll_closing *p = ctx->closings; p; p = p->next)
		if (!comm || p->comm == comm)
			p->error_out = &ctx->close_error;
	pthread_mutex_unlock(&ctx->closing_lock);
}

/*
 * The last user of a context ends it, or leaves that to the last user of all contexts of a process that has all ranks:
 * one thread may destroy the communicators of all ranks one after the other. It waits for all communicators that are
 * closing, and gets the first error that no call has reported yet.
 */
static void end_context(struct coll_context *ctx, struct coll_close_error **error_out)
{
	if (ctx->group)
		hand_to_context(ctx, NULL);
	ctx = coll_context_end(ctx);
	if (!ctx)
		return;
	wait_for(ctx, NULL, coll_outage_late_ms(ctx) + COLL_DELAY_DESTROY_STAY_MS);
	for (struct coll_context *c = ctx; c; c = c->next_ended)
		free_over(c);
	while (ctx) {
		struct coll_context *next = ctx->next_ended;

		if (*error_out)
			free(ctx->close_error);
		else if ((*error_out = ctx->close_error))
			coll_log(&ctx->logger, COLL_LOG_ERROR, "%s", (*error_out)->message);
		coll_context_close(&ctx);
		ctx = next;
	}
}

void coll_comm_end_context(struct coll_context *ctx)
{
	struct coll_close_error *error_out = NULL;

	end_context(ctx, &error_out);
	free(error_out);
}

/* ---- Interface ---- */

coll_status coll_comm_destroy(coll_comm **out)
{
	struct coll_comm *comm = out ? *out : NULL;
	struct coll_close_error *error_out = NULL;
	struct coll_context *ctx;
	coll_status st = COLL_OK;

	if (!comm)
		return COLL_OK;
	if (!coll_fork_owns(comm->mark)) {
		*out = NULL;
		coll_comm_forget(comm);
		return COLL_OK;
	}
	if (coll_notify_forbids(comm->ctx, "comm_destroy"))
		return COLL_ERR_ARGUMENT;
	if (coll_noted_has(comm, NULL))
		return coll_comm_refuse(comm, "comm_destroy", COLL_ERR_ARGUMENT, "a group still has calls on it");
	*out = NULL;
	ctx = comm->ctx;
	coll_tag_cancel_all(comm);
	coll_capture_close(comm);
	coll_comm_drain(comm);
	coll_peer_stats_log(comm);
	coll_tag_bring_all(comm);
	coll_tag_end(comm);
	coll_operations_orphan(comm);
	if (begin_closing(comm, &error_out)) {
		wait_for(ctx, comm, COLL_DELAY_DESTROY_STAY_MS);
		if (atomic_load_explicit(&ctx->users, memory_order_relaxed) > 1)
			hand_to_context(ctx, comm); /* else destroy waits for it to its end */
	} else {
		stay_for_messages(comm);
		coll_comm_free(&comm);
	}
	free_over(ctx);
	if (coll_context_leave(ctx))
		end_context(ctx, &error_out);
	if (error_out) {
		st = error_out->box.status;
		coll_thread_error_keep(&error_out->box, error_out->message);
		free(error_out);
	}
	return st;
}

coll_status coll_comm_abort_with(coll_comm *comm, int exit_status, const char *reason)
{
	if (coll_entry_no_comm(comm, "comm_abort"))
		return COLL_ERR_ARGUMENT;
	if (coll_comm_abort_locally(comm, exit_status, reason) && comm->ctx->control)
		coll_control_flush(comm->ctx->control, COLL_DELAY_FAILURE_FLUSH_MS);
	return COLL_OK;
}

coll_status coll_comm_abort(coll_comm *comm, const char *reason)
{
	return coll_comm_abort_with(comm, 0, reason);
}
