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
 * ordinary request: see inlined.c.
 */
#include "call/persistent.h"

#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/limits.h"
#include "call/begin.h"
#include "call/collective.h"
#include "call/issue.h"
#include "core/entry.h"
#include "core/error.h"
#include "core/thread_error.h"
#include "engine/order.h"
#include "engine/run.h"
#include "inflight/async.h"
#include "inflight/drive.h"
#include "inflight/inlined.h"
#include "inflight/notify.h"

/* Makes the frames of a preparation differ from those of the call itself. */
static const uint64_t PREPARE_SALT = 0x70726570617265;

struct coll_operation {
	struct coll_link link;  /* comm->inflight.operations */
	struct coll_comm *comm; /* NULL: it was destroyed */
	struct coll_collective_request collective;
	struct coll_run *run;
	char *scratch;
	bool begun; /* the run was started with this signature and can be restarted */
	uint32_t signature;
	const struct coll_intra_op *intra;
	const struct coll_run_stage *stage; /* only compared */
	bool out;                           /* started and not waited for */
	coll_status status;
};

static struct coll_operation *operation_of(struct coll_request *r)
{
	return COLL_ENTRY(r, struct coll_operation, collective.request);
}

/* ---- Prepare ---- */

/* Compare what the ranks prepare, with a barrier that carries the signature. */
static coll_status compare(struct coll_operation *op)
{
	struct coll_comm *comm = op->comm;
	const struct coll_collective_request *mine = &op->collective;
	struct coll_collective_request *c;
	coll_status st = coll_collective_make(
	        comm, &(struct coll_call){.kind = COLL_KIND_BARRIER, .count = 1, .type = COLL_U8}, &c);

	if (st != COLL_OK)
		return st;
	/* The record names the prepared call. */
	c->signature = (uint32_t)coll_mix64(PREPARE_SALT ^ mine->signature);
	c->named = mine;
	c->request.held = true;
	st = coll_request_submit(&c->request, NULL, 0);
	if (st == COLL_OK)
		st = coll_request_await(&c->request, -1);
	else
		coll_comm_keep(comm, st);
	coll_request_recycle(&c->request);
	return st;
}

static void dispose(struct coll_operation *op)
{
	coll_request_fini(&op->collective.request);
	coll_run_destroy(&op->run);
	free(op->scratch);
	op->scratch = NULL;
}

static coll_status allocate(struct coll_operation *op)
{
	void *p = NULL;

	if (coll_run_create(&op->run) != COLL_OK ||
	    (op->collective.scratch_bytes > 0 && posix_memalign(&p, 4096, op->collective.scratch_bytes)))
		return coll_comm_refuse(op->comm, "operation_prepare", COLL_ERR_MEMORY,
		                        "no memory for %zu bytes of scratch", op->collective.scratch_bytes);
	op->collective.job.scratch = op->scratch = p;
	return COLL_OK;
}

/* ---- Start ---- */

static coll_status run(struct coll_collective_request *c)
{
	struct coll_operation *op = operation_of(&c->request);
	coll_status st;

	c->request.wait.runs[0] = op->run;
	if (op->begun && op->signature == c->job.signature && op->intra == c->job.intra && op->stage == c->job.stage) {
		coll_run_restart(op->run, c->call.in, c->call.out, c->job.sequence);
		coll_run_follow(op->run, c->job.after);
		return COLL_OK;
	}
	st = coll_run_start(op->run, &op->comm->collective.fabric, &c->job);
	op->begun = st == COLL_OK;
	op->signature = c->job.signature;
	op->intra = c->job.intra;
	op->stage = c->job.stage;
	return st;
}

static coll_status start(struct coll_request *r)
{
	return coll_collective_start(r, run);
}

/* The request has ended, or was not submitted. The caller may start the operation again. */
static void ended(struct coll_request *r)
{
	struct coll_operation *op = operation_of(r);

	op->out = r->noted = false;
	op->status = r->status;
}

static const struct coll_request_kind operation_kind = {.name = "operation",
                                                        .later = true,
                                                        .enter = coll_collective_enter,
                                                        .start = start,
                                                        .poll = coll_drive_poll,
                                                        .limited = coll_collective_limited,
                                                        .leave = coll_collective_leave,
                                                        .recycle = ended,
                                                        .fini = coll_collective_fini};

