/*
 * Unique ids: the addresses of the root's listeners and the key of the job in 128
 * bytes, which the caller or a launcher's key-value store hands to the others.
 */
#ifndef COLL_BOOTSTRAP_ID_H
#define COLL_BOOTSTRAP_ID_H

#include "bootstrap/address.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/rendezvous.h"

/* Where the id's listeners are (a Unix socket first, if they are on this host) and
 * the key. */
coll_status coll_id_read(const coll_unique_id *id, struct coll_places *places, uint64_t key[2],
                         struct coll_error_box *err);

/*
 * Rank 0 makes an id, the launcher's store carries it, all return with it. Done
 * once per process: launchers end the conversation after that, so the id is kept for
 * later communicators of the same process, and rank 0's listeners until the first meeting.
 */
coll_status coll_id_publish(const struct coll_settings *settings, const struct coll_identity *who, uint64_t deadline_ns,
                            coll_unique_id *id, struct coll_error_box *err);

/* The ranks of the published id have met, or failed to. */
void coll_id_exchanged(const struct coll_identity *who, coll_status st);

/* The listeners of rank 0 for a meeting at the published id; the caller closes them. */
void coll_id_take_listeners(struct coll_rendezvous_listeners *l);
/* Whether the ranks of the published id have begun to meet before; from this call on they have. Then rank 0 listens
 * anew, at a port of its choice. */
bool coll_id_met(void);
coll_status coll_id_listen(const struct coll_settings *settings, const uint64_t key[2], uint16_t first, uint16_t last,
                           struct coll_rendezvous_listeners *l, uint16_t *port, struct coll_error_box *err);

/* No rank will use the id, if it was made here. */
void coll_id_give_up(const coll_unique_id *id);

/* Implementation of coll_unique_id_create(). This process hosts the meeting (id_host.h). */
coll_status coll_bootstrap_unique_id(const struct coll_settings *settings, coll_unique_id *id,
                                     struct coll_error_box *err);

#endif
