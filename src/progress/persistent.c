/*
 * Persistent operations: a collective prepared once, with plan, run and scratch of its
 * own, and started many times.
 *
 * Preparing is a call of its own: ranks exchange the signature of what they prepare (a
 * barrier whose frames carry it), so a mismatch is found then. A start without
 * a stream, when nothing else is pending, runs inline: it begins in start and continues in
 * wait, like a blocking call in two halves, without a lock and without a request. As
 * soon as another operation is started it is handed over and becomes a request like others.
 *
 * Who takes comm->flight.current away. The communicator's thread does as it likes, without a
 * lock. It may also be inside the library for something else, another communicator's call,
 * which it made while current is started: then it sweeps what it has started itself. But a
 * communicator may have passed to another thread by then, so: `starter` names the thread that
 * may touch current without a lock. Another one makes itself that first, under the async
 * lock; and the sweep, under the async lock, takes what still has this thread's name. So
 * either the new thread finds nothing inline any more, or the sweep finds another name.
 * A name is the address of the thread's coll_group. A new thread may get the address
 * of one that has ended; this is harmless, since no other thread uses it then.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/hash.h"
#include "core/error.h"
#include "engine/order.h"
#include "engine/run.h"
#include "progress/async.h"
#include "progress/drive.h"
#include "progress/group.h"
#include "progress/inflight.h"
#include "progress/persistent.h"
#include "progress/request.h"
#include "progress/wait.h"

/* What is prepared is not taken for a call of it. */
static const uint64_t PREPARE_SALT = 0x70726570617265;

enum { QUICK_COUNT = 64 };

struct coll_operation {
	struct coll_link link;  /* comm->flight.operations */
	struct coll_comm *comm; /* NULL: it is gone */
	struct coll_request request;
	struct coll_memo mark; /* of this address: what comm->prepared says when the record is ours */
	struct coll_run *run;
	char *scratch;
	bool begun; /* the run has been started before with this signature: it can be started again */
	uint32_t signature;
	const struct coll_intra_op *intra;
	bool out;   /* started and not waited for */
	bool noted; /* in a group that has not ended */
	coll_status status;
};

static_assert((int)COLL_ALL_REDUCE == (int)COLL_KIND_ALL_REDUCE && (int)COLL_BARRIER == (int)COLL_KIND_BARRIER &&
                      (int)COLL_REDUCE == (int)COLL_KIND_REDUCE && (int)COLL_BROADCAST == (int)COLL_KIND_BROADCAST &&
                      (int)COLL_ALL_GATHER == (int)COLL_KIND_ALL_GATHER &&
                      (int)COLL_REDUCE_SCATTER == (int)COLL_KIND_REDUCE_SCATTER &&
                      (int)COLL_ALL_TO_ALL == (int)COLL_KIND_ALL_TO_ALL && (int)COLL_GATHER == (int)COLL_KIND_GATHER &&
                      (int)COLL_SCATTER == (int)COLL_KIND_SCATTER && (int)COLL_SCAN == (int)COLL_KIND_SCAN,
              "the public kinds are the internal ones");

/* ---- Prepare ---- */

