/*
 * Staged calls: calls with device memory, or in a stream of a device.
 *
 * Invariants:
 *  - All staged calls of a communicator are enqueued by its thread in their order, and each begins on the device when
 *    the one before has ended there, whatever their streams. So one ring of slots and one count of tiles serve all.
 *  - What is enqueued is itself a valid serial order: a stream that waits for a tile has everything in front of it that
 *    this tile needs from this rank.
 *  - Drivers read and write words only. The communicator's thread alone calls the device.
 */
#ifndef COLL_DEVCALL_STAGE_H
#define COLL_DEVCALL_STAGE_H

#include "devcall/device_call.h"

/* The staging memory of a communicator whose context has a device, else nothing. Local. */
coll_status coll_stage_create(struct coll_comm *comm, struct coll_error_box *err);
/* Waits for a bounded time until the device has left the memory. If it has not, the memory stays. */
void coll_stage_destroy(struct coll_comm *comm);

/* These are members of coll_device_driver. */
bool coll_stage_on_device(struct coll_comm *comm, const void *ptr, size_t len_bytes);
/* Besides, whether the request has to do with the device. */
coll_status coll_stage_add(struct coll_batch *b, struct coll_request *r, const struct coll_stream *stream, bool *has);
coll_status coll_stage_assign(const struct coll_batch *b);
bool coll_stage_has_left(const struct coll_comm *comm);
void coll_stage_look(struct coll_context *ctx, bool query);

/* The driver has reported an error: the communicator fails by it. If the error is sticky, what is in the streams never
 * ends, and is not waited for. Returns the error. */
coll_status coll_stage_give_up(struct coll_comm *comm, coll_status st);

/* The communicator has failed: streams that wait go on, and kernels write nothing any more. The lock is held. */
void coll_stage_release(struct coll_comm *comm);

#endif
