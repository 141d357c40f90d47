/*
 * What the service thread of a context serves beside the control plane and the transports: hooks of the context.
 */
#ifndef COLL_COMM_CLIENTS_H
#define COLL_COMM_CLIENTS_H

struct coll_context;

void coll_clients_join(struct coll_context *ctx);
void coll_clients_close(struct coll_context *ctx);

#endif
