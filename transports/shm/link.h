/*
 * shm: links: made, found, broken and freed.
 */
#ifndef COLL_TRANSPORTS_SHM_LINK_H
#define COLL_TRANSPORTS_SHM_LINK_H

#include "transports/shm/shm.h"

/* link.c; all but the table's entries: lock held */
coll_status coll_shm_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                               void **link);
void coll_shm_link_close(void *link);
coll_status coll_shm_link_status(void *link);
struct shm_link *coll_shm_link_new(struct shm_inst *in, const struct coll_process_id *peer);
struct shm_link *coll_shm_link_find(struct shm_inst *in, const struct coll_process_id *peer); /* not broken */
bool coll_shm_we_connect(const struct shm_link *l);

/* The link is over. cause is a literal. */
void coll_shm_link_break(struct shm_link *l, coll_status why, const char *cause);

/* A cause: what cannot be done, and the system call that has failed in this thread. */
const char *coll_shm_lack(struct shm_inst *in, const char *what);
void coll_shm_link_free(struct shm_link *l);                   /* out of the list already */
bool coll_shm_watch_process(struct shm_link *l, uint32_t pid); /* false: no such process */
void coll_shm_unwatch_process(struct shm_link *l);
bool coll_shm_watch(struct shm_inst *in, struct shm_source *source, uint32_t events);
void coll_shm_conn_end(struct shm_inst *in, struct shm_conn *c); /* freed by the next sweep */
void coll_shm_sweep(struct shm_inst *in);
void coll_shm_timer(struct shm_inst *in, long ms);

#endif
