/*
 * The end of communicators: destroy and abort.
 *
 * Nobody may go while a peer still reads from it: destroy ends with a barrier, bounded,
 * whose failure is no error. Ranks may destroy several communicators in different
 * orders, so no call waits long for one of them: what the others have not come to yet is
 * left parting, advanced by whoever is idle in the context (coll_comm_part_some) and
 * freed when its barrier has ended or its time is up. The last user of the context waits
 * for all that part, and closes it.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "comm/async.h"

enum {
	DESTROY_WAIT_MS = 3000, /* for the slowest peer, in all */
	STAY_MS = 20,           /* of them in destroy itself, unless it is the context's last */
	PARTINGS_MAX = 32,      /* as many are left behind */
	YIELDS = 200,           /* before the first sleep */
	SLEEP_MS = 5
};

static const uint64_t MS = 1000000;

/* A communicator that its user has destroyed. */
struct coll_parting {
	struct coll_parting *next; /* in ctx->partings */
	struct coll_comm *comm;
	struct coll_wait wait;
	struct coll_patience patience;
	uint64_t deadline_ns;
	char token[2]; /* the barrier's buffers */
};

/* ---- The last barrier ---- */

static bool is_over(struct coll_parting *p)
{
	bool moved = false;
	coll_status st = p->patience.fault ? p->patience.fault : coll_run_poll(p->comm->run, &moved);
	uint64_t now;

	if (st == COLL_OK)
		return true;
	now = coll_clock_ns();
	if (now > p->deadline_ns)
		return true;
	if (st != COLL_AGAIN)
		return coll_comm_inquire(p->comm, &p->wait, &p->patience, p->comm->run, st) != COLL_OK;
	if (moved) {
		coll_patience_moved(&p->patience);
		return false;
	}
	return coll_comm_heed_alarm(p->comm, &p->wait, &p->patience) != COLL_OK ||
	       coll_comm_inspect(p->comm, &p->wait, &p->patience, now) != COLL_OK;
}

static void advance_locked(struct coll_context *ctx)
{
	for (struct coll_parting **at = &ctx->partings; *at;) {
		struct coll_parting *p = *at;

		if (!is_over(p)) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		coll_comm_free(&p->comm);
		free(p);
		atomic_fetch_sub_explicit(&ctx->nparting, 1, memory_order_relaxed);
	}
}

void coll_comm_part_some(struct coll_context *ctx)
{
	if (pthread_mutex_trylock(&ctx->parting_lock) != 0)
		return;
	advance_locked(ctx);
	pthread_mutex_unlock(&ctx->parting_lock);
}

/* Whether comm parts still; NULL: whether anything does. comm may be gone, so it is
 * compared only. */
static bool parts(struct coll_context *ctx, const struct coll_comm *comm)
{
	struct coll_parting *p;

	pthread_mutex_lock(&ctx->parting_lock);
	advance_locked(ctx);
	p = ctx->partings;
	while (p && comm && p->comm != comm)
		p = p->next;
	pthread_mutex_unlock(&ctx->parting_lock);
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
		    atomic_load_explicit(&ctx->nparting, memory_order_relaxed) <= PARTINGS_MAX)
			return;
		coll_context_progress(ctx);
		/* What else is in flight must not wait for this. */
		coll_operations_sweep(ctx);
		coll_drive_try(ctx);
		if (i < YIELDS)
			sched_yield();
		else
			coll_context_sleep(ctx, SLEEP_MS, stay_awake, &awaited);
	}
}

/* Begin the last barrier. False: there is none, the communicator can be freed. */
static bool begin_parting(struct coll_comm *comm)
{
	struct coll_context *ctx = comm->ctx;
	struct coll_parting *p;
	coll_status st;

	if (comm->size == 1 || comm->failed || atomic_load_explicit(&comm->aborted, memory_order_acquire))
		return false;
	p = calloc(1, sizeof(*p));
	if (!p)
		return false;
	comm->timeout_ms = comm->timeout_ms < DESTROY_WAIT_MS ? comm->timeout_ms : DESTROY_WAIT_MS;
	comm->arrival_timeout_ms =
	        comm->arrival_timeout_ms < DESTROY_WAIT_MS ? comm->arrival_timeout_ms : DESTROY_WAIT_MS;
	comm->parting = true;
	p->comm = comm;
	p->wait = (struct coll_wait){.runs = {comm->run}, .nruns = 1, .record = &comm->call};
	p->deadline_ns = coll_clock_ns() + DESTROY_WAIT_MS * MS;
	/* With a dead member the barrier cannot end, and to the living it would be a call that
	 * differs from theirs. */
	coll_comm_attend(comm, "comm_destroy");
	if (comm->failed || comm->death_ns) {
		free(p);
		return false;
	}
	st = coll_comm_begin(comm, &(struct coll_call){.kind = COLL_KIND_BARRIER,
	                                               .record_kind = COLL_RECORD_DESTROY,
	                                               .in = &p->token[0],
	                                               .out = &p->token[1],
	                                               .count = 1,
	                                               .type = COLL_U8});
	if (st != COLL_OK) {
		free(p);
		return false;
	}
	pthread_mutex_lock(&ctx->parting_lock);
	p->next = ctx->partings;
	ctx->partings = p;
	atomic_fetch_add_explicit(&ctx->nparting, 1, memory_order_relaxed);
	pthread_mutex_unlock(&ctx->parting_lock);
	return true;
}

void coll_context_retain(struct coll_context *ctx)
{
	atomic_fetch_add_explicit(&ctx->users, 1, memory_order_relaxed);
}

void coll_context_release(struct coll_context **ctx)
{
	/* The last user closes: acq_rel orders what the others did before it. */
	if (atomic_fetch_sub_explicit(&(*ctx)->users, 1, memory_order_acq_rel) == 1) {
		wait_for(*ctx, NULL, DESTROY_WAIT_MS + STAY_MS);
		coll_context_close(ctx);
	}
	*ctx = NULL;
}

/* ---- Interface ---- */

coll_status coll_comm_destroy(coll_comm **out)
{
	struct coll_comm *comm = out ? *out : NULL;
	struct coll_context *ctx;

	if (!comm)
		return COLL_OK;
	if (coll_group_has(comm, NULL))
		return coll_comm_refuse(comm, "comm_destroy", COLL_ERR_ARGUMENT, "a group has calls on it");
	*out = NULL;
	ctx = comm->ctx;
	coll_comm_drain(comm);
	coll_operations_orphan(comm);
	if (begin_parting(comm))
		wait_for(ctx, comm, STAY_MS);
	else
		coll_comm_free(&comm);
	coll_context_release(&ctx);
	return COLL_OK;
}

coll_status coll_comm_abort(coll_comm *comm, const char *reason)
{
	struct coll_note note = {.kind = COLL_NOTE_FAIL, .status = COLL_ERR_ABORTED};

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
