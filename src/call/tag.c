/*
 * Tagged messages as calls.
 *
 * A send that can leave at once is no request. Any other send, and every receive whose message is not here, is one,
 * with a coll_tag_op that src/match/ moves: see tag_kind.h.
 *
 * Messages are host memory. A blocking send of device memory fetches its payload first; in a stream of the device the
 * payload is staged. A receive into device memory has host memory of its own, and whoever waits for
 * it brings the payload to the device when it has come: a driver makes no driver call, and no stream is named.
 *
 * The handle of a receive belongs to its caller, who gives it back with the wait or test that reports its end. It may
 * outlive the communicator: it is not recycled, and it keeps the context. Sends are recycled like other requests.
 */
#include "call/tag.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/delay.h"
#include "base/messages.h"
#include "call/begin.h"
#include "call/issue.h"
#include "call/tag_kind.h"
#include "core/entry.h"
#include "core/error.h"
#include "core/thread_error.h"
#include "device/device.h"
#include "inflight/drive.h"
#include "inflight/notify.h"
#include "inflight/queue.h"
#include "inflight/thread.h"
#include "match/receive.h"
#include "match/send.h"
#include "select/bind_pair.h"

coll_status coll_tag_need(struct coll_comm *comm, const char *kind)
{
	const coll_status st = coll_tags_make(comm);

	if (st == COLL_ERR_ABORTED)
		return coll_comm_usable(comm, kind, true);
	if (st != COLL_OK)
		return coll_comm_refuse(comm, kind, st, "no memory for tagged messages");
	/* Relaxed: once it is set, it stays until this thread destroys the communicator. */
	if (atomic_load_explicit(&comm->tagged.listed, memory_order_relaxed))
		return COLL_OK;
	coll_async_lock(comm->ctx);
	coll_drive_tagged(comm);
	pthread_mutex_unlock(&comm->ctx->async->lock);
	return COLL_OK;
}

/* What messages, the record and the watchdog say of it. */
static void bind(struct coll_request *r, enum coll_record_message message)
{
	struct coll_tag_request *t = coll_tag_of(r);
	struct coll_tag_op *op = coll_tag_op_of(r);

	op->owner = r;
	t->seen_moves = 0;
	t->message = (uint8_t)message;
	t->tag = op->tag;
	t->later = false;
	t->pair = (struct coll_pair){.send = op->receives ? NULL : op->buf,
	                             .send_count = op->receives ? 0 : op->count,
	                             .dest = op->receives ? -1 : op->peer,
	                             .recv = op->receives ? op->buf : NULL,
	                             .recv_count = op->receives ? op->count : 0,
	                             .source = op->receives ? op->peer : -1,
	                             .type = op->type};
}

/* The flight recorder entry of one that needs no request. peer, tag: as the caller gave them; op may have those of the
 * message by now. */
static void record(struct coll_comm *comm, const struct coll_tag_op *op, uint8_t message, int peer, int tag,
                   coll_status st)
{
	const uint64_t what = coll_entry_what((uint32_t)tag, COLL_KIND_SEND_RECV, (uint8_t)op->type, message,
	                                      COLL_WAY_SEND_RECV, false);

	if (st == COLL_OK)
		coll_recorder_fastpath(&comm->recorder, 0, what, op->count, peer);
	else
		coll_recorder_end(&comm->recorder, coll_recorder_begin(&comm->recorder, 0, what, op->count, peer, 0),
		                  st);
}

/* A request for a send, with bytes of its own for the payload. */
static coll_status need_request(struct coll_comm *comm, size_t own_bytes, struct coll_tag_send **out)
{
	struct coll_request *r = coll_request_take(comm, &coll_tag_kind, COLL_IS_TAG, sizeof(struct coll_tag_send));
	struct coll_tag_send *s = r ? COLL_ENTRY(coll_tag_of(r), struct coll_tag_send, tag) : NULL;

	if (s && own_bytes > s->pack_cap) {
		free(s->tag.pack);
		s->tag.pack = malloc(own_bytes);
		s->pack_cap = s->tag.pack ? own_bytes : 0;
	}
	*out = s;
	if (s && own_bytes <= s->pack_cap)
		return COLL_OK;
	if (r)
		coll_request_recycle(r);
	return coll_comm_refuse(comm, "send_tag", COLL_ERR_MEMORY, "no memory for a request");
}