coll_status coll_operation_make(struct coll_comm *comm, const struct coll_call *call, struct coll_operation **out)
{
	struct coll_operation *op = calloc(1, sizeof(*op));
	coll_status st;

	if (!op)
		return coll_comm_refuse(comm, "operation_prepare", COLL_ERR_MEMORY, "out of memory");
	coll_request_init(&op->collective.request, comm, &operation_kind, COLL_IS_COLLECTIVE);
	op->comm = comm;
	st = coll_collective_bind(&op->collective, call);
	if (st == COLL_OK)
		st = allocate(op);
	if (st == COLL_OK)
		st = compare(op);
	if (st != COLL_OK) {
		dispose(op);
		free(op);
		return st;
	}
	op->collective.request.held = true;
	coll_list_append(&comm->inflight.operations, &op->link);
	*out = op;
	return COLL_OK;
}

/* Begin inline: nothing is pending and no earlier request blocks the operation. */
static coll_status start_inline(struct coll_operation *op)
{
	struct coll_comm *comm = op->comm;
	struct coll_collective_request *c = &op->collective;
	struct coll_request *r = &c->request;
	coll_status st;

	coll_inlined_become_starter(comm);
	c->job.sequence = r->record.sequence = ++comm->sequence;
	c->job.after = NULL;
	r->stream = NULL;
	comm->box.status = COLL_OK;
	if (comm->prepared_for == op) {
		r->record.active = 1;
		coll_record_again(&comm->record, &r->record);
	} else {
		coll_collective_sign(c);
		r->wait.record = &r->record;
		coll_record_publish(&comm->record, &r->record);
		/* A pairwise call notes its lengths at each start. */
		comm->prepared_for = c->call.pairwise || c->job.intra != c->intra ? NULL : op;
	}
	st = run(c);
	r->wait.nruns = 1;
	if (st != COLL_OK) {
		coll_record_retire(&comm->record, &r->record);
		st = coll_comm_fail(comm, st, -1, "cannot start the plan: ", coll_status_string(st));
		return coll_comm_keep(comm, st);
	}
	coll_run_poll(op->run, NULL); /* an error is sticky: wait returns it */
	/* Make the recorder entry while the first frames travel. */
	r->wait.entries[0] = coll_begin_entry(comm, &c->call, &r->record, c->signature, coll_run_way(op->run), 0);
	coll_inlined_set(r);
	return COLL_OK;
}

/* comm is NULL when its communicator has been destroyed. */
static bool forbidden(const struct coll_operation *op, const char *kind)
{
	return !(op && !op->comm) && coll_entry_forbids(op ? op->comm->ctx : NULL, "operation", kind);
}

coll_status coll_operation_start(coll_operation *op, coll_stream *stream)
{
	static const char kind[] = "operation_start";
	struct coll_request *r = op ? &op->collective.request : NULL;
	bool submitted;
	coll_status st;

	if (forbidden(op, kind))
		return COLL_ERR_ARGUMENT;
	if (!op->comm)
		return coll_thread_error_say(kind, COLL_ERR_ARGUMENT, "its communicator has been destroyed");
	st = coll_comm_usable(op->comm, kind, false);
	if (st != COLL_OK)
		return st;
	if (op->out)
		return coll_comm_refuse(op->comm, kind, COLL_ERR_ARGUMENT, "it was started and not waited for");
	if (stream && stream->ctx != op->comm->ctx)
		return coll_comm_refuse(op->comm, kind, COLL_ERR_ARGUMENT, "the stream belongs to another job");
	op->status = COLL_OK;
	if (coll_group.depth > 0) {
		coll_noted_add(r, stream);
		op->out = true; /* without a stream: until the group has ended */
		return COLL_OK;
	}
	if (!stream && !op->comm->stage && !coll_comm_busy(op->comm)) {
		st = start_inline(op);
		submitted = st == COLL_OK;
	} else {
		st = coll_request_launch(r, stream, &submitted);
	}
	op->out = submitted;
	op->status = st;
	return st;
}

