/*
 * shm: segments of shared memory, and the rings cut from them.
 */
#ifndef COLL_TRANSPORTS_SHM_SEGMENT_H
#define COLL_TRANSPORTS_SHM_SEGMENT_H

#include "transports/shm/shm.h"

/* segment.c */
int coll_shm_memfd(size_t len);
char *coll_shm_map(int fd, size_t len, bool writable); /* NULL: not what it says, or no memory */
size_t coll_shm_stride(size_t slot_bytes);             /* bytes from slot to slot */
size_t coll_shm_ring_bytes(size_t slot_bytes, uint32_t slots);
coll_status coll_shm_ring_new(struct shm_link *l, size_t slot_bytes, uint32_t slots, struct shm_ring **ring);
void coll_shm_ring_put(struct shm_link *l, struct shm_ring *ring); /* frees it once both sides have left */
struct shm_segment *coll_shm_segment_find(struct shm_segment *list, uint32_t id);
void coll_shm_segments_free(struct shm_segment **list);

#endif
