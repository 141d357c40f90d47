/*
 * Calls in streams that are being captured: they run at each launch of the graph. Persistent operations and ordinary
 * calls alike.
 *
 * Invariants:
 *  - The calls of all graphs of a communicator run on the device one after the other: within a graph in the order of
 *    capture, among graphs in the order of their launches. The host numbers them as the device reaches them, apart
 *    from all other calls, and they have channels of their own. So ranks agree on their order if they agree on that
 *    of their launches, and other calls have no order with them.
 *  - The words that streams wait for are written by the host alone. So a communicator that has ended or failed lets
 *    them all pass, for good, and its guard keeps every later launch from writing.
 *  - A launch allocates nothing but channels, at its first time. The requests of a graph live until the driver says
 *    that graph, executables and launches are gone.
 */
#ifndef COLL_DEVCALL_CAPTURE_H
#define COLL_DEVCALL_CAPTURE_H

#include "devcall/stage.h"

/* By the communicator's thread. */

/* A request of a capture that moves nothing on this rank: it has a place in the order all the same, or is refused. */
coll_status coll_capture_empty(struct coll_request *r);
/* The requests of a batch become part of the graph. */
coll_status coll_capture_take(const struct coll_batch *b);

#endif
