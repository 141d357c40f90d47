/*
 * The service thread's work.
 */
#ifndef COLL_TRANSPORTS_TCP_SERVICE_H
#define COLL_TRANSPORTS_TCP_SERVICE_H

#include "transports/tcp/tcp.h"

void coll_tcp_service(void *inst);

#endif