/* ---- Wait ---- */

static coll_status wait_inline(struct coll_operation *op)
{
	struct coll_comm *comm = op->comm;
	struct coll_request *r = &op->collective.request;

	/* Relaxed: other threads only test whether it is NULL. */
	atomic_store_explicit(&comm->inflight.current, NULL, memory_order_relaxed);
	return coll_finish_inline(comm, &r->wait, &r->record,
	                          comm->ctx->dedicated_cores && op->collective.call.count <= COLL_SHORT_COUNT);
}

coll_status coll_operation_wait(coll_operation *op, int timeout_ms)
{
	struct coll_request *r = op ? &op->collective.request : NULL;
	coll_status st;

	if (forbidden(op, "operation_wait"))
		return COLL_ERR_ARGUMENT;
	if ((!op->out || !op->comm) && op->status == COLL_OK)
		return COLL_OK;
	if (!op->comm)
		return coll_thread_error_say("operation_wait", op->status, NULL);
	if (!op->out)
		return coll_comm_keep(op->comm, op->status);
	if (coll_notify_forbids(op->comm->ctx, "operation_wait"))
		return COLL_ERR_ARGUMENT;
	if (r->noted)
		return coll_comm_refuse(op->comm, "operation_wait", COLL_ERR_ARGUMENT, "its group has not ended");
	if (coll_inlined_current(op->comm) == r)
		coll_inlined_become_starter(op->comm);
	if (coll_inlined_current(op->comm) == r && timeout_ms < 0) {
		st = wait_inline(op);
	} else {
		coll_inlined_hand_over(op->comm);
		st = coll_request_await(r, timeout_ms);
	}
	if (st == COLL_AGAIN)
		return st;
	op->out = false;
	op->status = st;
	return st;
}

coll_status coll_operation_test(coll_operation *op)
{
	const struct coll_request *r = op ? &op->collective.request : NULL;

	if (forbidden(op, "operation_test"))
		return COLL_ERR_ARGUMENT;
	if (op->out && op->comm && coll_inlined_current(op->comm) == r) {
		if (coll_notify_forbids(op->comm->ctx, "operation_test"))
			return COLL_ERR_ARGUMENT;
		coll_inlined_become_starter(op->comm);
		/* It has ended well: the wait takes its result without a lock. An error takes time to explain, so
		 * it is left to the looks of a request. */
		if (coll_run_poll(op->run, NULL) == COLL_OK)
			return coll_operation_wait(op, -1);
	}
	return coll_operation_wait(op, 0);
}

coll_status coll_operation_destroy(coll_operation **operation)
{
	struct coll_operation *op = operation ? *operation : NULL;
	const struct coll_request *r = op ? &op->collective.request : NULL;
	coll_status st;

	if (!op)
		return COLL_OK;
	if (op->comm && !coll_fork_owns(op->comm->mark)) {
		*operation = NULL;
		coll_list_remove(&op->link);
		dispose(op);
		free(op);
		return COLL_OK;
	}
	if (coll_notify_forbids(NULL, "operation_destroy"))
		return COLL_ERR_ARGUMENT;
	if (r->noted)
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
			op->status = op->collective.request.status;
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
	struct coll_request *r;

	if (!coll_inlined_current(comm))
		return;
	coll_inlined_become_starter(comm);
	r = coll_inlined_current(comm);
	if (r && coll_run_poll(r->wait.runs[0], NULL) == COLL_AGAIN)
		coll_inlined_hand_over(comm);
}

coll_status coll_progress(coll_comm *comm)
{
	const struct coll_async *a;

	if (coll_entry_no_comm(comm, "progress") || coll_notify_forbids(comm->ctx, "progress"))
		return COLL_ERR_ARGUMENT;
	a = comm->ctx->async;
	look_at_current(comm);
	coll_inlined_sweep(comm->ctx);
	coll_drive_try(comm->ctx);
	/* Graphs may start something at any time, but that is not pending. */
	return atomic_load_explicit(&a->pending, memory_order_acquire) <=
	                       atomic_load_explicit(&a->kept, memory_order_relaxed)
	               ? COLL_OK
	               : COLL_AGAIN;
}
