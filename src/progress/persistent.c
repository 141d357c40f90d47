/*
 * Persistent operations: a collective that is prepared once, with its own plan, run and scratch,
 * and started many times.
 *
 * Preparing is a collective call. The ranks run a barrier whose frames carry the signature of what
 * they prepare, so a mismatch shows at once.
 *
 * A start runs inline if it has no stream and nothing else is pending. It begins in start and
 * continues in wait, like the two halves of a blocking call. It needs no lock and no request in the
 * queue. When another operation comes along, the inline operation is handed over and becomes an
 * ordinary request.
 *
 * The rules for comm->inflight.current:
 *
 *  - The communicator's thread reads and takes it without a lock.
 *  - That thread may wait in the library for something else, such as a call on another
 *    communicator, while current is started. Then it sweeps what it has started itself.
 *  - By then another thread may use the communicator. So `starter` names the thread that may
 *    touch current without a lock. A new thread writes its own name there under the async lock.
 *    The sweep, under the async lock, takes only operations that still carry the name of its thread.
 *  - So either the new thread finds no inline operation any more, or the sweep finds another name.
 *  - A name is the address of the thread's coll_group. A new thread may get the address of a
 *    thread that has ended. This is harmless, because no other thread uses that name then.
 */
#include "progress/persistent.h"

#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/limits.h"
#include "core/error.h"
#include "engine/order.h"
#include "engine/run.h"
#include "progress/async.h"
#include "progress/begin.h"
#include "progress/drive.h"
#include "progress/group.h"
#include "progress/inflight.h"
#include "progress/notify.h"
#include "progress/request.h"
#include "progress/wait.h"

/* Makes the frames of a preparation differ from those of the call itself. */
static const uint64_t PREPARE_SALT = 0x70726570617265;

struct coll_operation {
	struct coll_link link;  /* comm->inflight.operations */
	struct coll_comm *comm; /* NULL: it was destroyed */
	struct coll_request request;
	struct coll_run *run;
	char *scratch;
	bool begun; /* the run was started with this signature and can be restarted */
	uint32_t signature;
	const struct coll_intra_op *intra;
	const struct coll_run_stage *stage; /* only compared */
	bool out;                           /* started and not waited for */
	bool noted;                         /* in a group that has not ended */
	coll_status status;
};

/* ---- Prepare ---- */

/* Compare what the ranks prepare, with a barrier that carries the signature. */
static coll_status compare(struct coll_operation *op)
{
	struct coll_comm *comm = op->comm;
	const struct coll_request *mine = &op->request;
	struct coll_request *r;
	coll_status st = coll_request_call(
	        comm, &(struct coll_call){.kind = COLL_KIND_BARRIER, .count = 1, .type = COLL_U8}, &r);

	if (st != COLL_OK)
		return st;
	/* The record names the prepared call. */
	r->signature = (uint32_t)coll_mix64(PREPARE_SALT ^ mine->signature);
	r->shown = mine;
	r->held = true;
	st = coll_request_submit(r, NULL, 0);
	if (st == COLL_OK)
		st = coll_request_await(r, -1);
	coll_request_recycle(r);
	return st;
}

static void dispose(struct coll_operation *op)
{
	coll_request_fini(&op->request);
	op->request = (struct coll_request){.comm = NULL};
	coll_run_destroy(&op->run);
	free(op->scratch);
	op->scratch = NULL;
}

static coll_status allocate(struct coll_operation *op)
{
	void *p = NULL;

	if (coll_run_create(&op->run) != COLL_OK ||
	    (op->request.scratch_bytes > 0 && posix_memalign(&p, 4096, op->request.scratch_bytes)))
		return coll_comm_refuse(op->comm, "operation_prepare", COLL_ERR_MEMORY,
		                        "no memory for %zu bytes of scratch", op->request.scratch_bytes);
	op->request.job.scratch = op->scratch = p;
	return COLL_OK;
}

coll_status coll_operation_make(struct coll_comm *comm, const struct coll_call *call, struct coll_operation **out)
{
	struct coll_operation *op = calloc(1, sizeof(*op));
	coll_status st;

	if (!op)
		return coll_comm_refuse(comm, "operation_prepare", COLL_ERR_MEMORY, "out of memory");
	coll_request_init(&op->request, comm);
	op->request.operation = op;
	op->comm = comm;
	st = coll_request_bind(&op->request, call);
	if (st == COLL_OK)
		st = allocate(op);
	if (st == COLL_OK)
		st = compare(op);
	if (st != COLL_OK) {
		dispose(op);
		free(op);
		return st;
	}
	op->request.held = true;
	coll_list_append(&comm->inflight.operations, &op->link);
	*out = op;
	return COLL_OK;
}

/* ---- Start ---- */

