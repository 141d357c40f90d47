/*
 * The links of an instance, for transports that make a connection to each peer: their
 * table, and what is the same in each of them, which is what those outside of the
 * transport see of a link. A transport's link has it as its first member, base.
 *
 * Locks: the table's guards which links there are; a link's own its members. Taken in
 * this order; neither is held while env->link_down runs. A free place in the table is
 * used again, and no link is freed before fini.
 */
#ifndef COLL_TRANSPORTS_COMMON_LINK_TABLE_H
#define COLL_TRANSPORTS_COMMON_LINK_TABLE_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "transport/transport.h"

/* Beside the coll_status of a link: its place in the table is free. */
enum { COLL_LINK_FREE = -1 };

struct coll_peer_link {
	pthread_mutex_t lock;
	uint32_t slot; /* its place, for good */
	/* FREE, then AGAIN while it is not up, OK, an error, FREE. Written with the lock held. */
	_Atomic int status;
	struct coll_process_id peer; /* the table's lock, too */
	uint32_t part;               /* 0, or which further connection to the peer; the table's lock, too */
	uint32_t opens;              /* handles out: link_open minus link_close */
	bool lingering;              /* closed by us, and not over */
	bool notice;                 /* link_down is owed */
	int closes;                  /* 1 + a socket that is closed once link_down has been told; 0: none */
	coll_status why;
	char cause[240];
	/* Of the first rail (rails.h) of a link that is open: all of them, itself first. Written under the table's lock
	 * and its own. */
	unsigned rails; /* 0: not open */
	struct coll_peer_link *rail[COLL_RAILS_MAX];
};

/* After coll_peer_link_fail(): the peer lives, and the reason is at this end. It learns it by a note, which is to come
 * before the end of the connection: so the socket goes into `closes`. */
bool coll_peer_link_tells_first(const struct coll_peer_link *l);

struct coll_link_table {
	pthread_mutex_t lock;
	struct coll_peer_link **at;
	_Atomic uint32_t count;
	uint32_t cap;
	size_t link_bytes;
	bool (*begin)(void *inst, struct coll_peer_link *l);
	void *inst;
	_Atomic uint32_t notices; /* raised with every notice */
	_Atomic uint32_t stale;   /* raised when a link is to be looked at: it ended, or was closed */
	_Atomic bool torn;        /* a link of several rails may have lost one */
};

/* begin makes a link of link_bytes, whose place was free until now, one that connects; both
 * locks are held. False: no memory, and nothing has been made. */
void coll_link_table_init(struct coll_link_table *t, size_t link_bytes,
                          bool (*begin)(void *inst, struct coll_peer_link *l), void *inst);
/* The links, too; the transport has emptied them. */
void coll_link_table_fini(struct coll_link_table *t);

/* NULL: there are not so many. No link's lock held. */
struct coll_peer_link *coll_link_table_at(struct coll_link_table *t, uint32_t i);
/* These two with the table's lock held: the link to peer that works and is not closed, or
 * NULL; one that begins, or NULL: no memory. part: 0, or the number of a further connection that
 * belongs to the link. Only the link itself calls link_down. */
struct coll_peer_link *coll_link_table_find(struct coll_link_table *t, const struct coll_process_id *peer,
                                            uint32_t part);
struct coll_peer_link *coll_link_table_new(struct coll_link_table *t, const struct coll_process_id *peer,
                                           uint32_t part);
/* Find or make it, and count one handle more: locked. NULL: no memory. */
struct coll_peer_link *coll_link_table_open(struct coll_link_table *t, const struct coll_process_id *peer);

/* Deliver the link_down of links that broke. No lock held. */
void coll_link_table_notify(struct coll_link_table *t, const struct coll_transport_env *env, const char *name);
/* Before the end: wait until no link owes its peer anything, at most ms. Links are asked in passes; what serves
 * all of them at once is done by pass (or NULL), before each. */
void coll_link_table_flush(struct coll_link_table *t, void (*pass)(void *inst), bool (*owes)(struct coll_peer_link *l),
                           uint32_t ms);

/* The entry link_status of a transport's table; link may be any link. */
coll_status coll_peer_link_status(void *link);

/* The following with the link's lock held. */

/* It connects, is up, or is being reconnected. */
static inline bool coll_peer_link_works(const struct coll_peer_link *l)
{
	const int status = atomic_load_explicit(&l->status, memory_order_relaxed);

	return status == COLL_OK || status == COLL_AGAIN;
}

static inline void coll_peer_link_up(struct coll_peer_link *l)
{
	atomic_store_explicit(&l->status, COLL_OK, memory_order_release);
}

/* One handle less; true: it was the last, and the link lingers. */
bool coll_peer_link_release(struct coll_link_table *t, struct coll_peer_link *l);
/* It broke: false if it does not work any more. */
bool coll_peer_link_fail(struct coll_link_table *t, struct coll_peer_link *l, coll_status why, const char *format,
                         va_list ap) __attribute__((format(printf, 4, 0)));
/* The peer has closed it in order: no link_down. */
void coll_peer_link_ended(struct coll_link_table *t, struct coll_peer_link *l);
/* Its place is free. The transport has emptied its part. */
void coll_peer_link_forget(struct coll_peer_link *l);

#endif
