/*
 * The intranode object, whose operations no test runs.
 */
#ifndef COLL_FAKES_FAKE_INTRA_H
#define COLL_FAKES_FAKE_INTRA_H

#include "intra/region.h"

extern struct fake_intra {
	size_t payload_bytes; /* of the creation */
	int created;
	struct coll_intra_fabric fabric; /* of the creation */
	struct coll_intra object;
} fake_intra;

#endif
