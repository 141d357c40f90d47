/*
 * shm: memory that a peer maps for longer than a frame.
 */
#ifndef COLL_TRANSPORTS_SHM_OFFER_H
#define COLL_TRANSPORTS_SHM_OFFER_H

#include "transport/transport_shared.h"
#include "transports/shm/shm.h"

/* offer.c */
coll_status coll_shm_offer(void *link, const struct coll_channel_key *key, const struct coll_memory *mem);
void coll_shm_withdraw(void *link, const struct coll_channel_key *key);
coll_status coll_shm_offered(void *link, const struct coll_channel_key *key, struct coll_offer *offer);
void coll_shm_give_back(void *link, struct coll_offer *offer);
void coll_shm_nudge(void *link);
coll_status coll_shm_hand(void *link, const struct coll_channel_key *key, int fd);
coll_status coll_shm_handed(void *link, const struct coll_channel_key *key, int *fd);

/* lock held */
coll_status coll_shm_on_offer(struct shm_link *l, const struct shm_offer_note *note, int fd);
void coll_shm_on_unoffer(struct shm_link *l, const struct shm_offer_note *note);
coll_status coll_shm_on_hand(struct shm_link *l, const struct shm_offer_note *note, int fd);
void coll_shm_offers_free(struct shm_link *l);

#endif
