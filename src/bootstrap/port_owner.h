/*
 * Who listens at a TCP port of this host.
 */
#ifndef COLL_BOOTSTRAP_PORT_OWNER_H
#define COLL_BOOTSTRAP_PORT_OWNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "process 4711 (python3) of user 1000", "a process of user 65534", or "" if the kernel does not say. */
void coll_port_owner(uint16_t port, char *text, size_t text_bytes);

/* False: only processes of other users listen there. */
bool coll_port_may_be_own(uint16_t port);

#endif
