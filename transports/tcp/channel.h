/*
 * Channels.
 */
#ifndef COLL_TRANSPORTS_TCP_CHANNEL_H
#define COLL_TRANSPORTS_TCP_CHANNEL_H

#include "transports/tcp/tcp.h"

coll_status coll_tcp_channel_open(void *link, const struct coll_channel_key *key, enum coll_direction dir,
                                  size_t slot_bytes, uint32_t slots, void **channel);
void coll_tcp_channel_close(void *channel);
coll_status coll_tcp_slot(void *channel, size_t len_bytes, void **p);
coll_status coll_tcp_post(void *channel, const struct coll_frame *frame);
coll_status coll_tcp_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                              const struct coll_frame *frame, struct coll_completion *completion);
coll_status coll_tcp_view(void *channel, const void **p, struct coll_frame *frame);
coll_status coll_tcp_done(void *channel);
coll_status coll_tcp_recv_into(void *channel, void *ptr, const struct coll_memory *mem, const struct coll_frame *expect,
                               struct coll_completion *completion);
coll_status coll_tcp_recv_through(void *channel, const struct coll_taker *taker, const struct coll_frame *expect,
                                  struct coll_completion *completion);

/* Tell the peer that a receiver is open. */
void coll_tcp_channel_grant(struct tcp_receiver *r);

/* Something happened on ch: complete its completion words, and have sleepers woken. */
void coll_tcp_channel_event(struct tcp_channel *ch);

/* The kernel has taken entry e (or it is dropped). */
void coll_tcp_channel_sent(struct tcp_link *l, struct tcp_entry *e);
void coll_tcp_channel_free_sender(struct tcp_sender *s);
void coll_tcp_channel_free_receiver(struct tcp_receiver *r);

#endif