/* Whether a send from host memory ends at once. */
static bool ends_at_once(struct coll_comm *comm, struct coll_tag_op *op)
{
	if (!coll_tags_send_now(comm, op))
		return false;
	record(comm, op, COLL_MESSAGE_SEND_TAG, op->peer, op->tag, COLL_OK);
	return true;
}

static coll_status dispatch(struct coll_tag_send *s, const struct coll_tag_op *op, struct coll_stream *stream)
{
	coll_tag_op_send(&s->op, op->buf, op->count, op->type, op->peer, op->tag);
	bind(&s->tag.request, COLL_MESSAGE_SEND_TAG);
	return coll_request_dispatch(&s->tag.request, stream);
}

static const struct coll_device_driver *devices_of(const struct coll_context *ctx)
{
	return ctx->async->devices;
}

static coll_status fetch(struct coll_comm *comm, void *host, const void *device, size_t len_bytes)
{
	const struct coll_device_driver *devices = devices_of(comm->ctx);
	coll_status st;

	devices->take_copier(comm->ctx);
	st = devices->fetch(comm->ctx, host, device, len_bytes);
	devices->give_copier(comm->ctx);
	return st == COLL_OK ? COLL_OK : devices->give_up(comm, st);
}

/* The payload is device memory. */
static coll_status fetch_and_send(struct coll_tag_send *s, struct coll_tag_op *op)
{
	struct coll_comm *comm = s->tag.request.comm;
	coll_status st = fetch(comm, s->tag.pack, op->buf, op->count * coll_dtype_size(op->type));

	op->buf = s->tag.pack;
	if (st == COLL_OK && !ends_at_once(comm, op))
		return dispatch(s, op, NULL);
	coll_request_recycle(&s->tag.request);
	return st;
}

/* The payload is device memory, or is read when a stream of the device comes to the send. */
static coll_status send_by_bounce_buffer(struct coll_comm *comm, struct coll_tag_op *op, bool now,
                                         struct coll_stream *stream)
{
	struct coll_tag_send *s;
	coll_status st = need_request(comm, op->count * coll_dtype_size(op->type), &s);

	if (st != COLL_OK)
		return st;
	if (now)
		return fetch_and_send(s, op);
	coll_tag_op_send(&s->op, s->tag.pack, op->count, op->type, op->peer, op->tag);
	bind(&s->tag.request, COLL_MESSAGE_SEND_TAG);
	s->tag.later = true;
	s->tag.payload = op->buf;
	return coll_request_dispatch(&s->tag.request, stream);
}

coll_status coll_comm_send_tag(struct coll_comm *comm, const void *buf, size_t count, coll_dtype type, int peer,
                               int tag, struct coll_stream *stream)
{
	const bool now = !stream && coll_group.depth == 0;
	struct coll_tag_op op;
	struct coll_tag_send *s;
	coll_status st = coll_tag_need(comm, "send_tag");

	if (st != COLL_OK)
		return st;
	coll_tag_op_send(&op, buf, count, type, peer, tag);
	if (comm->stage &&
	    ((stream && stream->device) || devices_of(comm->ctx)->is_memory(comm, buf, count * coll_dtype_size(type))))
		return send_by_bounce_buffer(comm, &op, now, stream);
	if (now && ends_at_once(comm, &op))
		return COLL_OK;
	st = need_request(comm, 0, &s);
	if (st == COLL_OK)
		st = dispatch(s, &op, stream);
	return st == COLL_ERR_PEER_DEAD && coll_comm_lives_on(comm) ? coll_comm_refuse_dead(comm, "send_tag", peer)
	                                                            : st;
}

static void release(struct coll_tag_receive *p)
{
	struct coll_context *ctx = p->ctx;

	if (p->device) {
		coll_async_lock(ctx);
		coll_list_remove(&p->to_device);
		pthread_mutex_unlock(&ctx->async->lock);
	}
	free(p->host);
	coll_failure_drop(&p->why);
	free(p);
	coll_context_release(&ctx);
}

