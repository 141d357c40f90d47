/*
 * shm: opening and closing channels; grants and closes that come over the socket.
 */
#ifndef COLL_TRANSPORTS_SHM_CHANNEL_H
#define COLL_TRANSPORTS_SHM_CHANNEL_H

#include "transports/shm/shm.h"

/* channel.c */
coll_status coll_shm_channel_open(void *link, const struct coll_channel_key *key, enum coll_direction dir,
                                  size_t slot_bytes, uint32_t slots, void **channel);
void coll_shm_channel_close(void *channel);
coll_status coll_shm_on_grant(struct shm_link *l, const struct shm_grant *g, int fd);
void coll_shm_on_close(struct shm_link *l, uint64_t ring);
void coll_shm_on_withdraw(struct shm_link *l, uint64_t ring);

#endif
