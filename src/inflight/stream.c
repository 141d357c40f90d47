/*
 * Streams: host queues of a context. A stream orders its own requests and nothing else. The
 * requests at its first incomplete position may start; those behind may not. A stream keeps its
 * first error. Requests behind an error still run, because other ranks expect them.
 */
#include "inflight/stream.h"

#include "core/failure.h"
#include "inflight/async.h"
#include "inflight/event.h"
#include "inflight/notify.h"
#include "inflight/queue.h"
#include "inflight/request.h"

void coll_stream_append(struct coll_stream *s, struct coll_request *r, uint64_t position)
{
	if (position == 0)
		position = s->last + 1;
	if (position > s->last)
		s->last = position;
	/* The request belongs to a group whose first calls are already complete. */
	if (atomic_load_explicit(&s->through, memory_order_relaxed) >= position)
		atomic_store_explicit(&s->through, position - 1, memory_order_release);
	r->position = position;
	if (coll_list_empty(&s->items))
		s->released = position;
	coll_list_append(&s->items, &r->item);
	if (position > s->released && !s->device)
		r->blockers++;
}

/* The first position has changed: its requests may start. */
static void release(struct coll_stream *s)
{
	for (struct coll_link *l = s->items.next; l != &s->items; l = l->next) {
		struct coll_request *r = COLL_ENTRY(l, struct coll_request, item);

		if (r->position != s->released)
			return;
		coll_inflight_unblock(r);
	}
}

static void release_waiters(struct coll_stream *s, uint64_t through)
{
	struct coll_event_wait **at = &s->waiters;

	while (*at) {
		struct coll_event_wait *w = *at;

		if (w->position > through) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		if (coll_stream_failure(s, w->position) != COLL_OK) {
			w->request.status = s->status;
			w->why = coll_failure_share(s->why);
		}
		coll_inflight_unblock(&w->request);
	}
}

/* A wait for an event has the failure of another stream. It ends with this. */
static struct coll_failure *failure_of(struct coll_request *r, coll_status status)
{
	struct coll_event_wait *w = r->is == COLL_IS_EVENT ? COLL_ENTRY(r, struct coll_event_wait, request) : NULL;

	return w ? coll_failure_share(w->why) : coll_failure_of(r->comm, status);
}

void coll_stream_pop(struct coll_stream *s, struct coll_request *r, coll_status status)
{
	uint64_t through;

	coll_list_remove(&r->item);
	/* An earlier call may fail after a later one of another communicator. */
	if (status != COLL_OK && (s->status == COLL_OK || r->position < s->failed_at)) {
		s->status = status;
		s->failed_at = r->position;
		coll_failure_drop(&s->why);
		s->why = failure_of(r, status);
	}
	if (r->is == COLL_IS_EVENT)
		coll_failure_drop(&COLL_ENTRY(r, struct coll_event_wait, request)->why);
	if (coll_list_empty(&s->items)) {
		through = s->last;
	} else {
		const uint64_t first = COLL_ENTRY(s->items.next, struct coll_request, item)->position;

		through = first - 1;
		if (first > s->released && !s->device) {
			s->released = first;
			release(s);
		}
	}
	release_waiters(s, through);
	atomic_store_explicit(&s->through, through, memory_order_release);
	coll_event_stamp(s);
	coll_notify_reach(s, through);
}