/* A message for device memory comes to host memory first. False: there is none. */
static bool divert(struct coll_comm *comm, struct coll_tag_receive *p)
{
	const size_t most = p->op.count * coll_dtype_size(p->op.type);

	if (!comm->stage || p->op.probes || !devices_of(comm->ctx)->is_memory(comm, p->op.buf, most))
		return true;
	p->host = malloc(most);
	if (!p->host)
		return false;
	p->device = p->op.buf;
	p->op.buf = p->host;
	coll_async_lock(comm->ctx);
	coll_list_append(&comm->inflight.to_device, &p->to_device);
	pthread_mutex_unlock(&comm->ctx->async->lock);
	return true;
}

/* Its message, if it has one, goes to the device, unless it is there. It is done, and this thread has the copier. */
static void bring(struct coll_tag_receive *p)
{
	const struct coll_tag_op *op = &p->op;
	bool there;

	coll_async_lock(p->ctx);
	there = coll_list_empty(&p->to_device);
	pthread_mutex_unlock(&p->ctx->async->lock);
	if (there)
		return;
	if (p->tag.request.status == COLL_OK && op->got_count > 0)
		p->brought = devices_of(p->ctx)->bring(p->ctx, p->device, p->host,
		                                       op->got_count * coll_dtype_size(op->got_type));
	coll_async_lock(p->ctx);
	coll_list_remove(&p->to_device);
	pthread_mutex_unlock(&p->ctx->async->lock);
}

static coll_status deliver(struct coll_tag_receive *p)
{
	if (!p->device)
		return COLL_OK;
	devices_of(p->ctx)->take_copier(p->ctx);
	bring(p);
	devices_of(p->ctx)->give_copier(p->ctx);
	return p->brought;
}

static coll_status post(struct coll_comm *comm, struct coll_tag_receive *p)
{
	coll_status st;

	if (p->op.posted.source == COLL_NO_PEER) {
		p->op.source = COLL_NO_PEER;
		p->op.got_tag = COLL_ANY_TAG;
		p->op.got_count = 0;
		p->op.got_type = p->op.type;
		p->tag.request.status = COLL_OK;
		atomic_store_explicit(&p->tag.request.done, true, memory_order_relaxed);
		return COLL_OK;
	}
	if (!p->op.probes && coll_tags_receive_now(comm, &p->op)) {
		record(comm, &p->op, p->tag.message, p->op.posted.source, p->op.posted.tag, p->op.status);
		p->tag.request.status = p->op.status;
		atomic_store_explicit(&p->tag.request.done, true, memory_order_relaxed);
		return COLL_OK;
	}
	st = coll_request_submit(&p->tag.request, NULL, 0);
	return st == COLL_OK ? st : coll_comm_keep(comm, st);
}

static coll_status irecv(struct coll_comm *comm, enum coll_record_message message, const struct coll_tag_op *op,
                         coll_request **req)
{
	const char *kind = coll_record_message_name(message);
	coll_status st = coll_tag_need(comm, kind);
	struct coll_tag_receive *p;

	if (st != COLL_OK)
		return st;
	p = malloc(sizeof(*p));
	if (!p)
		return coll_comm_refuse(comm, kind, COLL_ERR_MEMORY, "no memory for a request");
	coll_request_init(&p->tag.request, comm, &coll_tag_kind, COLL_IS_TAG);
	p->tag.request.held = true;
	p->op = *op;
	coll_list_init(&p->op.link);
	coll_list_init(&p->op.posted.link);
	p->ctx = comm->ctx;
	p->rank = comm->rank;
	p->size = comm->size;
	p->waited_until_ns = 0;
	p->device = p->host = NULL;
	p->brought = COLL_OK;
	p->why = NULL;
	coll_list_init(&p->to_device);
	if (!divert(comm, p)) {
		free(p);
		return coll_comm_refuse(comm, kind, COLL_ERR_MEMORY, "no memory for a message");
	}
	bind(&p->tag.request, message);
	coll_context_retain(p->ctx);
	coll_async_thread(p->ctx);
	st = post(comm, p);
	if (st == COLL_OK)
		*req = &p->tag.request;
	else
		release(p);
	return st;
}

