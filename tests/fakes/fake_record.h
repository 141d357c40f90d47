/*
 * Call records without their concurrency: a box is a copy, and the flight recorder has what the test wrote down.
 */
#ifndef COLL_FAKES_FAKE_RECORD_H
#define COLL_FAKES_FAKE_RECORD_H

#include "record/recorder.h"

enum { FAKE_OPS = 8 };

extern struct fake_record {
	/* What coll_recorder_read() finds, by number on the ring. */
	struct coll_op_record op[FAKE_OPS];
	int nops;
	int32_t waits_for; /* of the last coll_recorder_waits() */
	int waits, started;
} fake_record;

void fake_record_reset(void);

/* A call of a communicator, active, that waits for nobody. Its description is "kind K number N" with a count of 0, and
 * "kind K count C number N" otherwise. */
struct coll_record fake_record_of(uint64_t comm, uint8_t kind, uint64_t sequence, uint64_t count);

/* One more on the flight recorder r, which reads them from here. */
void fake_record_add(struct coll_recorder *r, const struct coll_op_record *op);

#endif
