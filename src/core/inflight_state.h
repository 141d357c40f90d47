/*
 * State of a communicator, data only: what of it is in flight. progress/async.h says what the members mean together and
 * who may touch them.
 */
#ifndef COLL_CORE_INFLIGHT_STATE_H
#define COLL_CORE_INFLIGHT_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"

struct coll_run;
struct coll_request;
struct coll_operation;

enum { COLL_IN_FLIGHT_MAX = 4 };

/* In a circle with its list's head; alone it points to itself. */
struct coll_link {
	struct coll_link *prev, *next;
};

static inline void coll_list_init(struct coll_link *l)
{
	l->prev = l->next = l;
}
static inline bool coll_list_empty(const struct coll_link *l)
{
	return l->next == l;
}
static inline void coll_list_append(struct coll_link *list, struct coll_link *l)
{
	l->prev = list->prev;
	l->next = list;
	list->prev->next = l;
	list->prev = l;
}
static inline void coll_list_remove(struct coll_link *l)
{
	l->prev->next = l->next;
	l->next->prev = l->prev;
	coll_list_init(l);
}
#define COLL_ENTRY(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

/* Run and scratch of a collective in flight. */
struct coll_slot {
	struct coll_run *run;
	char *scratch;
	size_t scratch_bytes;
	bool busy;
};

struct coll_inflight {
	/* The async lock. */
	struct coll_link link;          /* in the context's list while pending > 0 */
	struct coll_link all, running;  /* requests, in the order of calls, of starting */
	unsigned pending;               /* requests handed in and not complete */
	unsigned started;               /* collectives that run */
	uint64_t begun;                 /* number of the collective started last */
	struct coll_request *tail;      /* the collective handed in last, while it has not started */
	struct coll_request *last;      /* the collective started last, while it runs */
	struct coll_request *stalled;   /* waits for one that runs to end */
	struct coll_request **pairs[2]; /* by half and rank: handed in last, not complete */
	struct coll_request *faulty;    /* its run has failed: inquired into, nothing else runs */
	struct coll_run *faulty_run;
	coll_status fault;
	struct coll_request *done; /* complete, to be recycled */
	struct coll_slot slots[COLL_IN_FLIGHT_MAX];

	/* The communicator's thread. */
	struct coll_request *spare;
	struct coll_link operations; /* persistent ones */
	/* Started inline, not waited for yet; and the thread that did, which may also take it
	 * from here while it waits for something else: see persistent.c. */
	_Atomic(struct coll_operation *) current;
	_Atomic(const void *) starter;
};

#endif
