/*
 * shm: memory of a receiver that its peer writes.
 */
#ifndef COLL_TRANSPORTS_SHM_PUSH_H
#define COLL_TRANSPORTS_SHM_PUSH_H

#include "transport/transport_shared.h"
#include "transports/shm/shm.h"

/* push.c */
coll_status coll_shm_invite(void *channel, uint32_t ahead, void *ptr, const struct coll_memory *mem,
                            const struct coll_frame *expect);
coll_status coll_shm_push(void *channel, const struct coll_frame *frame, void **p);
void coll_shm_end_pushing(struct shm_channel *c); /* sender: nothing is written there any more */
void *coll_shm_pushed(const struct shm_channel *c, uint32_t len_bytes);
void coll_shm_part(void *link, void *ptr, size_t len_bytes);
void coll_shm_uninvite(struct shm_channel *c); /* receiver: nobody writes what was offered; pending.lock held */

#endif
