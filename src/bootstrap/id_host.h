/*
 * Hosts of unique ids: threads of the process that made an id, in which its ranks meet.
 */
#ifndef COLL_BOOTSTRAP_ID_HOST_H
#define COLL_BOOTSTRAP_ID_HOST_H

#include "bootstrap/rendezvous.h"

/* Start the host of an id with this key; once it has started it owns the listeners. The process has at
 * most COLL_ID_WAITING_MAX hosts to which no rank has come: one more gives up the oldest. */
enum { COLL_ID_WAITING_MAX = 64 };
coll_status coll_id_host_start(const uint64_t key[2], const struct coll_rendezvous_listeners *listeners,
                               struct coll_error_box *err);

/* Whether the meeting of an id of this process has ended. The last COLL_ID_ENDED_MAX are remembered. */
enum { COLL_ID_ENDED_MAX = 64 };
bool coll_id_host_ended(const uint64_t key[2]);

/* Wait until the host, if it is in this process, has given everything to all ranks; until deadline_ns at most. */
void coll_id_host_await(const uint64_t key[2], uint64_t deadline_ns);

/* No rank will come to the host. */
void coll_id_host_give_up(const uint64_t key[2]);

#endif