coll_status coll_comm_irecv(struct coll_comm *comm, void *buf, size_t max_count, coll_dtype type, int source, int tag,
                            coll_request **req)
{
	struct coll_tag_op op;

	coll_tag_op_receive(&op, buf, max_count, type, source, tag);
	return irecv(comm, COLL_MESSAGE_IRECV, &op, req);
}

/* ---- Requests of receives ---- */

static bool is_done(void *arg)
{
	const struct coll_request *r = arg;

	return atomic_load_explicit(&r->done, memory_order_acquire);
}

static const char *kind_of(const struct coll_tag_receive *p)
{
	return coll_record_message_name(p->tag.message);
}

static void describe_death(const struct coll_tag_receive *p, struct coll_error_box *box)
{
	char name[32];

	box->status = COLL_ERR_PEER_DEAD;
	snprintf(box->host, sizeof(box->host), "%s", p->ctx->peer_infos[p->op.dead].host_name);
	snprintf(name, sizeof(name), "rank %d", p->op.source);
	coll_death_text(p->ctx, p->op.dead, name, box->message, sizeof(box->message));
}

/* Why it ended with COLL_ERR_ARGUMENT or COLL_ERR_CANCELLED, or because a rank has died. Other errors are those of the
 * communicator, which has them. */
static void describe(const struct coll_tag_receive *p, struct coll_error_box *box)
{
	const struct coll_tag_op *op = &p->op;
	const coll_status st = p->tag.request.status;

	coll_error_clear(box);
	box->rank = op->source;
	snprintf(box->kind, sizeof(box->kind), "%s", kind_of(p));
	if (st == COLL_ERR_CANCELLED)
		coll_error_set(box, st, "the receive was cancelled");
	else if (st == COLL_ERR_PEER_DEAD)
		describe_death(p, box);
	else if (op->got_type != op->type)
		coll_error_set(box, st,
		               "[COLL-1206] the message of rank %d with tag %d has %zu elements of %s, but the receive "
		               "expects %s",
		               op->source, op->got_tag, op->got_count, coll_dtype_name(op->got_type),
		               coll_dtype_name(op->type));
	else
		coll_error_set(box, st,
		               "[COLL-1206] the message of rank %d with tag %d has %zu elements of %s, but the receive "
		               "has room for %zu",
		               op->source, op->got_tag, op->got_count, coll_dtype_name(op->got_type), op->count);
}

/* For coll_last_error(NULL): another thread may be using the communicator. */
static void explain(const struct coll_tag_receive *p)
{
	struct coll_message_text m;
	struct coll_error_box box;
	char message[sizeof(box.message) + 64];

	describe(p, &box);
	m = coll_message_split(box.status, box.message);
	snprintf(message, sizeof(message), "rank %d of %d: %s: %s%s", p->rank, p->size, box.kind, m.text, m.tag);
	coll_thread_error_keep(&box, message);
}

/* The device has failed. */
static coll_status explain_device(const struct coll_tag_receive *p)
{
	struct coll_error_box box;
	char message[sizeof(box.message) + 64];

	coll_device_error(p->ctx->device, &box);
	snprintf(message, sizeof(message), "rank %d of %d: irecv: %s", p->rank, p->size, box.message);
	coll_thread_error_keep(&box, message);
	return p->brought;
}

/* It is done: the handle ends. */
static coll_status finish(coll_request **req, coll_message_info *info)
{
	struct coll_tag_receive *p = coll_tag_receive_of(*req);
	coll_status st = p->tag.request.status;

	if (deliver(p) != COLL_OK)
		st = explain_device(p);
	*req = NULL;
	if (info && (st == COLL_OK || st == COLL_ERR_ARGUMENT))
		*info = (coll_message_info){
		        .source = p->op.source, .tag = p->op.got_tag, .count = p->op.got_count, .type = p->op.got_type};
	if (st == COLL_ERR_ARGUMENT || st == COLL_ERR_CANCELLED || (st == COLL_ERR_PEER_DEAD && p->op.dead >= 0))
		explain(p);
	else if (st != COLL_OK && p->brought == COLL_OK)
		coll_thread_error_of(p->why, st, kind_of(p));
	release(p);
	return st;
}

