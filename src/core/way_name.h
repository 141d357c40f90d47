/*
 * The names of ways. Ways are those of record/way.h and the rows of the table of algorithms, which
 * src/record must not include.
 */
#ifndef COLL_CORE_WAY_NAME_H
#define COLL_CORE_WAY_NAME_H

#include "record/way.h"

struct coll_algo;

/* The way of a row of coll_algos. */
uint8_t coll_way_of_algo(const struct coll_algo *algo);
/* "zero-copy", "ring", "staged-ring" ...; "unknown" for a number that is not a way. */
const char *coll_way_name(uint8_t way);
/* A description of the way; NULL: it runs a plan. */
const char *coll_way_text(uint8_t way);

#endif
