/*
 * Operations without plans: one for all calls up to a length, one for zero copy.
 */
#ifndef COLL_FAKES_FAKE_INTRA_H
#define COLL_FAKES_FAKE_INTRA_H

#include "intra/intra.h"

extern struct fake_intra {
	struct coll_intra_op op, zero_copy;
	bool serves, serves_zero_copy; /* any call */
	size_t payload_bytes;          /* with which it was asked */
	int created;
	struct coll_intra_fabric fabric; /* of the creation */
} fake_intra;

#endif
