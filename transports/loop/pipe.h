/*
 * loop.
 */
#ifndef COLL_TRANSPORTS_LOOP_PIPE_H
#define COLL_TRANSPORTS_LOOP_PIPE_H

#include "transports/loop/loop.h"

/* pipe.c: the data path. */
coll_status coll_loop_slot(void *channel, size_t len_bytes, void **p);
coll_status coll_loop_post(void *channel, const struct coll_frame *frame);
coll_status coll_loop_post_ref(void *channel, const void *ptr, const struct coll_memory *mem,
                               const struct coll_frame *frame, struct coll_completion *completion);
coll_status coll_loop_view(void *channel, const void **p, struct coll_frame *frame);
coll_status coll_loop_done(void *channel);
coll_status coll_loop_recv_into(void *channel, void *ptr, const struct coll_memory *mem,
                                const struct coll_frame *expect, struct coll_completion *completion);
int coll_loop_progress(void *inst);

/* Something the channel's owner was refused is there now. */
bool coll_loop_noteworthy(const struct loop_channel *c);

/* Take back or give back what is loaned, and settle every completion word. */
void coll_loop_quiesce(struct loop_channel *c);

#endif
