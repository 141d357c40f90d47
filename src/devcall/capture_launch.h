/*
 * Launches of graphs with captured calls (capture.h): the device comes to a call, its run begins, the device leaves it.
 */
#ifndef COLL_DEVCALL_CAPTURE_LAUNCH_H
#define COLL_DEVCALL_CAPTURE_LAUNCH_H

#include "core/comm.h"

struct coll_captured;
struct coll_capture;
struct coll_request;

/* ---- The communicator's thread ---- */

/* The communicator is about to be destroyed: launches from here on do nothing. What is under way goes on. */
void coll_capture_close(struct coll_comm *comm);

/* ---- Drivers; the lock is held ---- */

/* Runs and scratch for the collectives of a group. */
coll_status coll_capture_places(struct coll_capture *c, const struct coll_captured *x);
/* Start what the device has reached, and pass on what has moved. */
bool coll_capture_poll(struct coll_comm *comm);
/* Whether the device has left the calls that this request was captured with. */
bool coll_capture_left(const struct coll_request *r);
/* The communicator has failed. */
void coll_capture_release(struct coll_comm *comm);

#endif