coll_status coll_operation_run(struct coll_request *r)
{
	struct coll_operation *op = r->operation;
	coll_status st;

	r->wait.runs[0] = op->run;
	r->wait.nruns = 1;
	if (op->begun && op->signature == r->job.signature && op->intra == r->job.intra && op->stage == r->job.stage) {
		coll_run_restart(op->run, r->call.in, r->call.out, r->job.sequence);
		coll_run_follow(op->run, r->job.after);
		return COLL_OK;
	}
	st = coll_run_start(op->run, &r->comm->collective.fabric, &r->job);
	op->begun = st == COLL_OK;
	op->signature = r->job.signature;
	op->intra = r->job.intra;
	op->stage = r->job.stage;
	return st;
}

static struct coll_operation *current(const struct coll_comm *comm)
{
	return atomic_load_explicit(&comm->inflight.current, memory_order_acquire);
}

/* From here on only this thread may touch current: see above. */
static void become_starter(struct coll_comm *comm)
{
	/* Relaxed: only this thread writes its own name. */
	if (atomic_load_explicit(&comm->inflight.starter, memory_order_relaxed) == &coll_group)
		return;
	coll_async_lock(comm->ctx);
	atomic_store_explicit(&comm->inflight.starter, &coll_group, memory_order_relaxed);
	pthread_mutex_unlock(&comm->ctx->async->lock);
}

/* Begin inline: nothing is pending and no earlier request blocks the operation. */
static coll_status start_inline(struct coll_operation *op)
{
	struct coll_comm *comm = op->comm;
	struct coll_request *r = &op->request;
	coll_status st;

	become_starter(comm);
	r->job.sequence = r->record.sequence = ++comm->sequence;
	r->job.after = NULL;
	r->stream = NULL;
	comm->box.status = COLL_OK;
	if (comm->prepared_for == op) {
		r->record.active = 1;
		coll_record_again(&comm->record, &r->record);
	} else {
		coll_request_sign(r);
		r->wait.record = &r->record;
		coll_record_publish(&comm->record, &r->record);
		/* A pairwise call notes its lengths at each start. */
		comm->prepared_for = r->call.pairwise || r->job.intra != r->intra ? NULL : op;
	}
	st = coll_operation_run(r);
	if (st != COLL_OK) {
		coll_record_retire(&comm->record, &r->record);
		return coll_comm_fail(comm, st, -1, "cannot start the plan: ", coll_status_string(st));
	}
	coll_run_poll(op->run, NULL); /* an error is sticky: wait returns it */
	/* Make the recorder entry while the first frames travel. */
	r->wait.entries[0] = coll_begin_entry(comm, &r->call, &r->record, r->signature, coll_run_way(op->run), 0);
	/* Release: a thread that sweeps finds this operation, or finds `inlined` set again. */
	atomic_store_explicit(&comm->inflight.current, op, memory_order_release);
	atomic_store_explicit(&comm->ctx->async->inlined, true, memory_order_release);
	return COLL_OK;
}

/* The lock is held, and this thread is the starter. */
static void adopt_current(struct coll_comm *comm)
{
	struct coll_request *r = &current(comm)->request;

	r->held = true;
	r->status = COLL_AGAIN;
	r->timer = (struct coll_wait_timer){0};
	atomic_store_explicit(&r->done, false, memory_order_relaxed);
	coll_inflight_adopt(r);
	/* Release, after PENDING was set: see coll_comm_busy(). */
	atomic_store_explicit(&comm->inflight.current, NULL, memory_order_release);
}

void coll_operation_hand_over(struct coll_comm *comm)
{
	if (!current(comm))
		return;
	become_starter(comm);
	comm->prepared_for = NULL;
	coll_async_lock(comm->ctx);
	if (current(comm))
		adopt_current(comm);
	pthread_mutex_unlock(&comm->ctx->async->lock);
}

/* Lock order: the async lock, then comms_lock. */
void coll_operations_sweep(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	bool others = false;

	/* Relaxed: a thread sees the operations that it started itself. */
	if (!atomic_load_explicit(&a->inlined, memory_order_relaxed))
		return;
	coll_async_lock(ctx);
	atomic_exchange_explicit(&a->inlined, false, memory_order_acquire);
	pthread_mutex_lock(&ctx->comms_lock);
	for (struct coll_comm *comm = ctx->comms; comm; comm = comm->next) {
		if (!current(comm))
			continue;
		if (atomic_load_explicit(&comm->inflight.starter, memory_order_relaxed) == &coll_group)
			adopt_current(comm);
		else
			others = true;
	}
	pthread_mutex_unlock(&ctx->comms_lock);
	if (others)
		atomic_store_explicit(&a->inlined, true, memory_order_release);
	pthread_mutex_unlock(&a->lock);
}

