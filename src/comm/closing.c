/*
 * The end of communicators: destroy and abort.
 *
 * No rank may leave while a peer still reads its memory: destroy ends with a bounded barrier.
 * Ranks may destroy several communicators in different orders, so no call waits long for
 * one of them. A communicator that other ranks have not destroyed yet is left closing. Idle
 * threads of the context advance it (coll_comm_progress_closing); it is freed when its barrier has ended or its
 * time is up. The last user of the context waits for all communicators that are closing, and closes it.
 *
 * Other ranks that are late, or that no longer wait for this rank, are not a failure of destroy.
 * A death is, and so is a failure that another rank has reported for the communicator: no other call
 * would return it to the user of this rank. Destroy returns such a close error. The last destroy of the
 * context returns those of communicators that were left closing.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "call/blocking.h"
#include "comm/closing.h"
#include "comm/create.h"
#include "control/gossip.h"
#include "core/error.h"
#include "core/thread_error.h"
#include "engine/run.h"
#include "progress/async.h"
#include "progress/drive.h"
#include "progress/group.h"
#include "progress/persistent.h"
#include "watch/diagnose.h"

enum {
	DESTROY_WAIT_MS = 3000, /* for the slowest peer, in all */
	STAY_MS = 20,           /* of them in destroy itself, unless it is the context's last */
	PARTINGS_MAX = 32,      /* as many are left behind */
	YIELDS = 200,           /* before the first sleep */
	SLEEP_MS = 5
};

static const uint64_t MS = 1000000;

/* Why an end failed. */
struct coll_last_words {
	struct coll_error_box box;
	char message[1024];
};

/* A communicator that its user has destroyed. */
struct coll_closing {
	struct coll_closing *next;      /* in ctx->partings */
	struct coll_last_words **heard; /* where its last words go: to destroy, or to the context */
	struct coll_comm *comm;
	struct coll_wait wait;
	struct coll_wait_timer timer;
	uint64_t deadline_ns;
	char token[2]; /* the barrier's buffers */
};

/* ---- The last barrier ---- */

