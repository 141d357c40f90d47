/*
 * shm: memory that peers on this host map and read where it lies.
 */
#ifndef COLL_TRANSPORTS_SHM_REGION_H
#define COLL_TRANSPORTS_SHM_REGION_H

#include "transport/transport_shared.h"
#include "transports/shm/shm.h"

/* region.c */
coll_status coll_shm_mem_alloc(void *inst, size_t len_bytes, struct coll_memory *mem);
void coll_shm_mem_free(void *inst, struct coll_memory *mem);
void coll_shm_settle(void *inst, const struct coll_memory *mem);
void coll_shm_regions_free(struct shm_inst *in);

/* The id of the region that holds all of it and that the peer has been told of, or 0. */
uint32_t coll_shm_lend(struct shm_channel *c, const void *ptr, const struct coll_memory *mem, size_t len_bytes,
                       uint64_t *offset);

/* Pages that belong to one of our regions are none of its pages any more: it is not loaned again. */
void coll_shm_region_tear(struct shm_inst *in, const char *p, size_t len_bytes);
coll_status coll_shm_on_region(struct shm_link *l, const struct shm_region_note *note, int fd);
void coll_shm_on_unregion(struct shm_link *l, const struct shm_region_note *note);

/* Hold a mapping while its bytes are looked at; NULL: not known (yet). */
const char *coll_shm_borrow(struct shm_link *l, uint32_t region, uint64_t offset, size_t len_bytes,
                            struct shm_mapping **mapping);
void coll_shm_return(struct shm_mapping *mapping);
coll_status coll_shm_share(void *link, const void *ptr, size_t len_bytes, struct coll_piece *piece);
coll_status coll_shm_reach(void *link, const struct coll_piece *piece, size_t len_bytes, void **p, void **hold);
void coll_shm_leave(void *link, void *hold);
void coll_shm_mappings_free(struct shm_link *l);

#endif
