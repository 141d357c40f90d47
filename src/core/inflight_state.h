/*
 * State of a communicator, data only: its operations in flight. inflight/async.h explains the
 * members and says which thread may touch them.
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

enum { COLL_IN_FLIGHT_MAX = 4 };

/* What a request is, whoever drives it: see inflight/request.h. */
enum coll_request_is { COLL_IS_COLLECTIVE, COLL_IS_PAIR, COLL_IS_TAG, COLL_IS_EVENT };

/* Links form a circle with the head of their list. A link in no list points to itself. */
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

/* Run and scratch memory of a collective in flight. */
struct coll_slot {
	struct coll_run *run;
	char *scratch;
	size_t scratch_bytes;
};

struct coll_inflight {
	/* Guarded by the async lock. */
	struct coll_link link;          /* in the context's list while pending > 0 */
	struct coll_link tagged;        /* in the context's list of those on which tagged messages may arrive */
	struct coll_link all, running;  /* requests, in the order of calls and of starting */
	unsigned pending;               /* incomplete requests, and `kept` */
	unsigned kept, kept_by;         /* 1: drivers look although nothing is pending; why (inflight.h) */
	bool closing;                   /* nothing keeps it any more but graphs */
	uint8_t busy;                   /* a bit for each of the slots */
	unsigned started;               /* running collectives */
	uint64_t begun;                 /* number of the last started collective */
	struct coll_request *tail;      /* the last submitted collective, until it starts */
	struct coll_request *last;      /* the last started collective, while it runs */
	struct coll_request *stalled;   /* waits until a running one ends */
	struct coll_link to_device;     /* receives whose message is to go to the device: see call/tag.c */
	struct coll_request **pairs[2]; /* by half and rank: the last submitted one, until complete */
	struct coll_request *faulty;    /* its run failed: examined, nothing else runs */
	struct coll_run *faulty_run;
	coll_status fault;
	struct coll_request *done; /* complete, to be recycled */
	struct coll_slot slots[COLL_IN_FLIGHT_MAX];

	/* Used by the communicator's thread only. */
	struct coll_request *spare[COLL_IS_EVENT]; /* by what they are */
	struct coll_link operations;               /* the persistent ones */
	/* The request of the operation that was started inline and not waited for yet, and the thread
	 * that started it. That thread may also take it from here while it waits for something else:
	 * see inlined.c. */
	_Atomic(struct coll_request *) current;
	_Atomic(const void *) starter;
};

#endif
