/*
 * The table of ways: in which order the ways of making a call are tried, which calls each of them serves, and what has
 * to hold of the buffers besides.
 *
 * A call is walked down the table. The first row whose agreed facts hold is tried; a row that has a further condition
 * (of buffers, or of a trial) has the next row that serves as its `instead`. The last row, the plan, serves every call.
 * So all ranks try the same rows in the same order. What is checked when the call is made, all ranks of it conclude
 * alike, from lines that all have read.
 *
 * Nothing else decides what makes a call. bind.c collects the facts; begin.c says of each call whether frames of
 * earlier ones may be on its channels (COLL_CALL_MATCHED), which depends on the calls before it.
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
	uint32_t holds;            /* COLL_CALL_* */
};

/* What may hold of a call. A row names those that it needs. */
enum {
	COLL_CALL_OF_USER = 1 << 0,  /* the user made it, not the library */
	COLL_CALL_EQUAL = 1 << 1,    /* all blocks have one length */
	COLL_CALL_KNOWN = 1 << 2,    /* every rank has all lengths */
	COLL_CALL_MOVES = 1 << 3,    /* there may be something to move */
	COLL_CALL_BUILT_IN = 1 << 4, /* no function of the user combines operands */
	COLL_CALL_MEMORY = 1 << 5,   /* the ranks may share memory on the host: see select/intra.h */
	/* Of ranks with devices: its buffers fit one slot of staging. Not before the plan is made, which says how long
	 * a tile may be. */
	COLL_CALL_FITS_SLOT = 1 << 6,
	COLL_CALL_MATCHED = 1 << 7,     /* no frame that nobody expects may be on the channels of its plan */
	COLL_CALL_FORCED = 1 << 8,      /* COLL_ALGO names its algorithm */
	COLL_CALL_GROUP = 1 << 9,       /* the first call of a group */
	COLL_CALL_GROUP_END = 1 << 10,  /* its last one */
	COLL_CALL_DEVICES = 1 << 11,    /* all ranks map each other's device memory */
	COLL_CALL_ON_DEVICES = 1 << 12, /* devices can reduce so, if it reduces */
	/* Of all rows over memory that ranks share on the host. */
	COLL_CALL_INTRANODE = COLL_CALL_OF_USER | COLL_CALL_EQUAL | COLL_CALL_BUILT_IN | COLL_CALL_MEMORY |
	                      COLL_CALL_FITS_SLOT | COLL_CALL_MATCHED,
};
/* Names of the bits, in their order. */
extern const char *const coll_ways_conditions[];
extern const size_t coll_ways_nconditions;

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
enum coll_ways_instead { COLL_INSTEAD_PLAN, COLL_INSTEAD_NEXT, COLL_INSTEAD_NOTHING };
/* What a row is made by: the engine, an object of the communicator. */
enum coll_ways_by { COLL_BY_PLAN, COLL_BY_INTRA, COLL_BY_DEVICES, COLL_BY_GROUP };

struct coll_ways_row {
	uint8_t way;
	uint32_t kinds; /* a bit for each */
	enum coll_ways_by by;
	uint32_t needs; /* COLL_CALL_* */
	int ranks_min, ranks_max;
	enum coll_ways_cores cores;
	enum coll_ways_buffers buffers;
	enum coll_ways_unit unit;
	bool within;        /* COLL_INTRA_BYTES bounds the payload, too */
	uint32_t copies;    /* values of COLL_SHM_COPY, a bit for each */
	size_t min, max;    /* of the unit */
	const char *limits; /* where the bounds come from: a page of docs/results/experiments/ and its section */
	/* COLL_INSTEAD_PLAN: the plan is run only if the ranks cannot share memory at all, or if the call is not
	 * COLL_CALL_MATCHED. COLL_INSTEAD_NOTHING: no plan is made. */
	enum coll_ways_instead instead;
	struct coll_intra_op op; /* COLL_BY_INTRA: what runs, but for arg */
};
extern const struct coll_ways_row coll_ways[];
extern const size_t coll_ways_count;

/* Whether the agreed facts of a row hold. */
bool coll_ways_serves(const struct coll_ways_row *row, const struct coll_ways_facts *facts);
/* The first row that serves such a call; the next one. The last is the plan's. */
const struct coll_ways_row *coll_ways_first(const struct coll_ways_facts *facts);
const struct coll_ways_row *coll_ways_next(const struct coll_ways_facts *facts, const struct coll_ways_row *row);

/* Whether some row over shared memory serves so many ranks. */
bool coll_ways_share(int size);

/* The operations of an intra object, one for each row. Once, before its first call. */
void coll_ways_bind(struct coll_intra *intra);
/* The facts of a call there, if all holds that rows over its memory need. */
struct coll_ways_facts coll_ways_facts_of(const struct coll_intra *intra, enum coll_kind kind, size_t count,
                                          size_t elem_bytes);
/* What makes the calls of a row COLL_BY_INTRA. */
const struct coll_intra_op *coll_ways_op(const struct coll_intra *intra, const struct coll_ways_row *row);

#endif
