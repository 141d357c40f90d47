/*
 * shm: completion words of loaned buffers and announced destinations; progress, and what a sleeper looks at.
 */
#ifndef COLL_TRANSPORTS_SHM_COMPLETION_H
#define COLL_TRANSPORTS_SHM_COMPLETION_H

#include "transports/shm/ring.h"
#include "transports/shm/shm.h"

/* The next frame is loaned, and this completion word tells when it is given back. */
void coll_shm_loaned(struct shm_channel *c, struct coll_completion *completion);

/* completion.c */
coll_status coll_shm_recv_into(void *channel, void *ptr, const struct coll_memory *mem, const struct coll_frame *expect,
                               struct coll_completion *completion);
int coll_shm_progress(void *inst);
bool coll_shm_noteworthy(const struct shm_channel *c);
void coll_shm_quiesce(struct shm_channel *c);

#endif
