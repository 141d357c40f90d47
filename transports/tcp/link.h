/*
 * The life of a link.
 */
#ifndef COLL_TRANSPORTS_TCP_LINK_H
#define COLL_TRANSPORTS_TCP_LINK_H

#include "transports/tcp/tcp.h"

coll_status coll_tcp_link_open(void *inst, const struct coll_process_id *peer, const void *address, size_t len_bytes,
                               void **link);

/* For the table: l connects from now on. */
bool coll_tcp_link_begin(void *inst, struct coll_peer_link *l);

/* Before fd connects or listens: buffers, and how TCP sends again. */
void coll_tcp_link_prepare(const struct tcp_inst *in, int fd);
bool coll_tcp_link_control(const struct tcp_inst *in, int fd, enum tcp_path path);

/* The connection is made and proven. Takes fd whatever the result. All three
 * locks held. */
coll_status coll_tcp_link_up(struct tcp_link *l, int fd, struct coll_tcp_key key, bool same_machine);

/* Mark broken, fail completion words, close the socket. link's lock held. fail says where it was. */
void coll_tcp_link_tear(struct tcp_link *l, coll_status why, const char *format, ...)
        __attribute__((format(printf, 3, 4)));
void coll_tcp_link_fail(struct tcp_link *l, coll_status why, const char *format, ...)
        __attribute__((format(printf, 3, 4)));

/* Its socket, which belongs to the caller from now on; the link, which is up, must be torn before its lock is
 * released. */
int coll_tcp_link_detach(struct tcp_link *l);

/* The peer said BYE and closed; of one that is stranded, on another rail. link's lock held. */
void coll_tcp_link_ended(struct tcp_link *l);

/* Forget links that are over. service.lock held. */
void coll_tcp_link_compact(struct tcp_inst *in);

/* Note whether l has work that no event announces, and wake a sleeper if
 * there is news. Called with the link's lock held, before it is released, by code that may have
 * changed either. */
void coll_tcp_link_work(struct tcp_link *l);

/* The link of an event, locked; NULL when it is gone. */
struct tcp_link *coll_tcp_link_lock(struct tcp_inst *in, uint64_t tag);
void coll_tcp_link_free(struct tcp_link *l);

/*
 * Put the socket of a link that is up into the data epoll, or take it out. While it is in, every
 * segment that arrives costs a notification of epoll (0.2 us of 6 of a small all-reduce). So it
 * is out while links are read without epoll and no thread sleeps; arm() puts it in.
 * The same holds for the service thread's epoll, which reports the death of the peer. A thread that reads
 * the socket all the time detects that itself; if no thread has read for a tick, the timer puts it in.
 */
void coll_tcp_link_watch(struct tcp_link *l);
void coll_tcp_link_unwatch(struct tcp_link *l);
void coll_tcp_link_hear(struct tcp_link *l);

#endif
