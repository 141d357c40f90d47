/*
 * Tagged messages in flight: see tag_kind.h.
 */
#include "call/tag_kind.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/messages.h"
#include "call/begin.h"
#include "core/error.h"
#include "core/failure.h"
#include "inflight/drive.h"
#include "inflight/queue.h"
#include "match/receive.h"
#include "match/send.h"
#include "select/bind_pair.h"
#include "watch/any_source.h"

/* A longer payload is freed with its request. */
enum { PACK_KEPT = 16 * COLL_STAGE_SLOT_BYTES };

static bool end_those_done(struct coll_comm *comm)
{
	struct coll_tag_op *op;
	bool any = false;

	while ((op = coll_tags_next_done(comm))) {
		struct coll_request *r = op->owner;

		r->wait.nruns = 0; /* its run may be another's by now */
		coll_inflight_complete(r, op->status);
		any = true;
	}
	return any;
}

/* Choose a request to blame the fault on: the watchdog inquires about it, and then fails the communicator. */
static void find_faulty(struct coll_comm *comm)
{
	struct coll_inflight *f = &comm->inflight;
	struct coll_tags_fault fault;

	for (struct coll_link *l = f->running.next; l != &f->running; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, running);

		if (r->is != COLL_IS_TAG || !coll_tags_fault(comm, coll_tag_op_of(r), &fault))
			continue;
		r->wait.runs[0] = fault.run;
		r->wait.nruns = fault.run != NULL;
		r->wait.of_rank = true;
		r->wait.peer = fault.peer;
		f->faulty = r;
		f->faulty_run = fault.run;
		f->fault = fault.status;
		if (!fault.text[0])
			return;
		comm->box.status = fault.status;
		snprintf(comm->box.message, sizeof(comm->box.message), "%stagged messages of %s: %s",
		         fault.status == COLL_ERR_CORRUPT ? "[COLL-3206] " : "", coll_comm_name(comm, fault.peer).text,
		         fault.text);
		return;
	}
}

static bool poll(struct coll_comm *comm)
{
	bool faulty = false, moved = coll_tags_poll(comm, &faulty);

	moved |= end_those_done(comm);
	/* Without a request nobody would notice, and this thread may not fail the communicator. */
	if (faulty && comm->inflight.pending > 0)
		find_faulty(comm);
	return moved;
}

bool coll_tag_kind_end_stranded(struct coll_request *r, coll_status status)
{
	if (coll_tag_op_of(r)->receives || coll_tag_op_of(r)->peer != r->comm->rank ||
	    !coll_tags_take_back(r->comm, coll_tag_op_of(r)))
		return false;
	coll_inflight_complete(r, status);
	end_those_done(r->comm);
	return true;
}

static void enter(struct coll_request *r)
{
	const struct coll_tag_request *t = coll_tag_of(r);

	coll_pair_record(r->comm, &t->pair, &r->record);
	r->record.op = t->message;
	r->record.signature = (uint32_t)t->tag;
	/* A probe moves no message, so it is none in the statistics. */
	r->wait.entries[0] = coll_tag_op_of(r)->probes
	                             ? NULL
	                             : coll_begin_tag_entry(r->comm, &r->record, r->stream ? r->stream->number : 0);
	/* A receive that was posted in advance is nothing that this rank is doing. */
	r->shown = r->held ? COLL_SHOWN_AWAITED : COLL_SHOWN;
}

static coll_status start(struct coll_request *r)
{
	struct coll_comm *comm = r->comm;
	const bool sends = !coll_tag_op_of(r)->receives;

	coll_inflight_started(r);
	r->record.sequence = comm->inflight.begun;
	coll_inflight_publish(comm, NULL);
	if (sends)
		coll_tags_send(comm, coll_tag_op_of(r));
	else
		coll_tags_receive(comm, coll_tag_op_of(r));
	end_those_done(comm); /* a receive may be its caller's now */
	if (sends && comm->tagged.leaving && r->state == COLL_REQUEST_RUNNING)
		coll_tag_kind_end_stranded(r, COLL_ERR_CANCELLED);
	return COLL_OK;
}

/* What can be received of it was, when it was submitted. */
static void attend(struct coll_request *r, enum coll_attend at)
{
	struct coll_comm *comm = r->comm;
	const struct coll_tag_request *t = coll_tag_of(r);
	const struct coll_pair p = t->pair;
	bool stranded;

	if (at != COLL_WAIT_BEGINS)
		return;
	coll_async_lock(comm->ctx);
	stranded = r->state == COLL_REQUEST_RUNNING && coll_tag_kind_end_stranded(r, COLL_ERR_ARGUMENT);
	coll_async_unlock(comm->ctx);
	if (stranded)
		coll_comm_refuse(
		        comm, "send_tag", COLL_ERR_ARGUMENT,
		        "[COLL-1205] a send to this rank itself would wait for ever: no receive is posted for tag "
		        "%d, and %zu elements of %s do not fit into the pool",
		        t->tag, p.send_count, coll_dtype_name(p.type));
}

/* A receive has deadlines while a thread waits for it, and if it names a rank. It may be posted for hours. */
static enum coll_limit limited(struct coll_request *r)
{
	const struct coll_tag_op *op = coll_tag_op_of(r);
	uint32_t moves;

	if (op->receives && !atomic_load_explicit(&r->awaited, memory_order_relaxed))
		return COLL_UNLIMITED;
	if (!coll_tags_waits_for(r->comm, op, &r->wait, &moves))
		return op->receives && op->peer == COLL_MATCH_ANY ? COLL_LIMITED_MESSAGE : COLL_UNLIMITED;
	if (coll_tag_of(r)->seen_moves != moves)
		coll_wait_timer_moved(r->comm, &r->timer);
	coll_tag_of(r)->seen_moves = moves;
	return COLL_LIMITED_MESSAGE;
}

static coll_status inspect(struct coll_request *r, uint64_t now)
{
	return coll_tag_op_of(r)->peer == COLL_MATCH_ANY ? coll_any_source_inspect(r->comm, &r->wait, &r->timer, now)
	                                                 : coll_drive_inspect(r, now);
}

static void leave(struct coll_request *r)
{
	if (coll_tag_op_of(r)->receives && r->status != COLL_OK)
		coll_tag_receive_of(r)->why = coll_failure_of(r->comm, r->status);
}

static void recycle(struct coll_request *r)
{
	struct coll_tag_send *s = COLL_ENTRY(coll_tag_of(r), struct coll_tag_send, tag);

	if (s->pack_cap > PACK_KEPT) {
		free(s->tag.pack);
		s->tag.pack = NULL;
		s->pack_cap = 0;
	}
	coll_request_give(r);
}

static void fini(struct coll_request *r)
{
	free(coll_tag_of(r)->pack);
}

const struct coll_request_kind coll_tag_kind = {.name = "tag",
                                                .leaves = true,
                                                .enter = enter,
                                                .start = start,
                                                .limited = limited,
                                                .inspect = inspect,
                                                .attend = attend,
                                                .leave = leave,
                                                .recycle = recycle,
                                                .fini = fini};

void coll_tag_kind_attach(struct coll_context *ctx)
{
	ctx->async->poll_tags = poll;
}