/* The call of a description, through the entry point that checks its arguments. */
static coll_status call(const coll_operation_desc *d, coll_comm *comm)
{
	switch (d->kind) {
	case COLL_ALL_REDUCE: return coll_all_reduce(d->in, d->out, d->count, d->type, d->op, comm, NULL);
	case COLL_REDUCE: return coll_reduce(d->in, d->out, d->count, d->type, d->op, d->root, comm, NULL);
	case COLL_BROADCAST: return coll_broadcast(d->in, d->out, d->count, d->type, d->root, comm, NULL);
	case COLL_ALL_GATHER:
		if (d->ragged)
			return coll_all_gatherv(d->in, d->out, d->out_counts, d->out_offsets, d->type, comm, NULL);
		return coll_all_gather(d->in, d->out, d->count, d->type, comm, NULL);
	case COLL_REDUCE_SCATTER:
		if (d->ragged)
			return coll_reduce_scatterv(d->in, d->out, d->in_counts, d->in_offsets, d->type, d->op, comm,
			                            NULL);
		return coll_reduce_scatter(d->in, d->out, d->count, d->type, d->op, comm, NULL);
	case COLL_ALL_TO_ALL:
		if (d->ragged)
			return coll_all_to_allv(d->in, d->in_counts, d->in_offsets, d->out, d->out_counts,
			                        d->out_offsets, d->type, comm, NULL);
		return coll_all_to_all(d->in, d->out, d->count, d->type, comm, NULL);
	case COLL_GATHER:
		if (d->ragged)
			return coll_gatherv(d->in, d->count, d->out, d->out_counts, d->out_offsets, d->type, d->root,
			                    comm, NULL);
		return coll_gather(d->in, d->out, d->count, d->type, d->root, comm, NULL);
	case COLL_SCATTER:
		if (d->ragged)
			return coll_scatterv(d->in, d->in_counts, d->in_offsets, d->out, d->count, d->type, d->root,
			                     comm, NULL);
		return coll_scatter(d->in, d->out, d->count, d->type, d->root, comm, NULL);
	case COLL_SCAN: return coll_scan(d->in, d->out, d->count, d->type, d->op, comm, NULL);
	case COLL_BARRIER: return coll_barrier(comm, NULL);
	default:
		return coll_comm_refuse(comm, "operation_prepare", COLL_ERR_ARGUMENT, "%d is not a coll_collective",
		                        (int)d->kind);
	}
}

/* Bind the operation's request to the call, which goes no further than that. */
static coll_status bind(struct coll_operation *op, const coll_operation_desc *d)
{
	coll_status st;

	coll_group.capture = &op->request;
	coll_group.depth++;
	st = call(d, op->comm);
	coll_group.depth--;
	coll_group.capture = NULL;
	return st;
}

/* All ranks prepare the same: a barrier that carries the signature. */
static coll_status compare(struct coll_operation *op)
{
	struct coll_comm *comm = op->comm;
	const struct coll_request *mine = &op->request;
	struct coll_request *r;
	coll_status st = coll_request_call(
	        comm, &(struct coll_call){.kind = COLL_KIND_BARRIER, .count = 1, .type = COLL_U8}, &r);

	if (st != COLL_OK)
		return st;
	/* The record names what is prepared. */
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

static coll_status equip(struct coll_operation *op)
{
	void *p = NULL;

	if (coll_run_create(&op->run) != COLL_OK ||
	    (op->request.scratch_bytes > 0 && posix_memalign(&p, 4096, op->request.scratch_bytes)))
		return coll_comm_refuse(op->comm, "operation_prepare", COLL_ERR_MEMORY,
		                        "no memory for %zu bytes of scratch", op->request.scratch_bytes);
	op->request.job.scratch = op->scratch = p;
	return COLL_OK;
}

coll_status coll_operation_prepare(coll_operation **out, const coll_operation_desc *d, coll_comm *comm)
{
	static const char kind[] = "operation_prepare";
	struct coll_operation *op;
	coll_status st;

	if (!comm)
		return COLL_ERR_ARGUMENT;
	if (!out || !d || d->struct_size != sizeof(*d))
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT,
		                        "no operation, no description, or one not made by "
		                        "COLL_OPERATION_DESC_INIT");
	if (coll_group.depth > 0)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "not inside a group");
	op = calloc(1, sizeof(*op));
	if (!op)
		return coll_comm_refuse(comm, kind, COLL_ERR_MEMORY, "out of memory");
	coll_request_init(&op->request, comm);
	op->request.operation = op;
	op->comm = comm;
	st = bind(op, d);
	if (st == COLL_OK)
		st = equip(op);
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
	if (op->begun && op->signature == r->job.signature && op->intra == r->job.intra) {
		coll_run_restart(op->run, r->call.in, r->call.out, r->job.sequence);
		coll_run_follow(op->run, r->job.after);
		return COLL_OK;
	}
	st = coll_run_start(op->run, &r->comm->collective.fabric, &r->job);
	op->begun = st == COLL_OK;
	op->signature = r->job.signature;
	op->intra = r->job.intra;
	return st;
}

static struct coll_operation *current(const struct coll_comm *comm)
{
	return atomic_load_explicit(&comm->inflight.current, memory_order_acquire);
}

