/*
 * Requests that have to do with devices: the tables of their kinds, and of what drivers ask devices. A device call is
 * what its host kind is, with its data in slots, or direct; what it adds is here: it goes on when its stream has come
 * to it, and ends when the device has left it. How: stage.c, stage_chain.c, mapped_call.c; of graphs capture_launch.c.
 */
#include "devcall/device_call.h"

#include <string.h>

#include "base/clock.h"
#include "base/delay.h"
#include "devcall/capture_launch.h"
#include "devcall/copier.h"
#include "devcall/mapped_graphs.h"
#include "devcall/stage.h"
#include "devcall/stage_chain.h"
#include "devcall/stage_late.h"
#include "devcall/stage_ring.h"
#include "engine/run.h"
#include "inflight/drive.h"
#include "inflight/queue.h"

enum { SLOT_BYTES = COLL_STAGE_SLOT_BYTES };
static const uint64_t MS = 1000000;

/* ---- How far it is ---- */

static bool is_copied(const struct coll_device_call *d)
{
	return !d->local.from || d->local.tiles == d->tiles;
}

/* Copy the next tile of a call that has no run, if it may be copied. True: it was. */
static bool copy(struct coll_device_call *d)
{
	const struct coll_run_stage *s = &d->stage[0];
	const size_t t = d->local.tiles, at = t * SLOT_BYTES, left = d->local.len_bytes - at;

	if (is_copied(d) || !coll_stage_is_ready(s, t))
		return false;
	if (left > 0)
		memmove(s->out ? coll_stage_slot(s, s->out, t) : d->local.to + at,
		        s->in ? coll_stage_slot(s, s->in, t) : d->local.from + at,
		        left < SLOT_BYTES ? left : SLOT_BYTES);
	coll_stage_give(s, t);
	d->local.tiles++;
	return true;
}

/* Whether the device has done the last piece of work of the call, or never will. */
static bool is_drained(const struct coll_request *r)
{
	const struct coll_device_call *d = r->device;

	if (d->captured)
		return coll_capture_left(r);
	return d->enqueued && coll_stage_has_done(r->comm->stage, d->last);
}

/* Whether it cannot go on before its stream has reached it. */
static bool waits_for_stream(const struct coll_request *r)
{
	const struct coll_device_call *d = r->device;

	if (d->over)
		return false;
	if (d->direct)
		return d->captured ? coll_mapped_graph_waits_for_stream(r->comm)
		                   : coll_mapped_waits_for_stream(r->comm, &d->direct_call);
	if (d->local.from)
		return !is_copied(d);
	for (int i = 0; i < r->wait.nruns; i++)
		if (!coll_run_waits_for_stream(r->wait.runs[i]))
			return false;
	return true;
}

/* ---- The kinds ---- */

static void count(const struct coll_request *r, int by)
{
	atomic_fetch_add_explicit(&r->comm->ctx->async->staged, (unsigned)by, memory_order_relaxed);
}

static void enter(struct coll_request *r)
{
	struct coll_device_call *d = r->device;

	count(r, 1);
	d->host->enter(r);
	d->shown = r->shown;
	r->shown = COLL_NOT_SHOWN;
}

/* What the host copies itself has no runs: a message to this rank, and a send until its payload has been copied. */
static coll_status start(struct coll_request *r)
{
	struct coll_device_call *d = r->device;
	coll_status st;

	if (r->is == COLL_IS_TAG || (r->is == COLL_IS_PAIR && !coll_device_is_message(r))) {
		coll_inflight_started(r);
		r->record.sequence = r->comm->inflight.begun;
		coll_inflight_publish(r->comm, NULL);
		return COLL_OK;
	}
	st = d->host->start(r);
	/* Copies that were made before the run has begun. */
	if (st == COLL_OK && d->direct && r->wait.nruns > 0)
		coll_run_begun(r->wait.runs[0], &d->ahead);
	return st;
}

/* The communicator has failed. */
static bool poll_lost(struct coll_request *r)
{
	struct coll_device_call *d = r->device;
	const uint64_t now = coll_clock_ns();

	if (!d->lost_until_ns)
		d->lost_until_ns = now + COLL_DELAY_NS(DEVICE_DRAIN);
	if (!is_drained(r) && now < d->lost_until_ns)
		return false;
	/* Nor may other ranks use the memory that is about to be the user's again. */
	if (d->direct && !coll_mapped_is_let_go(r->comm, now + COLL_DELAY_NS(DEVICE_DRAIN) >=
	                                                         d->lost_until_ns + COLL_DELAY_NS(PEERS_DRAIN)))
		return false;
	coll_inflight_complete(r, r->lost);
	return true;
}

static void come(struct coll_request *r)
{
	r->device->reached = true;
	r->shown = r->device->shown;
	coll_inflight_publish(r->comm, NULL);
}

/* A send that its stream must come to. When the payload has been copied it is one like any other: the user's memory
 * is read no more, and the stream goes on. */
static bool poll_tag(struct coll_request *r)
{
	struct coll_device_call *d = r->device;

	if (d->over || !copy(d))
		return false;
	if (!is_copied(d))
		return true;
	d->over = true;
	count(r, -1);
	coll_recorder_way(r->wait.entries[0], COLL_WAY_SEND_RECV | COLL_WAY_STAGED);
	come(r);
	d->host->start(r);
	return true;
}

