/*
 * shm: messages on the Unix socket of a link.
 */
#ifndef COLL_TRANSPORTS_SHM_WIRE_H
#define COLL_TRANSPORTS_SHM_WIRE_H

#include "transports/shm/shm.h"

/* wire.c */
struct shm_message coll_shm_message(enum shm_message_type type);

/* 1 sent, 0 would block, -1 gone. */
int coll_shm_transmit(int fd, const struct shm_message *m, const int fds[2]);

/* 1 received, 0 none, -1 gone or malformed, -2: it brought descriptors and this process could not take them.
 * fds: -1 where none; the caller's to close. */
int coll_shm_receive(int fd, struct shm_message *m, int fds[2], bool accept_fds);

/* lock held. Queue behind what waits, send what can be sent. own_fd: fds[0] is
 * closed once sent. */
coll_status coll_shm_enqueue(struct shm_link *l, const struct shm_message *m, int fd, bool own_fd);
void coll_shm_flush(struct shm_link *l);
void coll_shm_drop_queue(struct shm_link *l);
struct coll_proof coll_shm_proof(const struct shm_inst *in, char who, const struct coll_process_id *connecting,
                                 const struct coll_process_id *accepting, const uint64_t nonce[2][2]);

#endif
