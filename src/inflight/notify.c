/*
 * Notices: a function to run when a stream has reached a position.
 *
 * A notice belongs to a recording of an event, which is a position of a stream. The stream keeps its
 * notices in the order of positions; the event keeps them too, for its end. The driver that advances
 * the stream moves those that are due to the list of the context, under the lock, with the status
 * that the event has then. Whoever releases the lock takes the list and runs the functions. So each
 * runs once, in the thread that took it off the last list, and no lock is held.
 *
 * A function of the program must not wait, because it may run in the progress thread, or inside a
 * wait of the program. It must not begin a call, because it may run inside a call on the same
 * communicator. The negative depth of the thread's group marks such a thread.
 */
#include "inflight/notify.h"

#include <stdlib.h>

#include "base/log.h"
#include "core/entry.h"
#include "core/thread_error.h"
#include "inflight/async.h"
#include "inflight/stream.h"

struct coll_notice {
	struct coll_link in_stream, in_event; /* lock */
	struct coll_notice *next;             /* in the list of due ones */
	uint64_t position;
	coll_status status;
	void (*fn)(void *arg, coll_status status);
	void *arg;
};

enum { RUNNING = -1 }; /* depth of the group */

/* What a function that runs has made due: it runs when the function has returned, so that functions
 * do not nest. */
static _Thread_local struct coll_notice *later;

static void append(struct coll_notice **list, struct coll_notice *more)
{
	while (*list)
		list = &(*list)->next;
	*list = more;
}

void coll_notify_run(struct coll_notice *list)
{
	struct coll_group group = coll_group;

	append(&later, list);
	if (group.depth == RUNNING)
		return;
	coll_group = (struct coll_group){.depth = RUNNING};
	while (later) {
		struct coll_notice *n = later;

		later = n->next;
		n->fn(n->arg, n->status);
		free(n);
	}
	coll_group = group;
}

bool coll_notify_forbids(struct coll_context *ctx, const char *kind)
{
	if (ctx && coll_entry_forbids(ctx, "object", kind))
		return true;
	if (coll_group.depth != RUNNING)
		return false;
	if (ctx)
		coll_log(&ctx->logger, COLL_LOG_ERROR, "[COLL-1204] %s: not inside a function of event_notify", kind);
	coll_thread_error_say(kind, COLL_ERR_ARGUMENT, "[COLL-1204] not inside a function of event_notify");
	return true;
}

static void unlink_notice(struct coll_notice *n)
{
	coll_list_remove(&n->in_stream);
	coll_list_remove(&n->in_event);
}

void coll_notify_reach(struct coll_stream *s, uint64_t through)
{
	struct coll_async *a = s->ctx->async;

	while (!coll_list_empty(&s->notices)) {
		struct coll_notice *n = COLL_ENTRY(s->notices.next, struct coll_notice, in_stream);

		if (n->position > through)
			return;
		unlink_notice(n);
		n->status = coll_stream_failure(s, n->position);
		*a->due_tail = n;
		a->due_tail = &n->next;
	}
}

struct coll_notice *coll_notify_take(struct coll_event *e)
{
	struct coll_notice *list = NULL, **tail = &list;

	while (!coll_list_empty(&e->notices)) {
		struct coll_notice *n = COLL_ENTRY(e->notices.next, struct coll_notice, in_event);

		unlink_notice(n);
		n->status = COLL_AGAIN;
		*tail = n;
		tail = &n->next;
	}
	return list;
}

/* By position: an event that was recorded early may be asked about late. */
static void insert(struct coll_stream *s, struct coll_notice *n)
{
	struct coll_link *before = s->notices.prev;

	while (before != &s->notices && COLL_ENTRY(before, struct coll_notice, in_stream)->position > n->position)
		before = before->prev;
	coll_list_append(before->next, &n->in_stream);
}

struct coll_notice *coll_notify_make(void (*fn)(void *arg, coll_status status), void *arg)
{
	struct coll_notice *n = malloc(sizeof(*n));

	if (!n)
		return NULL;
	*n = (struct coll_notice){.fn = fn, .arg = arg};
	coll_list_init(&n->in_stream);
	coll_list_init(&n->in_event);
	return n;
}

bool coll_notify_add(struct coll_notice *n, struct coll_event *e, coll_status state)
{
	n->status = state;
	if (state != COLL_AGAIN)
		return false;
	n->position = e->position;
	insert(e->stream, n);
	coll_list_append(&e->notices, &n->in_event);
	return true;
}
