/*
 * Events: points in streams. Owns what a stream does to those that were recorded on it; event_front.c has what the
 * program does.
 */
#include "inflight/event.h"

#include "base/clock.h"
#include "core/failure.h"
#include "inflight/async.h"
#include "inflight/stream.h"

void coll_event_stamp(struct coll_stream *s)
{
	const uint64_t through = atomic_load_explicit(&s->through, memory_order_relaxed);
	uint64_t now = 0;

	for (struct coll_link *l = s->events.next; l != &s->events; l = l->next) {
		struct coll_event *e = COLL_ENTRY(l, struct coll_event, link);

		if (e->reached_ns || e->position > through)
			continue;
		now = now ? now : coll_clock_ns();
		e->reached_ns = now;
	}
}

coll_status coll_event_state(const struct coll_event *e)
{
	if (!e->stream)
		return e->status;
	if (atomic_load_explicit(&e->stream->through, memory_order_relaxed) < e->position)
		return COLL_AGAIN;
	return coll_stream_failure(e->stream, e->position);
}

void coll_event_detach(struct coll_stream *s)
{
	while (!coll_list_empty(&s->events)) {
		struct coll_event *e = COLL_ENTRY(s->events.next, struct coll_event, link);

		coll_list_remove(&e->link);
		e->status = coll_stream_failure(s, e->position);
		if (e->status != COLL_OK)
			e->why = coll_failure_share(s->why);
		e->stream = NULL;
	}
}
