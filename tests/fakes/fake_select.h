/*
 * src/select as those above it meet it: one memo for all calls of four-byte elements. All functions are weak, so that
 * what a program links of src/select itself takes their place.
 */
#ifndef COLL_FAKES_FAKE_SELECT_H
#define COLL_FAKES_FAKE_SELECT_H

#include "select/bind.h"
#include "select/bind_pair.h"
#include "select/price.h"

enum { FAKE_ELEM_BYTES = 4 };

extern struct fake_select {
	struct coll_memo memo;
	coll_status refuse;      /* coll_call_remember() returns it */
	coll_status refuse_pair; /* coll_pair_plan() */
	int remembered, bound;
	/* What files of src/select say to each other. */
	struct coll_select_choice choice; /* coll_select_plan() */
	coll_status no_choice;
	int chosen;
	struct coll_select_price prices[16]; /* coll_select_price(), by row */
	coll_status no_force;                /* coll_select_forced() */
	const struct coll_algo *forced;
} fake_select;

void fake_select_reset(void);

/* The signature that these calls get. */
uint32_t fake_select_signature(const struct coll_call *call);

#endif