coll_status coll_operation_start(coll_operation *op, coll_stream *stream)
{
	static const char kind[] = "operation_start";
	coll_status st;

	if (!op || !op->comm)
		return COLL_ERR_ARGUMENT;
	st = coll_comm_usable(op->comm, kind);
	if (st != COLL_OK)
		return st;
	if (op->out)
		return coll_comm_refuse(op->comm, kind, COLL_ERR_ARGUMENT, "it was started and not waited for");
	if (stream && stream->ctx != op->comm->ctx)
		return coll_comm_refuse(op->comm, kind, COLL_ERR_ARGUMENT, "the stream belongs to another job");
	op->status = COLL_OK;
	if (coll_group.depth > 0) {
		coll_group_add(&op->request, stream);
		op->out = op->noted = true; /* without a stream: until the group has ended */
		return COLL_OK;
	}
	if (!stream && !op->comm->stage && !coll_comm_busy(op->comm))
		st = start_inline(op);
	else
		st = coll_request_launch(&op->request, stream);
	op->out = st == COLL_OK && !op->request.in_graph;
	op->status = st;
	return st;
}

void coll_operation_leaves_group(struct coll_request *r)
{
	r->operation->noted = false;
}

/* ---- Wait ---- */

void coll_operation_ended(struct coll_request *r)
{
	r->operation->out = r->operation->noted = false;
	r->operation->status = r->status;
}

static coll_status wait_inline(struct coll_operation *op)
{
	struct coll_comm *comm = op->comm;
	struct coll_request *r = &op->request;

	/* Relaxed: other threads only test whether it is NULL. */
	atomic_store_explicit(&comm->inflight.current, NULL, memory_order_relaxed);
	return coll_finish_inline(comm, &r->wait, &r->record,
	                          comm->ctx->dedicated_cores && r->call.count <= COLL_SHORT_COUNT);
}

coll_status coll_operation_wait(coll_operation *op, int timeout_ms)
{
	coll_status st;

	if (!op)
		return COLL_ERR_ARGUMENT;
	if (!op->out || !op->comm)
		return op->status;
	if (coll_notify_forbids(op->comm->ctx, "operation_wait"))
		return COLL_ERR_ARGUMENT;
	if (op->noted)
		return coll_comm_refuse(op->comm, "operation_wait", COLL_ERR_ARGUMENT, "its group has not ended");
	if (current(op->comm) == op)
		become_starter(op->comm);
	if (current(op->comm) == op && timeout_ms < 0) {
		st = wait_inline(op);
	} else {
		coll_operation_hand_over(op->comm);
		st = coll_request_await(&op->request, timeout_ms);
	}
	if (st == COLL_AGAIN)
		return st;
	op->out = false;
	op->status = st;
	return st;
}

coll_status coll_operation_destroy(coll_operation **operation)
{
	struct coll_operation *op = operation ? *operation : NULL;
	coll_status st;

	if (!op)
		return COLL_OK;
	if (coll_notify_forbids(NULL, "operation_destroy"))
		return COLL_ERR_ARGUMENT;
	if (op->noted)
		return coll_comm_refuse(op->comm, "operation_destroy", COLL_ERR_ARGUMENT, "its group has not ended");
	st = op->out ? coll_operation_wait(op, -1) : COLL_OK;
	*operation = NULL;
	if (op->comm) {
		if (op->comm->prepared_for == op)
			op->comm->prepared_for = NULL;
		coll_list_remove(&op->link);
		dispose(op);
	}
	free(op);
	return st;
}

void coll_operations_orphan(struct coll_comm *comm)
{
	while (!coll_list_empty(&comm->inflight.operations)) {
		struct coll_operation *op = COLL_ENTRY(comm->inflight.operations.next, struct coll_operation, link);

		coll_list_remove(&op->link);
		if (op->out)
			op->status = op->request.status;
		op->out = false;
		dispose(op);
		op->comm = NULL;
	}
}

/* ---- Progress by the caller ---- */

/* Hand the operation over, unless it has ended. A thread that only calls coll_progress() must meet
 * deadlines too, and only requests have them. */
static void look_at_current(struct coll_comm *comm)
{
	if (!current(comm))
		return;
	become_starter(comm);
	if (current(comm) && coll_run_poll(current(comm)->run, NULL) == COLL_AGAIN)
		coll_operation_hand_over(comm);
}

coll_status coll_progress(coll_comm *comm)
{
	const struct coll_async *a = comm ? comm->ctx->async : NULL;

	if (!comm || coll_notify_forbids(comm->ctx, "progress"))
		return COLL_ERR_ARGUMENT;
	look_at_current(comm);
	coll_operations_sweep(comm->ctx);
	coll_drive_try(comm->ctx);
	/* Graphs may start something at any time, but that is not pending. */
	return atomic_load_explicit(&a->pending, memory_order_acquire) <=
	                       atomic_load_explicit(&a->kept, memory_order_relaxed)
	               ? COLL_OK
	               : COLL_AGAIN;
}
