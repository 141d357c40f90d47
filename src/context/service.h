/*
 * The service thread: one per context, asleep in poll() unless a control link, a
 * listener or a handshake needs it. It never touches user memory.
 */
#ifndef COLL_CONTEXT_SERVICE_H
#define COLL_CONTEXT_SERVICE_H

#include "context/context.h"

/* Another descriptor that the service thread looks after. */
struct coll_service_client {
	/* Readable when there is something to do; -1: not now. */
	int (*fd)(void *arg);
	/* On the service thread, in each of its turns; ready: the descriptor is readable. Never blocks. */
	void (*service)(void *arg, bool ready);
	void *arg;
};

/* Before the start; the client is borrowed until the thread has stopped. At most COLL_SERVICE_CLIENTS_MAX. */
void coll_service_add(struct coll_context *ctx, const struct coll_service_client *client);

coll_status coll_service_start(struct coll_context *ctx, struct coll_error_box *err);
void coll_service_stop(struct coll_context *ctx);

/* Its work once, without waiting: for contexts without the thread. */
void coll_service_once(struct coll_context *ctx);

/* Make it look again now (a caller asked something). Any thread. */
void coll_service_kick(struct coll_context *ctx);

#endif