/* OK: it has ended. The clock of its deadlines starts with the wait. It goes on if the last wait ended a moment ago:
 * callers cut long waits in slices. Without a time there is no wait, only a look. comm: that of the request, if this is
 * its thread; NULL: it may be destroyed meanwhile, so an interrupt cannot mean it alone. */
static coll_status await(struct coll_tag_receive *p, struct coll_comm *comm, int timeout_ms)
{
	struct coll_request *r = &p->tag.request;
	coll_status st;

	coll_async_lock(p->ctx);
	if (!is_done(r) && coll_clock_ns() - p->waited_until_ns > COLL_DELAY_NS(WAIT_GOES_ON))
		r->timer = (struct coll_wait_timer){0};
	atomic_store_explicit(&r->awaited, timeout_ms != 0, memory_order_relaxed);
	pthread_mutex_unlock(&p->ctx->async->lock);
	st = coll_async_await(&p->ctx, 1, comm, is_done, r, timeout_ms);
	atomic_store_explicit(&r->awaited, false, memory_order_relaxed);
	if (timeout_ms != 0)
		p->waited_until_ns = coll_clock_ns();
	return is_done(r) ? COLL_OK : st;
}

/* The end of a request may be that of its context, which joins the thread that a function of an event may run in. */
static bool forbidden(const coll_request *req, const char *kind)
{
	return coll_notify_forbids(coll_tag_receive_of(req)->ctx, kind);
}

coll_status coll_request_wait(coll_request **req, int timeout_ms, coll_message_info *info)
{
	coll_status st;

	if (!req || !*req)
		return coll_thread_error_say("request_wait", COLL_ERR_ARGUMENT, "the request is NULL");
	if (forbidden(*req, "request_wait"))
		return COLL_ERR_ARGUMENT;
	if (!is_done(*req)) {
		if (coll_group.depth > 0) /* its sends have not begun */
			return coll_thread_error_say("request_wait", COLL_ERR_ARGUMENT, "its group has not ended");
		st = await(coll_tag_receive_of(*req), NULL, timeout_ms);
		if (st != COLL_OK)
			return st;
	}
	return finish(req, info);
}

coll_status coll_request_test(coll_request **req, coll_message_info *info)
{
	if (!req || !*req)
		return coll_thread_error_say("request_test", COLL_ERR_ARGUMENT, "the request is NULL");
	if (forbidden(*req, "request_test"))
		return COLL_ERR_ARGUMENT;
	if (!is_done(*req))
		coll_drive_ask(coll_tag_receive_of(*req)->ctx, is_done, *req);
	return is_done(*req) ? finish(req, info) : COLL_AGAIN;
}

coll_status coll_request_cancel(coll_request *req)
{
	struct coll_tag_receive *p;
	coll_status st = COLL_AGAIN;

	if (!req)
		return coll_thread_error_say("request_cancel", COLL_ERR_ARGUMENT, "the request is NULL");
	p = coll_tag_receive_of(req);
	if (coll_entry_forbids(p->ctx, "request", "request_cancel"))
		return COLL_ERR_ARGUMENT;
	coll_async_lock(p->ctx);
	/* While it is not done its communicator exists. */
	if (!is_done(req) && coll_tags_cancel(req->comm, &p->op)) {
		coll_inflight_complete(req, COLL_ERR_CANCELLED);
		st = COLL_OK;
	}
	coll_async_unlock(p->ctx);
	return st;
}

/* ---- The blocking receive ---- */

/* Nothing else of this rank is under way, and this thread is about to wait: no message of this rank can come. */
static bool waits_for_itself(const struct coll_comm *comm, const struct coll_request *r, int source)
{
	bool alone;

	if (source != comm->rank && comm->size > 1)
		return false;
	coll_async_lock(comm->ctx);
	alone = comm->inflight.pending == 1 + comm->inflight.kept &&
	        !atomic_load_explicit(&r->done, memory_order_relaxed);
	pthread_mutex_unlock(&comm->ctx->async->lock);
	return alone;
}

