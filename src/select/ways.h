/*
 * The table of ways: in which order the ways of making a call are tried, which calls each of them serves, and what has
 * to hold of the buffers besides.
 *
 * A call is walked down the table. The first row whose agreed facts hold is tried; a row that has a further condition
 * (of buffers, or of a trial) has the next row that serves as its `instead`. The last row, the plan, serves every call.
 * So all ranks try the same rows in the same order. What is checked when the call is made, all ranks of it conclude
 * alike, from lines that all have read.
 */
#ifndef COLL_SELECT_WAYS_H
#define COLL_SELECT_WAYS_H

#include "intra/region.h"

/* Agreed facts of a call: the table reads nothing else. */
struct coll_ways_facts {
	enum coll_kind kind;
	int size;
	bool shared_cores; /* more ranks than cores */
	size_t bytes;      /* of the vector, or of a block; 0: nothing that is made intranode */
	size_t intra_bytes;
	enum coll_intra_copy copy; /* COLL_SHM_COPY */
	bool direct;               /* see coll_mapped_can() */
};

enum coll_ways_cores { COLL_CORES_ANY, COLL_CORES_EACH, COLL_CORES_SHARED };
/* MAPPED: those that the kind needs, by every rank. READABLE: plain, and every rank may read the others' memory.
 * DEVICES: any, but all ranks have devices and map each other's device memory. */
enum coll_ways_buffers {
	COLL_BUFFERS_ANY,
	COLL_BUFFERS_MAPPED,
	COLL_BUFFERS_PLAIN,
	COLL_BUFFERS_READABLE,
	COLL_BUFFERS_DEVICES
};
/* What a row's bytes are of: the vector or a block; all that the rank writes that writes most. Or lines of its entry.
 */
enum coll_ways_unit { COLL_OF_BLOCK, COLL_OF_PAYLOAD, COLL_OF_LINES };
enum coll_ways_instead { COLL_INSTEAD_PLAN, COLL_INSTEAD_NEXT };

struct coll_ways_row {
	uint8_t way;
	uint32_t kinds; /* a bit for each */
	int ranks_min, ranks_max;
	enum coll_ways_cores cores;
	enum coll_ways_buffers buffers;
	enum coll_ways_unit unit;
	bool within;        /* COLL_INTRA_BYTES bounds the payload, too */
	uint32_t copies;    /* values of COLL_SHM_COPY, a bit for each */
	size_t min, max;    /* of the unit */
	const char *limits; /* where the bounds come from: a page of docs/results/experiments/ and its section */
	/* COLL_INSTEAD_PLAN: the plan is run only if the ranks cannot share memory at all. */
	enum coll_ways_instead instead;
	struct coll_intra_op op; /* what runs, but for arg; no poll: the plan */
};
extern const struct coll_ways_row coll_ways[];
extern const size_t coll_ways_count;

/* Whether the agreed facts of a row hold. */
bool coll_ways_serves(const struct coll_ways_row *row, const struct coll_ways_facts *facts);
/* The first row that serves such a call; the next one. The last is the plan's. */
const struct coll_ways_row *coll_ways_first(const struct coll_ways_facts *facts);
const struct coll_ways_row *coll_ways_next(const struct coll_ways_facts *facts, const struct coll_ways_row *row);

/* The operations of an intra object, one for each row. Once, before its first call. */
void coll_ways_bind(struct coll_intra *intra);
/* The facts of a call there. */
struct coll_ways_facts coll_ways_facts_of(const struct coll_intra *intra, enum coll_kind kind, size_t count,
                                          size_t elem_bytes);
/* What makes such a call first; NULL: its plan. */
const struct coll_intra_op *coll_ways_find(struct coll_intra *intra, const struct coll_ways_facts *facts);

#endif
