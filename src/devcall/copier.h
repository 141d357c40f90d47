/*
 * Copies between device memory and any host memory, made by the thread that asks for them.
 *
 * Payloads of tagged messages come and go when no stream knows. So a blocking send fetches its payload before the
 * message leaves, and who waits for a receive brings the payload to the device when it has come. Drivers never do:
 * they make no driver call.
 *
 * The context of a rank with a device has one copier, with pinned memory and a stream of its own. One thread at a time
 * has it, from take to give; that waits for nothing but the device.
 */
#ifndef COLL_DEVCALL_COPIER_H
#define COLL_DEVCALL_COPIER_H

#include "inflight/async.h"

/* Of a context whose device is open; without a device nothing is made. */
coll_status coll_copier_create(struct coll_context *ctx, struct coll_error_box *err);
void coll_copier_destroy(struct coll_context *ctx);

/* Waits until no other thread has it, and drives meanwhile. */
void coll_copier_take(struct coll_context *ctx);
void coll_copier_give(struct coll_context *ctx);

/* Copy, and wait for the end. The memory lies in one allocation of the device, at its address there. An error is one of
 * the driver, which the device describes; from then on all copies end so. */
coll_status coll_copier_fetch(struct coll_context *ctx, void *host, const void *device, size_t len_bytes);
coll_status coll_copier_bring(struct coll_context *ctx, void *device, const void *host, size_t len_bytes);

#endif