static bool is_over(struct coll_closing *p)
{
	bool moved = false;
	coll_status st = p->timer.fault ? p->timer.fault : coll_run_poll(p->comm->run, &moved);
	uint64_t now;

	if (st == COLL_OK)
		return true;
	now = coll_clock_ns();
	if (now > p->deadline_ns)
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

/* The last words of an end nobody waits for alone are told in ranks of the job. */
static void say(const struct coll_closing *p)
{
	const struct coll_comm *comm = p->comm;
	struct coll_last_words *w;

	if (!comm->told || *p->heard || !(w = malloc(sizeof(*w))))
		return;
	w->box = comm->box;
	snprintf(w->message, sizeof(w->message), "%s", comm->lost.message);
	if (p->heard == &comm->ctx->last_words && w->box.rank >= 0)
		w->box.rank = coll_comm_process(comm, w->box.rank);
	*p->heard = w;
}

static void advance_locked(struct coll_context *ctx)
{
	for (struct coll_closing **at = &ctx->closings; *at;) {
		struct coll_closing *p = *at;

		if (!is_over(p)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		say(p);
		coll_comm_free(&p->comm);
		free(p);
		atomic_fetch_sub_explicit(&ctx->nclosing, 1, memory_order_relaxed);
	}
}

void coll_comm_progress_closing(struct coll_context *ctx)
{
	if (pthread_mutex_trylock(&ctx->closing_lock) != 0)
		return;
	advance_locked(ctx);
	pthread_mutex_unlock(&ctx->closing_lock);
}

/* Whether comm parts still; NULL: whether anything does. comm may be gone, so it is
 * compared only. */
static bool parts(struct coll_context *ctx, const struct coll_comm *comm)
{
	struct coll_closing *p;

	pthread_mutex_lock(&ctx->closing_lock);
	advance_locked(ctx);
	p = ctx->closings;
	while (p && comm && p->comm != comm)
		p = p->next;
	pthread_mutex_unlock(&ctx->closing_lock);
	return p != NULL;
}

struct awaited {
	struct coll_context *ctx;
	const struct coll_comm *comm;
};

static bool stay_awake(void *arg)
{
	const struct awaited *a = arg;

	return !parts(a->ctx, a->comm);
}

/* Until comm (NULL: everything) has parted, at most ms. */
static void wait_for(struct coll_context *ctx, const struct coll_comm *comm, int ms)
{
	const uint64_t deadline_ns = coll_clock_ns() + (uint64_t)ms * MS;
	struct awaited awaited = {ctx, comm};

	for (unsigned i = 0; parts(ctx, comm); i++) {
		if (coll_clock_ns() > deadline_ns &&
		    atomic_load_explicit(&ctx->nclosing, memory_order_relaxed) <= PARTINGS_MAX)
			return;
		coll_context_progress(ctx);
		/* What else is in flight must not wait for this. */
		coll_operations_sweep(ctx);
		coll_drive_try(ctx);
		if (i >= YIELDS || !coll_context_yield(ctx))
			coll_context_sleep(ctx, SLEEP_MS, stay_awake, &awaited);
	}
}

static bool nothing_stirs(void *arg)
{
	return false;
}

/* Whether there is nobody to wait for: a member is dead, or the communicator has failed.
 * With a dead member the barrier cannot end, and to the living it would be a call that
 * differs from theirs. A death settles first. */
static bool is_lost(struct coll_comm *comm)
{
	coll_comm_attend(comm, "comm_destroy");
	while (!comm->failed && comm->death_ns) {
		coll_context_progress(comm->ctx);
		coll_context_sleep(comm->ctx, SLEEP_MS, nothing_stirs, NULL);
		coll_comm_attend(comm, "comm_destroy");
	}
	return comm->failed != COLL_OK;
}

coll_status coll_comm_prepare_end(struct coll_comm *comm)
{
	comm->end = calloc(1, sizeof(*comm->end));
	return comm->end ? COLL_OK : COLL_ERR_MEMORY;
}

/* Begin the last barrier. False: there is none, the communicator can be freed. */
static bool begin_closing(struct coll_comm *comm, struct coll_last_words **heard)
{
	struct coll_context *ctx = comm->ctx;
	struct coll_closing *p;
	coll_status st;

	if (comm->size == 1 || comm->failed || atomic_load_explicit(&comm->aborted, memory_order_acquire))
		return false;
	p = comm->end;
	comm->timeout_ms = comm->timeout_ms < DESTROY_WAIT_MS ? comm->timeout_ms : DESTROY_WAIT_MS;
	comm->arrival_timeout_ms =
	        comm->arrival_timeout_ms < DESTROY_WAIT_MS ? comm->arrival_timeout_ms : DESTROY_WAIT_MS;
	comm->closing = true;
	p->comm = comm;
	p->heard = heard;
	p->wait = (struct coll_wait){.runs = {comm->run}, .nruns = 1, .record = &comm->call};
	p->deadline_ns = coll_clock_ns() + DESTROY_WAIT_MS * MS;
	if (is_lost(comm)) {
		say(p);
		return false;
	}
	st = coll_comm_begin(comm, &(struct coll_call){.kind = COLL_KIND_BARRIER,
	                                               .record_kind = COLL_RECORD_DESTROY,
	                                               .in = &p->token[0],
	                                               .out = &p->token[1],
	                                               .count = 1,
	                                               .type = COLL_U8});
	if (st != COLL_OK) {
		say(p);
		return false;
	}
	comm->end = NULL; /* the list's from here on */
	pthread_mutex_lock(&ctx->closing_lock);
	p->next = ctx->closings;
	ctx->closings = p;
	atomic_fetch_add_explicit(&ctx->nclosing, 1, memory_order_relaxed);
	pthread_mutex_unlock(&ctx->closing_lock);
	return true;
}

void coll_context_retain(struct coll_context *ctx)
{
	atomic_fetch_add_explicit(&ctx->users, 1, memory_order_relaxed);
}

/* The last user waits for all that parts, and hears what nobody was told yet. */
static void release(struct coll_context *ctx, struct coll_last_words **heard)
{
	/* The last user closes: acq_rel orders what the others did before it. */
	if (atomic_fetch_sub_explicit(&ctx->users, 1, memory_order_acq_rel) != 1)
		return;
	wait_for(ctx, NULL, DESTROY_WAIT_MS + STAY_MS);
	if (*heard)
		free(ctx->last_words);
	else
		*heard = ctx->last_words;
	if (*heard)
		coll_log(&ctx->logger, COLL_LOG_ERROR, "%s", (*heard)->message);
	coll_context_close(&ctx);
}

void coll_context_release(struct coll_context **ctx)
{
	struct coll_last_words *heard = NULL;

	release(*ctx, &heard);
	free(heard);
	*ctx = NULL;
}

/* destroy waits no longer for comm, which may be gone: what it meets from now on is the
 * context's to tell. */
static void leave(struct coll_context *ctx, const struct coll_comm *comm)
{
	pthread_mutex_lock(&ctx->closing_lock);
	for (struct coll_closing *p = ctx->closings; p; p = p->next)
		if (p->comm == comm)
			p->heard = &ctx->last_words;
	pthread_mutex_unlock(&ctx->closing_lock);
}

/* ---- Interface ---- */

coll_status coll_comm_destroy(coll_comm **out)
{
	struct coll_comm *comm = out ? *out : NULL;
	struct coll_last_words *heard = NULL;
	struct coll_context *ctx;
	coll_status st = COLL_OK;

	if (!comm)
		return COLL_OK;
	if (coll_group_has(comm, NULL))
		return coll_comm_refuse(comm, "comm_destroy", COLL_ERR_ARGUMENT, "a group still has calls on it");
	*out = NULL;
	ctx = comm->ctx;
	coll_comm_drain(comm);
	coll_operations_orphan(comm);
	if (begin_closing(comm, &heard)) {
		wait_for(ctx, comm, STAY_MS);
		if (atomic_load_explicit(&ctx->users, memory_order_relaxed) > 1)
			leave(ctx, comm); /* else it is waited for to its end */
	} else {
		coll_comm_free(&comm);
	}
	release(ctx, &heard);
	if (heard) {
		st = heard->box.status;
		coll_thread_error_keep(&heard->box, heard->message);
		free(heard);
	}
	return st;
}

coll_status coll_comm_abort(coll_comm *comm, const char *reason)
{
	struct coll_note note = {.kind = COLL_GOSSIP_FAIL, .status = COLL_ERR_ABORTED};

	if (!comm)
		return COLL_ERR_ARGUMENT;
	if (atomic_exchange(&comm->abort_claimed, true))
		return COLL_OK;
	note.process = comm->ctx->rank;
	note.origin = comm->ctx->rank;
	note.comm = comm->id;
	snprintf(comm->abort_text, sizeof(comm->abort_text), "[COLL-3301] %s aborted the communicator: %.160s",
	         coll_comm_name(comm, comm->rank).text, reason ? reason : "no reason given");
	snprintf(note.text, sizeof(note.text), "%s", comm->abort_text);
	atomic_store_explicit(&comm->aborted, true, memory_order_release);
	atomic_fetch_or_explicit(&comm->attention, COLL_ATTENTION_ALARM, memory_order_release);
	if (!comm->ctx->control)
		return COLL_OK;
	coll_control_tell(comm->ctx->control, &note);
	coll_control_flush(comm->ctx->control, 100);
	return COLL_OK;
}
