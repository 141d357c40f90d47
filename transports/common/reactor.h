/*
 * The service work of a transport: one epoll set with a timer, a kick and
 * the descriptors that the transport adds, and the lock under which it is served.
 * The service thread serves it, or a progress call while something connects.
 *
 * The timer ticks at the interval that the transport wants, which is asked after each
 * round, and soon while a call has left something behind to be sent.
 */
#ifndef COLL_TRANSPORTS_COMMON_REACTOR_H
#define COLL_TRANSPORTS_COMMON_REACTOR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What the transport does; all with the reactor's lock held, and bounded. */
struct coll_reactor_table {
	/* The descriptor that was added with this tag is ready. */
	void (*event)(void *inst, uint64_t tag);
	/* soon: it was asked for. True: something is left, tick soon again. */
	bool (*tick)(void *inst, bool soon);
	/* At the end of a round. */
	void (*after)(void *inst);
	/* The interval wanted now, 0: none. */
	uint32_t (*interval_ms)(void *inst);
};

struct coll_reactor {
	pthread_mutex_t lock;
	const struct coll_reactor_table *table;
	void *inst;
	int epoll_fd, timer_fd, kick_fd;
	uint32_t tick_ms; /* lock; 0: the timer is off */
	_Atomic bool soon;
};

/* Without descriptors: fini() may follow at once. */
void coll_reactor_init(struct coll_reactor *r, const struct coll_reactor_table *table, void *inst);
/* False: errno says why. */
bool coll_reactor_open(struct coll_reactor *r);
void coll_reactor_fini(struct coll_reactor *r);

/* epoll_ctl on its set; the tags of the transport are below 1 << 63. */
bool coll_reactor_watch(struct coll_reactor *r, int fd, uint32_t events, uint64_t tag, int how);

/* Have it served. Any lock held. */
void coll_reactor_kick(struct coll_reactor *r);
/* Have it tick soon. Called with the lock held under which tick() looks at what is left. */
void coll_reactor_soon(struct coll_reactor *r);

void coll_reactor_serve(struct coll_reactor *r);
/* The same if nobody is inside; true if there was an event. */
bool coll_reactor_try(struct coll_reactor *r);

/* One more in an eventfd that may have a sleeper; fd may be -1. */
void coll_eventfd_raise(int fd);

#endif
