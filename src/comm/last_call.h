/*
 * The last call of a communicator, which destroy makes.
 */
#ifndef COLL_COMM_LAST_CALL_H
#define COLL_COMM_LAST_CALL_H

#include "core/comm.h"

/* Its buffers. */
struct coll_last_call {
	uint64_t in[COLL_PAIR_SUMS], out[COLL_PAIR_SUMS];
	bool compares; /* it adds up in of all ranks */
};

/* Begin it, as coll_comm_begin(). */
coll_status coll_last_call_begin(struct coll_comm *comm, struct coll_last_call *last);

/* It has ended: fail the communicator if lengths have differed. */
void coll_last_call_compare(struct coll_comm *comm, const struct coll_last_call *last);

#endif
