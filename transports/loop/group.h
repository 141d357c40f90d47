/*
 * The group of loop, and the bells that wake its instances.
 */
#ifndef COLL_TRANSPORTS_LOOP_GROUP_H
#define COLL_TRANSPORTS_LOOP_GROUP_H

#include "transport/transport.h"
#include "transports/loop/loop.h"

coll_status coll_loop_group_create(struct coll_loop_group **group);
void coll_loop_group_destroy(struct coll_loop_group **group);

/* group.c */
void coll_loop_ring(struct loop_bell *bell);
struct loop_bell *coll_loop_bell_new(int wake_fd);

/* Under the group's lock: a reference less; what is freed with all that it holds; whether a process is gone, or there.
 */
void coll_loop_bell_put(struct loop_bell *bell);
void coll_loop_pipe_free(struct loop_pipe *p);
void coll_loop_pair_free(struct loop_pair *pair);
bool coll_loop_buried(const struct coll_loop_group *h, const struct coll_process_id *id);
bool coll_loop_alive(const struct coll_loop_group *h, const struct coll_process_id *id);

#endif