static bool poll(struct coll_request *r)
{
	struct coll_device_call *d = r->device;
	bool moved, waits;

	if (r->lost != COLL_OK)
		return poll_lost(r);
	if (r->is == COLL_IS_TAG)
		return poll_tag(r);
	moved = copy(d);
	moved |= coll_drive_runs(r, &waits);
	if (r->comm->inflight.faulty)
		return moved;
	if (moved)
		coll_wait_timer_moved(r->comm, &r->timer);
	if (!d->reached && !waits_for_stream(r))
		come(r);
	/* The next message may have its channels, while a stream still has to take this one. */
	for (int half = 0; half < 2 && !waits && r->is == COLL_IS_PAIR; half++)
		coll_inflight_pass(r, half);
	if (waits || !is_copied(d) || !is_drained(r))
		return moved;
	coll_inflight_complete(r, COLL_OK);
	return true;
}

static enum coll_limit limited(struct coll_request *r)
{
	if (r->is != COLL_IS_COLLECTIVE && waits_for_stream(r))
		return COLL_LIMITED_MESSAGE;
	return r->device->host->limited(r);
}

static enum coll_limit limited_launch(struct coll_request *r)
{
	return r->is == COLL_IS_COLLECTIVE ? COLL_LIMITED_EACH : COLL_LIMITED_MESSAGE;
}

/* A stream that does not come to the call, or not to its end, has the time of a peer that is late. */
static coll_status inspect(struct coll_request *r, uint64_t now)
{
	struct coll_device_call *d = r->device;

	if (!waits_for_stream(r)) {
		d->waiting_ns = 0;
		return coll_drive_inspect(r, now);
	}
	if (!d->waiting_ns)
		d->waiting_ns = now;
	if (now - d->waiting_ns < (uint64_t)r->comm->arrival_timeout_ms * MS)
		return COLL_OK;
	return coll_stage_late(r);
}

static bool has_left(const struct coll_request *r)
{
	return !r->device->enqueued || r->device->over || is_drained(r);
}

static void leave(struct coll_request *r)
{
	if (!r->device->over)
		count(r, -1);
	if (r->device->host->leave)
		r->device->host->leave(r);
}

/* In blocking calls their thread enqueues. */
static void attend(struct coll_request *r, enum coll_attend at)
{
	if (r->device->host->attend)
		r->device->host->attend(r, at);
	if (at == COLL_WAIT_LOOKS)
		coll_stage_pace(r->comm);
	if (at == COLL_WAIT_ENDS)
		coll_stage_end_pace(r->comm);
}

static void recycle(struct coll_request *r)
{
	r->kind = r->device->host;
	r->kind->recycle(r);
}

static void fini(struct coll_request *r)
{
	r->device->host->fini(r);
}

/* The graph has it until it is gone. */
static void keep(struct coll_request *r)
{
	(void)r;
}

static const struct coll_request_kind device_kind = {.name = "device",
                                                     .leaves = true,
                                                     .asks = true,
                                                     .enter = enter,
                                                     .start = start,
                                                     .poll = poll,
                                                     .limited = limited,
                                                     .inspect = inspect,
                                                     .left = has_left,
                                                     .leave = leave,
                                                     .attend = attend,
                                                     .recycle = recycle,
                                                     .fini = fini};

static const struct coll_request_kind launch_kind = {.name = "launch",
                                                     .asks = true,
                                                     .poll = poll,
                                                     .limited = limited_launch,
                                                     .inspect = inspect,
                                                     .recycle = keep,
                                                     .fini = fini};

/* From here on, if it has to do with the device, it is of these kinds. */
static coll_status add(struct coll_batch *b, struct coll_request *r, const struct coll_stream *stream)
{
	bool has;
	coll_status st;

	if (r->kind == &device_kind) /* an operation, the last time */
		r->kind = r->device->host;
	st = coll_stage_add(b, r, stream, &has);
	if (!has)
		return st;
	r->device->launch = &launch_kind;
	r->kind = &device_kind;
	return st;
}

/* ---- What no request says ---- */

/* The streams of a communicator that has failed go on to their end, however much work of the user is in them: a peer
 * whose own stream goes on writes the words once more that have let this one pass. */
static void release_streams(struct coll_comm *comm)
{
	coll_stage_release(comm);
	if (coll_stage_has_left(comm))
		coll_inflight_unkeep(comm, COLL_KEPT_BY_STREAMS);
}

/* Direct calls that have no place among the running ones yet. What has one may be behind them in a stream, which waits
 * for their copies of host memory. */
static bool copy_ahead(struct coll_comm *comm)
{
	struct coll_inflight *f = &comm->inflight;
	bool moved = false;

	for (struct coll_link *l = f->all.next; l != &f->all; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, all);
		struct coll_device_call *d = r->device;

		if (r->state == COLL_REQUEST_QUEUED && r->kind == &device_kind && d->enqueued && d->direct)
			moved |= coll_mapped_copy(coll_mapped_of(comm), &coll_collective_of(r)->job, &d->direct_call,
			                          &d->ahead);
	}
	return moved;
}

static bool poll_comm(struct coll_comm *comm)
{
	bool moved = coll_capture_poll(comm);

	if (comm->failed)
		release_streams(comm);
	if (comm->inflight.stalled)
		moved |= copy_ahead(comm);
	return moved;
}

static void release(struct coll_comm *comm)
{
	coll_stage_release(comm);
	coll_capture_release(comm);
}

static const struct coll_device_driver driver = {.add = add,
                                                 .assign = coll_stage_assign,
                                                 .enqueue = coll_stage_enqueue,
                                                 .is_memory = coll_stage_on_device,
                                                 .take_copier = coll_copier_take,
                                                 .give_copier = coll_copier_give,
                                                 .fetch = coll_copier_fetch,
                                                 .bring = coll_copier_bring,
                                                 .give_up = coll_stage_give_up,
                                                 .poll = poll_comm,
                                                 .release = release,
                                                 .has_left = coll_stage_has_left,
                                                 .look = coll_stage_look,
                                                 .close = coll_copier_destroy};

void coll_device_attach(struct coll_context *ctx)
{
	if (ctx->device)
		ctx->async->devices = &driver;
}
