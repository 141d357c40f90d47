/*
 * The table of ways (select/ways.h) in words.
 */
#ifndef COLL_TOOLS_WAYS_TABLE_H
#define COLL_TOOLS_WAYS_TABLE_H

#include <stdio.h>

/* The ways and their rows, as docs/guide/ways.md shows them. */
void coll_ways_table(FILE *to);

#endif