/* From here on this thread alone may touch current: see above. */
static void become_starter(struct coll_comm *comm)
{
	/* Relaxed: this thread's own name is only written by itself. */
	if (atomic_load_explicit(&comm->inflight.starter, memory_order_relaxed) == &coll_group)
		return;
	coll_async_lock(comm->ctx);
	atomic_store_explicit(&comm->inflight.starter, &coll_group, memory_order_relaxed);
	pthread_mutex_unlock(&comm->ctx->async->lock);
}

/* Nothing is pending and nothing to be waited for: begin here and now. */
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
	if (comm->prepared == &op->mark) {
		r->record.active = 1;
		coll_record_again(&comm->record, &r->record);
	} else {
		coll_request_sign(r);
		r->wait.record = &r->record;
		coll_record_publish(&comm->record, &r->record);
		/* Its lengths are noted at each start. */
		comm->prepared = r->call.pairwise || r->job.intra != r->intra ? NULL : &op->mark;
	}
	st = coll_operation_run(r);
	if (st != COLL_OK) {
		coll_record_retire(&comm->record, &r->record);
		return coll_comm_fail(comm, st, -1, "cannot start the plan: ", coll_status_string(st));
	}
	coll_run_poll(op->run, NULL); /* an error is sticky: met again in wait */
	/* Written down while the first frames travel. */
	r->wait.entries[0] = coll_recorder_begin(&comm->recorder, r->job.sequence,
	                                         coll_entry_what(r->signature, r->record.kind, r->record.type,
	                                                         r->record.op, coll_run_way(op->run), false),
	                                         r->call.count, r->call.root, 0);
	/* Release: whoever sweeps for one finds it, or finds `inlined` set anew. */
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
	comm->prepared = NULL;
	coll_async_lock(comm->ctx);
	if (current(comm))
		adopt_current(comm);
	pthread_mutex_unlock(&comm->ctx->async->lock);
}

/* The lists' locks in the order of all: async, communicators. */
void coll_operations_sweep(struct coll_context *ctx)
{
	struct coll_async *a = ctx->async;
	bool others = false;

	/* Relaxed: what this thread has started itself it sees. */
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
	if (!stream && !coll_comm_busy(op->comm))
		st = start_inline(op);
	else
		st = coll_request_submit(&op->request, stream, 0);
	op->out = st == COLL_OK;
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
	coll_status st;

	/* Relaxed: no other thread looks further than whether there is one. */
	atomic_store_explicit(&comm->inflight.current, NULL, memory_order_relaxed);
	/* As in blocking calls: a small one that ends at once is not timed. */
	if (comm->ctx->dedicated_cores && r->call.count <= QUICK_COUNT &&
	    coll_comm_wait_eagerly(comm, &r->wait) == COLL_OK) {
		coll_record_retire(&comm->record, &r->record);
		coll_recorder_way(r->wait.entries[0], coll_run_way(op->run));
		coll_recorder_end_quick(r->wait.entries[0]);
		return COLL_OK;
	}
	st = coll_comm_wait(comm, &r->wait);
	coll_record_retire(&comm->record, &r->record);
	coll_recorder_way(r->wait.entries[0], coll_run_way(op->run));
	coll_recorder_end(&comm->recorder, r->wait.entries[0], st);
	return st;
}

coll_status coll_operation_wait(coll_operation *op, int timeout_ms)
{
	coll_status st;

	if (!op)
		return COLL_ERR_ARGUMENT;
	if (!op->out || !op->comm)
		return op->status;
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
	if (op->noted)
		return coll_comm_refuse(op->comm, "operation_destroy", COLL_ERR_ARGUMENT, "its group has not ended");
	st = op->out ? coll_operation_wait(op, -1) : COLL_OK;
	*operation = NULL;
	if (op->comm) {
		if (op->comm->prepared == &op->mark)
			op->comm->prepared = NULL;
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

/* A request from then on, unless it has come to its end: whoever only asks for progress must
 * meet deadlines too, which are watched for requests. */
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
	if (!comm)
		return COLL_ERR_ARGUMENT;
	look_at_current(comm);
	coll_operations_sweep(comm->ctx);
	coll_drive_try(comm->ctx);
	return atomic_load_explicit(&comm->ctx->async->pending, memory_order_acquire) == 0 ? COLL_OK : COLL_AGAIN;
}
