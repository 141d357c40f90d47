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
#ifndef COLL_PROGRESS_STAGE_H
#define COLL_PROGRESS_STAGE_H

#include "device/device.h"
#include "progress/async.h"

/* The staging memory of a communicator whose context has a device, else nothing. Local. */
coll_status coll_stage_create(struct coll_comm *comm, struct coll_error_box *err);
/* Waits for a bounded time until the device has left the memory. If it has not, the memory stays. */
void coll_stage_destroy(struct coll_comm *comm);

/* Requests that are submitted together, by communicator: the first of each communicator, linked by next_chain. The
 * others follow it by next_staged. */
struct coll_stage_batch {
	struct coll_request *chains;
	bool captured; /* a stream is being captured */
	bool outside;  /* a request is in no capture, or in another one than the first of its communicator */
};

/* Whether memory that the call has been given is the device's, and is needed at all. */
bool coll_stage_on_device(struct coll_comm *comm, const void *ptr, size_t len_bytes);

/* Find out whether a bound request is staged, and add it to the batch if it is. Refuses what cannot be. */
coll_status coll_stage_add(struct coll_stage_batch *b, struct coll_request *r, const struct coll_stream *stream);
/* Before their submission: give them slots. Those of a capture are not submitted: they belong to the graph then
 * (in_graph), or are refused. */
coll_status coll_stage_deal(const struct coll_stage_batch *b);
/* Copy the next tile of a staged request that has no run, if it may be copied. True: it was. The lock is held. */
bool coll_stage_copy(struct coll_request *r);
/* Whether all have been copied. */
bool coll_stage_is_copied(const struct coll_request *r);

/* Whether the device has done the last piece of work of a staged request, or never will. */
bool coll_stage_drained(const struct coll_request *r);
/* Whether the device has done all work of the communicator, or never will. */
bool coll_stage_has_left(const struct coll_comm *comm);
/* Whether the request cannot go on before its stream has reached it. */
bool coll_stage_waits_for_stream(const struct coll_request *r);

/* The driver has reported an error: the communicator fails by it. If the error is sticky, what is in the streams never
 * ends, and is not waited for. Returns the error. */
coll_status coll_stage_give_up(struct coll_comm *comm, coll_status st);

/* The communicator has failed: streams that wait go on, and kernels write nothing any more. The lock is held. */
void coll_stage_release(struct coll_comm *comm);

/* Ask the driver, by a stream with work of the context. If it reports an error, the communicators that have calls on
 * the device end by it. */
void coll_stage_look(struct coll_context *ctx);

/* The same from a query, which a program may repeat without end: now and then only. */
void coll_stage_look_sometimes(struct coll_context *ctx);

/* coll_async_await(), or with a communicator coll_async_await_comm(), for what a stream of the device has to do: an
 * error of the driver ends the communicators that have calls there, since nothing else would end the wait. */
coll_status coll_stage_await(struct coll_context *ctx, struct coll_comm *comm, bool (*done)(void *arg), void *arg,
                             int timeout_ms);

#endif
