/*
 * One collective call, after the argument checks of api/: what the user asked for.
 */
#ifndef COLL_CORE_CALL_H
#define COLL_CORE_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll.h"
#include "plan/plan.h"

struct coll_stream;

struct coll_call {
	enum coll_kind kind;
	uint8_t record_kind; /* enum coll_record_kind: what the call is for the user; 0: same as kind */
	const void *in;
	void *out;
	size_t count; /* vector length, or block length of kinds with equal blocks */
	coll_dtype type;
	coll_op op; /* of reducing kinds */
	int root;
	const size_t *in_counts, *in_offsets; /* of v-variants; NULL: equal blocks */
	const size_t *out_counts, *out_offsets;
	bool ragged;                /* all ranks have all lengths */
	bool pairwise;              /* only the two ends of a message have its length */
	struct coll_stream *stream; /* NULL: blocking */
};

/* Its name, and its enum coll_record_kind: what the call is to the user. */
const char *coll_call_name(const struct coll_call *call);
uint8_t coll_call_kind(const struct coll_call *call);

/* A number of all that the ranks of a communicator of so many must agree on. Its frames carry it. */
uint32_t coll_call_signature(const struct coll_call *call, int size);

/* Whether no rank ends it before it has heard from all others, directly or through others. Equal on all ranks if their
 * calls are. */
bool coll_call_synchronises(const struct coll_call *call);

#endif
