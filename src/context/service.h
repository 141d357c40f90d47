/*
 * The service thread: one per context. It sleeps in poll() unless a control link, a listener or a
 * handshake needs it. It never touches user memory.
 */
#ifndef COLL_CONTEXT_SERVICE_H
#define COLL_CONTEXT_SERVICE_H

#include "context/context.h"

/* A further descriptor that the service thread serves. */
struct coll_service_client {
	/* A descriptor that is readable when there is work; -1: none at present. */
	int (*fd)(void *arg);
	/* Called on the service thread in each of its iterations. ready: the descriptor is
	 * readable. Never blocks. */
	void (*service)(void *arg, bool ready);
	void *arg;
};

/* Add a client before the thread starts. The client is borrowed until the thread has stopped. At
 * most COLL_SERVICE_CLIENTS_MAX. */
void coll_service_add(struct coll_context *ctx, const struct coll_service_client *client);

coll_status coll_service_start(struct coll_context *ctx, struct coll_error_box *err);
void coll_service_stop(struct coll_context *ctx);

/* Do the thread's work once, without waiting: for contexts without the thread. */
void coll_service_once(struct coll_context *ctx);

/* Make the thread look again now, because a caller asked for something. Any thread. */
void coll_service_kick(struct coll_context *ctx);

#endif
