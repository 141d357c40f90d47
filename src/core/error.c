/*
 * Errors of a communicator: kept for coll_last_error(), and sent to the other ranks
 * when the communicator is lost.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/messages.h"
#include "control/gossip.h"
#include "core/error.h"
#include "core/fabric.h"
#include "inspect/dump.h"
#include "intra/zero_copy.h"
#include "progress/async.h"

enum { FLUSH_MS = 100 };

struct coll_rank_name coll_comm_name(const struct coll_comm *comm, int rank)
{
	struct coll_rank_name name;
	const bool known = rank >= 0 && rank < comm->size;

	if (known && coll_comm_process(comm, rank) != rank)
		snprintf(name.text, sizeof(name.text), "rank %d (rank %d of the job)", rank,
		         coll_comm_process(comm, rank));
	else
		snprintf(name.text, sizeof(name.text), "rank %d", rank);
	return name;
}

/* Fill what coll_last_error() returns from a box. */
static void expose(const struct coll_comm *comm, const struct coll_error_box *b, struct coll_told *told)
{
	const struct coll_message_text m = coll_message_split(b->status, b->message);

	snprintf(told->message, sizeof(told->message), "rank %d of %d: %s%s%s%s", comm->rank, comm->size, b->kind,
	         b->kind[0] ? ": " : "", m.text, m.tag);
	told->error = (coll_error){.status = b->status,
	                           .rank = b->rank,
	                           .host = b->host,
	                           .operation = b->operation,
	                           .kind = b->kind,
	                           .step = b->step,
	                           .link = b->link,
	                           .elapsed_s = b->elapsed_s,
	                           .message = told->message};
}

/* When a failed call returns, its buffers belong to the caller again. So the channels are
 * closed first, which revokes memory that was lent to peers. Otherwise a peer could read what the
 * caller writes next as data of the call. The runs of a failed communicator are polled
 * no more. */
static void withdraw(struct coll_comm *comm)
{
	/* Operations that were started inline were handed over by the thread that found the failure. */
	assert(!atomic_load_explicit(&comm->inflight.current, memory_order_relaxed));
	coll_intra_revoke(comm->intra);
	coll_comm_fabric_close(&comm->collective);
	coll_comm_fabric_close(&comm->pairs);
}

/* Other ranks must receive the cause before this process ends. So the thread that reports a
 * failure first waits until the note is sent. A failure that was reported before was sent by the
 * thread that reported it; the caller of an abort flushes it. */
static void tell(struct coll_comm *comm, struct coll_note *note, const char *cause)
{
	struct coll_control *control = comm->ctx->control;

	if (!control)
		return;
	note->comm = comm->id;
	note->operation = comm->sequence;
	snprintf(note->text, sizeof(note->text), "%.255s", cause);
	if (coll_control_tell(control, note) && !atomic_load_explicit(&comm->aborted, memory_order_relaxed))
		coll_control_flush(control, FLUSH_MS);
}

/* The network first, then the memory, then what may take its time: the log is the user's. */
coll_status coll_comm_fail(struct coll_comm *comm, coll_status status, int culprit, const char *cause,
                           const char *circumstances)
{
	struct coll_note note = {.kind = COLL_GOSSIP_FAIL, .status = status, .process = -1, .origin = comm->ctx->rank};
	struct coll_error_box *b = &comm->box;
	struct coll_message_text m;

	if (comm->failed)
		return comm->failed;
	b->status = comm->failed = status;
	b->rank = culprit;
	snprintf(b->message, sizeof(b->message), "%.400s%.200s", cause, circumstances);
	if (culprit >= 0 && culprit < comm->size) {
		const struct coll_opened_transport *opened;

		note.process = coll_comm_process(comm, culprit);
		opened = comm->ctx->processes[note.process].opened;
		snprintf(b->host, sizeof(b->host), "%s", coll_comm_peer_info(comm, culprit)->host_name);
		if (opened)
			snprintf(b->link, sizeof(b->link), "%s", opened->table.name);
	}
	expose(comm, b, &comm->lost);
	if (!comm->closing)
		tell(comm, &note, cause);
	withdraw(comm);
	if (comm->closing)
		return status;
	m = coll_message_split(status, b->message);
	coll_log(&comm->ctx->logger, COLL_LOG_ERROR, "%s%s%s%s", b->kind, b->kind[0] ? ": " : "", m.text, m.tag);
	coll_dump_failure(comm->ctx, comm->lost.message);
	return status;
}

coll_status coll_comm_refuse(struct coll_comm *comm, const char *kind, coll_status status, const char *format, ...)
{
	/* Not the box of calls: others may be writing there about what is in flight. */
	struct coll_error_box *b = &comm->refusal;
	struct coll_message_text m;
	va_list ap;

	coll_error_clear(b);
	b->status = status;
	snprintf(b->kind, sizeof(b->kind), "%s", kind);
	va_start(ap, format);
	vsnprintf(b->message, sizeof(b->message), format, ap);
	va_end(ap);
	expose(comm, b, &comm->refused);
	m = coll_message_split(status, b->message);
	coll_log(&comm->ctx->logger, COLL_LOG_INFO, "%s refused: %s%s", kind, m.text, m.tag);
	return status;
}
