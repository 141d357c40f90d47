/*
 * shm: the handshake of a link, and what is said on it afterwards.
 */
#ifndef COLL_TRANSPORTS_SHM_JOIN_H
#define COLL_TRANSPORTS_SHM_JOIN_H

#include "transports/shm/shm.h"

/* join.c: lock held. True: go on reading. fds are consumed. */
bool coll_shm_on_message(struct shm_inst *in, struct shm_conn *c, const struct shm_message *m, const int fds[2]);

#endif
