/*
 * The name of "this host" as far as sharing memory and abstract Unix sockets goes.
 */
#ifndef COLL_BOOTSTRAP_HOST_ID_H
#define COLL_BOOTSTRAP_HOST_ID_H

#include "bootstrap/bootstrap.h"

/* A string that is equal on processes of one host and differs between hosts
 * (boot id and namespaces; COLL_HOST_ID overrides). */
void coll_bootstrap_host_id(const struct coll_settings *settings, char *buf, size_t len_bytes);

/* Equal on processes of one network namespace; 0: unknown. */
uint64_t coll_bootstrap_name_space(void);

/* Equal on processes that share cores, containers of one machine too, whatever COLL_HOST_ID says. */
uint64_t coll_bootstrap_machine(void);

/* A number of the name space of process ids: equal where an id means the same on one machine; 0: unknown. */
uint64_t coll_bootstrap_process_space(void);

#endif
