/*
 * Names of ways: those of record/way.h, and of the rows of the table of algorithms, which src/record may not see.
 */
#ifndef COLL_CORE_WAY_NAME_H
#define COLL_CORE_WAY_NAME_H

#include "record/way.h"

struct coll_algo;

/* Of a row of coll_algos. */
uint8_t coll_way_of_algo(const struct coll_algo *algo);
/* "zero-copy", "ring" ...; "unknown" for what is no way. */
const char *coll_way_name(uint8_t way);
/* What it does, in words; NULL: a plan. */
const char *coll_way_text(uint8_t way);

#endif
