/*
 * The ways that a call may go, in words.
 */
#ifndef COLL_SELECT_EXPLAIN_H
#define COLL_SELECT_EXPLAIN_H

#include "select/ways.h"

/* The rows that are tried for such a call, in order, and the condition of each: "zero-copy if all buffers are mapped by
 * every rank; else pair-stream (plain buffers); else ring (no memory can be shared)", cut to len_bytes. plan: what the
 * plan is called. */
void coll_explain_ways(const struct coll_ways_facts *facts, const char *plan, char *buf, size_t len_bytes);

#endif