/* Begin a receive or a probe, and wait for its end. */
static coll_status wait_for(struct coll_comm *comm, enum coll_record_message message, const struct coll_tag_op *op,
                            coll_message_info *info)
{
	const char *kind = coll_record_message_name(message);
	struct coll_request *r = NULL;
	struct coll_error_box box;
	coll_status st;

	if (coll_group.depth > 0)
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT, "it cannot be part of a group%s",
		                        op->probes ? "" : ": post the receive with coll_irecv()");
	st = irecv(comm, message, op, &r);
	if (st != COLL_OK)
		return st;
	if (waits_for_itself(comm, r, op->posted.source)) {
		coll_request_cancel(r);
		coll_request_wait(&r, -1, NULL);
		return coll_comm_refuse(comm, kind, COLL_ERR_ARGUMENT,
		                        "[COLL-1205] it would wait for ever for a message of this rank itself");
	}
	st = await(coll_tag_receive_of(r), comm, -1);
	if (st != COLL_OK) /* not in this thread: it was refused */
		return st;
	if (r->status == COLL_ERR_ARGUMENT) {
		describe(coll_tag_receive_of(r), &box);
		coll_comm_refuse(comm, kind, box.status, "%s", box.message);
	}
	if (r->status == COLL_ERR_PEER_DEAD && coll_tag_receive_of(r)->op.dead >= 0)
		coll_comm_refuse_dead(comm, kind, coll_tag_receive_of(r)->op.source);
	st = deliver(coll_tag_receive_of(r));
	if (st == COLL_OK)
		return finish(&r, info);
	finish(&r, info);
	return devices_of(comm->ctx)->give_up(comm, st);
}

coll_status coll_comm_recv_tag(struct coll_comm *comm, void *buf, size_t max_count, coll_dtype type, int source,
                               int tag, coll_message_info *info)
{
	struct coll_tag_op op;

	coll_tag_op_receive(&op, buf, max_count, type, source, tag);
	return wait_for(comm, COLL_MESSAGE_RECV_TAG, &op, info);
}

coll_status coll_comm_probe(struct coll_comm *comm, int source, int tag, coll_message_info *info)
{
	struct coll_tag_op op;

	coll_tag_op_probe(&op, source, tag);
	return wait_for(comm, COLL_MESSAGE_PROBE, &op, info);
}

/* ---- The end of a communicator ---- */

void coll_tag_cancel_all(struct coll_comm *comm)
{
	struct coll_inflight *f = &comm->inflight;
	struct coll_link *next;

	if (!atomic_load_explicit(&comm->tagged.listed, memory_order_relaxed))
		return;
	coll_async_lock(comm->ctx);
	for (struct coll_link *l = f->all.next; l != &f->all; l = next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, all);

		next = l->next;
		if (r->is == COLL_IS_TAG && coll_tag_op_of(r)->receives && coll_tags_cancel(comm, coll_tag_op_of(r)))
			coll_inflight_complete(r, COLL_ERR_CANCELLED);
	}
	comm->tagged.leaving = true;
	for (struct coll_link *l = f->running.next; l != &f->running;) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, running);

		/* Others may have ended with it, and those behind it in a stream begin. */
		l = r->is == COLL_IS_TAG && coll_tag_kind_end_stranded(r, COLL_ERR_CANCELLED) ? f->running.next
		                                                                              : l->next;
	}
	coll_async_unlock(comm->ctx);
}

static struct coll_tag_receive *first_to_bring(struct coll_comm *comm)
{
	const struct coll_link *list = &comm->inflight.to_device;
	struct coll_tag_receive *p = NULL;

	coll_async_lock(comm->ctx);
	if (!coll_list_empty(list))
		p = COLL_ENTRY(list->next, struct coll_tag_receive, to_device);
	pthread_mutex_unlock(&comm->ctx->async->lock);
	return p;
}

void coll_tag_bring_all(struct coll_comm *comm)
{
	struct coll_tag_receive *p;

	if (!comm->stage || !first_to_bring(comm))
		return;
	devices_of(comm->ctx)->take_copier(comm->ctx);
	while ((p = first_to_bring(comm)))
		bring(p);
	devices_of(comm->ctx)->give_copier(comm->ctx);
}

void coll_tag_end(struct coll_comm *comm)
{
	coll_async_lock(comm->ctx);
	coll_drive_untagged(comm);
	pthread_mutex_unlock(&comm->ctx->async->lock);
}
