/*
 * What a communicator has for captured calls (capture.h), from its first capture to its end, and beyond: launches may
 * still touch the memory as long as a graph lives.
 */
#ifndef COLL_DEVCALL_CAPTURE_RING_H
#define COLL_DEVCALL_CAPTURE_RING_H

#include "core/comm.h"
#include "device/device.h"

struct coll_stage;

/* ---- The communicator's thread ---- */

/* The ring of captured calls, made at the first one. Refuses a capture that nobody could drive. */
coll_status coll_capture_ring(struct coll_comm *comm, struct coll_stage **ring);

/* Nothing is pending. The communicator's memory of the device (devcall/mapped_region.h) is given up: where it stays, if
 * graphs may touch it; else NULL. */
struct coll_device_region *coll_capture_keeps(struct coll_comm *comm);
/* And then. Memory that a graph may still touch stays until a later call finds the graph gone. */
void coll_capture_destroy(struct coll_comm *comm);

/* ---- Drivers; the lock is held ---- */

/* Take back what belongs to graphs that are gone. */
void coll_capture_sweep(struct coll_comm *comm);

#endif
